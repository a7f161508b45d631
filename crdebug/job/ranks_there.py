"""Wait until all ranks of a job exist, or find out why it ended before that."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from crdebug.acquire.discovery import find_job
from crdebug.acquire.mpir import acquire
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable, StoreError
from crdebug.base.ranks import RankSet
from crdebug.job.directory import JobDirectory, JobRecord, has_ended
from crdebug.job.holds import find_holds, with_shims
from crdebug.job.incarnation import Incarnation
from crdebug.job.starter_events import starter_events
from crdebug.node import file_watch

# Messages of Open MPI's and MPICH's launchers: why they could not start the ranks, with our words
# and a hint for it; and that a rank has ended.
_WHY_NOT_STARTED = (
    (
        "not enough slots",
        "there are more of them than slots",
        "with Open MPI 'mpirun --oversubscribe' starts more ranks than there are processors",
    ),
    (
        r"execvp error|could not access\s+or execute an executable|find the specified executable"
        r"|permissions to execute an executable",
        "the program cannot be run",
        "is it there, and executable? a relative path is looked for where mpirun runs",
    ),
)
_RANK_ENDED = r"process rank \d+ .*exited on signal|non-zero (status|exit code)|BAD TERMINATION"


def why_ended(directory: JobDirectory, record: JobRecord) -> CrdebugError:
    """The error, with the launcher's last words, for a job that ended before its ranks existed."""
    run = directory.run(record.incarnation)
    said = starter_events(run / "events")
    # PRRTE's mpirun complains about its options on its standard output.
    words = _text(run / "stderr") or _text(run / "stdout")
    tail = "\n".join(line for line in words.strip().splitlines()[-30:])
    if said.failure:
        return NotAvailable(f"the job could not be started: {said.failure}")
    if said.status == 0:
        return CrdebugError(
            "the command has ended, and none of its processes was a rank of MPI",
            hint="name a launcher and an MPI program: crdebug run -- mpirun -n 4 PROGRAM",
        )
    status = "" if said.status is None else f" with status {said.status}"
    below = f":\n{tail}" if tail else ""
    for words_of_it, reason, hint in _WHY_NOT_STARTED:
        if re.search(words_of_it, words):
            what = f"the launcher could not start the ranks: {reason}"
            return CrdebugError(f"{what}; it ended{status} ({hint}){below}")
    what = "a rank ended, and so " if re.search(_RANK_ENDED, words) else ""
    return CrdebugError(f"{what}the launcher ended{status} before all ranks were there{below}")


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


async def await_ranks(
    directory: JobDirectory,
    record: JobRecord,
    deadline: Deadline,
    seen: Callable[[], None] = lambda: None,
) -> Incarnation:
    """Wait until all ranks have registered, and can be led into the waitpoint; returns the job,
    with the ranks that have not ended.

    Raises CrdebugError with the launcher's last words if it or the starter ends before that,
    Refused if it ends right then, DeadlineExpired.
    """
    if record.hosts:
        raise NotAvailable(
            "its ranks are on several hosts", hint=f"'crdebug attach {directory.name}' finds them"
        )
    events = directory.run(record.incarnation) / "events"

    async def registered() -> None:
        try:
            follower = file_watch.Follower({events: 0}, (record.pid, record.start))
        except FileNotFoundError:
            raise StoreError(f"{events.parent} is missing") from None
        try:
            async for _ in follower.changes():
                said = starter_events(events)
                if said.status is not None or said.failure:
                    raise why_ended(directory, record)
                if said.ranks is not None:
                    return
            raise why_ended(directory, record)  # somebody has killed it
        finally:
            follower.close()

    await deadline.wait(registered(), "all ranks to start")
    seen()
    try:
        entries = find_job(record.pid).entries if record.adopted else acquire(record.pid)
        holds = find_holds(entries, record.shim, adopted=record.adopted)
    except ProcessLookupError:
        raise has_ended(directory) from None
    for hold in with_shims(holds):
        what, its = "the shim to install its handler", RankSet.of([hold.rank])
        await deadline.until(hold.is_ready, what, ranks=its)
    return Incarnation(directory, record, holds)

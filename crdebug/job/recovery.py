"""Clean up after a crdebug that died in the middle of an operation.

The kernel detaches what that crdebug itself traced, and its GDBs end with their input. It may leave
behind a CRS at work with nobody to answer it, a GDB that is stuck, breakpoints of a killed GDB,
files that were created for a restart that failed, names of files of a CRS that was killed with it,
and drafts.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, StoreError
from crdebug.base.settings import Settings
from crdebug.checkpoint import ghosts
from crdebug.checkpoint.open_files import RollBack
from crdebug.job.directory import BESIDE, JobDirectory, JobRecord
from crdebug.job.holds import Hold, refuse_traced
from crdebug.job.incarnation import Incarnation
from crdebug.job.ranks_there import await_ranks
from crdebug.node import code, container, proc

# Every GDB of ours has sourced this (crdebug.attached.gdbs).
_OUR_SCRIPT = "rank_gdb.py"


async def end_remains(directory: JobDirectory, settings: Settings) -> JobRecord:
    """End processes that do not belong to the job: a CRS at work, and incarnations other than the
    recorded one.

    First lets a restart that had become final finish; returns the record after that. Callers hold
    the job's lock. Raises BadInput, DeadlineExpired, StoreError.
    """

    def at_work() -> tuple[int, ...]:
        return container.crs_at_work(directory.path)

    def crs() -> bool:
        """Is the CRS itself at work? The processes that it has begun to restore do not count: they
        do not end by themselves."""
        return any(_is_outside(pid) for pid in at_work())

    def others() -> tuple[int, ...]:
        return tuple(pid for run in runs for pid in container.containers_of(run))

    # Nobody answers the CRS, so it ends by itself: a tree that it was dumping runs on, and one that
    # it was restoring is ended. Killing it at once would be a risk, see Criu.dump. Its script ends
    # at once, unless it carries out a plan: half of a plan would mean the job's end.
    await Deadline(settings.restore).until(
        lambda: not container.scripts_at_work(directory.path), "the restart under way to end"
    )
    deadline = Deadline(settings.stop)
    with contextlib.suppress(DeadlineExpired):
        await Deadline(deadline.left / 2).until(lambda: not crs(), "the CRS to end")
    await container.end_all(at_work, deadline)
    record = directory.read()
    runs = set(directory.path.glob("run/*")) - {directory.run(record.incarnation)}
    runs |= set(directory.path.glob(f"{BESIDE}/run/*"))
    await container.end_all(others, deadline)
    return record


def _is_outside(pid: int) -> bool:
    try:
        return proc.inner_pid(pid) == pid
    except OSError:
        return False


async def take_over(directory: JobDirectory, settings: Settings) -> Incarnation:
    """Prepare the ranks of a job without a session for attaching.

    Callers hold the job's lock. Raises BadInput, DeadlineExpired, StoreError; Refused if another
    debugger holds one of its ranks.
    """
    record = await recover(directory, settings)
    job = await await_ranks(directory, record, Deadline(settings.attach))
    await let_go(job.holds, settings)
    return job


async def recover(directory: JobDirectory, settings: Settings) -> JobRecord:
    """Undo or complete an interrupted operation; returns the record. Callers hold the job's lock.

    Raises BadInput, DeadlineExpired, StoreError; Refused if another debugger holds one of its
    processes.
    """
    record = await end_remains(directory, settings)
    directory.store.sweep()
    for run in (*directory.path.glob("run/*"), *directory.path.glob(f"{BESIDE}/run/*")):
        with contextlib.suppress(StoreError):
            ghosts.forget(run / "images", container=not record.adopted)
    for run in directory.path.glob("run/*"):
        if run != directory.run(record.incarnation):
            RollBack((), Path(), run / "made").give_up()
    shutil.rmtree(directory.path / BESIDE, ignore_errors=True)
    return record


async def let_go(holds: Sequence[Hold], settings: Settings) -> None:
    """Make sure that no debugger holds the ranks or has left anything in them.

    A GDB of a crdebug that died ends by itself; if it does not, we end it. Raises a Refused that
    names any other debugger.
    """

    def left() -> tuple[int, ...]:
        return tuple({tracer for hold in holds for tracer in _gdbs_of_ours(hold.pid)})

    try:
        await Deadline(settings.stop / 3).until(lambda: not left(), "")
    except DeadlineExpired:
        await container.end_all(left, Deadline(settings.stop))
    for hold in holds:
        with contextlib.suppress(ProcessLookupError):
            refuse_traced(hold.pid, hold.rank)
            code.remove_breakpoints(hold.pid)


def _gdbs_of_ours(pid: int) -> set[int]:
    """Our GDBs that hold a rank."""
    try:
        tracers = {thread.tracer for thread in proc.threads(pid)} - {0}
    except ProcessLookupError:
        return set()
    return {tracer for tracer in tracers if _is_of_ours(tracer)}


def _is_of_ours(tracer: int) -> bool:
    try:
        return any(word.endswith(_OUR_SCRIPT) for word in proc.command_line(tracer))
    except OSError:
        return False

"""A mark on the incarnation while it is taken back in memory: its ranks may be at different times.

They are held then by SIGSTOP (crdebug.debugger.job_snapshot). Should crdebug die, nobody lets them
go on from there: whoever takes up the job brings back a checkpoint in its place. What was recorded
is repeated from there, so that nothing is lost.
"""

from __future__ import annotations

from pathlib import Path

from crdebug.base.errors import Refused, StoreError
from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.store import CheckpointStore
from crdebug.job.directory import JobDirectory, JobRecord

_MARK, _BY_STEPS = "half-back", "back-by-steps"


def begin(run: Path) -> None:
    """Before the first rank is changed. Raises StoreError."""
    _note(run / _MARK)


def _note(mark: Path) -> None:
    try:
        mark.touch(0o600)
    except OSError as error:
        raise StoreError(f"cannot note that the job goes back: {error.strerror}") from None


def done(run: Path) -> None:
    """All ranks are at one time, and the job's output is as it was then."""
    (run / _MARK).unlink(missing_ok=True)


def begin_steps(run: Path) -> None:
    """Before a rank goes over its code again, to find a place: the job's output has each time what
    the rank prints there, until all but one are taken back. Raises StoreError."""
    _note(run / _BY_STEPS)


def steps_done(run: Path) -> None:
    (run / _BY_STEPS).unlink(missing_ok=True)


def is_half_back(directory: JobDirectory, record: JobRecord) -> bool:
    """Are its ranks at different times?"""
    return (directory.run(record.incarnation) / _MARK).exists()


def was_on_its_way(directory: JobDirectory, record: JobRecord) -> bool:
    """Of a job without a session: is it, or its output, half back?"""
    steps = directory.run(record.incarnation) / _BY_STEPS
    return is_half_back(directory, record) or steps.exists()


def refused(job: str, hint: str = "") -> Refused:
    """The error of an operation that would let the job go on from where its ranks are."""
    return Refused(
        f"job '{job}' was on its way back in memory when that broke off; its ranks, or its "
        "output, are at different times",
        hint=hint or f"'crdebug release {job}' or 'crdebug attach {job}' brings back a checkpoint",
    )


def require_whole(directory: JobDirectory, record: JobRecord) -> None:
    """Before a job that nobody attends is kept as it is. Raises Refused."""
    if was_on_its_way(directory, record):
        raise refused(directory.name)


def ways_out(directory: JobDirectory, record: JobRecord) -> list[tuple[CheckpointStore, Manifest]]:
    """The checkpoints of the job's line of history, the latest first. Raises StoreError."""
    found = []
    for store in (directory.store, directory.history):
        for number in store.numbers():
            manifest = store.load(number)
            if manifest.layer and manifest.branch == record.branch:
                found.append((store, manifest))
    return sorted(found, key=lambda each: sum(rank.now for rank in each[1].ranks), reverse=True)


def none_left(job: str) -> Refused:
    """The error if there is no such checkpoint."""
    return refused(job, f"no checkpoint is left to bring back: 'crdebug kill {job}'")

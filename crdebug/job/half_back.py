"""A marker file for an incarnation that goes back in memory: its ranks may be at different moments.

Meanwhile SIGSTOP holds them (crdebug.debugger.job_snapshot). If crdebug dies, nothing may resume
them from there: the next crdebug brings back a checkpoint instead, and the job repeats its record
from there, so nothing is lost.
"""

from __future__ import annotations

from pathlib import Path

from crdebug.base.errors import Refused, StoreError
from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.store import CheckpointStore
from crdebug.job.directory import JobDirectory, JobRecord

_MARK, _BY_STEPS = "half-back", "back-by-steps"


def begin(run: Path) -> None:
    """Set the mark, before the first rank is changed. Raises StoreError."""
    _note(run / _MARK)


def _note(mark: Path) -> None:
    try:
        mark.touch(0o600)
    except OSError as error:
        raise StoreError(f"cannot note that the job goes back: {error.strerror}") from None


def done(run: Path) -> None:
    """Remove the mark: all ranks are at one moment, and the job's output is as it was then."""
    (run / _MARK).unlink(missing_ok=True)


def begin_steps(run: Path) -> None:
    """Set another mark, before a rank runs its code again to find a place: its output appears each
    time in the job's output, until all but one are taken back. Raises StoreError."""
    _note(run / _BY_STEPS)


def steps_done(run: Path) -> None:
    (run / _BY_STEPS).unlink(missing_ok=True)


def is_half_back(directory: JobDirectory, record: JobRecord) -> bool:
    """Are its ranks at different moments of their history?"""
    return (directory.run(record.incarnation) / _MARK).exists()


def was_on_its_way(directory: JobDirectory, record: JobRecord) -> bool:
    """Is a job without a session, or its output, half back?"""
    steps = directory.run(record.incarnation) / _BY_STEPS
    return is_half_back(directory, record) or steps.exists()


def refused(job: str, hint: str = "") -> Refused:
    """The error for an operation that would let the job go on from its ranks' present places."""
    return Refused(
        f"job '{job}' was interrupted while it went back in memory: its ranks, or its output, are "
        "at different times",
        hint=hint or f"'crdebug release {job}' or 'crdebug attach {job}' brings back a checkpoint",
    )


def require_whole(directory: JobDirectory, record: JobRecord) -> None:
    """Raises Refused if a job without a session is half back, before it is kept as it is."""
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
    """The error if `ways_out` finds none."""
    return refused(job, f"no checkpoint is left to bring back: 'crdebug kill {job}'")

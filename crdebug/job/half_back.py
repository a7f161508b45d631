"""A going back in memory that has begun: a mark on the incarnation, as long as its ranks may be at
different times.

They are held then by SIGSTOP (crdebug.target.snapshots). Should crdebug die, nobody lets them go on
from there: whoever takes up the job brings back a checkpoint in its place. What was recorded is
repeated from there, so that nothing is lost.
"""

from __future__ import annotations

from pathlib import Path

from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.store import CheckpointStore
from crdebug.errors import Refused, StoreError
from crdebug.job.record import JobDirectory, JobRecord

_MARK = "half-back"


def begin(run: Path) -> None:
    """Before the first rank is changed. Raises StoreError."""
    try:
        (run / _MARK).touch(0o600)
    except OSError as error:
        raise StoreError(f"cannot note that the job goes back: {error.strerror}") from None


def done(run: Path) -> None:
    """All ranks are at one time, and the job's output is as it was then."""
    (run / _MARK).unlink(missing_ok=True)


def is_half_back(directory: JobDirectory, record: JobRecord) -> bool:
    return (directory.run(record.incarnation) / _MARK).exists()


def refused(job: str, hint: str = "") -> Refused:
    """The error for what would have the job go on from where its ranks are."""
    return Refused(
        f"job '{job}' was on its way back in memory when that broke off, and its ranks are at "
        "different times",
        hint=hint or f"'crdebug release {job}' or 'crdebug attach {job}' brings back a checkpoint",
    )


def require_whole(directory: JobDirectory, record: JobRecord, hint: str = "") -> None:
    """Before something has the job go on, or be kept, as it is. Raises Refused."""
    if is_half_back(directory, record):
        raise refused(directory.name, hint)


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
    """There is no way out."""
    return refused(job, f"no checkpoint is left to bring back: 'crdebug kill {job}'")

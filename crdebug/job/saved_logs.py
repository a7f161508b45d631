"""Save the logs of a job's ranks with a checkpoint, for a place that has no others.

A restart beside the job's own logs goes on with those (crdebug.job.clocks), because they know more.
In an empty home there are none, and the CRS refuses a rank whose log is missing. So each checkpoint
of a job with a second place has the logs, in files `log.RANK`: the size of the log, 8 bytes, and
its content, up to the zeros at its end. We write them while the job is stopped. A rank may be in
the middle of a record, so we keep the bytes after the tail too.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

from crdebug.base.errors import StoreError
from crdebug.base.ranks import RankSet
from crdebug.checkpoint.images import open_files
from crdebug.job import clocks

_INSIDE = "/dev/shm/crdebug/time/"  # CRDEBUG_TIME_DIR of clock.h
_PREFIX = "log."
_LENGTH = 8
_BLOCK = 1 << 16


def size_of(run: Path) -> int:
    """Bytes on the disk of the logs in a run directory."""
    return sum(512 * log.stat().st_blocks for log in clocks.logs(run).glob("*"))


def save(run: Path, to: Path) -> None:
    """Raises StoreError."""
    for log in clocks.logs(run).glob("*"):
        try:
            with open(log, "rb") as source, open(to / (_PREFIX + log.name), "xb") as copy:
                size = os.fstat(source.fileno()).st_size
                copy.write(size.to_bytes(_LENGTH, "little"))
                end = _copy_data(source, copy)
                copy.truncate(_LENGTH + end)
        except OSError as error:
            raise StoreError(f"cannot save {log}: {error.strerror}") from None


def require(images: Path, saved: Path, old: Path) -> None:
    """Raises StoreError if a rank has a log open in the images, and there is none for it."""
    wanted = {Path(each).name for each in open_files(images) if each.startswith(_INSIDE)}
    found = {log.name for log in clocks.logs(old).glob("*")}
    found = found or {path.name.removeprefix(_PREFIX) for path in saved.glob(f"{_PREFIX}*")}
    if missing := wanted - found:
        raise StoreError(
            f"the record of MPI calls of rank {min(missing, key=int)} is missing; "
            "it is in the job's home, and in checkpoints that were taken with --stage",
            ranks=RankSet.of(map(int, missing)),
            hint="restart it in the home where it ran, or from another checkpoint",
        )


def bring_back(saved: Path, old: Path, new: Path) -> None:
    """Give a new run directory the logs of the old one, or if there are none, those of a
    checkpoint.

    Raises StoreError.
    """
    clocks.take_along(old, new)
    if any(clocks.logs(new).iterdir()):
        return
    for path in saved.glob(f"{_PREFIX}*"):
        log = clocks.logs(new) / path.name.removeprefix(_PREFIX)
        try:
            with open(path, "rb") as source, open(log, "xb") as copy:
                size = int.from_bytes(source.read(_LENGTH), "little")
                _copy_data(source, copy)
                copy.truncate(size)
                if log.name.isdigit():
                    clocks.prepare(copy.fileno(), size)
            log.chmod(0o600)
        except OSError as error:
            raise StoreError(f"cannot bring back {log}: {error.strerror}") from None


def _copy_data(source: BinaryIO, copy: BinaryIO) -> int:
    """Copy from the current offsets of both, up to where the source has only zeros; returns the
    length.

    Blocks of zeros become holes; holes of the source are not read (lseek(2), SEEK_DATA).
    """
    start, shift, end = source.tell(), copy.tell() - source.tell(), 0
    size, at = os.fstat(source.fileno()).st_size, start
    while at < size:
        try:
            at = os.lseek(source.fileno(), at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                break
            raise
        source.seek(at)
        data = source.read(_BLOCK - at % _BLOCK)
        if not data:
            break
        if held := len(data.rstrip(b"\0")):
            copy.seek(at + shift)
            copy.write(data)
            end = at - start + held
        at += len(data)
    copy.flush()
    return end

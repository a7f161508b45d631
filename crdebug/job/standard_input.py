"""A job's standard input: a file in its run directory, which only grows.

run/N/input   blocks of bytes, each after its length; an empty block is the end. The starter
              passes them on to the launcher (native/starter/input.c). After a restart it reads on
              from its old position: a checkpoint has the file as it was, because the CRS compares
              its size.
run/N/later   after a restart: the input that the job had been sent after the checkpoint. The job
              gets it again as soon as ranks run, unless other input is sent before.

Appending needs the job's lock, so that nothing is appended while a checkpoint is taken.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import struct
from pathlib import Path
from typing import BinaryIO

from crdebug.base.deadline import FOR_EVER, Deadline
from crdebug.base.errors import BadInput, Refused, StoreError
from crdebug.job.directory import JobDirectory, JobRecord
from crdebug.node import signals

INPUT, LATER = "input", "later"
WAKE = int(signal.SIGIO)  # CRDEBUG_INPUT_SIGNAL of crdebug.h
_LENGTH = struct.Struct("<I")
_BLOCK = 1 << 20
_READ = 1 << 16


# ---- the file --------------------------------------------------------------------------------


def open_source(source: Path | int) -> BinaryIO:
    """A file, or a descriptor, to be read as input. Raises BadInput."""
    try:
        if isinstance(source, int):
            return open(source, "rb", closefd=False)
        # This opens a FIFO at once, with or without a writer (fifo(7)).
        return open(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise BadInput(f"the input {source} cannot be read: {error.strerror}") from None


def begin(run: Path, source: BinaryIO | None, *, more: bool) -> None:
    """Create the input of a job that is about to start. more: more input will be sent later."""
    (run / INPUT).touch(0o600)
    if source is not None:
        while data := source.read(_BLOCK):
            append(run, data)
    if not more:
        append(run, b"")


async def begin_with(run: Path, source: BinaryIO | None, *, more: bool) -> None:
    """The same, beside the event loop, however long the source takes. It can be cancelled."""
    if source is None or not waits(source.fileno()):
        await asyncio.to_thread(begin, run, source, more=more)
        return
    begin(run, None, more=True)
    while data := await _read(source.fileno()):
        append(run, data)
    if not more:
        append(run, b"")


def append(run: Path, data: bytes) -> None:
    """Append to the input; no data means its end. Appends either all or nothing: raises StoreError
    if the disk is full."""
    name = LATER if (run / LATER).exists() else INPUT
    block = _LENGTH.pack(len(data)) + data
    with open(run / name, "ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            while block:
                block = block[file.write(block) :]
        except OSError as error:
            os.ftruncate(file.fileno(), before)
            raise StoreError(f"the job's input cannot be kept: {error.strerror}") from None


def is_over(run: Path) -> bool:
    """Has the end been sent?"""
    return _has_end(run / INPUT) or _has_end(run / LATER)


def _has_end(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
                (length,) = _LENGTH.unpack(head)
                if not length:
                    return True
                file.seek(length, os.SEEK_CUR)
    except FileNotFoundError:
        pass
    return False


def size(run: Path) -> int:
    """The file's size; it shows whether something was sent meanwhile."""
    try:
        return (run / INPUT).stat().st_size
    except FileNotFoundError:  # of a job that has none, see `require`
        return 0


# ---- over a restart ----------------------------------------------------------------------------


def save(run: Path, to: Path) -> None:
    """Save the file with a checkpoint."""
    if (run / INPUT).exists():
        shutil.copyfile(run / INPUT, to / INPUT)


def bring_back(saved: Path, old: Path, new: Path) -> None:
    """Give a new run directory the input of a checkpoint, and the later input of the old one."""
    if not (saved / INPUT).exists():
        return
    shutil.copyfile(saved / INPUT, new / INPUT)
    (new / INPUT).chmod(0o600)  # as the starter made it; the CRS compares
    then = (saved / INPUT).read_bytes()
    known = b"".join((old / each).read_bytes() for each in (INPUT, LATER) if (old / each).exists())
    if known.startswith(then) and len(known) > len(then):
        (new / LATER).write_bytes(known[len(then) :])


def has_later(run: Path) -> bool:
    """Is there later input that has not been given again yet?"""
    return (run / LATER).exists()


def drop_later(run: Path) -> None:
    (run / LATER).unlink(missing_ok=True)


def give_again(run: Path, pid: int) -> None:
    """Give the later input again to the job with this starter."""
    if has_later(run):
        with open(run / INPUT, "ab", buffering=0) as file:
            file.write((run / LATER).read_bytes())
        drop_later(run)
        signals.kill(pid, None, WAKE)


def copy(run: Path, to: Path) -> None:
    """Copy the input, for a branch of history that the job leaves."""
    for name in (INPUT, LATER):
        if (run / name).exists():
            shutil.copyfile(run / name, to / name)


def replace(run: Path, by: Path, keep: Path) -> None:
    """Replace the input of a run directory with that of another, and move the old one to `keep`.
    Files are moved: the starter reads on in the one that it has open."""
    for name in (INPUT, LATER):
        for there, to in ((run, keep), (by, run)):
            (to / name).unlink(missing_ok=True)
            if (there / name).exists():
                os.link(there / name, to / name)


# ---- sending -----------------------------------------------------------------------------------


def require(record: JobRecord, run: Path) -> None:
    """Raises Refused if nothing can be sent to the job."""
    if record.adopted or not (run / INPUT).exists():
        raise Refused("the job's standard input is not crdebug's: it did not start the job")
    if is_over(run):
        raise Refused(
            "the end of the job's standard input was sent already",
            hint="'info launch' says what it reads; without --stdin it takes what is sent",
        )


async def send(directory: JobDirectory, data: bytes, deadline: Deadline) -> None:
    """Append to the input of a running job; no data means its end. Raises Refused."""
    async with directory.lock_within("send it input", deadline):
        record = directory.read()
        run = directory.run(record.incarnation)
        require(record, run)
        for at in range(0, max(len(data), 1), _BLOCK):
            append(run, data[at : at + _BLOCK])
        signals.kill(record.pid, record.start, WAKE)


def waits(source: int) -> bool:
    """May reading from a descriptor take long? It does not for a file, nor for /dev/null."""
    mode = os.fstat(source).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(source)


async def relay(directory: JobDirectory, source: int) -> None:
    """Send everything that comes from a pipe, a socket or a terminal, until its end or until the
    job takes no more."""
    data = b"-"
    while data:
        data = await _read(source)
        try:
            await send(directory, data, Deadline(FOR_EVER))
        except (BadInput, Refused):
            return


async def _read(source: int) -> bytes:
    """The next data; none at the end."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(source, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(source)
    return os.read(source, _READ)

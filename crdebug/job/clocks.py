"""The clocks of a job's ranks, read and set from outside (native/recorder/clock.h), and their logs.

A rank's clock counts half ticks in its private memory; its log is a file in the incarnation's run
directory, outside of all checkpoints. The logs of one line of history are the same files in each
incarnation's directory (hard links): a job replays after a restart what it recorded before.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol

from crdebug.acquire.symbols import find_symbols
from crdebug.base.errors import NotAvailable, Refused
from crdebug.base.instant import BEGINNING, Instant
from crdebug.base.ranks import RankSet
from crdebug.job.holds import Hold
from crdebug.native.matcher.library import Library
from crdebug.native.recorder import clock as layout
from crdebug.native.recorder.clock import NEVER, Clock, Enforce, Held, Last, Request
from crdebug.node import owners, proc
from crdebug.timeline.log import has_begun, read_log

__all__ = [
    "NEVER",
    "RankClock",
    "copy",
    "cut",
    "find",
    "logs",
    "make_room",
    "of_ranks",
    "replace",
    "take_along",
]


_ADDRESS = struct.Struct("<Q")
_MOST_REQUESTS = 1 << 20


class ClockView(Protocol):
    """What can be read of a rank's clock and process, wherever the rank is."""

    @property
    def rank(self) -> int: ...

    def read(self) -> Clock:
        """Raises ProcessLookupError when the rank is gone, or has become another program."""
        ...

    def requests(self) -> tuple[Request, ...]:
        """The requests that the program holds, in the order of being made. It must stand still.
        Raises ProcessLookupError like `read`, NotAvailable if they cannot be followed."""
        ...

    @property
    def is_zombie(self) -> bool:
        """Has it ended, and nobody has waited for it?"""
        ...

    @property
    def stopped_by(self) -> str:
        """What has stopped it: "by a signal", "by a debugger", or ""."""
        ...

    @property
    def sleeps(self) -> bool:
        """Do all its threads sleep?"""
        ...

    def worked(self) -> int:
        """Its processor time, in clock ticks. Raises ProcessLookupError."""
        ...

    @property
    def reads_input(self) -> bool:
        """Does it wait for standard input?"""
        ...


class SetsClock:
    """What can be set in a rank's clock. All of it raises ProcessLookupError if it is known that
    the rank is gone."""

    __slots__ = ()

    def _write(self, offset: int, data: bytes) -> None:
        raise NotImplementedError

    def look_at(self, address: int, size: int) -> None:
        """Compare these bytes at the beginning and end of calls: see `Clock.looked_changed`."""
        raise NotImplementedError

    def set_stop(self, stop: Instant) -> None:
        """Make the rank hold before its clock moves on from this value."""
        self._write(layout.STOP_OFFSET, stop.to_bytes(8, "little"))

    def look_no_more(self) -> None:
        self._write(layout.LOOK_OFFSET, bytes(layout.LOOK_SIZE))

    def choose(self, source: int) -> None:
        """The next receive or probe that leaves its sender open, and is not on record, takes its
        message from this rank of its communicator."""
        self._write(layout.CHOICE_OFFSET, (source + 1).to_bytes(4, "little"))

    def wipe_stack(self, wipes: bool) -> None:
        """Have the layer overwrite what calls leave on the stack, when they return; or not."""
        self._write(layout.WIPES_OFFSET, int(wipes).to_bytes(4, "little"))

    def set_enforce(self, enforce: Enforce) -> None:
        """Make the rank repeat its record, or make a new one; see Enforce."""
        self._write(layout.ENFORCE_OFFSET, int(enforce).to_bytes(4, "little"))

    def wait_before_finalize(self, last: Last) -> None:
        """Make the rank wait before MPI_Finalize, or go on; see Last."""
        self._write(layout.LAST_OFFSET, int(last).to_bytes(4, "little"))

    def go_another_way(self) -> None:
        """Make a rank forget its record if it holds because its call is not the recorded one."""
        self._write(layout.DIVERGED_OFFSET, bytes(4))


class ClockHandle(ClockView, Protocol):
    """A rank's clock, wherever the rank is: what can be read, and see SetsClock.

    address: in the rank's memory.  hold: the address of the function that holds the rank."""

    @property
    def address(self) -> int: ...
    @property
    def hold(self) -> int: ...
    def set_stop(self, stop: Instant) -> None: ...
    def look_at(self, address: int, size: int) -> None: ...
    def look_no_more(self) -> None: ...
    def choose(self, source: int) -> None: ...
    def wipe_stack(self, wipes: bool) -> None: ...
    def set_enforce(self, enforce: Enforce) -> None: ...
    def wait_before_finalize(self, last: Last) -> None: ...
    def go_another_way(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RankClock(SetsClock):
    """A rank's clock, with its address. hold: the address of the function that holds the rank."""

    rank: int
    pid: int
    address: int
    hold: int

    def read(self) -> Clock:
        return Clock.parse(self.data())

    def data(self) -> bytes:
        """The bytes of it. Raises like `read`."""
        try:
            data = proc.read_memory(self.pid, self.address, layout.SIZE)
        except OSError as error:
            raise self._what_it_means(error) from None
        if len(data) < layout.SIZE:  # a process that ends has its memory no longer
            raise self._what_it_means(ProcessLookupError())
        return data

    @property
    def is_zombie(self) -> bool:
        return proc.is_zombie(self.pid)

    @property
    def stopped_by(self) -> str:
        try:
            (first, *_) = proc.threads(self.pid)
        except (ProcessLookupError, ValueError):
            return ""
        return {"T": "by a signal", "t": "by a debugger"}.get(first.state, "")

    @property
    def sleeps(self) -> bool:
        try:
            return all(thread.state in "SD" for thread in proc.threads(self.pid))
        except ProcessLookupError:
            return False

    def worked(self) -> int:
        return proc.processor_time(self.pid)

    @property
    def reads_input(self) -> bool:
        return proc.reads_input(self.pid)

    def requests(self) -> tuple[Request, ...]:
        return in_order(self.held_requests())

    def held_requests(self) -> tuple[bytes, ...]:
        """The bytes of each request that the program holds. Raises like `requests`."""
        try:
            return tuple(self._requests())
        except OSError as error:
            raise self._what_it_means(error) from None

    def _requests(self) -> Iterator[bytes]:
        (table,) = _ADDRESS.unpack(self._memory(self.address + layout.REQUESTS_OFFSET, 8))
        left = _MOST_REQUESTS
        for (at,) in _ADDRESS.iter_unpack(
            self._memory(table, 8 * layout.BUCKETS) if table else b""
        ):
            while at:
                yield (data := self._memory(at, layout.REQUEST.size))
                at, left = Request.parse(data).following, left - 1
                if not left:
                    raise NotAvailable(
                        f"rank {self.rank} holds more than {_MOST_REQUESTS} requests"
                    )

    def _memory(self, address: int, size: int) -> bytes:
        data = proc.read_memory(self.pid, address, size)
        if len(data) < size:
            raise ProcessLookupError
        return data

    def look_at(self, address: int, size: int) -> None:
        try:
            seen = proc.read_memory(self.pid, address, size)
        except OSError:
            seen = None
        self._write(layout.LOOK_OFFSET, layout.look(address, size, seen))

    def write(self, offset: int, data: bytes) -> None:
        """Raises ProcessLookupError."""
        self._write(offset, data)

    def _write(self, offset: int, data: bytes) -> None:
        try:
            proc.write_memory(self.pid, self.address + offset, data)
        except OSError as error:
            raise self._what_it_means(error) from None

    def _what_it_means(self, error: OSError) -> OSError:
        if isinstance(error, ProcessLookupError):
            return gone(self.rank)
        if error.errno != errno.EIO:  # nothing is mapped there
            return error
        return another_program(self.rank)


class RankGone(Refused, ProcessLookupError):
    """The rank has ended, by itself or because it was killed."""


class AnotherProgram(RankGone):
    """The rank's process exists, but has become another program (execve(2))."""


def gone(rank: int) -> RankGone:
    hint = "'restart N' goes to a checkpoint from before that"
    return RankGone("it has ended", ranks=RankSet.of([rank]), hint=hint)


def another_program(rank: int) -> AnotherProgram:
    return AnotherProgram(
        "it becomes another program there, and crdebug cannot go back past that",
        ranks=RankSet.of([rank]),
        hint="'restart N' goes back to a checkpoint",
    )


def in_order(requests: Iterable[bytes]) -> tuple[Request, ...]:
    """Requests from their bytes, in the order of being made."""
    return tuple(sorted(map(Request.parse, requests), key=lambda each: each.tick))


def find(holds: Iterable[Hold], layer: str) -> tuple[RankClock, ...]:
    """The clocks of these ranks; none if their MPI calls are not counted (no layer). A rank that is
    gone has one, too; reading that raises an error."""
    found = []
    for hold in holds if layer else ():
        try:
            clock = find_one(hold.rank, hold.pid, layer)
        except ProcessLookupError:
            clock = RankClock(hold.rank, hold.pid, 0, 0)
        found += [clock] if clock is not None else []
    return tuple(found)


def find_one(rank: int, pid: int, layer: str) -> RankClock | None:
    """The clock of one rank; None if its MPI calls are not counted. Raises ProcessLookupError."""
    names = (layout.SYMBOL, layout.HOLD_FUNCTION)
    symbols = find_symbols(pid, names, in_file=lambda path: path == layer)
    if len(symbols) < len(names):
        return None
    return RankClock(rank, pid, *(symbols[name] for name in names))


# A rank that has ended, or whose clock cannot be read, is left out.
_if_it_is_there = contextlib.suppress(ProcessLookupError, NotAvailable)


def held(holds: Iterable[Hold], layer: str) -> RankSet:
    """The ranks that hold in the past. Without a debugger nothing resumes them."""
    found = []
    for clock in find(holds, layer):
        with _if_it_is_there:
            if clock.read().held:
                found.append(clock.rank)
    return RankSet.of(found)


def leaving(clocks: Iterable[ClockHandle]) -> frozenset[int]:
    """The ranks that are held just before they leave a call whose work is done."""
    found = set()
    for clock in clocks:
        with _if_it_is_there:
            state = clock.read()
            if state.now.inside and state.held is Held.AT_STOP:
                found.add(clock.rank)
    return frozenset(found)


def diverges(holds: Iterable[Hold], layer: str) -> bool:
    """Is a rank held because its call is not the recorded one?"""
    for clock in find(holds, layer):
        with _if_it_is_there:
            if clock.read().diverged:
                return True
    return False


LEFT_THE_RECORD = "they leave the recorded course; the rest of the record was deleted"


def let_go(holds: Iterable[Hold], layer: str, *, another: bool = False) -> bool:
    """Let all ranks run on, including those held in the past: from now on there is no debugger to
    resume them. See let_all_go."""
    return let_all_go(find(holds, layer), another=another)


def let_all_go(found: Sequence[ClockHandle], *, another: bool = False) -> bool:
    """The same of the ranks with these clocks.

    another: does a rank leave the record that is not among them? Returns whether one does: it was
    held because its call was not the recorded one. From there on the record is wrong, so all ranks
    that repeat it stop doing so.
    """
    states = {}
    for clock in found:
        with _if_it_is_there:
            states[clock.rank] = clock.read()
    another = another or any(state.diverged for state in states.values())
    for clock in found:
        state = states.get(clock.rank)
        with _if_it_is_there:
            clock.wait_before_finalize(Last.GOES)
            clock.set_stop(NEVER)
            if another and state is not None and state.replaying and not state.diverged:
                clock.set_enforce(Enforce.BRANCH)
    for clock in found:
        with _if_it_is_there:
            if another and clock.read().diverged:
                clock.go_another_way()
    return another


def make_room(run: Path) -> None:
    """Create the directory for logs, which makes the ranks of an incarnation record."""
    logs(run).mkdir(mode=0o700)


def logs(run: Path) -> Path:
    """The directory of an incarnation's logs; the files are named by rank."""
    return run / "time"


def of_ranks(run: Path) -> Iterator[Path]:
    """The logs. (The directory also has a file with the calls that are kept of a dropped part.)

    Raises FileNotFoundError, when the first is asked for, if the job is not recorded."""
    yield from in_directory(logs(run))


def in_directory(directory: Path) -> Iterator[Path]:
    """The same of a directory of logs."""
    # From Python 3.13 on, iterdir() looks at once.
    yield from (path for path in directory.iterdir() if path.name.isdigit())


def cut(clock: RankClock, log: Path, library: Library) -> None:
    """Forget the record after the place of a stopped rank. This process, or one brought back from
    earlier, records again from there. library: reads the log.

    Raises ProcessLookupError if the rank is gone.
    """
    if not has_begun(log):
        return
    state = clock.read()
    with open(log, "r+b", buffering=0) as file:
        header = layout.LogHeader.parse(file.read(layout.LOG_SIZE))
        begun, last = False, header.offset(state.cursor - 1)
        if state.repeat:  # in a run of calls that said no, which is one record
            head, body = layout.RECORD.unpack(_read(file, last))
            begun = head >> 32 != state.repeat
            head = head & 0xFFFFFFFF | state.repeat << 32
            _write(file, last, layout.RECORD.pack(head, body))
        if state.cursor >= header.tail and not begun:
            return
        _write(file, header.offset(state.cursor), layout.RECORD.pack(*layout.CUT_HERE))
        _write(file, layout.TAIL_OFFSET, (state.cursor + 1).to_bytes(8, "little"))
        _write(file, layout.REFUSED_OFFSET, bytes(4))
        _write(file, layout.CUTS_OFFSET, (header.cuts + 1).to_bytes(4, "little"))
        known = read_log(log, library)
        now = known.calls[-1].returned if known.calls else known.first_now
        _write(file, layout.TAIL_OFFSET + 8, now.to_bytes(8, "little"))


def _read(file: FileIO, place: int) -> bytes:
    return os.pread(file.fileno(), layout.RECORD.size, place)


def _write(file: FileIO, place: int, data: bytes) -> None:
    os.pwrite(file.fileno(), data, place)


def end(log: Path) -> Instant:
    """The clock of a rank that has ended; the beginning if it has no log."""
    try:
        with open(log, "rb", buffering=0) as file:
            return layout.LogHeader.parse(os.pread(file.fileno(), layout.LOG_SIZE, 0)).tail_now
    except (FileNotFoundError, NotAvailable):
        return BEGINNING


def replace(run: Path, by: Path, keep: Path) -> None:
    """Replace the logs of a run directory with those of another, and move the old ones to `keep`.
    They are moved as files: a process that has one mapped goes on with it."""
    shutil.rmtree(keep, ignore_errors=True)
    owners.make_private(keep)
    take_along(run, keep)
    for log in logs(run).iterdir():
        log.unlink()
    for log in logs(by).iterdir():
        os.link(log, logs(run) / log.name)


def overwrite(run: Path, by: Path) -> None:
    """Give the logs of a run directory the content of others. They stay the same files, for ranks
    that have them mapped, which must be stopped."""
    for log in logs(run).iterdir():
        source = logs(by) / log.name
        if not source.exists():
            log.unlink()
            continue
        with open(log, "r+b", buffering=0) as file:
            os.truncate(file.fileno(), 0)
            _fill_sparse(source, file)
    for source in logs(by).iterdir():
        if not (logs(run) / source.name).exists():
            _copy_sparse(source, logs(run) / source.name)


def take_along(old: Path, new: Path) -> None:
    """Give another incarnation the logs of the one that it replaces: the same files."""
    make_room(new)
    for log in logs(old).glob("*"):
        os.link(log, logs(new) / log.name)


def copy(old: Path, new: Path) -> None:
    """Give another incarnation copies of the logs as they are now, for a branch."""
    make_room(new)
    for log in logs(old).glob("*"):
        _copy_sparse(log, logs(new) / log.name)


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy a file, keeping its holes (lseek(2), SEEK_DATA)."""
    with open(target, "xb", buffering=0) as new:
        _fill_sparse(source, new)
    shutil.copymode(source, target)


def _fill_sparse(source: Path, new: FileIO) -> None:
    """The same into an open and empty file."""
    with open(source, "rb") as old:
        size = os.fstat(old.fileno()).st_size
        os.truncate(new.fileno(), size)
        place = 0
        while place < size:
            try:
                place = os.lseek(old.fileno(), place, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing but a hole to the end
                break
            end = os.lseek(old.fileno(), place, os.SEEK_HOLE)
            while place < end:
                sent = os.copy_file_range(old.fileno(), new.fileno(), end - place, place, place)
                place += sent
        if source.name.isdigit():
            prepare(new.fileno(), size)


def prepare(log: int, size: int) -> None:
    """Make a copied log of this size safe to write to on a full disk: the space allocated for
    further records may be a hole in the copy."""
    if size >= layout.LOG_HEADER:
        os.posix_fallocate(log, 0, layout.LOG_HEADER)  # written to by the recorder
        os.pwrite(log, bytes(8), layout.ROOM_OFFSET)

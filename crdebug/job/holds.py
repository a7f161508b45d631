"""Hold the threads of a job's ranks while no debugger does, for a dump."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from crdebug.acquire.mpir import ProcDesc
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable, Refused
from crdebug.base.ranks import RankSet
from crdebug.job.waitpoint import WaitpointHold
from crdebug.node import proc, signals


class Hold(Protocol):
    """A rank with a way to hold its threads: a waitpoint (WaitpointHold) or SIGSTOP (SigstopHold).

    has_shim: such a rank keeps its signals in the image, undoes EINTR, and may make requests of
    crdebug; its GDB can lend it. A rank without a shim is detached from its GDB, with its threads
    before their system calls, and cannot be held without a debugger's help.

    All methods raise ProcessLookupError if the rank is gone.
    """

    @property
    def entry(self) -> ProcDesc: ...
    @property
    def rank(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def has_shim(self) -> bool: ...

    def is_elsewhere(self) -> bool:
        """Has the process become another program (execve(2)) since? Not if it is gone."""
        ...

    def refuse_obstacles(self) -> None:
        """Raises Refused if its threads cannot be held now."""
        ...

    def refuse_without_stack(self) -> None:
        """Raises Refused if a thread has no stack left on which it could be held."""
        ...

    def close(self, calls: Mapping[int, int], held: Mapping[int, int]) -> tuple[proc.Thread, ...]:
        """Prepare to hold the threads that `lead_in` brings. Returns those that block the signal,
        which must be unblocked first. For the arguments see WaitpointHold.close_gate."""
        ...

    def lead_in(self) -> None:
        """Bring all threads in, as soon as they run."""
        ...

    def call_off(self, blockers: Sequence[proc.Thread]) -> None:
        """Undo `close` and `lead_in`. blockers: the threads that `close` returned."""
        ...

    def waiting(self) -> int:
        """How many threads it holds."""
        ...

    def inside(self) -> frozenset[int]:
        """The threads that are in the waitpoint, by TID as numbered in the job."""
        ...

    def expected(self) -> tuple[proc.Thread, ...]:
        """The threads that have yet to come in."""
        ...

    def missing(self) -> tuple[proc.Thread, ...]:
        """The threads that are not held."""
        ...

    def open(self) -> None:
        """Stop holding threads."""
        ...

    async def release(self, deadline: Deadline) -> int:
        """Let all threads go on by themselves; returns how many there were.

        Raises PermissionError if something traces the rank, DeadlineExpired.
        """
        ...


@dataclass(frozen=True, slots=True)
class SigstopHold:
    """`Hold` by SIGSTOP, of a rank that cannot get a shim.

    Its threads stop where they are. A system call that the CRS interrupts, and that the kernel does
    not restart, ends with EINTR unless a debugger undoes that.
    """

    entry: ProcDesc
    has_shim: ClassVar[bool] = False

    @property
    def rank(self) -> int:
        return self.entry.rank

    @property
    def pid(self) -> int:
        return self.entry.pid

    def is_elsewhere(self) -> bool:
        return False

    def refuse_obstacles(self) -> None:
        """Nothing can block SIGSTOP."""

    def refuse_without_stack(self) -> None:
        """SIGSTOP needs none."""

    def close(self, calls: Mapping[int, int], held: Mapping[int, int]) -> tuple[proc.Thread, ...]:
        return ()  # no thread can block SIGSTOP

    def lead_in(self) -> None:
        signals.kill(self.pid, None, signals.STOP)

    def call_off(self, blockers: Sequence[proc.Thread]) -> None:
        self.open()

    def waiting(self) -> int:
        return sum(thread.state == "T" for thread in proc.threads(self.pid))

    def inside(self) -> frozenset[int]:
        return frozenset()

    def expected(self) -> tuple[proc.Thread, ...]:
        return ()

    def missing(self) -> tuple[proc.Thread, ...]:
        return tuple(each for each in proc.threads(self.pid) if each.state not in "TZX")

    def open(self) -> None:
        signals.kill(self.pid, None, signals.CONT)

    async def release(self, deadline: Deadline) -> int:
        waiting = self.waiting()
        self.open()
        return waiting


async def await_held(hold: Hold, deadline: Deadline) -> None:
    """Wait until every thread is held and nothing traces the rank.

    Raises a DeadlineExpired that names the threads; ProcessLookupError if the rank is gone.
    """
    try:
        await deadline.until(lambda: not hold.missing(), "")
    except CrdebugError:
        names = ", ".join(f"{thread.tid} ({thread.name})" for thread in hold.missing())
        raise deadline.expired(
            f"threads to come to the waitpoint: {names}", ranks=RankSet.of([hold.rank])
        ) from None
    refuse_traced(hold.pid, hold.rank)


def has_ended(pid: int) -> bool:
    """Has a process ended? True also for one that was killed but not reaped: its memory can no
    longer be read."""
    return not proc.is_alive(pid) or proc.is_ending(pid) or proc.is_killed(pid)


@contextlib.contextmanager
def naming_the_ended(holds: Sequence[Hold]) -> Iterator[None]:
    """If ranks have ended, an error in the block is due to that: raise one that says so instead."""
    try:
        yield
    except (CrdebugError, OSError) as error:
        told, ranks = who_ended(holds)
        if not ranks:
            raise
        raise CrdebugError(told, ranks=ranks) from error


def who_ended(holds: Sequence[Hold]) -> tuple[str, RankSet]:
    """The ranks that have ended, in words and as a set. (If one was killed, the launcher may have
    ended the others.)"""
    ended = [hold for hold in holds if has_ended(hold.pid)]
    pids = ", ".join(str(hold.pid) for hold in ended)
    told = f"process {pids} has ended" if len(ended) == 1 else f"processes {pids} have ended"
    return told, RankSet.of(hold.rank for hold in ended)


def refuse_traced(pid: int, rank: int) -> None:
    """Raises Refused if any debugger traces a thread of the rank."""
    tracers = {thread.tracer for thread in proc.threads(pid)} - {0}
    if tracers:
        raise Refused(
            f"process {min(tracers)} traces it",
            ranks=RankSet.of([rank]),
            hint="detach that debugger first",
        )


def find_holds(
    entries: Iterable[ProcDesc], shim: str, *, adopted: bool = False
) -> tuple[Hold, ...]:
    """The ranks' holds; none for a rank that is about to end.

    shim: its file.
    adopted: the shim was loaded into a running job, as far as possible.
    """
    found = []
    for entry in entries:
        try:
            found.append(find_hold(entry, shim, adopted=adopted))
        except (NotAvailable, ProcessLookupError):
            if not has_ended(entry.pid):
                raise
    return tuple(found)


def find_hold(entry: ProcDesc, shim: str, *, adopted: bool = False) -> Hold:
    try:
        return WaitpointHold.find(entry, shim)
    except NotAvailable:
        if not adopted:
            raise
        return SigstopHold(entry)


def with_shims(holds: Iterable[Hold]) -> tuple[WaitpointHold, ...]:
    """The holds that have a shim."""
    return tuple(hold for hold in holds if isinstance(hold, WaitpointHold))


def hold_of(holds: Iterable[Hold], rank: int) -> Hold:
    """The hold of one living rank."""
    return next(hold for hold in holds if hold.rank == rank)

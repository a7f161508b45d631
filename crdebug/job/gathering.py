"""The ranks of a job over hosts that have begun on this host: they are registered nowhere."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from signal import SIGCONT

from crdebug.acquire.discovery import VARIABLES, rank_in
from crdebug.acquire.mpir import ProcDesc
from crdebug.base.errors import NotAvailable
from crdebug.base.ranks import RankSet
from crdebug.job import clocks
from crdebug.job.waitpoint import WaitpointHold
from crdebug.node import bare, proc, signals


@dataclass(frozen=True, slots=True)
class Gathered:
    """entries: the ranks here.  size: how many the job has on all hosts; 0: no rank knows it."""

    entries: tuple[ProcDesc, ...]
    size: int


def gather(mark: str, shim: str, host: str) -> Gathered:
    """mark: the job's, see crdebug.node.bare.  host: this one's name for the user.

    Of several processes that say that they are one rank (MPI_Comm_spawn starts such), the eldest
    is."""
    found: dict[int, tuple[int, ProcDesc]] = {}
    size = 0
    for pid in bare.processes_of(mark):
        try:
            environment = proc.environment(pid)
            told = rank_in(environment)
            if told is None:
                continue
            entry = ProcDesc(told[1], host, proc.executable(pid), pid)
            if WaitpointHold.find(entry, shim).is_elsewhere():
                continue  # it is the rank's shell, say, or has not begun yet
            age = proc.started(pid)
        except (NotAvailable, OSError):  # it has not begun yet, or has just ended
            continue
        size = max(size, _size_in(environment))
        if entry.rank not in found or age < found[entry.rank][0]:
            found[entry.rank] = age, entry
    return Gathered(tuple(found[rank][1] for rank in sorted(found)), size)


def _size_in(environment: Mapping[str, str]) -> int:
    told = [environment.get(size, "") for _, size in VARIABLES]
    return max((int(each) for each in told if each.isdecimal()), default=0)


def set_gate(entry: ProcDesc, shim: str, value: int) -> None:
    """Open or close the gate of a rank that waits before its main. Raises ProcessLookupError."""
    WaitpointHold.find(entry, shim).set_gate(value)


def diverges(mark: str, shim: str, layer: str) -> bool:
    """Does a rank here wait because its call is not the recorded one? layer: see job.clocks."""
    return clocks.diverges(_holds(mark, shim), layer)


async def let_go(mark: str, shim: str, layer: str, *, another: bool) -> RankSet:
    """Let the ranks here run on without a debugger: those that wait before their main, that hold in
    the past, and that SIGSTOP has stopped. Returns these. another: does a rank on any host diverge?
    Then all of them leave the record."""
    holds = _holds(mark, shim)
    let = {*clocks.held(holds, layer)}
    clocks.let_go(holds, layer, another=another)
    for hold in holds:
        with contextlib.suppress(ProcessLookupError):
            stopped = proc.is_stopped(hold.pid)
            if waits := hold.waiting() > 0:
                await hold.let_begin()
            if stopped:
                signals.kill(hold.pid, None, SIGCONT)
            if waits or stopped:
                let.add(hold.rank)
    return RankSet.of(let)


def _holds(mark: str, shim: str) -> list[WaitpointHold]:
    found = []
    for entry in gather(mark, shim, "").entries:
        with contextlib.suppress(NotAvailable, ProcessLookupError):
            found.append(WaitpointHold.find(entry, shim))
    return found

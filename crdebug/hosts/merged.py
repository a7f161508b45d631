"""The same about many ranks of a host as one: how they are, how they stopped, what happened.

Ranks of one program differ in numbers only: their processes, the addresses of their places, their
clocks. These travel as columns, one value for each rank in their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from crdebug.base.events import GdbSays, Location, RankRunning, RankStopped
from crdebug.base.ranks import RankSet
from crdebug.debugger.target import (
    BreakpointChanged,
    BreakpointGone,
    DebuggerDied,
    Notice,
    TargetState,
)
from crdebug.job.far_clocks import ClockLook

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_NOBODY = -1  # the rank of what is said of many
_NO_PID = -1
# Notices of one rank, besides its stops.
_WITH_RANK = (RankRunning, GdbSays, BreakpointChanged, BreakpointGone, DebuggerDied)


@dataclass(frozen=True, slots=True)
class Mirror:
    """What crdebug knows of a rank without asking. It comes before everything that follows from
    it: a stop's notice, an answer.

    kept: the names of its snapshots.
    clock: its bytes, if the rank stands and its calls are recorded, as of this look.
    """

    rank: int
    state: TargetState
    pid: int | None
    gdb_pid: int
    dead: bool
    lent: bool
    last_stop: RankStopped | None
    kept: tuple[str, ...] = ()
    clock: bytes = b""
    look: ClockLook = field(default_factory=ClockLook)


@dataclass(frozen=True, slots=True)
class Stops:
    """Stops that are equal but for the rank and the address. stop: without both."""

    ranks: RankSet
    stop: RankStopped
    addresses: array[int]

    def __post_init__(self) -> None:
        _require_columns(self.ranks, self.addresses)
        if not _is_stop(self.stop):
            raise ValueError("this is no stop")


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Ranks that are alike. common: what they have in common.  clocks: one after the other."""

    ranks: RankSet
    common: Mirror
    pids: array[int]
    gdb_pids: array[int]
    addresses: array[int]
    clocks: bytes

    def __post_init__(self) -> None:
        _require_columns(self.ranks, self.pids, self.gdb_pids, self.addresses)
        if len(self.clocks) % len(self.ranks):
            raise ValueError("clocks of different sizes")
        stop = self.common.last_stop
        if not isinstance(self.common.state, TargetState) or not (stop is None or _is_stop(stop)):
            raise ValueError("this is no state of a rank")


@dataclass(frozen=True, slots=True)
class Told:
    """A notice of each of these targets. notice: without the rank, and without the address of a
    stop."""

    ranks: RankSet
    notice: Notice
    addresses: array[int]

    def __post_init__(self) -> None:
        _require_columns(self.ranks, self.addresses)
        if not (_is_stop(self.notice) or isinstance(self.notice, _WITH_RANK)):
            raise ValueError("no target tells this")


def _is_stop(value: object) -> bool:
    return isinstance(value, RankStopped) and isinstance(value.location, Location | None)


def _require_columns(ranks: RankSet, *columns: array[int]) -> None:
    """Raises ValueError: what comes from a host may be anything."""
    if not ranks or any(len(column) != len(ranks) for column in columns):
        raise ValueError("not one value for each rank")


# ---- stops --------------------------------------------------------------------------------------


def stops(each: Iterable[RankStopped]) -> tuple[Stops, ...]:
    """each: in the order of their ranks, as for the others."""
    members = _classes(each, _without_address)
    return tuple(
        Stops(RankSet.of(stop.rank for stop in some), common, _addresses(some))
        for common, some in members
    )


def stops_apart(merged: Iterable[Stops]) -> Iterator[RankStopped]:
    for each in merged:
        for rank, address in zip(each.ranks, each.addresses, strict=True):
            yield _with_address(each.stop, rank, address)


def _without_address(stop: RankStopped) -> RankStopped:
    return _with_address(stop, _NOBODY, 0)


def _with_address(stop: RankStopped, rank: int, address: int) -> RankStopped:
    # dataclasses.replace takes four times as long, and there may be ten thousand of them.
    at = stop.location
    if at is not None:
        at = Location(address, at.function, at.file, at.line, at.path, at.library)
    return RankStopped(rank, stop.reason, stop.detail, stop.thread, at, stop.note)


def _addresses(some: Iterable[RankStopped | None]) -> array[int]:
    return array("Q", (each.location.address if each and each.location else 0 for each in some))


# ---- mirrors ------------------------------------------------------------------------------------


def mirrors(each: Iterable[Mirror]) -> tuple[Mirrors, ...]:
    return tuple(
        Mirrors(
            RankSet.of(mirror.rank for mirror in some),
            common,
            array("q", (_NO_PID if mirror.pid is None else mirror.pid for mirror in some)),
            array("q", (mirror.gdb_pid for mirror in some)),
            _addresses(mirror.last_stop for mirror in some),
            b"".join(mirror.clock for mirror in some),
        )
        for (common, _), some in _classes(each, _in_common)
    )


def _in_common(mirror: Mirror) -> tuple[Mirror, int]:
    stop = mirror.last_stop and _without_address(mirror.last_stop)
    common = replace(mirror, rank=_NOBODY, pid=None, gdb_pid=0, last_stop=stop, clock=b"")
    return common, len(mirror.clock)


def mirrors_apart(merged: Iterable[Mirrors]) -> Iterator[Mirror]:
    for each in merged:
        common, stop = each.common, each.common.last_stop
        size = len(each.clocks) // len(each.ranks)
        columns = zip(each.ranks, each.pids, each.gdb_pids, each.addresses, strict=True)
        for index, (rank, pid, gdb_pid, address) in enumerate(columns):
            yield Mirror(
                rank,
                common.state,
                None if pid == _NO_PID else pid,
                gdb_pid,
                common.dead,
                common.lent,
                stop and _with_address(stop, rank, address),
                common.kept,
                each.clocks[index * size : (index + 1) * size],
                common.look,
            )


# ---- notices ------------------------------------------------------------------------------------


def told(notices: Iterable[tuple[int, Notice]]) -> tuple[Told, ...]:
    """notices: each with its rank. Those of one rank stay in their order."""
    groups: list[tuple[Notice, dict[int, Notice]]] = []
    latest: dict[int, int] = {}  # by rank, the group of its last notice
    for rank, notice in notices:
        common = _without_rank(notice)
        place = latest.get(rank, -1) + 1
        while place < len(groups) and groups[place][0] != common:
            place += 1
        if place == len(groups):
            groups.append((common, {}))
        groups[place][1][rank] = notice
        latest[rank] = place
    return tuple(
        Told(RankSet.of(some), common, _addresses(_if_stop(some[rank]) for rank in sorted(some)))
        for common, some in groups
    )


def told_apart(merged: Iterable[Told]) -> Iterator[tuple[int, Notice]]:
    for each in merged:
        for rank, address in zip(each.ranks, each.addresses, strict=True):
            yield rank, _with_rank(each.notice, rank, address)


def _without_rank(notice: Notice) -> Notice:
    if isinstance(notice, RankStopped):
        return _without_address(notice)
    return _with_rank(notice, _NOBODY, 0)


def _with_rank(notice: Notice, rank: int, address: int) -> Notice:
    match notice:
        case RankStopped():
            return _with_address(notice, rank, address)
        case RankRunning():
            return RankRunning(rank)
        case GdbSays() | BreakpointChanged() | BreakpointGone() | DebuggerDied():
            return replace(notice, rank=rank)
    raise TypeError(f"no target tells a {type(notice).__name__}")


def _if_stop(notice: Notice) -> RankStopped | None:
    return notice if isinstance(notice, RankStopped) else None


def _classes(values: Iterable[T], alike: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    """By what they have in common, in their order."""
    members: dict[K, list[T]] = {}
    for value in values:
        members.setdefault(alike(value), []).append(value)
    return list(members.items())

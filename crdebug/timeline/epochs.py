"""One-sided calls outside of the epochs that MPI asks for (MPI 4.1, 12.5), from the record. Pure.

What a fence begins, only an access shows, and MPI_MODE_NOSUCCEED is not on record: from the first
fence of a window on, accesses are taken to be in its epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from crdebug.native.recorder.mpi_calls import BY_NAME
from crdebug.timeline.calls import Call, Calls, Kind
from crdebug.timeline.findings import Finding, Spot, Weight

_NOT_BEFORE = "has MPI_MODE_NOPRECEDE, though there were accesses"
_ALL = -1  # MPI_Win_lock_all: the lock of all targets
_FLUSHES = frozenset(("MPI_Win_flush", "MPI_Win_flush_local"))
_FLUSHES_ALL = frozenset(("MPI_Win_flush_all", "MPI_Win_flush_local_all"))


@dataclass(slots=True)
class _Window:
    """What a rank has begun at a window. accessed: since the last fence, and by that alone.
    locks: by target."""

    fenced: bool = False
    accessed: bool = False
    start: Call | None = None
    post: Call | None = None
    locks: dict[int, Call] = field(default_factory=dict)


def epochs(calls: Mapping[int, Calls]) -> Iterator[Finding]:
    """calls: of each rank, all from its beginning on."""
    for each in calls.values():
        windows: dict[str, _Window] = {}
        for call in each.of(Kind.RMA):
            if call.kind is not Kind.RMA or call.failed or not call.comm.startswith("window("):
                continue
            if says := _step(windows.setdefault(call.comm, _Window()), call):
                spot = Spot(call.rank, call.tick, call.site, call.name)
                yield Finding(Weight.WRONG, spot, says)
            if call.name == "MPI_Win_free":
                del windows[call.comm]


def _step(window: _Window, call: Call) -> str:
    """Go past a call; returns what is wrong with it, or ""."""
    target = _ALL if call.peer is None else call.peer
    wrong = ""
    match call.name:
        case "MPI_Win_fence":
            wrong = _NOT_BEFORE if call.opens and window.accessed else ""
            window.fenced, window.accessed = True, False
        case "MPI_Win_start":
            wrong = "is called before MPI_Win_complete of the last" if window.start else ""
            window.start = call
        case "MPI_Win_complete":
            wrong = "" if window.start else "is called without MPI_Win_start"
            window.start = None
        case "MPI_Win_post":
            window.post = call
        case "MPI_Win_wait" | "MPI_Win_test":
            wrong = "" if window.post else "is called without MPI_Win_post"
            window.post = None
        case "MPI_Win_lock" | "MPI_Win_lock_all":
            wrong = "is called while that lock is held" if target in window.locks else ""
            window.locks[target] = call
        case "MPI_Win_unlock":
            wrong = "" if target in window.locks else "is called without MPI_Win_lock"
            window.locks.pop(target, None)
        case "MPI_Win_unlock_all":
            wrong = "" if _ALL in window.locks else "is called without MPI_Win_lock_all"
            window.locks.pop(_ALL, None)
        case "MPI_Win_free":
            wrong = _unfinished(window)
        case name if name in _FLUSHES:
            locked = target in window.locks or _ALL in window.locks
            wrong = "" if locked else "is called without a lock"
        case name if name in _FLUSHES_ALL:
            wrong = "" if window.locks else "is called without a lock"
        case name if BY_NAME[name].epoch == "ACCESS":
            held = window.locks.keys() & {target, _ALL} if target != _ALL else window.locks
            open_ = window.fenced or window.start or held
            wrong = "" if open_ else "is called outside of an epoch"
            window.accessed |= not window.start and not window.locks
    return wrong


def _unfinished(window: _Window) -> str:
    if window.start:
        return "is called without MPI_Win_complete after MPI_Win_start"
    if window.post:
        return "is called without MPI_Win_wait after MPI_Win_post"
    if window.accessed:
        return "is called without MPI_Win_fence after the last access"
    return "is called while a lock is held" if window.locks else ""

"""What a job's ranks do at one moment, read from outside: nothing is stopped for it.

Clocks are read before and after the logs: a rank whose clock stood meanwhile was in its call all
that time, and so all such ranks were in theirs at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from crdebug.base.errors import CrdebugError, NotAvailable
from crdebug.base.instant import Instant
from crdebug.base.ranks import RankSet
from crdebug.job.clocks import AnotherProgram, ClockView
from crdebug.native.recorder.clock import Clock
from crdebug.timeline.asked import Asked, Way, asked
from crdebug.timeline.calls import Call
from crdebug.timeline.log import RankLog
from crdebug.timeline.matching import Matching
from crdebug.timeline.verdict import Standing, State
from crdebug.timeline.waits import LOCKS, Scene

_FAR = 20_000  # calls that are looked back at for locks


@dataclass(frozen=True, slots=True)
class Look:
    """A rank's clock, or why it could not be read."""

    clock: Clock | None
    error: CrdebugError | None = None
    stopped: str = ""  # by what: "a signal"
    ended: bool = False


def look(clocks: Iterable[ClockView], *, debugged: bool) -> dict[int, Look]:
    """By rank. debugged: the ranks stand because a debugger of ours has stopped them."""
    return {clock.rank: _one(clock, debugged) for clock in clocks}


def _one(clock: ClockView, debugged: bool) -> Look:
    try:
        found = clock.read()
    except AnotherProgram as error:
        return Look(None, error)
    except ProcessLookupError:
        return Look(None, ended=True)
    except NotAvailable as error:
        return Look(None, error)
    except OSError as error:
        return Look(None, NotAvailable(f"its clock cannot be read: {error.strerror}"))
    if clock.is_zombie:
        return Look(None, ended=True)
    return Look(found, stopped="" if debugged else clock.stopped_by)


def sight(
    before: Mapping[int, Look],
    after: Mapping[int, Look],
    logs: Mapping[int, RankLog],
    matching: Matching,
    size: int,
    seconds: Mapping[int, float],
    still: Collection[int],
) -> tuple[Scene, dict[int, Standing]]:
    """before, after: the clocks, read before and after the logs. seconds: for how long ranks have
    been where they are, as far as that is known. still: those that have been there for long."""
    asks: dict[int, Asked] = {}
    standings = {}
    for rank in range(size):
        first, last = before.get(rank), after.get(rank)
        log = logs.get(rank)
        known = seconds.get(rank)
        if last is None or first is None or last.ended:
            standings[rank] = Standing(rank, State.ENDED)
            continue
        if last.clock is None:
            standings[rank] = Standing(rank, State.UNKNOWN, note=str(last.error))
            continue
        state, each = _state(rank, first.clock or last.clock, last.clock, log, matching)
        if last.stopped and each is None:
            state = State.STOPPED
        note = f"stopped {last.stopped}" if last.stopped and each is not None else ""
        if last.stopped and each is None:
            note = "" if "signal" in last.stopped else last.stopped
        if each is None and state is State.COMPUTES and last.clock.now == 0:
            note = "before MPI_Init"
        standings[rank] = Standing(rank, state, each, seconds=known, note=note)
        if each is not None:
            asks[rank] = each
    calls = {rank: log.calls for rank, log in logs.items()}
    scene = Scene(matching, asks, size, still, calls=calls)
    if any(each.call in LOCKS for each in asks.values()):
        scene.holders = _holders(asks, logs)
    return scene, standings


def without_past(damaged: Iterable[NotAvailable]) -> Iterator[str]:
    """A line for each record that is damaged; see Recorded.read_sound."""
    for error in damaged:
        yield f"what it did before is not known: {error}"


def without_record(seen: Mapping[int, Look], logs: Mapping[int, RankLog]) -> Iterator[str]:
    """A line for the ranks whose record is gone or damaged, if there are any."""
    ranks = [
        rank
        for rank, each in seen.items()
        if each.clock is not None and each.clock.records and rank not in logs
    ]
    if ranks:
        yield f"the record of {RankSet.of(ranks)} cannot be read: its messages are not known"


def _state(
    rank: int, first: Clock, last: Clock, log: RankLog | None, matching: Matching
) -> tuple[State, Asked | None]:
    if not last.now.inside:
        return (State.COMPUTES if last.now == first.now else State.RUNS), None
    end = log.tail_now if log is not None else None
    if end is not None and end > last.now:  # the call is done, and about to return
        return State.RUNS, None
    if last.doing is None:
        return State.IN_MPI, None
    calls = matching.ranks.get(rank)
    blind = end is None or calls is None or end.tick != last.now.tick or calls.blind
    each = asked(rank, last.now, last.doing, log, moves=last.now != first.now, blind=bool(blind))
    if each.moves and each.way is not Way.POLLS:
        return State.RUNS, None
    return State.IN_MPI, each


# ---- locks ---------------------------------------------------------------------------------------


def _holders(
    asks: Mapping[int, Asked], logs: Mapping[int, RankLog]
) -> dict[tuple[str, int], dict[int, bool]]:
    """By window and target, the ranks that have locked it, where somebody waits, and whether that
    excludes others."""
    wanted = {(each.comm, each.peer) for each in asks.values() if each.call in LOCKS}
    found: dict[tuple[str, int], dict[int, bool]] = {key: {} for key in wanted}
    for rank, log in logs.items():
        latest = log.calls[max(len(log.calls) - _FAR, 0) :][::-1]
        for key, call in _last_of_locks(latest, wanted).items():
            if call.name == "MPI_Win_lock":
                found[key][rank] = call.tag == 1
    return found


def _last_of_locks(
    latest: Iterable[Call], wanted: Collection[tuple[str, int]]
) -> dict[tuple[str, int], Call]:
    """By window and target, the last call of a rank that locks or unlocks it."""
    found: dict[tuple[str, int], Call] = {}
    for call in latest:
        if call.name in LOCKS and call.peer is not None and (call.comm, call.peer) in wanted:
            found.setdefault((call.comm, call.peer), call)
    return found


def last_call(log: RankLog | None, now: Instant) -> Call | None:
    """The last call that a rank has made, if that is on record."""
    if log is None or not log.calls or log.tail_now.tick != now.tick:
        return None
    return log.calls[-1]

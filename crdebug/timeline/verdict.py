"""Why ranks wait: who can never go on, what does not fit, and who is waited for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from crdebug.timeline.asked import Asked
from crdebug.timeline.knots import Option, cycle, knot
from crdebug.timeline.meetings import Meeting
from crdebug.timeline.waits import Envelope, Scene


class State(Enum):
    """What a rank does, as seen from outside."""

    IN_MPI = "is in MPI"
    RUNS = "goes on"  # it calls MPI again and again
    COMPUTES = "computes"
    STOPPED = "is stopped"  # by a signal
    ENDED = "has ended"
    UNKNOWN = "is unknown"


@dataclass(frozen=True, slots=True)
class Posted:
    """A call that has posted a request. tag: None if it has none. comm: as in `Call`.  place: its
    line."""

    call: str
    tag: int | None
    comm: str
    place: str


@dataclass(frozen=True, slots=True)
class Standing:
    """One rank at this moment.

    place: the line of its call, or where it computes ("relax (heat.c:88)"); "" if it is unknown.
    seconds: for how long it has been so, if that is known. note: what else there is to say.
    posted: the requests that it waits for.
    """

    rank: int
    state: State
    asked: Asked | None = None
    place: str = ""
    seconds: float | None = None
    note: str = ""
    posted: tuple[Posted, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """proved: ranks that can never go on, whatever the others do. perhaps: these, and those that
    cannot if the MPI does what it may (does not buffer a send). ways: of each of both a cycle of
    ranks that wait for each other, () if there is none.
    needs: what each rank waits for. awaited: ranks that do not wait, and that others wait for.
    unwanted: messages for ranks that wait, which no receive has asked for.
    unfit: collectives whose members do not agree.
    opened: by rank, the ticks at which the requests were posted that it waits for.
    """

    proved: frozenset[int]
    perhaps: frozenset[int]
    way: tuple[int, ...]
    perhaps_way: tuple[int, ...]
    needs: Mapping[int, tuple[Option, ...]]
    awaited: frozenset[int]
    unwanted: tuple[Envelope, ...]
    unfit: tuple[Meeting, ...]
    opened: Mapping[int, tuple[int, ...]]


def judge(scene: Scene, standings: Mapping[int, Standing]) -> Verdict:
    """standings: of all ranks."""
    needs = scene.waits()
    gone = [rank for rank, each in standings.items() if each.state is State.ENDED]
    proved = knot(needs, gone, sure=True)
    perhaps = knot(needs, gone, sure=False)
    stuck = perhaps - frozenset(gone)
    unwanted = [
        each
        for rank in sorted(stuck)
        for each in scene.sent.get(rank, ())
        if rank in scene.asked
        and rank in scene.matching.ranks
        and not scene.is_under_way(each)
        and not scene.wanted(each)
    ]
    return Verdict(
        proved - frozenset(gone),
        stuck,
        cycle(needs, proved, sure=True),
        cycle(needs, perhaps, sure=False),
        needs,
        _awaited(needs, perhaps),
        tuple(unwanted),
        tuple(each for each in scene.meetings.all() if each.what_differs() is not None),
        scene.opened,
    )


def _awaited(needs: Mapping[int, tuple[Option, ...]], stuck: frozenset[int]) -> frozenset[int]:
    """Who holds up ranks that are in no knot, and does not wait."""
    found: set[int] = set()
    seen: set[int] = set()
    for rank, options in needs.items():
        for option in () if rank in stuck else options:
            for group in option:
                if id(group) not in seen:
                    seen.add(id(group))
                    found.update(each for each in group.ranks if each not in needs)
    return frozenset(found)

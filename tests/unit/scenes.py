"""Scenes for timeline/waits.py: of the small MPI of mpi_story, and from lists of calls."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from mpi_programs import ANY, Op
from mpi_story import World

from crdebug.native.recorder.doing import Peer, Tag
from crdebug.timeline.asked import Asked
from crdebug.timeline.calls import Call
from crdebug.timeline.matching import Matching
from crdebug.timeline.waits import Scene
from harness.matcher import library


def asked_of(world: World, rank: int) -> Asked | None:
    """The call that a rank is in."""
    now = world.states[rank].now
    if now % 2 == 0:
        return None
    tick = (now + 1) // 2
    op = world.programs[rank][tick - 1]
    done = world.states[rank].done
    window = op.name.startswith("MPI_Win")
    peer, tag, sends = _open(op.peer, Peer.ANY), _open(op.tag, Tag.ANY), None
    if op.name == "MPI_Sendrecv":
        peer, tag = _open(op.source2, Peer.ANY), _open(op.tag2, Tag.ANY)
        sends = (op.peer, op.tag, op.bytes)
    return Asked(
        rank,
        tick,
        op.name,
        "window(world)" if window else "world",
        peer,
        tag,
        op.bytes,
        sends=sends,
        requests=tuple((post, 0) for post in op.posts if post not in done),
        group=op.group,
        opens=op.opens,
    )


def _open(value: int, what: int) -> int:
    return what if value == ANY else value


def blocked(world: World) -> list[int]:
    """The ranks that are in a call and cannot return now."""
    return [
        rank
        for rank, state in enumerate(world.states)
        if state.now % 2 and not world._able(rank, ())
    ]


def over(world: World) -> list[int]:
    """The ranks that have done all their calls."""
    programs = enumerate(world.programs)
    return [rank for rank, ops in programs if world.states[rank].now == 2 * len(ops)]


def scene_of(world: World, still: Collection[int] = ()) -> Scene:
    size = len(world.programs)
    matching = Matching(library())
    comms = dict.fromkeys(("world", "window(world)"), tuple(range(size)))
    calls = world.logs()
    matching.extend(calls, comms)
    found = {rank: asked_of(world, rank) for rank in range(size)}
    asked = {rank: each for rank, each in found.items() if each is not None}
    return Scene(matching, asked, size, still, calls=calls)


def scene(
    asked: Sequence[Asked],
    logs: Mapping[int, Sequence[Call]] | None = None,
    size: int = 0,
    comms: Mapping[str, tuple[int, ...]] | None = None,
    still: Collection[int] = (),
) -> Scene:
    """Ranks that have made the calls of these lists, and are in these ones."""
    count = size or len(asked)
    matching = Matching(library())
    every = tuple(range(count))
    known = {"world": every, "window(world)": every, **(comms or {})}
    calls = {rank: list((logs or {}).get(rank, ())) for rank in every}
    matching.extend(calls, known)
    return Scene(matching, {each.rank: each for each in asked}, count, still, calls=calls)


# ---- the calls that ranks are in, and ten thousand of them ---------------------------------------

MANY = 10_000


def receive(rank: int, source: int, tag: int = 7, tick: int = 9) -> Asked:
    return Asked(rank, tick, "MPI_Recv", "world", source, tag)


def barrier(rank: int) -> Asked:
    return Asked(rank, 9, "MPI_Barrier", "world")


def graphs() -> dict[str, Sequence[Asked]]:
    """By name, who waits for whom of so many."""
    chooser = random.Random(1)
    return {
        "cycle": [receive(rank, (rank + 1) % MANY) for rank in range(MANY)],
        "tree": [receive(0, 1), *(receive(rank, (rank - 1) // 2) for rank in range(1, MANY))],
        "random": [
            receive(rank, chooser.randrange(MANY), chooser.randrange(100), chooser.randrange(99))
            for rank in range(MANY)
        ],
        "wild": [receive(rank, Peer.ANY) for rank in range(MANY)],
        "collective": [*(barrier(rank) for rank in range(MANY - 1)), receive(MANY - 1, 0)],
    }


__all__ = [
    "MANY",
    "Op",
    "asked_of",
    "barrier",
    "blocked",
    "graphs",
    "over",
    "receive",
    "scene",
    "scene_of",
]

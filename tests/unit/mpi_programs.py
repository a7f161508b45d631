"""Random programs of a few MPI calls, for the small MPI of mpi_story."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Protocol

ANY = -1


@dataclass(frozen=True)
class Op:
    """One call of a program. posts: for a wait or test, the numbers of the calls it is about.

    group: for which ranks, of a window's post and start, and of what ends them. opens: of a fence,
    MPI_MODE_NOPRECEDE.
    """

    name: str
    peer: int = ANY
    tag: int = 0
    bytes: int = 8
    posts: tuple[int, ...] = ()
    source2: int = ANY
    tag2: int = 0
    group: tuple[int, ...] = ()
    opens: bool = False


class Add(Protocol):
    """Appends a call to a rank's program. posts: it posts an operation, to be waited for."""

    def __call__(self, rank: int, op: Op, posts: bool = False) -> None: ...


COLLECTIVES = ("MPI_Bcast", "MPI_Reduce", "MPI_Barrier", "MPI_Allreduce", "MPI_Scan")
POSTED_COLLECTIVES = ("MPI_Ibcast", "MPI_Ibarrier")
ALL_COLLECTIVES = (*COLLECTIVES, *POSTED_COLLECTIVES)
WAITED_FOR = ("MPI_Win_start", "MPI_Win_complete", "MPI_Win_wait")


def random_programs(chooser: random.Random, size: int, length: int) -> list[list[Op]]:
    """Programs that communicate in a common order, so that they do not block soon, but may."""
    programs: list[list[Op]] = [[] for _ in range(size)]
    open_: list[list[int]] = [[] for _ in range(size)]

    def add(rank: int, op: Op, posts: bool = False) -> None:
        programs[rank].append(op)
        if posts:
            open_[rank].append(len(programs[rank]))

    for _ in range(length):
        roll = chooser.random()
        if roll < 0.6:
            _message(chooser, size, add)
        elif roll < 0.75:
            name, root = chooser.choice(ALL_COLLECTIVES), chooser.randrange(size)
            rooted = name in ("MPI_Bcast", "MPI_Reduce", "MPI_Ibcast")
            for rank in range(size):
                peer = root if rooted else ANY
                add(rank, Op(name, peer=peer), posts=name in POSTED_COLLECTIVES)
        elif roll < 0.78:
            _window(chooser, size, add)
        elif roll < 0.82:
            add(chooser.randrange(size), Op("MPI_Wtime"))
        else:
            rank = chooser.randrange(size)
            if open_[rank]:
                chooser.shuffle(open_[rank])
                count = chooser.randint(1, len(open_[rank]))
                posts, open_[rank] = open_[rank][:count], open_[rank][count:]
                if count == 1 and chooser.random() < 0.5:
                    add(rank, Op("MPI_Test", posts=(posts[0],)))
                    add(rank, Op("MPI_Wait", posts=(posts[0],)))
                else:
                    add(rank, Op("MPI_Waitall", posts=tuple(posts)))
    for rank in range(size):
        if open_[rank]:
            add(rank, Op("MPI_Waitall", posts=tuple(open_[rank])))
    return programs


def _window(chooser: random.Random, size: int, add: Add) -> None:
    if chooser.random() < 0.4:
        opens = chooser.random() < 0.5
        for rank in range(size):
            add(rank, Op("MPI_Win_fence", opens=opens))
        return
    every = itertools.product(range(size), range(size))
    pairs = [pair for pair in every if chooser.random() < 0.4]  # origins and targets
    of_origin = [tuple(t for o, t in pairs if o == rank) for rank in range(size)]
    of_target = [tuple(o for o, t in pairs if t == rank) for rank in range(size)]
    for name, groups in (("post", of_target), ("start", of_origin)):
        for rank, group in enumerate(groups):
            if group:
                add(rank, Op(f"MPI_Win_{name}", group=group))
    if chooser.random() < 0.5:
        _message(chooser, size, add)
    for name, groups in (("complete", of_origin), ("wait", of_target)):
        for rank, group in enumerate(groups):
            if group:
                add(rank, Op(f"MPI_Win_{name}", group=group))


def _message(chooser: random.Random, size: int, add: Add) -> None:
    source, target = chooser.randrange(size), chooser.randrange(size)
    tag, bytes_ = chooser.randrange(2), chooser.choice((8, 8, 5000))
    seen_source = ANY if chooser.random() < 0.3 else source
    seen_tag = ANY if chooser.random() < 0.2 else tag
    if source == target:
        add(target, Op("MPI_Irecv", seen_source, seen_tag), posts=True)
        add(source, Op("MPI_Isend", target, tag, bytes_), posts=True)
        return
    if chooser.random() < 0.1:
        back = chooser.randrange(2)
        add(source, Op("MPI_Sendrecv", target, tag, bytes_, source2=target, tag2=back))
        add(target, Op("MPI_Sendrecv", source, back, bytes_, source2=source, tag2=tag))
        return
    if chooser.random() < 0.4:
        name = chooser.choice(("MPI_Isend", "MPI_Isend", "MPI_Issend"))
        add(source, Op(name, target, tag, bytes_), posts=True)
    else:
        name = chooser.choice(("MPI_Send", "MPI_Send", "MPI_Ssend"))
        add(source, Op(name, target, tag, bytes_))
    if chooser.random() < 0.1:
        add(target, Op("MPI_Probe", source, tag))
    if chooser.random() < 0.4:
        add(target, Op("MPI_Irecv", seen_source, seen_tag), posts=True)
    else:
        add(target, Op("MPI_Recv", seen_source, seen_tag))

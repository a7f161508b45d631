"""A small MPI in memory: runs programs of a few calls, and records what the layer would record.

Its rules are those of MPI, written down without regard to how crdebug.timeline finds its answers:
queues of arrived messages and posted receives, matched as they come. It can also run a program
again with every rank held at a clock, which is how a cut is found to be reachable or not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from mpi_programs import (
    ALL_COLLECTIVES,
    ANY,
    COLLECTIVES,
    POSTED_COLLECTIVES,
    WAITED_FOR,
    Op,
    random_programs,
)

from crdebug.timeline.calls import Call, Kind


class Collectives(Enum):
    """How the MPI library does its collectives: no more than it must, or over a tree, or all.

    And what waits for the post of a window's target: nothing, or complete, or already start.
    """

    LEAST = "least"
    TREE = "tree"
    FULL = "full"


@dataclass
class _Send:
    source: int
    tick: int
    tag: int
    received: bool = False


@dataclass
class _Receive:
    rank: int
    tick: int
    source: int
    tag: int
    got: _Send | None = None
    looks: bool = False


@dataclass
class _State:
    now: int = 0
    sends: dict[int, _Send] = field(default_factory=dict)
    receives: dict[int, _Receive] = field(default_factory=dict)
    waiting: list[_Receive] = field(default_factory=list)  # posted, in order
    arrived: list[_Send] = field(default_factory=list)  # unexpected, in order
    done: set[int] = field(default_factory=set)  # posts that were completed
    log: list[Call] = field(default_factory=list)


@dataclass
class World:
    """A job of `programs`, one a rank, over one communicator.

    eager: sends of more bytes wait for their receive. original: an earlier run; wild receives then
    take what they took there, and tests answer as they did.
    """

    programs: Sequence[Sequence[Op]]
    eager: int = 1024
    collectives: Collectives = Collectives.LEAST
    original: World | None = None

    def __post_init__(self) -> None:
        self.states = [_State() for _ in self.programs]

    # ---- running -------------------------------------------------------------------------------

    def run(self, chooser: random.Random, steps: int = 1 << 30, stop: Sequence[int] = ()) -> None:
        """Let ranks step in random order, none beyond its clock in `stop`, until none can."""
        while steps > 0:
            able = [r for r in range(len(self.programs)) if self._able(r, stop)]
            if not able:
                return
            self._step(chooser.choice(able))
            steps -= 1

    def clocks(self) -> list[int]:
        return [state.now for state in self.states]

    def logs(self) -> dict[int, list[Call]]:
        """What is recorded once all ranks are held: open wild receives are asked what they got."""
        for rank, state in enumerate(self.states):
            for post in state.receives:
                if self.programs[rank][post - 1].name == "MPI_Irecv" and post <= len(state.log):
                    self._patch(rank, post)
        return {rank: state.log for rank, state in enumerate(self.states)}

    def _able(self, rank: int, stop: Sequence[int]) -> bool:
        now = self.states[rank].now
        if stop and now >= stop[rank]:
            return False
        if now % 2 == 0:
            return now // 2 < len(self.programs[rank])
        return self._can_return(rank, (now + 1) // 2)

    def _step(self, rank: int) -> None:
        state = self.states[rank]
        state.now += 1
        tick = (state.now + 1) // 2
        if state.now % 2:
            self._enter(rank, tick)
        else:
            self._leave(rank, state.now // 2)

    def _op(self, rank: int, tick: int) -> Op:
        return self.programs[rank][tick - 1]

    # ---- what calls do -------------------------------------------------------------------------

    def _enter(self, rank: int, tick: int) -> None:
        op = self._op(rank, tick)
        if op.name in ("MPI_Recv", "MPI_Irecv"):
            self._post(rank, tick, op.peer, op.tag)
        elif op.name == "MPI_Probe":
            self._post(rank, tick, op.peer, op.tag, looks=True)
        elif op.name in ("MPI_Send", "MPI_Isend", "MPI_Ssend", "MPI_Issend"):
            self._start(rank, tick, op.peer, op.tag)
        elif op.name == "MPI_Sendrecv":
            self._start(rank, tick, op.peer, op.tag)
            self._post(rank, tick, op.source2, op.tag2)

    def _start(self, rank: int, tick: int, peer: int, tag: int) -> None:
        send = _Send(rank, tick, tag)
        self.states[rank].sends[tick] = send
        other = self.states[peer]
        for receive in other.waiting:
            if _fits(receive, send):
                receive.got = send
                if not receive.looks:
                    send.received = True
                    other.waiting = [r for r in other.waiting if r.got is None]
                    return
        other.waiting = [r for r in other.waiting if r.got is None]
        other.arrived.append(send)

    def _post(self, rank: int, tick: int, source: int, tag: int, looks: bool = False) -> None:
        if self.original is not None:
            told = self.original.states[rank].receives.get(tick)
            if told is not None and told.got is not None:
                source, tag = told.got.source, told.got.tag
        state = self.states[rank]
        receive = _Receive(rank, tick, source, tag, looks=looks)
        state.receives[tick] = receive
        for send in state.arrived:
            if _fits(receive, send):
                receive.got = send
                if not looks:
                    send.received = True
                    state.arrived.remove(send)
                return
        state.waiting.append(receive)

    def _sent(self, rank: int, tick: int) -> bool:
        op = self._op(rank, tick)
        waits = op.name in ("MPI_Ssend", "MPI_Issend") or op.bytes > self.eager
        return not waits or self.states[rank].sends[tick].received

    def _request_done(self, rank: int, post: int) -> bool:
        name = self._op(rank, post).name
        if name == "MPI_Irecv":
            return self.states[rank].receives[post].got is not None
        if name in ("MPI_Isend", "MPI_Issend"):
            return self._sent(rank, post)
        return self._collected(rank, post)

    def _can_return(self, rank: int, tick: int) -> bool:
        op, state = self._op(rank, tick), self.states[rank]
        if op.name in ("MPI_Recv", "MPI_Probe"):
            return state.receives[tick].got is not None
        if op.name in ("MPI_Send", "MPI_Ssend"):
            return self._sent(rank, tick)
        if op.name == "MPI_Sendrecv":
            return self._sent(rank, tick) and state.receives[tick].got is not None
        if op.name in ("MPI_Wait", "MPI_Waitall"):
            return all(
                self._request_done(rank, post) for post in op.posts if post not in state.done
            )
        if op.name == "MPI_Test":
            return not self._told(rank, tick) or self._request_done(rank, op.posts[0])
        if op.name in (*COLLECTIVES, "MPI_Win_fence"):
            return self._collected(rank, tick)
        if op.name in WAITED_FOR:
            return all(
                self._stepped(self.states[other].now, other, step, rank)
                > self._stepped(2 * tick - 2, rank, op.name, other)
                for step in self._awaited(op.name)
                for other in op.group
            )
        return True

    def _awaited(self, name: str) -> tuple[str, ...]:
        """Which steps of the others a step waits for."""
        if name == "MPI_Win_wait":
            return ("MPI_Win_complete",)
        waits = {Collectives.FULL: "MPI_Win_start", Collectives.TREE: "MPI_Win_complete"}
        return ("MPI_Win_post",) if waits.get(self.collectives) == name else ()

    def _stepped(self, now: int, rank: int, name: str, other: int) -> int:
        """How often a rank has entered a step for another one."""
        entered = self.programs[rank][: (now + 1) // 2]
        return sum(op.name == name and other in op.group for op in entered)

    def _told(self, rank: int, tick: int) -> bool | None:
        """The answer of a test in the original run; None if it had none, or was not in it."""
        log = self.original.states[rank].log if self.original else []
        return log[tick - 1].kind is Kind.COMPLETE if len(log) >= tick else None

    def _says_yes(self, rank: int, tick: int, posts: Sequence[int]) -> bool:
        told = self._told(rank, tick)
        return told is not False and all(self._request_done(rank, post) for post in posts)

    def _collected(self, rank: int, tick: int) -> bool:
        op = self._op(rank, tick)
        own = self._count(rank, op.name, tick - 1)
        entered = [self._count(r, op.name, (s.now + 1) // 2) for r, s in enumerate(self.states)]
        return self.needed(op, rank) <= {r for r, count in enumerate(entered) if count > own}

    def _count(self, rank: int, like: str, calls: int) -> int:
        """How many of a rank's first calls are in one order with those of a name."""
        names = (like,) if like == "MPI_Win_fence" else ALL_COLLECTIVES
        return [op.name in names for op in self.programs[rank][:calls]].count(True)

    def needed(self, op: Op, rank: int) -> set[int]:
        """Whom a rank needs in a collective before it can leave it."""
        size, name = len(self.programs), op.name.replace("MPI_I", "MPI_").lower()
        if self.collectives is Collectives.FULL:
            return set(range(size))
        if name == "mpi_bcast":
            if rank == op.peer:
                return set()
            if self.collectives is Collectives.LEAST:
                return {op.peer}
            # a chain of parents, as in a binomial tree
            place, chain = (rank - op.peer) % size, set()
            while place:
                place &= place - 1
                chain.add((place + op.peer) % size)
            return chain
        if name == "mpi_reduce":
            if self.collectives is Collectives.TREE:
                place = (rank - op.peer) % size
                below = range(size) if not place else range(place, place + (place & -place))
                return {(p + op.peer) % size for p in below if p < size}
            return set(range(size)) if rank == op.peer else set()
        if name == "mpi_scan":
            return set(range(rank))
        if op.opens:
            return set()
        return set(range(size))

    # ---- what is recorded ----------------------------------------------------------------------

    def _leave(self, rank: int, tick: int) -> None:
        op, state = self._op(rank, tick), self.states[rank]
        call = Call(rank, tick, op.name, KINDS[op.name], comm="world", bytes=op.bytes)
        if op.name in ("MPI_Recv", "MPI_Probe", "MPI_Irecv"):
            call = self._received(call, tick, op)
            if op.name == "MPI_Irecv" and call.wild:
                call = replace(call, peer=None, tag=None if op.tag == ANY else op.tag)
        elif op.name == "MPI_Sendrecv":
            got = state.receives[tick].got
            assert got is not None
            wild = ANY in (op.source2, op.tag2)
            call = replace(
                call, peer=op.peer, tag=op.tag, source2=got.source, tag2=got.tag, wild=wild
            )
        elif op.name in ("MPI_Wait", "MPI_Waitall", "MPI_Test"):
            completes = tuple(post for post in op.posts if post not in state.done)
            if op.name == "MPI_Test" and not self._says_yes(rank, tick, completes):
                completes = ()
                call = replace(call, kind=Kind.NOTHING)
            state.done |= {*completes}
            for post in completes:
                self._patch(rank, post)
            call = replace(call, completes=completes)
        elif call.kind is Kind.RMA:
            group = op.group if op.name in ("MPI_Win_start", "MPI_Win_post") else ()
            call = replace(call, comm="window(world)", bytes=0, group=group, opens=op.opens)
        else:
            call = replace(call, peer=None if op.peer == ANY else op.peer, tag=op.tag)
        state.log.append(call)

    def _received(self, call: Call, tick: int, op: Op) -> Call:
        got = self.states[call.rank].receives[tick].got
        wild = ANY in (op.peer, op.tag)
        peer = got.source if got else None if op.peer == ANY else op.peer
        tag = got.tag if got else None if op.tag == ANY else op.tag
        return replace(call, peer=peer, tag=tag, wild=wild)

    def _patch(self, rank: int, post: int) -> None:
        """The record that posted a wild receive gets what it got."""
        log, got = self.states[rank].log, self.states[rank].receives.get(post)
        if got is not None and got.got is not None:
            log[post - 1] = replace(log[post - 1], peer=got.got.source, tag=got.got.tag)

    def true_matches(self) -> set[tuple[int, int, int, int]]:
        """(sender, send tick, receiver, post tick) of all that the user knows to be received."""
        return {
            (got.source, got.tick, rank, receive.tick)
            for rank, state in enumerate(self.states)
            for receive in state.receives.values()
            if (got := receive.got) is not None and not receive.looks
        }


def _fits(receive: _Receive, send: _Send) -> bool:
    return receive.source in (ANY, send.source) and receive.tag in (ANY, send.tag)


KINDS = {
    "MPI_Send": Kind.SEND,
    "MPI_Ssend": Kind.SEND,
    "MPI_Recv": Kind.RECV,
    "MPI_Probe": Kind.PROBE,
    "MPI_Irecv": Kind.POST_RECV,
    "MPI_Isend": Kind.POST_SEND,
    "MPI_Issend": Kind.POST_SEND,
    "MPI_Sendrecv": Kind.SENDRECV,
    "MPI_Wait": Kind.COMPLETE,
    "MPI_Waitall": Kind.COMPLETE,
    "MPI_Test": Kind.COMPLETE,
    "MPI_Wtime": Kind.TIME,
    **dict.fromkeys(COLLECTIVES, Kind.COLLECTIVE),
    **dict.fromkeys(POSTED_COLLECTIVES, Kind.POST_COLLECTIVE),
    **dict.fromkeys(("MPI_Win_fence", "MPI_Win_post", *WAITED_FOR), Kind.RMA),
}


def stories(
    count: int, *, sizes: Sequence[int] = (2, 3, 4)
) -> Iterator[tuple[random.Random, World]]:
    """Runs of random programs on random libraries, to their end or to some point before."""
    for seed in range(count):
        chooser = random.Random(seed)
        programs = random_programs(chooser, chooser.choice(sizes), chooser.randint(3, 14))
        world = World(
            programs,
            eager=chooser.choice((0, 100, 1 << 20)),
            collectives=chooser.choice(tuple(Collectives)),
        )
        length = sum(map(len, programs))
        world.run(chooser, steps=chooser.choice((2 * length, chooser.randrange(1, 2 * length + 1))))
        yield chooser, world

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

from crdebug.timeline.calls import Call, Kind

ANY = -1


@dataclass(frozen=True)
class Op:
    """One call of a program. posts: for a wait or test, the numbers of the calls it is about."""

    name: str
    peer: int = ANY
    tag: int = 0
    bytes: int = 8
    posts: tuple[int, ...] = ()
    source2: int = ANY
    tag2: int = 0


class Collectives(Enum):
    """How the MPI library does its collectives: no more than it must, or over a tree, or all."""

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
        if op.name in COLLECTIVES:
            return self._collected(rank, tick)
        return True

    def _told(self, rank: int, tick: int) -> bool | None:
        """What a test answered in the original run; None if there is none, or it was not there."""
        log = self.original.states[rank].log if self.original else []
        return log[tick - 1].kind is Kind.COMPLETE if len(log) >= tick else None

    def _says_yes(self, rank: int, tick: int, posts: Sequence[int]) -> bool:
        told = self._told(rank, tick)
        return told is not False and all(self._request_done(rank, post) for post in posts)

    def _collected(self, rank: int, tick: int) -> bool:
        op = self._op(rank, tick)
        number = [o.name in ALL_COLLECTIVES for o in self.programs[rank][: tick - 1]].count(True)
        inside = {r for r in range(len(self.programs)) if self._count_entered(r) > number}
        return self.needed(op, rank) <= inside

    def _count_entered(self, rank: int) -> int:
        entered = (self.states[rank].now + 1) // 2
        return [o.name in ALL_COLLECTIVES for o in self.programs[rank][:entered]].count(True)

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


COLLECTIVES = ("MPI_Bcast", "MPI_Reduce", "MPI_Barrier", "MPI_Allreduce", "MPI_Scan")
POSTED_COLLECTIVES = ("MPI_Ibcast", "MPI_Ibarrier")
ALL_COLLECTIVES = (*COLLECTIVES, *POSTED_COLLECTIVES)

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
}


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
        elif roll < 0.8:
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


def _message(chooser: random.Random, size: int, add) -> None:  # type: ignore[no-untyped-def]
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

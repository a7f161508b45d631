"""What waits in this very process's sockets is looked at, dropped, and sent again; with it, what a
snapshot keeps of the connections between ranks."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from crdebug.base.errors import Refused
from crdebug.debugger.connections import Connections, OnTheirWay, Place
from crdebug.debugger.rank_host import Pids, ThisHost
from crdebug.node import waiting_data
from crdebug.node.in_flight import Channel

OWN = os.getpid


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with client, accepted:
            yield client, accepted


def test_tcp_is_looked_at_dropped_and_sent_again(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, accepted = pair
    client.send(b"hello")
    at = accepted.fileno()
    assert waiting_data.peek(OWN(), at, 5) == waiting_data.peek(OWN(), at, 5) == b"hello"
    with pytest.raises(Refused, match="only 5 of 6 bytes"):
        waiting_data.peek(OWN(), at, 6)
    waiting_data.drop(OWN(), at)
    accepted.setblocking(False)
    with pytest.raises(BlockingIOError):
        accepted.recv(1)
    waiting_data.send(OWN(), client.fileno(), b"again")
    accepted.setblocking(True)
    assert accepted.recv(9) == b"again"


def test_all_datagrams_are_looked_at_and_stay() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with left, right:
        for text in (b"one", b"three", b"one"):
            left.send(text)
        seen = [waiting_data.datagrams(OWN(), right.fileno()) for _ in range(2)]
        assert seen == [(b"one", b"three", b"one")] * 2
        assert [right.recv(9) for _ in range(3)] == [b"one", b"three", b"one"]
        assert waiting_data.datagrams(OWN(), right.fileno()) == ()


class Rank(ThisHost):
    """A host with this process, as one rank that has only these sockets."""

    def __init__(self, *sockets: socket.socket) -> None:
        self._own = {each.fileno() for each in sockets}

    async def channels(self, pids: Pids) -> dict[int, tuple[Channel, ...]]:
        ((rank, told),) = (await super().channels(pids)).items()
        return {rank: tuple(each for each in told if each.descriptor in self._own)}


def connections(*sockets: socket.socket, name: str = "") -> Connections:
    return Connections([Place(name, Rank(*sockets), {0: OWN()})])


async def test_what_was_on_its_way_comes_again_and_nothing_else(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, accepted = pair
    client.send(b"early")
    accepted.send(b"back")
    kept = await connections(*pair).kept()
    assert sorted(kept.streams.values()) == [b"back", b"early"]
    assert accepted.recv(2) == b"ea"
    client.send(b"late")
    found = connections(*pair)
    assert await found.obstacles(kept) == ()
    await found.clear()
    await found.send(kept)
    assert (accepted.recv(20), client.recv(20)) == (b"early", b"back")
    assert not (await connections(*pair).kept()).streams


async def test_no_bytes_may_wait_for_others(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    client.send(b"out")
    with pytest.raises(Refused, match=r"rank 0: file descriptor \d+ .* has 3 bytes to read"):
        await connections(accepted).kept()


async def test_datagrams_must_be_the_same() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with left, right:
        left.send(b"!")
        kept = await connections(left, right).kept()
        assert await connections(left, right).obstacles(kept) == ()
        left.send(b"!")
        obstacles = await connections(left, right).obstacles(kept)
        assert obstacles == tuple(
            f"rank 0: other datagrams wait in file descriptor {each}"
            for each in sorted((left.fileno(), right.fileno()))
        )
        assert right.recv(1) == b"!" and await connections(left, right).obstacles(kept) == ()


class Apart(Rank):
    """One of two hosts, each with an end; what it says of it first may be from a moment earlier."""

    earlier: list[dict[int, tuple[Channel, ...]]]

    def __init__(self, own: socket.socket) -> None:
        super().__init__(own)
        self.earlier = []

    async def channels(self, pids: Pids) -> dict[int, tuple[Channel, ...]]:
        if self.earlier:
            return self.earlier.pop()
        ((rank, (told,)),) = (await super().channels(pids)).items()
        assert told.ends is not None
        here, there = (f"10.0.0.{each[-1]} {each}" for each in told.ends)
        return {rank: (replace(told, ends=(here, there)),)}


async def test_what_comes_while_both_hosts_are_asked_is_kept_and_dropped(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """The receiver's host answers before the bytes come, and the sender's once they have gone."""
    client, accepted = pair
    sender, receiver = Apart(client), Apart(accepted)
    found = Connections([Place("n1", sender, {0: OWN()}), Place("n2", receiver, {1: OWN()})])
    before = await receiver.channels({1: OWN()})
    client.send(b"meanwhile")
    receiver.earlier = [before]
    assert list((await found.kept()).streams.values()) == [b"meanwhile"]
    receiver.earlier = [before]
    await found.clear()
    accepted.setblocking(False)
    with pytest.raises(BlockingIOError):
        accepted.recv(1)


async def test_hosts_have_the_same_addresses_for_themselves(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Two ends of one host are a connection; one's end and another's are none."""
    client, accepted = pair
    client.send(b"own")
    kept = await connections(client, accepted, name="n1").kept()
    assert list(kept.streams.values()) == [b"own"]
    apart = Connections(
        [Place("n1", Rank(client), {0: OWN()}), Place("n2", Rank(accepted), {1: OWN()})]
    )
    with pytest.raises(Refused, match=r"rank 1: file descriptor \d+ .* has 3 bytes to read"):
        await apart.kept()


async def test_a_connection_that_is_closed_is_an_obstacle(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, accepted = pair
    client.send(b"early")
    kept = await connections(*pair).kept()
    accepted.close()
    (problem,) = await connections(client).obstacles(kept)
    assert problem.startswith("the connection from 127.0.0.1 ") and problem.endswith(" is closed")
    assert await connections(client).obstacles(OnTheirWay({}, {})) == ()

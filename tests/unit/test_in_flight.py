"""What lies in this very process's sockets and pipes, and which memory it shares."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import termios
import tty
from pathlib import Path

import pytest

from crdebug.node.in_flight import Channel, flush_terminals, in_flight
from crdebug.node.sharing import shared_mappings, written_by


def found(*descriptors: int) -> dict[int, Channel]:
    return {
        each.descriptor: each
        for each in in_flight(os.getpid())
        if each.descriptor in descriptors and (each.unread or each.unsent)
    }


def test_bytes_in_sockets_and_pipes_until_they_are_read() -> None:
    left, right = socket.socketpair()
    outgoing, incoming = os.pipe()[::-1]
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    mine = [each.fileno() for each in (left, right, server, client, accepted)]
    everything = (*mine, outgoing, incoming)
    try:
        assert not found(*everything)

        left.send(b"12345")
        (channel,) = found(right.fileno()).values()
        assert channel.unread == 5
        assert f"file descriptor {right.fileno()} (socket:[" in str(channel)
        assert "has 5 bytes to read" in str(channel)
        right.recv(5)

        os.write(outgoing, b"123")
        # Only the reading end: if a pipe leads out of the job, its content is output.
        assert {number: each.unread for number, each in found(*everything).items()} == {incoming: 3}
        os.read(incoming, 3)

        client.send(b"1234567")
        assert found(accepted.fileno())[accepted.fileno()].unread == 7
        accepted.recv(7)
        assert not found(*everything)

        # as much as the other end has no room for
        left.setblocking(False)
        try:
            while True:
                left.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        full = found(*everything)
        assert full[left.fileno()].unsent > 0
        assert "on their way" in str(full[left.fileno()])
    finally:
        for each in (left, right, server, client, accepted):
            each.close()
        os.close(outgoing)
        os.close(incoming)


def test_the_same_memory_is_the_same_wherever_it_is_mapped(tmp_path: Path) -> None:
    page = mmap.PAGESIZE
    (tmp_path / "shared memory").write_bytes(bytes(4 * page))
    with (tmp_path / "shared memory").open("r+b") as file:
        one = mmap.mmap(file.fileno(), 2 * page, offset=page)
        same = mmap.mmap(file.fileno(), 2 * page, offset=page)
        read = mmap.mmap(file.fileno(), page, access=mmap.ACCESS_READ)
        private = mmap.mmap(file.fileno(), page, access=mmap.ACCESS_COPY)
        mine = [each for each in shared_mappings(os.getpid()) if "shared memory" in each.path]
        assert sorted((each.identity[2], each.identity[3], each.writable) for each in mine) == [
            (0, page, False),
            (page, 2 * page, True),
            (page, 2 * page, True),
        ]
        assert len({each.identity for each in mine}) == 2
        (file_,) = {each.file for each in mine}
        assert file_ in written_by([os.getpid()])
        one.close()
        same.close()
        assert file_ not in written_by([os.getpid(), 1 << 30])
        read.close()
        private.close()


def test_what_was_written_to_a_terminal_is_there_to_be_read() -> None:
    """The kernel passes it on a little later: without the flush, hundreds were not there yet."""
    master, slave = os.openpty()
    try:
        tty.setraw(slave)
        for _ in range(500):
            os.write(slave, b"x")
            flush_terminals(os.getpid())
            unread = fcntl.ioctl(master, termios.FIONREAD, bytes(4))
            assert struct.unpack("i", unread) == (1,)
            os.read(master, 1)
    finally:
        os.close(master)
        os.close(slave)


def test_a_socket_that_python_has_no_address_of() -> None:
    """Not even a descriptor of ours is left of the look."""
    try:
        made = socket.socket(44, socket.SOCK_RAW)  # AF_XDP of bpf(2)
    except OSError as error:
        pytest.skip(f"no such socket here: {error}")
    with made:
        before = os.listdir("/proc/self/fd")
        assert not found(made.fileno())
        assert os.listdir("/proc/self/fd") == before

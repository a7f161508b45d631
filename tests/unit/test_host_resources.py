"""Everything in the way of a restart without a container is named."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from pathlib import Path

import pytest

from crdebug.base.errors import Refused
from crdebug.job import host_resources
from crdebug.node import ports

IPC_PRIVATE, IPC_RMID = 0, 0  # <sys/ipc.h>
FREE = 2**22 - 1  # above any PID of a machine (proc(5), pid_max)


async def test_all_that_a_process_uses_is_noted_and_conflicts_only_with_others(
    tmp_path: Path,
) -> None:
    """Noted of this very process: everything is in the way but for the process itself."""
    reader, writer = os.pipe()
    master, slave = os.openpty()
    terminal = int(os.path.basename(os.ttyname(slave)))
    kept = tmp_path / "kept"
    with socket.create_server(("127.0.0.1", 0)) as server, kept.open("w"):
        number = server.getsockname()[1]
        noted = host_resources.note([os.getpid()], saved=[])
        host_resources.write(noted, tmp_path)
        assert host_resources.read(tmp_path) == noted
        assert os.getpid() in noted.numbers
        assert number in {port.number for port in noted.ports}
        assert {str(kept), os.getcwd()} <= set(noted.files)
        assert str(kept) not in host_resources.note([os.getpid()], saved=[str(kept)]).files
        assert "/" in noted.mounts
        await host_resources.require(noted, [os.getpid()])
        with pytest.raises(Refused) as refused:
            await host_resources.require(noted)
        assert f"PID {os.getpid()} is in use by" in str(refused.value)
        assert f"tcp port {number} is in use" in str(refused.value)
        assert f"pseudo-terminal {terminal} is in use" in str(refused.value)
    os.close(master)
    os.close(slave)
    kept.unlink()
    with pytest.raises(Refused, match=f"{kept} is missing"):
        await host_resources.require(noted, [os.getpid()])
    os.close(reader)
    left = host_resources.note([os.getpid()], saved=[]).pipes
    assert f"pipe:[{os.fstat(writer).st_ino}]" in left
    os.close(writer)


async def test_mounts_and_zombies_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = {"/": "nofs", "/no/such/mount": "ext4"}
    bare = host_resources.Needs((FREE,), (), (), mounts, ())
    with pytest.raises(Refused) as refused:
        await host_resources.require(bare)
    assert "is mounted at /, where a nofs was" in str(refused.value)
    assert "nothing is mounted at /no/such/mount, where a ext4 was" in str(refused.value)
    monkeypatch.setattr(host_resources, "_REAPED", 0.2)
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(Refused, match=r"true, which has ended and not been waited for"):
            await host_resources.require(host_resources.Needs((child.pid,), (), (), {}, ()))
    await host_resources.require(host_resources.Needs((child.pid, FREE), (), (), {}, ()))


def test_a_connection_takes_its_pair_of_ports_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            name, peer = client.getsockname()[1], client.getpeername()[1]
            found = ports.bound([os.getpid()])
            assert {(p.number, p.peer) for p in found} >= {(name, peer), (peer, 0)}
            assert set(found) <= ports.taken()


def test_shared_memory_that_only_a_container_can_save_is_refused() -> None:
    """Until input comes, nothing is read."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
    libc.shmdt.argtypes = (ctypes.c_void_p,)
    host_resources.require_dumpable([os.getpid()])
    segment = libc.shmget(IPC_PRIVATE, 4096, 0o600)
    assert segment >= 0, os.strerror(ctypes.get_errno())
    address = libc.shmat(segment, None, 0)
    libc.shmctl(segment, IPC_RMID, None)  # it is gone with its last user
    try:
        with pytest.raises(Refused, match=rf"process {os.getpid()} .* System V shared memory"):
            host_resources.require_dumpable([os.getpid()])
    finally:
        libc.shmdt(address)

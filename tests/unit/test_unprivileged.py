"""What a CRIU without privileges cannot save is named before it tries, in real processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.base.errors import Refused
from crdebug.node import proc, unprivileged
from crdebug.node.unprivileged import refuse_what_cannot_be_saved

pytestmark = pytest.mark.unit

# Its arguments: a directory, and what it does. It says "ready", and waits for the end of its input.
BEFORE = """
import ctypes, mmap, os, sys
os.chdir(sys.argv[1])
SIZE = 4 * mmap.PAGESIZE

def file(name):
    opened = os.open(name, os.O_RDWR | os.O_CREAT)
    os.truncate(opened, SIZE)
    return opened

def mapped(opened, size=SIZE, flags=mmap.MAP_SHARED, offset=0):
    # mmap.mmap() keeps a descriptor
    address = libc.mmap(None, size, 3, flags, opened, offset)
    assert address not in (None, 2**64 - 1)
    return address

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.shmat.restype = ctypes.c_void_p
ANONYMOUS = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
"""
AFTER = """
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def process(home: Path, text: str) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", BEFORE + text + AFTER, home],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        yield child.pid
        child.communicate(timeout=60)


SAVED = {
    "nothing": "",
    "a file with a name": "mapped(file('x'))",
    "a file that is called deleted": "mapped(file('x (deleted)'))",
    "a file that is open only": "file('x'); os.unlink('x')",
    "anonymous memory": "mapped(-1, flags=ANONYMOUS)",
    "a part with other access": "libc.mprotect("
    "ctypes.c_void_p(mapped(-1, flags=ANONYMOUS) + mmap.PAGESIZE), mmap.PAGESIZE, 1)",
    "a memfd that is open only": "os.truncate(os.memfd_create('m'), SIZE)",
    "a memfd that is mapped only": "m = os.memfd_create('m'); os.truncate(m, SIZE); mapped(m); "
    "os.close(m)",
    "some pipes": "[os.pipe() for _ in range(20)]",
}

REFUSED = {
    "a shared mapping of a deleted file": (
        "mapped(file('x')); os.unlink('x')",
        "has mapped {home}/x, which was deleted or replaced since",
    ),
    "a private mapping of a deleted file": (
        "mapped(file('x'), flags=mmap.MAP_PRIVATE); os.unlink('x')",
        "has mapped {home}/x, which was deleted or replaced since",
    ),
    "a file that was replaced": (
        "mapped(file('x'), flags=mmap.MAP_PRIVATE); file('new'); os.rename('new', 'x')",
        "has mapped {home}/x, which was deleted or replaced since",
    ),
    "another file has the name of the deleted one": (
        "mapped(file('x')); os.unlink('x'); file('x (deleted)')",
        "has mapped {home}/x, which was deleted or replaced since",
    ),
    "System V": (
        "s = libc.shmget(0, SIZE, 0o600); libc.shmat(s, None, 0); libc.shmctl(s, 0, None)",
        "has System V shared memory (/SYSV00000000)",
    ),
    # as in a container: there the first one has number 0
    "the first of System V": (
        "libc.unshare(0x08000000 | (0x10000000 if os.geteuid() else 0)); "
        "s = libc.shmget(0, SIZE, 0o600); assert s == 0, s; libc.shmat(s, None, 0)",
        "has System V shared memory (/SYSV00000000)",
    ),
    "a memfd that is mapped and open": (
        "m = os.memfd_create('m'); os.truncate(m, SIZE); mapped(m)",
        "has it open: /memfd:m of memfd_create(2) cannot be saved",
    ),
    "memory with a part unmapped": (
        "libc.munmap(mapped(-1, flags=ANONYMOUS) + mmap.PAGESIZE, mmap.PAGESIZE)",
        "has mapped parts of shared memory without a file (/dev/zero)",
    ),
    "memory without its beginning": (
        "libc.munmap(mapped(-1, flags=ANONYMOUS), mmap.PAGESIZE)",
        "has mapped parts of shared memory without a file (/dev/zero)",
    ),
}


@pytest.mark.parametrize("text", SAVED.values(), ids=SAVED.keys())
def test_what_can_be_saved_is_not_refused(tmp_path: Path, text: str) -> None:
    with process(tmp_path, text) as pid:
        refuse_what_cannot_be_saved([os.getpid(), pid])
    refuse_what_cannot_be_saved([pid])  # it has ended


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_saved_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with process(tmp_path, text) as pid:
        with pytest.raises(Refused) as refused:
            refuse_what_cannot_be_saved([pid])
        name = proc.status(pid)["Name"]
        problem = problem.format(home=tmp_path)
        assert refused.value.problem.startswith(f"process {pid} ({name}) {problem}")
        assert "without root" in refused.value.problem and refused.value.hint


def test_memory_that_two_processes_have_mapped_is_compared(tmp_path: Path) -> None:
    text = """
place = mapped(-1, flags=ANONYMOUS)
child = os.fork()
if child == 0:
    {}
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
"""
    for change, refused in (("pass", False), ("libc.munmap(place + SIZE // 2, SIZE // 2)", True)):
        with two(tmp_path, text.format(change)) as pids:
            if refused:
                with pytest.raises(Refused, match=rf"process {pids[1]} .* parts of shared memory"):
                    refuse_what_cannot_be_saved(pids)
            else:
                refuse_what_cannot_be_saved(pids)


def test_a_memfd_that_another_process_has_open_is_refused(tmp_path: Path) -> None:
    text = """
m = os.memfd_create('m'); os.truncate(m, SIZE)
child = os.fork()
if child == 0:
    mapped(m)
    os.close(m)
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
"""
    with (
        two(tmp_path, text) as (parent, child),
        pytest.raises(Refused, match=rf"process {child} .* has mapped what process {parent} "),
    ):
        refuse_what_cannot_be_saved([parent, child])


@contextlib.contextmanager
def two(home: Path, text: str) -> Iterator[tuple[int, int]]:
    """A process and its child, which says its PID."""
    with subprocess.Popen(
        [sys.executable, "-c", f"{BEFORE}{text}\nsys.stdin.read()\nos.wait()", home],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        yield parent.pid, int(parent.stdout.readline())
        parent.communicate(timeout=60)


def test_pipes_beyond_the_limit_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends of a pipe are one, and so is what two processes share."""
    limit = tmp_path / "limit"
    monkeypatch.setattr(unprivileged, "_SOFT_LIMIT", limit)
    with process(tmp_path, "more = [os.pipe() for _ in range(20)]") as pid:
        limit.write_text("368\n")  # 20, and its standard input and output, and one for CRIU
        refuse_what_cannot_be_saved([pid, pid])
        limit.write_text("367\n")
        with pytest.raises(Refused, match=r"22 pipes here, .* \(fs.pipe-user-pages-soft is 367\)"):
            refuse_what_cannot_be_saved([pid])
        limit.write_text("0\n")
        refuse_what_cannot_be_saved([pid])

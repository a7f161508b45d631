"""The library that GDBs load completes an area of registers that the kernel finds too short.

What a GDB with a shorter area does on a processor with more registers is the same on any processor:
here the area ends where the upper halves of the vector registers begin.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.settings import Settings
from crdebug.native.build import build

pytestmark = pytest.mark.unit

# Traces a child of its own, and prints what ptrace does: its answer and its errno, 99 before.
TRACER = """
import ctypes, os, signal

TRACEME, PEEKDATA, KILL, GETREGSET, SETREGSET, XSTATE, PRSTATUS = 0, 2, 8, 0x4204, 0x4205, 0x202, 1
XMM0, HEADER_END = 160, 576

raw = ctypes.CDLL(None, use_errno=True).ptrace
raw.argtypes, raw.restype = [ctypes.c_long] * 4, ctypes.c_long
word = ctypes.c_long(-1)

class Area(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

def ptrace(request, kind=0, data=0):
    ctypes.set_errno(99)
    return raw(request, child, kind, data), ctypes.get_errno()

def read(size, kind=XSTATE):
    room = ctypes.create_string_buffer(size)
    area = Area(ctypes.addressof(room), size)
    assert ptrace(GETREGSET, kind, ctypes.addressof(area)) == (0, 99)
    return room.raw[:area.size]

def write(data, kind=XSTATE):
    room = ctypes.create_string_buffer(data, len(data))
    area = Area(ctypes.addressof(room), len(data))
    answer = ptrace(SETREGSET, kind, ctypes.addressof(area))
    assert area.size == len(data)
    return answer

child = os.fork()
if child == 0:
    raw(TRACEME, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, 0)
try:
    before = read(1 << 16)
    short = bytearray(before[:HEADER_END])
    short[XMM0] ^= 0xFF
    short[512] |= 2  # the header says that SSE's registers are in use
    print("short", *write(bytes(short)))
    after = read(1 << 16)
    print("front", after[:HEADER_END] == bytes(short))
    print("rest", len(after) > HEADER_END and after[HEADER_END:] == before[HEADER_END:])
    print("whole", *write(before), read(1 << 16) == before)
    short[528] = 1  # reserved
    print("header", *write(bytes(short)))
    print("other", *write(read(8, PRSTATUS)[:4], PRSTATUS))
    print("peek", *ptrace(PEEKDATA, ctypes.addressof(word)))
    print("nowhere", *ptrace(PEEKDATA, 8))
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
ALWAYS = {
    "whole": "0 99 True",
    "other": "-1 22",  # EINVAL
    "peek": "-1 0",
    "nowhere": "-1 5",  # EIO
}


def traced(library: Path | None) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if library is not None:
        environment["LD_PRELOAD"] = str(library)
    argv = [sys.executable, "-c", TRACER]
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


async def test_a_short_area_is_completed_and_all_else_is_as_the_c_library_has_it() -> None:
    library = (await build(Settings().compiler, Deadline(120.0))).xstate
    refused = {"short": "-1 14", "front": "False", "header": "-1 14"}  # EFAULT
    without = await asyncio.to_thread(traced, None)
    assert without == {**ALWAYS, **refused, "rest": "True"}
    completed = {"short": "0 99", "front": "True", "header": "-1 14"}
    assert await asyncio.to_thread(traced, library) == {**ALWAYS, **completed, "rest": "True"}

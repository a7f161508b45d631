"""A dead debugger's traps are told from code that the program itself has changed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from crdebug.node import code as code_module
from crdebug.node import proc
from crdebug.node.code import remove_breakpoints, traps

PAGE = os.sysconf("SC_PAGE_SIZE")
TRAP = b"\xcc"
# Jumps to functions at such distances, as UCX's libucm writes them into brk, sbrk, ... of the C
# library (src/ucm/bistro of UCX); the distances depend on where the kernel maps the two.
JUMPS = (
    bytes.fromhex("e95b2fccff"),  # jmp, seen
    bytes.fromhex("e9cc2fb3ff"),
    bytes.fromhex("e95b2fcccc"),
    bytes.fromhex("49bb20cce7bdcc7f000041ffe3"),  # movabs to r11, jmp *r11
)


def code(size: int) -> bytearray:
    """Bytes of which none has the value of those that the tests write."""
    return bytearray(random.Random(1).choices(b"\x01\x02\x03\x90\xf3\x48\x89", k=size))


@pytest.mark.parametrize("places", [(0,), (99,), (50,), (20, 21), (20, 35), (0, 1, 2, 98, 99)])
def test_traps_are_found_wherever_they_are(places: tuple[int, ...]) -> None:
    true = code(100)
    now = bytearray(true)
    for at in places:
        now[at] = TRAP[0]
    assert tuple(traps(bytes(now), bytes(true))) == places
    assert not list(traps(bytes(now), bytes(now)))  # the file's own


@pytest.mark.parametrize("jump", JUMPS, ids=bytes.hex)
@pytest.mark.parametrize("at", [0, 40, -1])
def test_no_byte_of_a_jump_is_taken_for_a_trap(jump: bytes, at: int) -> None:
    true = code(100)
    now = bytearray(true)
    at = at if at >= 0 else len(true) - len(jump)
    now[at : at + len(jump)] = jump
    assert not list(traps(bytes(now), bytes(true)))
    far = (at + 60) % 100
    now[far] = TRAP[0]
    assert list(traps(bytes(now), bytes(true))) == [far]


@pytest.fixture
def process() -> Iterator[int]:
    """One that waits, and executes none of the code that a test changes."""
    argv = (sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()")
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as popen:
        assert popen.stdout is not None
        popen.stdout.read(1)
        yield popen.pid
        popen.kill()


class OnlyByName(FileIO):
    """As for an ordinary user: map_files needs CAP_CHECKPOINT_RESTORE (proc(5))."""

    def __init__(self, name: str | Path) -> None:
        if "map_files" in str(name):
            raise PermissionError(1, "Operation not permitted", str(name))
        super().__init__(str(name))


@pytest.mark.parametrize("opens", [FileIO, OnlyByName])
def test_only_the_traps_are_removed_from_a_process(
    process: int, opens: type[FileIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        opens = OnlyByName
    monkeypatch.setattr(code_module, "FileIO", opens)
    text = max(
        (each for each in proc.maps(process) if each.access == "r-xp" and "libc" in each.path),
        key=lambda each: each.end - each.start,
    )
    at = text.start + 16 * PAGE
    assert remove_breakpoints(process) == 0
    true = proc.read_memory(process, at, 4 * PAGE)
    jump = JUMPS[0]
    jumps = [10, PAGE - 3, 3 * PAGE - 4]  # two go on on the next page, one with the trap's value
    for place in jumps:
        proc.write_memory(process, at + place, jump)
    wanted = proc.read_memory(process, at, 4 * PAGE)
    here = [
        place for place in (100, 2 * PAGE - 1, 2 * PAGE, 4 * PAGE - 1) if true[place] != TRAP[0]
    ]
    for place in here:
        proc.write_memory(process, at + place, TRAP)
    assert remove_breakpoints(process) == len(here) >= 3
    assert proc.read_memory(process, at, 4 * PAGE) == wanted
    assert remove_breakpoints(process) == 0

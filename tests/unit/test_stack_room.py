"""Where a signal handler has room on a thread's stack."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.node import proc, stack_room
from crdebug.node.proc import parse_maps

pytestmark = pytest.mark.unit

MIB = 1 << 20
# A thread's stack with its guard, two neighbours, and the stack of the main thread.
MAPS = parse_maps(
    """\
10000000-10001000 ---p 00000000 00:00 0
10001000-10101000 rw-p 00000000 00:00 0
20000000-20001000 r--p 00000000 00:00 0
20001000-20002000 rw-p 00000000 00:00 0
20002000-20004000 rwxp 00000000 00:00 0
30000000-30001000 rw-p 00000000 00:00 0
3ffdf000-40000000 rw-p 00000000 00:00 0 [stack]
"""
)


@pytest.mark.parametrize(
    ("pointer", "room"),
    [
        (0x10101000, 0x100000),
        (0x10001010, 0x10),
        (0x10000FF0, 0),  # in the guard
        (0x20003000, 0x2000),  # across the border of two mappings
        (0x20000FF0, 0),  # in a page that can only be read
        (0x50000000, 0),  # nowhere
    ],
)
def test_below_a_threads_stack_pointer(pointer: int, room: int) -> None:
    ranges = stack_room.writable(MAPS, 8 * MIB)
    assert stack_room.has_room(ranges, pointer, room) == (room > 0)
    assert not stack_room.has_room(ranges, pointer, room + 1)


@pytest.mark.parametrize(
    ("limit", "lowest"),
    [
        (8 * MIB, 0x40000000 - 8 * MIB),
        (64 * 1024, 0x3FFDF000),  # it is larger than that already
        (1024 * MIB, 0x30001000 + MIB),  # what lies below is in its way
        (None, 0x30001000 + MIB),
    ],
)
def test_the_main_threads_stack_grows(limit: int | None, lowest: int) -> None:
    ranges = stack_room.writable(MAPS, limit)
    assert stack_room.has_room(ranges, 0x3FFF0000, 0x3FFF0000 - lowest)
    assert not stack_room.has_room(ranges, 0x3FFF0000, 0x3FFF0000 - lowest + 1)


DEEP = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char *lowest;
static int deep(int n) {
    volatile char room[100];
    room[0] = (char)n;
    if ((char *)room < lowest) for (;;) pause();
    return deep(n + 1) + room[0];
}
int main(int argc, char **argv) {
    static char line[4096];
    unsigned long end = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps) != NULL && strstr(line, "[stack]") == NULL) continue;
    sscanf(line, "%*lx-%lx", &end);
    lowest = (char *)end - atol(argv[argc - 1]);
    return deep(0);
}
"""


@pytest.mark.parametrize(
    ("used", "lacks"), [(4096, False), (7 * MIB, False), (8 * MIB - 4096, True)]
)
async def test_a_process_that_waits_deep_in_its_stack(
    tmp_path: Path, used: int, lacks: bool
) -> None:
    source, program = tmp_path / "deep.c", tmp_path / "deep"
    source.write_text(DEEP)
    subprocess.run(["cc", "-O0", "-w", "-o", program, source], check=True)
    limited = ["/usr/bin/prlimit", f"--stack={8 * MIB}", str(program), str(used)]
    with subprocess.Popen(limited, env={}) as process:

        def waits() -> bool:
            at = proc.executable(process.pid)
            return at == str(program) and proc.threads(process.pid)[0].state == "S"

        try:
            await Deadline(60).until(waits, "the program to wait")
            found = stack_room.threads_without_room(process.pid)
            assert [each.tid for each in found] == [process.pid] * lacks
        finally:
            process.kill()

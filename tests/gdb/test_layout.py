"""crdebug/native/shim/layout.py agrees with the C compiler about crdebug.h."""

from __future__ import annotations

from pathlib import Path

from crdebug.native.shim import layout
from crdebug.native.shim.layout import Shim, ThreadEntry, pack_threads, unpack_threads
from harness.layouts import said_by

HEADERS = Path(layout.__file__).parent

# Every field gets a value of its own, so that two that changed places show, as does padding.
PROGRAM = r"""
#include "crdebug.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static struct crdebug_shim shim = {
    .abi = CRDEBUG_ABI, .size = sizeof shim, .rank = -3, .signal = 4, .waiting = 5, .clash = 1,
    .crs_state = -7,
    .threads = {{11, 12, 13, 1}, {21, -1, 23, 0}},
};

int main(void) {
    shim.asker = 8;
    shim.threads[CRDEBUG_MAX_THREADS - 1].tid = 99;
    printf("%zu %zu %u %d %d %d %d %d %d %d %zu\n", sizeof shim,
           offsetof(struct crdebug_shim, crs_state), CRDEBUG_ABI, CRDEBUG_MAX_THREADS,
           CRDEBUG_DEFAULT_SIGNAL, CRDEBUG_CRS_CONTINUE, CRDEBUG_CRS_RESTART, CRDEBUG_EXEMPT,
           CRDEBUG_BLOCKED, CRDEBUG_ASKED, offsetof(struct crdebug_shim, asker));
    printf("%zu\n", offsetof(struct crdebug_shim, threads));
    fflush(stdout);
    return fwrite(&shim, sizeof shim, 1, stdout) != 1;
}
"""


def test_python_and_the_compiler_agree(tmp_path: Path) -> None:
    said = said_by(PROGRAM, tmp_path, HEADERS)
    numbers, threads_at, data = said.split(b"\n", 2)
    assert [int(number) for number in numbers.split()] == [
        layout.SIZE,
        layout.CRS_STATE_OFFSET,
        layout.SHIM_ABI,
        layout.MAX_THREADS,
        layout.DEFAULT_SIGNAL,
        layout.CRS_CONTINUE,
        layout.CRS_RESTART,
        layout.EXEMPT,
        layout.BLOCKED,
        layout.ASKED,
        layout.ASKER_OFFSET,
    ]
    assert int(threads_at) == layout.HEADER_SIZE
    assert Shim.parse(data) == Shim(-3, 4, 5, True, -7, 8)
    entries = (ThreadEntry(11, 12, 13, True), ThreadEntry(21, -1, 23, False))
    table = data[layout.HEADER_SIZE :]
    assert unpack_threads(table) == entries
    packed = pack_threads(entries)
    assert packed == table[: len(packed)]
    assert unpack_threads(table[-len(packed) // 3 :])[0].tid == 99

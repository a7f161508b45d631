"""The GDBs that are here: the usual one, and a newer one if crdebug setup --gdb has put it
below $CRDEBUG_DATA/gdb."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.settings import Settings, data_home
from crdebug.native.build import build

NEWER = data_home() / "gdb" / "bin" / "gdb"
GDBS = ("usual", "newer")


def use_gdb(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on it is the one in PATH. The test is skipped, in words, where it is not there."""
    if which == "newer":
        if not NEWER.exists():
            pytest.skip(f"there is no newer GDB here: {NEWER} (crdebug setup --gdb)")
        monkeypatch.setenv("PATH", f"{NEWER.parent}:{os.environ['PATH']}")


def numbers_when_attached(tids: Sequence[int]) -> dict[int, int]:
    """The numbers that the GDB in PATH gives to the threads of a process to which it attaches.

    tids: of its threads, by age.
    """
    first, *others = tids
    gdb = shutil.which("gdb")
    assert gdb is not None
    ordered = others[::-1] if _newest_first(gdb) else others
    return {tid: number for number, tid in enumerate((first, *ordered), 1)}


_THREADS = """
import threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(*(each.native_id for each in threading.enumerate()), flush=True)
input()
"""


@functools.cache
def _newest_first(gdb: str) -> bool:
    """Of the threads other than the main one; found by trying. From some version on GDB does so
    (16.3 does, 13.1 does not)."""
    with subprocess.Popen(
        [sys.executable, "-c", _THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        tids = [int(each) for each in process.stdout.readline().split()]
        attach = [gdb, "-nx", "-batch", "-p", str(process.pid), "-ex", "info threads"]
        told = subprocess.run(attach, capture_output=True, text=True, timeout=60, check=True)
        process.communicate("\n")
    found = re.findall(r"^\*?\s+(\d+) .*LWP (\d+)", told.stdout, re.M)
    numbered = [int(lwp) for _, lwp in sorted(found, key=lambda row: int(row[0]))]
    assert len(tids) == 4 and numbered in (tids, [tids[0], *tids[:0:-1]]), told.stdout
    return numbered != tids


async def preload() -> Path:
    """The library that crdebug has its GDBs load."""
    return (await build(Settings().compiler, Deadline(120.0))).xstate

"""Symbols of running processes, without a debugger."""

from __future__ import annotations

import subprocess
import sys

import pytest

from crdebug.acquire.symbols import find_symbols

pytestmark = pytest.mark.unit

# It maps its C library once more, to read in it: below all that was there (mmap(2)).
_READER = """
import ctypes, mmap
path = next(line.split()[-1] for line in open("/proc/self/maps") if "libc" in line)
file = open(path, "rb")
again = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(ctypes.cast(ctypes.CDLL(None).nice, ctypes.c_void_p).value, flush=True)
input()
"""


def test_a_library_is_where_its_code_is() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        where = int(process.stdout.readline())
        found = find_symbols(process.pid, ["nice"], in_file=lambda path: "libc" in path)
        process.communicate("\n")
    assert found == {"nice": where}

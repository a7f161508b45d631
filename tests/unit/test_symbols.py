"""Symbols of running processes, without a debugger."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crdebug.acquire import symbols
from crdebug.acquire.mpir import ProcDesc
from crdebug.acquire.symbols import find_symbols
from crdebug.job import clocks
from crdebug.job.holds import SigstopHold
from crdebug.job.waitpoint import WaitpointHold
from crdebug.node import proc

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


def test_all_symbols_of_a_library_are_found_by_name() -> None:
    """Also names that are ends of others', which linkers store once."""
    pid = os.getpid()
    names = (each for each in proc.maps(pid) if "libc.so" in each.path)
    path, shared = next(names).path, 0
    with open(path, "rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        text = table.stringtable.data()
        defined: dict[str, set[int]] = {}
        for symbol in table.iter_symbols():
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol.name:
                defined.setdefault(symbol.name, set()).add(symbol["st_value"])
                shared += text[symbol["st_name"] - 1] != 0
    assert shared  # the ends of others
    base = find_symbols(pid, ["nice"])["nice"] - min(defined["nice"])
    found = find_symbols(pid, defined, in_file=lambda each: each == path)
    assert found.keys() == defined.keys()
    assert all(address - base in defined[name] for name, address in found.items())


def test_a_process_that_has_ended_is_no_process_without_the_symbol() -> None:
    """It has no files mapped any more, also before its parent knows (proc(5): maps)."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessLookupError, match=f"process {ended.pid} has ended"):
            find_symbols(ended.pid, ["nice"])
        entry = ProcDesc(0, "here", "true", ended.pid)
        with pytest.raises(ProcessLookupError):
            WaitpointHold.find(entry, "/shim.so")  # and not: it has no shim
        (clock,) = clocks.find([SigstopHold(entry)], "/layer.so")
        with pytest.raises(ProcessLookupError):
            clock.read()
    assert find_symbols(os.getpid(), ["no_such_symbol"]) == {}


def test_a_fifo_with_the_name_of_a_deleted_library_is_not_waited_for(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"x" * 4096)
    with library.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    library.unlink()
    os.mkfifo(tmp_path / "lib.so (deleted)")
    mine = [each.path for each in proc.maps(os.getpid()) if "lib.so (deleted)" in each.path]
    assert mine
    assert find_symbols(os.getpid(), ["nice"], in_file=lambda each: each in mine) == {}
    mapped.close()


def test_a_file_is_read_once_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = ELFFile

    def reading(file: BinaryIO) -> ELFFile:
        read.append(file.name)
        return real(file)

    monkeypatch.setattr(symbols, "ELFFile", reading)
    symbols._symbols_of.cache_clear()
    for _ in range(2):
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.read(1)  # its libraries are loaded
            found = find_symbols(process.pid, ["nice"], in_file=lambda path: "libc" in path)
            assert found.keys() == {"nice"}
            process.communicate()
    assert len(read) == 1


def test_a_library_is_where_its_code_is() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        where = int(process.stdout.readline())
        found = find_symbols(process.pid, ["nice"], in_file=lambda path: "libc" in path)
        process.communicate("\n")
    assert found == {"nice": where}

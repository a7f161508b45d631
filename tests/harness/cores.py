"""Core files: made up, of as few parts as crdebug reads, and GDB's of real processes."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from crdebug.node.ask import gdb_program

_BASE, _LIBRARY, _STACK, _PAGE = 0x555555554000, 0x7FFFF7000000, 0x7FFFFFFDE000, 4096


def made_up(
    path: Path,
    environment: Mapping[str, str],
    *,
    program: str = "/nowhere/heat",
    arguments: Sequence[str] = ("./heat", "100"),
    signal: int = 11,
    build: str = "",
    machine: int = 62,
    library: str = "/nowhere/library",
) -> Path:
    """A core file of a process with this environment. build: its program's and library's
    build-id."""
    top = b"".join(os.fsencode(f"{each}\0") for each in arguments)
    top += b"".join(os.fsencode(f"{name}={value}\0") for name, value in environment.items())
    stack = bytes(64) + b"x86_64\0" + top
    name_at = _STACK + len(stack)
    stack += os.fsencode(arguments[0]) + bytes(9)
    status = struct.pack("<iiih2xqqi", signal, 0, 0, signal, 0, 0, 4711).ljust(336, b"\0")
    info = bytes(24) + struct.pack("<i", 4711) + bytes(108)
    auxv = struct.pack("<6Q", 9, _BASE + 0x40, 31, name_at, 0, 0)
    mapped = ((_BASE, program), (_LIBRARY, library))
    files = struct.pack("<QQ", len(mapped), _PAGE)
    files += b"".join(struct.pack("<3Q", start, start + _PAGE, 0) for start, _ in mapped)
    files += b"".join(os.fsencode(name) + b"\0" for _, name in mapped)
    kinds = ((1, status), (3, info), (6, auxv), (0x46494C45, files))
    notes = b"".join(_note(b"CORE", kind, content) for kind, content in kinds)
    page = _page(build)
    parts = [(4, 0, notes), (1, _BASE, page), (1, _LIBRARY, page), (1, _STACK, stack)]
    offset = 64 + 56 * len(parts)
    table = b""
    for kind, address, content in parts:
        size = len(content)
        table += struct.pack("<IIQQQQQQ", kind, 5, offset, address, 0, size, size, 1)
        offset += size
    path.write_bytes(_header(4, len(parts), machine) + table + b"".join(c for *_, c in parts))
    return path


def _header(kind: int, segments: int, machine: int = 62) -> bytes:
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    return struct.pack(
        "<16sHHIQQQIHHHHHH", ident, kind, machine, 1, 0, 64, 0, 0, 64, 56, segments, 0, 0, 0
    )


def _note(name: bytes, kind: int, content: bytes) -> bytes:
    padded = content + bytes(-len(content) % 4)
    named = name + bytes(4 - len(name) % 4)
    return struct.pack("<III", len(name) + 1, len(content), kind) + named + padded


def _page(build: str) -> bytes:
    """The first page of a program, with its build-id at 0x200."""
    if not build:
        return bytes(_PAGE)
    note = _note(b"GNU", 3, bytes.fromhex(build))
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, _PAGE, _PAGE, 4096)
    at = struct.pack("<IIQQQQQQ", 4, 4, 0x200, 0x200, 0, len(note), len(note), 4)
    return ((_header(3, 2) + load + at).ljust(0x200, b"\0") + note).ljust(_PAGE, b"\0")


def by_gdb(program: Path, core: Path, environment: Mapping[str, str], *arguments: str) -> Path:
    """The core file of a process that has run until a signal stopped it."""
    commands = [f"set environment {name} {value}" for name, value in environment.items()]
    commands += ["run", f"generate-core-file {core}"]
    options = [word for each in ["set startup-with-shell off", *commands] for word in ("-ex", each)]
    argv = [gdb_program("gdb"), "-nx", "-batch", *options, "--args", str(program), *arguments]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert core.exists(), ran.stdout + ran.stderr
    return core

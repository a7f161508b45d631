"""Compile the library with which programs make requests of crdebug, on first use."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.native.build import (
    MADE,
    compile_with,
    compiler_words,
    is_made,
    make_once,
    place_for,
    strict,
)
from crdebug.node import programs

_HERE = Path(__file__).parent
_HEADER, _SOURCE, _MODULE = (
    _HERE / name for name in ("crdebug_app.h", "app_library.c", "crdebug_app.f90")
)
_FLAGS = (
    *("-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-fPIC"),
    "-fno-optimize-sibling-calls",  # so that a debugger shows the program's call
)
_FORTRAN_FLAGS = ("-O2", "-g", "-Wall", "-fPIC")
LIBRARIES = ("-lcrdebug_app", "-ldl")  # the latter for C libraries where dlsym is not in libc


async def build_library(compiler: str, fortran: str, deadline: Deadline) -> Path:
    """The directory with crdebug_app.h and libcrdebug_app.a, compiled now if they are not in the
    cache; and with crdebug_app.mod, if there is a Fortran compiler.

    compiler, fortran: programs, options may follow. Only the compiler that made a module can read
    it. Raises NotAvailable with the compiler's own words and its command line.
    """
    compilers = [compiler_words(compiler)]
    if fortran:
        hint = "install gfortran, or name one with --fortran"
        compilers.append(compiler_words(fortran, "Fortran", hint))
    digest = hashlib.sha256("\0".join((*_FLAGS, *_FORTRAN_FLAGS, *strict())).encode())
    for words in compilers:
        version = await programs.run([*words, "--version"], deadline, "the compiler's version")
        digest.update("\0".join((*words, version.out)).encode())
    for path in (_HEADER, _SOURCE, _MODULE):
        digest.update(path.read_bytes())
    home = place_for(f"app-{digest.hexdigest()[:16]}")

    async def make(work: Path) -> None:
        made = work / MADE
        objects = [str(work / "app_library.o")]
        command = [*compilers[0], *_FLAGS, *strict(), "-c", "-o", objects[0], str(_SOURCE)]
        await compile_with(command, "the library for programs", deadline)
        if fortran:
            objects.append(str(work / "crdebug_app.o"))
            into = ["-J", str(made), "-c", "-o", objects[1], str(_MODULE)]
            command = [*compilers[1], *_FORTRAN_FLAGS, *strict(), *into]
            await compile_with(command, "the module for Fortran programs", deadline)
        archive = ["ar", "rcs", str(made / "libcrdebug_app.a"), *objects]
        await compile_with(archive, "the library for programs", deadline)
        shutil.copy(_HEADER, made)

    parts = ("libcrdebug_app.a", _HEADER.name)
    if not is_made(home, parts):
        await make_once(home, parts, make)
    return home


def find_fortran() -> str:
    """The Fortran compiler of the machine, "" if there is none."""
    return "gfortran" if shutil.which("gfortran") else ""


def pkg_words(home: Path, *, cflags: bool, libs: bool) -> str:
    """The words for a compiler's command line; paths with spaces are quoted for shells."""
    place = str(home) if re.fullmatch(r"[\w@%+=:,./-]+", str(home)) else f"'{home}'"
    words = ([f"-I{place}"] if cflags else []) + ([f"-L{place}", *LIBRARIES] if libs else [])
    return " ".join(words)

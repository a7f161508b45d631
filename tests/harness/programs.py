"""Programs under test, compiled when a test first asks for one.

The result is kept in crdebug's cache under a hash of all that it depends on: a later session finds
it, and a stale one is never used. Safe for concurrent callers: a program appears at once, and
stays.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.settings import cache_home
from harness import mpis

_TESTS = Path(__file__).parents[1]
_SOURCES = _TESTS / "programs"
_EXAMPLES = _TESTS.parent / "examples"

# Without contraction into fused operations results have the same bits on every machine.
FLAGS = (
    *("-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-D_GNU_SOURCE", "-pthread"),
    "-ffp-contract=off",
)
# Open MPI's mpi.h has a C++ part of its own, which warns and which nobody uses any more.
CXX_FLAGS = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-g", "-O0", "-DOMPI_SKIP_MPICXX")
FORTRAN_FLAGS = ("-Wall", "-Werror", "-g", "-O0", "-fcheck=bounds", "-ffree-line-length-none")
_COMPILERS = {
    ".c": ("mpicc", FLAGS),
    ".cc": ("mpicxx", CXX_FLAGS),
    ".F90": ("mpifort", FORTRAN_FLAGS),
}
# MPICH's declarations have gcc take MPI_STATUSES_IGNORE for an array of no size.
MPICHS_HEADER = ("-Wno-stringop-overflow", "-Wno-array-bounds")
# For mpif.h, which has no interfaces; gfortran warns of each call then.
MPIF_H = ("-DBINDING=1", "-fallow-argument-mismatch", "-w")
# The bindings that tests/programs/field.F90 is compiled for.
BINDINGS = {"mpif.h": MPIF_H, "mpi": ("-DBINDING=2",), "mpi_f08": ("-DBINDING=3",)}
_LIBRARIES = ("-lm",)
_SECONDS = 120.0


class CompileFailed(Exception):
    """A program under test does not compile: the command, and the compiler's output."""


def source(name: str) -> Path:
    """The C, C++ or Fortran file of a program in tests/programs, or the C file of an example.
    Raises FileNotFoundError."""
    candidates = (
        *(_SOURCES / f"{name}{suffix}" for suffix in _COMPILERS),
        _EXAMPLES / name / f"{name}.c",
    )
    for path in candidates:
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"no program '{name}': {' and '.join(map(str, candidates))} are missing"
    )


def names() -> tuple[str, ...]:
    """All programs in tests/programs."""
    return tuple(sorted(path.stem for path in _SOURCES.glob("*.c")))


def build(
    name: str, *, compiler: str = "", flags: Sequence[str] = (), libraries: Sequence[str] = ()
) -> Path:
    """The executable of a program, compiled if it is not there yet.

    compiler: by default mpicc, mpicxx or mpifort of the MPI in use. flags, libraries: for it,
    besides the usual ones. Raises CompileFailed.
    """
    if not compiler:
        compiler = mpis.tool(_COMPILERS[source(name).suffix][0])
    return _build(name, compiler, tuple(flags), tuple(libraries))


@functools.cache
def _build(name: str, compiler: str, flags: tuple[str, ...], libraries: tuple[str, ...]) -> Path:
    path = source(name)
    flags = (*_COMPILERS[path.suffix][1], *flags)
    # The path too: a debugger looks for the source there, and another clone may be gone.
    libraries = (*libraries, *_LIBRARIES)
    told = (*flags, *libraries, str(path))
    inputs = [_identity(compiler).encode(), "\0".join(told).encode()]
    inputs += [file.read_bytes() for file in (path, *sorted(path.parent.glob("*.h")))]
    digest = hashlib.sha256()
    for data in inputs:
        digest.update(len(data).to_bytes(8, "little") + data)
    directory = cache_home() / "programs" / digest.hexdigest()[:16]
    executable = directory / name
    if not executable.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            output = Path(scratch) / name
            modules = ("-J", scratch) if path.suffix == ".F90" else ()  # else they were left here
            _run([compiler, *flags, *modules, "-o", str(output), str(path), *libraries])
            with contextlib.suppress(FileExistsError):  # another worker was first, and runs it
                os.link(output, executable)
    elif executable.stat().st_mtime < path.stat().st_mtime:  # of a younger clone, in the same place
        os.utime(executable)  # else GDB warns of a source that is more recent
    return executable


@functools.cache
def _identity(compiler: str) -> str:
    """The identity of a compiler: its program, its version, and the options of a wrapper."""
    program = shutil.which(compiler)
    if program is None:
        raise CompileFailed(f"there is no '{compiler}' to compile programs under test with")
    told = [os.path.realpath(program), _run([compiler, "--version"])]
    for option in ("--showme", "-show"):  # Open MPI's wrapper, MPICH's
        asked = subprocess.run([compiler, option], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            told.append(asked.stdout)
    return "\0".join(told)


def _run(argv: Sequence[str]) -> str:
    limit = Deadline(_SECONDS)
    try:
        ran = subprocess.run(
            argv, capture_output=True, text=True, timeout=limit.seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise CompileFailed(f"{' '.join(argv)}\nhas not ended in {limit.seconds:g} s") from None
    if ran.returncode != 0:
        raise CompileFailed(f"{' '.join(argv)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout

"""Compile the layer between ranks and their MPI, against the user's own MPI."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, NotAvailable
from crdebug.native.build import MADE, compile_with, is_made, make_once, place_for, strict
from crdebug.native.recorder import mpi_four, mpi_wrappers
from crdebug.node import programs

_HERE = Path(__file__).parent
# Without line numbers, so that a debugger's `step` skips our frames; references to the MPI are
# bound on first use, so that programs without an MPI can start with the layer too.
_FLAGS: tuple[str, ...] = (
    "-std=c11",
    "-O2",
    "-g0",
    "-Wall",
    "-Wextra",
    "-fPIC",
    "-fvisibility=hidden",
)
_PARTS = ("pmpi.so",)
_LINK = ("-shared", "-Wl,-z,lazy", "-Wl,--hash-style=gnu")
HEADER = ("-E", "-include", "mpi.h", "-x", "c", "/dev/null")
_COMPILERS = re.compile(r"mpicc(\.\w+)?")
_LIBRARY = re.compile(r"libmpi(ch)?\.so\.\d+")
_LAUNCHERS = re.compile(r"(mpirun|mpiexec|orterun|prterun)(\.\w+)?")


def mpicc_of(launcher: str) -> str | None:
    """The compiler of a launcher's MPI, next to the launcher; None if there is none.

    launcher: a name to look up, or a path. If several MPIs are installed side by side, a launcher
    (mpirun.openmpi) has its own compiler (mpicc.openmpi), even if it is called by a shorter name.
    """
    found = shutil.which(launcher)
    if found is None:
        return None
    names = []
    for path in (Path(found), Path(found).resolve()):
        match = _LAUNCHERS.fullmatch(path.name)
        if match and match[2]:
            names.append(path.with_name(f"mpicc{match[2]}"))
    real = Path(found).resolve()
    for family, word in (("openmpi", "orterun"), ("mpich", "hydra")):
        if word in real.name:
            names.append(Path(found).with_name(f"mpicc.{family}"))
    names += [Path(found).with_name("mpicc"), real.with_name("mpicc")]
    for name in names:
        if os.access(name, os.X_OK):
            return str(name)
    return None


async def mpicc_of_program(argv: Sequence[str], place: Path, deadline: Deadline) -> str | None:
    """The compiler of the MPI that a command's program was linked with; None if there is none. For
    launchers that belong to no MPI, as srun.

    place: the directory in which it is run.
    """
    found = (shutil.which(place / word if "/" in word else word) for word in argv[1:])
    wanted = next(filter(None, map(_needed_mpi, filter(None, found))), "")
    if not wanted:
        return None
    for directory in dict.fromkeys(map(os.path.realpath, os.get_exec_path())):
        for path in sorted(Path(directory).glob("mpicc*")):
            if _COMPILERS.fullmatch(path.name) and os.access(path, os.X_OK):
                with contextlib.suppress(NotAvailable, DeadlineExpired):
                    told = await programs.run([str(path), "-show"], deadline, "the MPI compiler")
                    if wanted in _libraries(told.out):
                        return str(path)
    return None


def _needed_mpi(program: str) -> str:
    """The name of the MPI library that a program needs, "libmpi.so.40"; "" if it needs none."""
    try:
        with open(program, "rb") as file:
            section = ELFFile(file).get_section_by_name(".dynamic")
            tags = section.iter_tags("DT_NEEDED") if isinstance(section, DynamicSection) else ()
            names = [str(getattr(tag, "needed", "")) for tag in tags]
            return next(filter(_LIBRARY.fullmatch, names), "")
    except (ELFError, OSError, ValueError):
        pass
    return ""


def _libraries(shown: str) -> set[str]:
    """The names of the MPI libraries that a compiler adds, as programs need them."""
    names = re.findall(r"(?:^|\s)-l(mpi\w*)", shown)
    found = set()
    for directory in re.findall(r"(?:^|\s)-L\s*(\S+)", shown):
        for name in names:
            real = (Path(directory) / f"lib{name}.so").resolve().name
            parts = real.split(".so.")
            if len(parts) == 2:
                found.add(f"{parts[0]}.so.{parts[1].split('.')[0]}")
    return found


async def build_layer(mpicc: str, deadline: Deadline, linker: str = "cc") -> Path:
    """The layer for this MPI, compiled now if it is not in the cache.

    mpicc: the MPI's compiler. Safe for concurrent callers: the file appears by one rename. Raises
    NotAvailable with the compiler's own words and its command line.
    """
    found = shutil.which(mpicc)
    if found is None:
        raise NotAvailable(
            f"there is no MPI compiler '{mpicc}'",
            hint="going back in time needs the mpicc of the MPI that the job runs with",
        )
    program = os.path.abspath(found)
    sources = sorted(_HERE.glob("pmpi*.c"))
    generated = {
        "pmpi_calls.h": mpi_wrappers.calls_header(),
        "pmpi_own.h": mpi_wrappers.own_header(),
        "pmpi_wrappers.c": mpi_wrappers.wrappers(),
        "mpi_four.c": mpi_four.source(),
        "fortran_entries.c": mpi_wrappers.fortran_entries(),
    }
    digest = hashlib.sha256("\0".join((program, linker, *_FLAGS, *strict(), *_LINK)).encode())
    digest.update((await _identity(program, deadline)).encode())
    for path in (*sources, _HERE / "pmpi.h", _HERE / "clock.h"):
        digest.update(path.read_bytes())
    for text in generated.values():
        digest.update(text.encode())
    home = place_for(f"mpi-{digest.hexdigest()[:16]}")
    if not is_made(home, _PARTS):
        await make_once(
            home,
            _PARTS,
            lambda work: _compile(program, linker, sources, generated, work, deadline),
        )
    return home / _PARTS[0]


async def _identity(mpicc: str, deadline: Deadline) -> str:
    """Identifies an MPI: the options that its wrapper adds, and the text of its header."""
    told = []
    for option in ("-show", "--version"):
        done = await programs.run([mpicc, option], deadline, "the MPI compiler")
        told.append(done.out)
        for directory in re.findall(r"-I\s*(\S+)", done.out):
            header = Path(directory) / "mpi.h"
            if header.is_file():
                told.append(hashlib.sha256(header.read_bytes()).hexdigest())
    return "\0".join(told)


async def _compile(
    mpicc: str,
    linker: str,
    sources: list[Path],
    generated: dict[str, str],
    work: Path,
    deadline: Deadline,
) -> None:
    told = await programs.run([mpicc, *HEADER], deadline, "the MPI compiler")
    header = {"pmpi_has.h": mpi_four.has_header(told.out)}
    for name, text in (generated | header).items():
        (work / name).write_text(text)
    includes = ("-I", str(_HERE), "-I", str(work))
    objects = []
    made = [work / name for name in generated if name.endswith(".c")]
    for source in (*sources, *made):
        target = str(work / f"{source.stem}.o")
        command = [mpicc, *_FLAGS, *strict(), *includes, "-c", "-o", target, str(source)]
        await compile_with(command, "the MPI layer", deadline)
        objects.append(target)
    # Linked without the MPI: the layer is also loaded into programs without one.
    command = [linker, *_LINK, "-o", str(work / MADE / "pmpi.so"), *objects, "-ldl"]
    await compile_with(command, "the MPI layer", deadline)

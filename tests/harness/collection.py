"""What `why-blocked` and `check` say of the programs of a published collection.

    PYTHONPATH=tests .venv/bin/python -m harness.collection [-n RANKS] [--quiet] FILE.c...

Each program is compiled, and run with its MPI calls recorded until it ends, or has hung for some
seconds; then a line says how it ended, and others what was said of it. Programs of the MPI Bugs
Initiative (Laurent and others, Correctness 2021) say how many ranks they need, and whether they are
right: claims about right ones are counted, and wrong ones of which nothing was said.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from crdebug.timeline.findings import NOTHING
from harness.layered import Layered
from harness.mpis import MPIS, Mpi
from harness.wrong_programs import Answer, answer_of

_SECONDS = 8.0
_HEADER = re.compile(r"mpirun\s+-np (\d+)\s+\$\{EXE\}(.*)\n\s*\|\s*(OK|ERROR)")


@dataclass(frozen=True, slots=True)
class Program:
    """right: None if it does not say so."""

    file: Path
    ranks: int
    arguments: tuple[str, ...]
    right: bool | None

    @classmethod
    def of(cls, file: Path, ranks: int) -> Program:
        found = _HEADER.search(file.read_text(errors="replace"))
        if found is None:
            return cls(file, ranks, (), None)
        return cls(file, int(found[1]), tuple(found[2].split()), found[3] == "OK")


def said_of(program: Program, mpi: Mpi) -> Answer | None:
    """None if it does not compile."""
    with tempfile.TemporaryDirectory() as place:
        binary = Path(place) / "program"
        compiler = [mpi.tool("mpicc"), "-g", "-O0", "-w", "-fopenmp", f"-I{program.file.parent}"]
        argv = [*compiler, str(program.file), "-o", str(binary), "-lm"]
        if subprocess.run(argv, capture_output=True, check=False).returncode:
            return None
        directory = Path(place) / "time"
        job = Layered(directory, binary, *program.arguments, ranks=program.ranks, mpi=mpi)
        return answer_of(job, right=program.right is not False, seconds=_SECONDS)


def kind_of(program: Program, found: Answer) -> str:
    """What it is counted as."""
    quiet = not found.claims() and found.check == (NOTHING,)
    if program.right is None:
        return "do not say whether they are right"
    if program.right:
        return "right, nothing claimed" if quiet else "RIGHT, AND SOMETHING CLAIMED"
    how = "wrong, hangs" if found.hangs else "wrong, ends"
    return f"{how}, {'nothing said' if quiet else 'named'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--ranks", type=int, default=2, help="where a program says nothing")
    parser.add_argument("--quiet", action="store_true", help="only the sums")
    parser.add_argument("--mpi", default=MPIS[0].name, choices=[mpi.name for mpi in MPIS])
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    if missing := [str(file) for file in options.files if not file.is_file()]:
        parser.error(f"no such files: {', '.join(missing)}")
    mpi = next(each for each in MPIS if each.name == options.mpi)
    sums: Counter[str] = Counter()
    for file in options.files:
        program = Program.of(file, options.ranks)
        found = said_of(program, mpi)
        kind = kind_of(program, found) if found is not None else "do not compile"
        sums[kind] += 1
        if not options.quiet:
            lines = (*found.why, *found.check) if found is not None else ()
            sys.stdout.write("\n  ".join([f"{file.name}: {kind}", *lines]) + "\n")
            sys.stdout.flush()
    for kind, count in sorted(sums.items()):
        sys.stdout.write(f"{count:6} {kind}\n")


if __name__ == "__main__":
    main()

"""What `continue` costs under default settings: beside bare mpirun, in pairs, the first in turn.

Bounds (issue 13, figure 1): median slowdown <= 3 % for LAMMPS, <= 3 % for the heat equation, <= 8 %
for a program that writes all of 2 x 1 GiB over and over. What is compared is the program's own time
between its first and its last step, so that nothing of the start is part of it; a bare run lasts
some 35 s on two processors, so that snapshots and automatic checkpoints lie in it.

Arguments: how many pairs; programs (lammps, heat, writer); `x0.5` for shorter runs; a setting, as
`auto-checkpoint=0`, for runs that are not as by default: it tells what the rest costs.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import TOP, scratch

from harness import mpirun
from harness.cli import argv as crdebug
from harness.lammps import melt
from harness.mpirun import Finished

PAIRS = 15


@dataclass(frozen=True, slots=True)
class Program:
    """bound: of the slowdown.  steps: as many as last some 35 s on two processors.

    command: of a run of so many steps.  seconds: its own time, once it has ended.
    """

    name: str
    bound: float
    steps: int
    command: Callable[[int], list[str]]
    seconds: Callable[[Finished], float]


def told(pattern: str) -> Callable[[Finished], float]:
    def seconds(ran: Finished) -> float:
        found = re.search(rf"^(?:out\| )?{pattern}", ran.stdout, re.M)
        if found is None:
            raise SystemExit(f"{' '.join(ran.argv)} did not say how long it took:\n{ran.stdout}")
        return float(found[1])

    return seconds


def lammps(steps: int) -> list[str]:
    Path("melt").write_text(melt(20, steps))
    return mpirun.command("lmp", "-in", "melt", ranks=2)


def heat(steps: int) -> list[str]:
    """It tells no time: its file is made before the first step, and written at the last."""
    Path("plate").unlink(missing_ok=True)
    program = TOP / "examples/heat/heat"
    return mpirun.command(program, 768, steps, steps, "plate", ranks=2)


def of_file(_: Finished) -> float:
    said = subprocess.run(
        ["stat", "-c", "%.9W %.9Y", "plate"], capture_output=True, text=True, check=True
    )
    born, changed = map(float, said.stdout.split())
    return changed - born


def writer(passes: int) -> list[str]:
    return mpirun.command(Path("writer").absolute(), 1024, passes, ranks=2)


PROGRAMS = [
    Program("heat", 0.03, 10000, heat, of_file),
    Program("writer", 0.08, 150, writer, told(r"seconds (\S+)")),
]
if shutil.which("lmp"):
    loop = told(r"Loop time of (\S+)")
    PROGRAMS.insert(0, Program("lammps", 0.03, 2000, lammps, loop))


def bare(program: Program, steps: int) -> float:
    return program.seconds(mpirun.run(program.command(steps), seconds=1200).expect())


def debugged(program: Program, steps: int, settings: Sequence[str]) -> float:
    lines = [f"set {each.replace('=', ' ')}" for each in settings]
    Path("script").write_text("\n".join([*lines, "continue --to-end\n"]))
    argv = crdebug("run", "--batch", "-x", "script", "--", *program.command(steps))
    ran = mpirun.run(argv, seconds=1200).expect()
    shutil.rmtree("home", ignore_errors=True)  # its checkpoints
    for line in ran.stdout.splitlines():
        if "automatic checkpoint" in line or "snapshot" in line:
            print(f"    {line}", flush=True)
    return program.seconds(ran)


def measure(program: Program, pairs: int, scale: float, settings: Sequence[str]) -> None:
    steps = int(program.steps * scale)
    bare(program, max(steps // 20, 2))  # the first run finds cold caches
    slower, times = [], []
    for number in range(pairs):
        if number % 2:
            before, ours = bare(program, steps), debugged(program, steps, settings)
        else:
            ours, before = debugged(program, steps, settings), bare(program, steps)
        slower.append(ours / before - 1)
        times.append(before)
        print(f"    {program.name}: {before:.2f} s, {ours:.2f} s ({slower[-1]:+.1%})", flush=True)
    cost, spread = statistics.median(slower), max(times) / min(times) - 1
    if settings:
        verdict = f"with {', '.join(settings)}"
    else:
        verdict = f"bound {program.bound:+.0%} {'met' if cost <= program.bound else 'missed'}"
    print(
        f"{program.name:8} {cost:+.1%} (median of {pairs} pairs, {min(slower):+.1%} to "
        f"{max(slower):+.1%}; bare {statistics.median(times):.1f} s): {verdict}; the bare runs "
        f"differ by {spread:.0%}",
        flush=True,
    )


def run() -> None:
    words = sys.argv[1:]
    pairs = next((int(word) for word in words if word.isdigit()), PAIRS)
    settings = [word for word in words if "=" in word]
    scale = next((float(word[1:]) for word in words if re.fullmatch(r"x[\d.]+", word)), 1.0)
    names = [program.name for program in PROGRAMS if program.name in words]
    with scratch():
        subprocess.run(["make", "-s", "-C", TOP / "examples/heat"], check=True)
        writer_c = TOP / "benchmarks/writer.c"
        subprocess.run(["mpicc", "-g", "-O1", "-std=c11", "-o", "writer", writer_c], check=True)
        if not any(program.name == "lammps" for program in PROGRAMS):
            print("LAMMPS: not installed (scripts/setup --test)")
        for program in PROGRAMS:
            if program.name in names or not names:
                measure(program, pairs, scale, settings)


if __name__ == "__main__":
    run()

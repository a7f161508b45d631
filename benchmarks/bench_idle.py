"""What it costs that a job can be checkpointed, while nobody does: beside bare mpirun.

Bound (issue 5): within 1 % of bare mpirun, for LAMMPS and for a ping-pong of one byte, without a
debugger and without a checkpoint. Pairs run one after the other, the first of them in turn; what is
compared is the program's own time, so that the start of crdebug is not part of it.
"""

from __future__ import annotations

import re
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from common import scratch

from harness import mpirun
from harness.cli import argv as crdebug
from harness.lammps import melt
from harness.programs import CompileFailed, build

PAIRS = 15  # two at least
BOUND = 0.01


def pingpong() -> tuple[list[str], str]:
    return mpirun.command(build("idle"), 5_000_000, ranks=2), r"^seconds (\S+)"


def lammps() -> tuple[list[str], str] | None:
    program = shutil.which("lmp")
    if program is None:
        return None
    Path("melt").write_text(melt(12, 2500))
    return mpirun.command(program, "-in", "melt", ranks=2), r"^Loop time of (\S+)"


def seconds(argv: Sequence[str], pattern: str) -> float:
    said = mpirun.run(argv, seconds=600).expect().stdout
    found = re.search(pattern, said, re.M)
    if found is None:
        raise SystemExit(f"{' '.join(argv)} did not say how long it took:\n{said}")
    return float(found[1])


def measure(name: str, argv: list[str], pattern: str, pairs: int) -> None:
    ours = crdebug("run", "--no-debugger", "--", *argv)
    seconds(argv, pattern)  # the first run finds cold caches
    factors, times = [], []
    for number in range(pairs):
        if number % 2:
            bare, with_us = seconds(argv, pattern), seconds(ours, pattern)
        else:
            with_us, bare = seconds(ours, pattern), seconds(argv, pattern)
        factors.append(with_us / bare - 1)
        times.append(bare)
    cost = statistics.median(factors)
    print(
        f"{name:20} {100 * cost:+.2f} % (median of {pairs} pairs, quartiles "
        f"{', '.join(f'{100 * q:+.1f}' for q in statistics.quantiles(factors, n=4))}; "
        f"bare {statistics.median(times):.3f} s): {'met' if cost <= BOUND else 'missed'}",
        flush=True,
    )


def run() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    with scratch():
        try:
            measure("1-byte ping-pong", *pingpong(), pairs)
        except CompileFailed as error:
            print(f"1-byte ping-pong: {error}")
        found = lammps()
        if found is None:
            print("LAMMPS: not installed (scripts/setup --test)")
        else:
            measure("LAMMPS", *found, pairs)


if __name__ == "__main__":
    run()

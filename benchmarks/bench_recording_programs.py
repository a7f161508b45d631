"""What recording costs real programs: LAMMPS and the heat equation, with the layer and without it.

Bounds (issue 3, "Cost of recording"): LAMMPS at most 2 %, heat at most 3 %, in pairs one after the
other. LAMMPS tells the time of its loop itself; of heat it is the whole run.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import TOP

from harness import mpirun
from harness.lammps import melt
from harness.layered import Layered

PAIRS = 15
_LOOP = re.compile(r"^Loop time of ([\d.]+)", re.M)


def measure(
    name: str, bound: float, argv: list[str], seconds: Callable[[str, float], float], work: Path
) -> None:
    job = Layered(work / f"{name}-time", "pingpong")
    times: dict[str, list[float]] = {"bare": [], "recorded": []}
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    for number in range(pairs):
        # which one is first changes: the second finds the caches warm
        for kind in ("bare", "recorded") if number % 2 else ("recorded", "bare"):
            job.forget()
            extra = job.environment() if kind == "recorded" else {}
            start = time.monotonic()
            ran = mpirun.run(argv, extra=extra, cwd=work, seconds=300).expect()
            times[kind].append(seconds(ran.stdout, time.monotonic() - start))
    more = [one / bare - 1 for one, bare in zip(times["recorded"], times["bare"], strict=True)]
    median = statistics.median(more)
    spread = max(times["bare"]) / min(times["bare"]) - 1
    # what others do to the machine only ever adds: the fastest run of each kind has least of it
    fastest = min(times["recorded"]) / min(times["bare"]) - 1
    verdict = "met" if median <= bound else "missed"
    print(
        f"{name:8} {statistics.median(times['recorded']):6.2f} s recorded, "
        f"{statistics.median(times['bare']):6.2f} s bare: {median:+.1%} "
        f"({min(more):+.1%} to {max(more):+.1%}), the fastest of each {fastest:+.1%}; "
        f"bound {bound:+.0%} {verdict}; the bare runs differ by {spread:.1%}"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        (work / "in.melt").write_text(melt(16, 1200))
        if shutil.which("lmp"):
            argv = mpirun.command("lmp", "-in", "in.melt", ranks=2)
            measure("LAMMPS", 0.02, argv, lambda said, _: float(_LOOP.findall(said)[0]), work)
        heat = TOP / "examples" / "heat"
        subprocess.run(["make", "-s", "-C", heat], check=True)
        argv = mpirun.command(heat / "heat", 768, 4000, ranks=2)
        measure("heat", 0.03, argv, lambda _, taken: taken, work)


if __name__ == "__main__":
    main()

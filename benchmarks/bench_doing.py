"""The cost of saying which call a rank is in, before the MPI is asked.

Bound (issue 16, figure 2): at most 5 ns a call, in pairs of the layer and of one that says nothing,
one after the other: with NPopenmpi (Debian's netpipe-openmpi; a message is a send and a receive),
the tests' own ping-pong, and calls that return at once. Argument: how many pairs.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from common import TOP

from crdebug.native.recorder import build
from harness import mpirun
from harness.layered import Layered

PAIRS = 12
BOUND = 5.0  # ns
NETPIPE, ROUNDS, CALLS = 1_000_000, 400_000, 10_000_000


def netpipe(directory: Path) -> Layered:
    program = shutil.which("NPopenmpi")
    if program is None:
        raise SystemExit("bench_doing: there is no NPopenmpi (Debian: netpipe-openmpi)")
    options = ("-l", 1, "-u", 1, "-n", NETPIPE, "-p", 0, "-o", directory / "np.out")
    return Layered(directory / "time", Path(program), *options, ranks=2)


def ping_pong(directory: Path) -> Layered:
    return Layered(directory / "time", "pingpong", "--rounds", ROUNDS, ranks=2)


def passes(directory: Path) -> Layered:
    program = directory / "passes"
    source = TOP / "benchmarks/passes.c"
    subprocess.run(["mpicc", "-O2", "-o", program, source], check=True)
    return Layered(directory / "time", program, CALLS, ranks=1)


def nanoseconds(job: Layered, directory: Path) -> float:
    """Of a message, or of a call."""
    told = mpirun.run(job.argv, extra=job.environment()).expect().stdout
    job.forget()
    written = directory / "np.out"
    if written.exists():  # bytes, Mbit/s, seconds a message; its last digit is worth 10 ns
        return float(written.read_text().split()[2]) * 1e9
    return float(told)


def silent(make: Callable[[Path], Layered], directory: Path) -> Layered:
    """The same with a layer that says nothing."""
    flags = build._FLAGS
    build._FLAGS = (*flags, "-DCRDEBUG_WITHOUT_DOING")
    try:
        return make(directory)
    finally:
        build._FLAGS = flags


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    for make, calls in ((netpipe, 2), (ping_pong, 2), (passes, 1)):
        # Where crdebug has its logs: writing back to a disk would be most of a call's time.
        with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
            directory = Path(name)
            says, not_ = make(directory), silent(make, directory)
            assert says.layer != not_.layer
            found = [
                (nanoseconds(says, directory), nanoseconds(not_, directory)) for _ in range(pairs)
            ]
        more = [(one - other) / calls for one, other in found]
        whole = statistics.median(one for one, _ in found)
        low, _, high = statistics.quantiles(more)
        print(
            f"{make.__name__:10} {whole / calls:7.1f} ns a call, of which "
            f"{statistics.fmean(more):+.1f} ns (quartiles {low:+.1f} to {high:+.1f}, n={pairs})  "
            f"bound {BOUND:g} ns {'met' if statistics.fmean(more) <= BOUND else 'MISSED'}"
        )


if __name__ == "__main__":
    main()

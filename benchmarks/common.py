"""What the benchmarks share: jobs, bare tools to compare with, and a table of pairs.

Times are compared in pairs taken one after the other in the same run: the machine may be shared.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests"))


@dataclass(slots=True)
class Pairs:
    """Seconds of ours and of the bare tool, pair by pair, and the bound that the issue sets.

    factor, plus: ours is to be at most factor x bare + plus.
    """

    name: str
    factor: float
    plus: float
    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)

    def row(self) -> str:
        ours, bare = statistics.median(self.ours), statistics.median(self.bare)
        bound = self.factor * bare + self.plus
        margins = [
            o - (self.factor * b + self.plus) for o, b in zip(self.ours, self.bare, strict=True)
        ]
        missed = statistics.median(margins)
        verdict = "met" if missed <= 0 else f"missed by {missed:.2f} s"
        return (
            f"{self.name:42} {ours:7.2f} s {bare:8.2f} s "
            f"   {self.factor:.3g} x bare + {self.plus:g} s = {bound:.2f} s   {verdict} "
            f"(n={len(self.ours)}, ours {min(self.ours):.2f}-{max(self.ours):.2f})"
        )


def report(pairs: Sequence[Pairs]) -> None:
    print(f"{'median':42} {'crdebug':>9} {'bare':>10}    bound")
    for each in pairs:
        print(each.row())


def _end_jobs_when_ended() -> None:
    """SIGTERM ends a benchmark as Ctrl-C does, also in a shell's background, where SIGINT is
    ignored: otherwise its jobs would run on, and spoil what is measured next."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio.run replaces only this one
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


@contextmanager
def scratch() -> Iterator[Path]:
    """A state directory for the run, and the working directory; removed afterwards."""
    _end_jobs_when_ended()
    work = Path(tempfile.mkdtemp(prefix="crdebug-bench-"))
    before = Path.cwd()
    os.environ["CRDEBUG_HOME"] = str(work / "home")
    os.chdir(work)
    try:
        yield work
    finally:
        os.chdir(before)
        shutil.rmtree(work, ignore_errors=True)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def timed_command(argv: Sequence[str]) -> float:
    started = time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} failed:\n{done.stderr}{done.stdout}")
    return seconds


def main(work: Callable[[], Coroutine[object, object, None]]) -> None:
    with scratch():
        asyncio.run(work())

"""Going back in jobs that are not small: the first time, again, and by a restart beside bare criu.

Bounds (issue 13, figure 3): 8 ranks of 64 MiB and 4 of 512 MiB: first reverse-next <= 1.0 s, again
<= 0.25 s, restart <= 1.0 s + what bare criu takes to restore the same (a job of the same program,
as root, while ours stands); all of them within 20 % after 10 s and after 60 s of run. Arguments:
`8x64`, `4x512`; seconds of run (600 for ten minutes); how many rounds, as `n=5`.
"""

from __future__ import annotations

import re
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench_checkpoint import BareJob
from bench_travel import Phases, run_for, timed
from common import main

from crdebug.base.settings import Settings
from crdebug.node import signals
from crdebug.session import Session
from harness import mpirun
from harness.programs import build

JOBS = ["8x64", "4x512"]
LENGTHS = [10.0, 60.0]
ROUNDS = 5
FIRST, AGAIN, RESTART, CRIU = "first reverse-next", "reverse-next again", "restart", "bare criu"
BOUNDS = {FIRST: 1.0, AGAIN: 0.25, RESTART: 1.0}


@dataclass(slots=True)
class Found:
    """Seconds, by what was measured."""

    title: str
    times: dict[str, list[float]] = field(default_factory=dict)
    phases: Phases = field(default_factory=Phases)

    def note(self, what: str, spent: float) -> None:
        self.phases.end()
        self.times.setdefault(what, []).append(spent)
        told = ", ".join(f"{each} {spent:.2f}" for each, spent in self.phases.seconds.items())
        print(f"    {what} {spent:.2f} s{': ' if told else ''}{told}", flush=True)
        self.phases.forget()

    def median(self, what: str) -> float:
        return statistics.median(self.times[what])

    def report(self) -> None:
        for what, times in self.times.items():
            bound = BOUNDS.get(what, 0.0) + (self.median(CRIU) if what == RESTART else 0.0)
            met = "met" if self.median(what) <= bound else "missed"
            told = f"bound {bound:.2f} s {met}" if bound else ""
            print(
                f"{self.title:26} {what:18} {self.median(what):6.2f} s "
                f"({min(times):.2f}-{max(times):.2f}, n={len(times)}) {told}".rstrip(),
                flush=True,
            )


async def measure(job: str, seconds: float, rounds: int) -> Found:
    ranks, mib = map(int, job.split("x"))
    found = Found(f"{job} MiB, after {seconds:g} s")
    words = ("--steps", 100_000_000, "--delay-us", 1000, "--mib", mib)
    argv = mpirun.command(build("memory"), *words, ranks=ranks)
    name = f"back-{job}-{seconds:g}"
    session = await Session.run(
        argv, name=name, settings=Settings(record=True), subscriber=found.phases
    )
    try:
        history = session.history
        assert history is not None
        await run_for(session, seconds)
        for turn in range(rounds):
            if turn:  # half a second behind a snapshot
                await run_for(session, 2.5)
            found.phases.forget()
            found.note(FIRST, await timed(history.reverse("next", 0)))
            found.note(AGAIN, await timed(history.reverse("next", 0)))
        await session.checkpoint()
        await run_for(session, 1)
        found.phases.forget()
        other = await Session.run(argv, name=f"bare-{name}")
        try:
            await other.add_breakpoint(other.ranks, "work_step")
            await other.resume(other.ranks)
            await other.detach()
        finally:
            await other.close()  # it has let go of it
        bare = BareJob(f"bare-{name}", Path.cwd())
        try:
            bare.dump()
            for _ in range(rounds):
                with bare.standing():
                    found.note(RESTART, await timed(session.restart(1)))
                found.note(CRIU, await bare.restore())
        finally:
            signals.kill(bare.record.pid, None)
    finally:
        await session.close()
    found.report()
    return found


async def run() -> None:
    words = sys.argv[1:]
    lengths = [float(word) for word in words if word.isdigit()] or LENGTHS
    rounds = next((int(word[2:]) for word in words if word.startswith("n=")), ROUNDS)
    for job in [word for word in words if re.fullmatch(r"\d+x\d+", word)] or JOBS:
        found = [await measure(job, each, rounds) for each in lengths]
        for what in BOUNDS if len(found) > 1 else ():
            least, most = (pick(each.median(what) for each in found) for pick in (min, max))
            print(
                f"{job}, {what}: {most / least - 1:.0%} between the medians after "
                f"{', '.join(f'{each:g}' for each in lengths)} s; bound 20 %"
            )


if __name__ == "__main__":
    main(run)

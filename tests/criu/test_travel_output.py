"""A job's output while it is taken back and forth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crdebug.session import Session
from harness.jobs import run_to_end
from harness.mpirun import reference
from harness.programs import build
from harness.travel import history, recorded

RANKS, ROUNDS = 2, 6


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for the files of prints.c


def wrote(job: Session) -> Counter[bytes]:
    """The lines in the file of the job's output."""
    return Counter(
        history(job).traveller.job.run_directory.joinpath("stdout").read_bytes().split(b"\n")[:-1]
    )


async def test_going_forward_to_a_snapshot_brings_the_output_of_then() -> None:
    """It had been cut on the way back."""
    program = build("prints")
    expected = Counter(
        reference(program, "--rounds", ROUNDS, ranks=RANKS).encode().split(b"\n")[:-1]
    )
    async with recorded(program, "--rounds", ROUNDS, ranks=RANKS) as job:
        past = history(job)
        stop = await job.add_breakpoint(job.ranks, "work", condition="step == 4")
        await job.resume(job.ranks)
        await job.delete_breakpoint(stop.number)
        for _ in range(2):
            here = past.now(0).tick
            await past.goto_tick(0, here - 2)
            await past.goto_tick(1, here - 1)
            await past.reverse("step", 1)
            await past.goto_tick(0, here)
            await past.traveller.near.drained()
            assert not wrote(job) - expected
        assert await run_to_end(job) == 0
        assert wrote(job) == expected

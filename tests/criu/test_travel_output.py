"""A job's output while it is taken back and forth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crdebug.base.ranks import RankSet
from crdebug.session import Session
from crdebug.travel.history import History
from harness.jobs import Heard, run_to_end
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


async def run_into_the_middle(job: Session) -> None:
    stop = await job.add_breakpoint(job.ranks, "work", condition="step == 4")
    await job.resume(job.ranks)
    await job.delete_breakpoint(stop.number)


async def go_back_and_forth(past: History) -> None:
    """By both ranks, and to where the job was."""
    here = past.now(0).tick
    await past.goto_tick(0, here - 2)
    await past.goto_tick(1, here - 1)
    await past.reverse("step", 1)
    await past.goto_tick(0, here)
    await past.traveller.near.drained()


async def test_going_forward_to_a_snapshot_brings_the_output_of_then() -> None:
    """It had been cut on the way back."""
    program = build("prints")
    expected = Counter(
        reference(program, "--rounds", ROUNDS, ranks=RANKS).encode().split(b"\n")[:-1]
    )
    async with recorded(program, "--rounds", ROUNDS, ranks=RANKS) as job:
        past = history(job)
        await run_into_the_middle(job)
        for _ in range(2):
            await go_back_and_forth(past)
            assert not wrote(job) - expected
        assert await run_to_end(job) == 0
        assert wrote(job) == expected


def shown(heard: Heard) -> Counter[str]:
    return Counter(heard.text().splitlines())


@pytest.mark.parametrize("by", ["snapshot", "checkpoint"])
async def test_each_line_is_shown_once(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, heard = build("prints"), Heard()
    expected = Counter(reference(program, "--rounds", ROUNDS, ranks=RANKS).splitlines())
    async with recorded(program, "--rounds", ROUNDS, ranks=RANKS, heard=heard) as job:
        past = history(job)
        await run_into_the_middle(job)
        await past.traveller.near.drained()
        before = shown(heard)
        if by == "checkpoint":
            monkeypatch.setattr(past.traveller.near, "bases", list)
        await go_back_and_forth(past)
        assert not shown(heard) - expected - before
        assert await run_to_end(job) == 0
    assert shown(heard) == expected


async def test_what_a_rank_writes_is_shown_though_a_way_brought_it_there_first() -> None:
    """It stood between two calls, before it wrote, and a way ends at the later one."""
    program, heard = build("prints"), Heard()
    expected = Counter(reference(program, "--rounds", ROUNDS, ranks=RANKS).splitlines())
    async with recorded(program, "--rounds", ROUNDS, ranks=RANKS, heard=heard) as job:
        past = history(job)
        stop = await job.add_breakpoint(RankSet.of([1]), "work", condition="step == 3")
        await job.resume(job.ranks)
        await job.delete_breakpoint(stop.number)
        await go_back_and_forth(past)
        assert await run_to_end(job) == 0
    assert shown(heard) == expected


async def test_what_a_changed_past_leads_to_is_shown() -> None:
    program, heard = build("prints"), Heard()
    async with recorded(program, "--rounds", ROUNDS, ranks=RANKS, heard=heard) as job:
        assert await run_to_end(job) == 0
        before = shown(heard)
        await history(job).goto_tick(0, history(job).now(0).tick - 4)
        assert shown(heard) == before
        await job.set_variable(RankSet.of([0]), "total = 5000")
        assert await run_to_end(job) == 0
        new = shown(heard) - before
        assert new and any(": 50" in line or ": 51" in line for line in new)

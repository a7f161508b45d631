"""Ranks that are saved inside an MPI call, and brought back when the call is on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.native.recorder import clock
from harness.layered import Layered
from harness.programs import source

HEADER = source("wildcard").with_name("brought_back.h")
RECORDER = HEADER.parents[2] / "crdebug" / "native" / "recorder"
FLAGS = ("-rdynamic", f"-I{RECORDER}", "-include", str(HEADER))

# the program, how long its ranks wait at random between messages, and whether they wait until all
# receives are posted
PROGRAMS = {
    "wildcard": (2, False),
    "testsome": (3, False),
    "testsome, asked": (3, True),
    "master": (12, False),
    "persistent": (15, False),
    "persistent, asked": (15, True),
}


@pytest.mark.parametrize("every", [1, *(pytest.param(n, marks=pytest.mark.sweep) for n in (2, 3))])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_call_is_the_recorded_one_all_the_same(
    tmp_path: Path, name: str, every: int, thorough: bool
) -> None:
    """The ranks see the same, and in their records no word is lost, doubled or another one."""
    rounds, asked = PROGRAMS[name]
    arguments = ("--rounds", rounds, "--jitter-us", 1500, "--asked", int(asked))
    job = Layered(tmp_path / "time", name.split(",")[0], *arguments, flags=FLAGS)
    recorded = job.run()
    logs = [what_is_recorded(job, rank) for rank in range(job.ranks)]
    brought_back = {"BROUGHT_BACK": str(every)} | ({"BROUGHT_BACK_POSTING": "1"} if asked else {})
    for _ in range(20 if thorough else 1):
        assert job.run(brought_back, seconds=60) == recorded
        for rank, log in enumerate(logs):
            same = what_is_recorded(job, rank) == log
            assert same, f"rank {rank}'s record"


def what_is_recorded(job: Layered, rank: int) -> bytes:
    """A log up to its tail, without what its rank is in, which is no part of the record. The rest
    of the file, most of a gigabyte, is empty."""
    with (job.directory / str(rank)).open("rb") as file:
        header = clock.LogHeader.parse(file.read(clock.LOG_SIZE))
        file.seek(0)
        data = file.read(header.offset(header.tail))
    return data[: clock.DOING_IN_LOG_OFFSET] + data[clock.LOG_SIZE :]

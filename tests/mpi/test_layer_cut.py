"""A log is cut while a rank waits for a message that it announced: the rank looks again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from crdebug.base.deadline import Deadline
from crdebug.job import clocks
from crdebug.job.clocks import RankClock
from crdebug.native.recorder.clock import Clock
from crdebug.node import proc
from crdebug.timeline.calls import Kind
from harness.layered import Layered, Rank
from harness.matcher import library

_WAYS = (
    *("MPI_Probe", "MPI_Iprobe", "MPI_Mprobe", "MPI_Improbe", "MPI_Testall"),
    *("MPI_Request_get_status", "MPI_Win_test"),
)


@dataclass(frozen=True, slots=True)
class _Clock:
    rank: Rank

    def read(self) -> Clock:
        return self.rank.clock()


@contextmanager
def standing(pid: int) -> Iterator[None]:
    """A rank that went on while its log is cut could see half of that."""
    os.kill(pid, signal.SIGSTOP)
    try:
        asyncio.run(Deadline(60).until(lambda: proc.is_stopped(pid), "the rank to stand"))
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Layered:
    """What each way of rank 0's got."""
    job = Layered(tmp_path_factory.mktemp("cut") / "time", "cut", ranks=3)
    assert job.run().splitlines() == [f"way {way}: 1 came first" for way in range(6)]
    return job


@pytest.mark.parametrize("way", range(7), ids=_WAYS)
def test_a_rank_that_waits_for_a_recorded_message_looks_again(
    recorded: Layered, tmp_path: Path, way: int
) -> None:
    yes = [c for c in recorded.log(0).calls if c.name == _WAYS[way] and c.kind is not Kind.NOTHING]
    file = tmp_path / "complete"
    clocks.copy(recorded.directory.parent, tmp_path)  # without what the log has room for
    for other in clocks.of_ranks(tmp_path):
        if other.name != "0":
            other.unlink()  # the others record again
    again = Layered(
        tmp_path / "time", "cut", "--skip", way, "--wait-for", file if way > 3 else "/", ranks=3
    )
    log = again.directory / "0"
    with again.running() as run:
        rank = run.find()[0]
        inside = 2 * yes[0].tick - 1
        run.wait(lambda: rank.clock().now == inside, f"rank 0 is inside {_WAYS[way]}")
        with standing(rank.pid):
            clocks.cut(cast(RankClock, _Clock(rank)), log, library())
        run.wait(lambda: rank.clock().now > inside, f"rank 0 is out of {_WAYS[way]}")
        file.touch()
        first = [2 if each == way < 4 else 1 for each in range(6)]
        told = run.finish().splitlines()
        assert told == [f"way {each}: {rank} came first" for each, rank in enumerate(first)]

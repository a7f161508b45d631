"""The layer holds ranks at the chosen place, and the MPI progresses meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from crdebug.native.recorder import clock
from crdebug.native.recorder.clock import NEVER, LogHeader
from crdebug.timeline.log import RankLog, has_begun
from harness.layered import Layered, Rank, Running


@pytest.mark.parametrize(
    "stop", [2, 3, 20, *(pytest.param(each, marks=pytest.mark.sweep) for each in (9, 25))]
)
def test_ranks_hold_at_the_half_tick(tmp_path: Path, stop: int) -> None:
    """Even: before a call, odd: before its return; and the clock shows it."""
    job = Layered(tmp_path / "time", "collectives", "--rounds", 3)
    expected = job.run()
    job.forget()
    with job.running(stop) as running:
        ranks = running.find()
        running.wait(running.held, f"all ranks hold at {stop}")
        assert [rank.clock().now for rank in ranks] == [stop] * job.ranks
        for number, rank in enumerate(ranks):
            assert rank.clock().rank == number
            assert rank.clock().world == job.ranks
            # the log covers the call that is about to return
            assert job.log(number).tail_now == stop + stop % 2
        for rank in ranks:
            rank.stop_at(NEVER)
        assert running.finish() == expected


def test_a_held_rank_takes_large_messages(tmp_path: Path) -> None:
    """The sender's blocking send of a message that needs the receiver's part ends."""
    job = Layered(tmp_path / "time", "held", "--mib", 4, ranks=2)
    with job.running() as running:
        first, second = running.find()
        # rank 0 posts a receive (its third call), and holds before it waits for it
        running.wait(partial(first.holds_at, 6), "rank 0 holds")
        running.wait(lambda: second.clock().now >= 8, "rank 1 has sent it all")
        assert first.holds()
        first.stop_at(NEVER)
        assert running.finish() == "received\n"


@pytest.mark.parametrize(
    "program",
    [
        *("wildcard", "persistent"),
        *(pytest.param(name, marks=pytest.mark.sweep) for name in ("testsome", "master")),
    ],
)
def test_a_run_goes_on_where_the_log_ends(tmp_path: Path, program: str) -> None:
    """Receives that are open at the end of the log are posted, but only there."""
    for stop in (33, 98):
        job = Layered(tmp_path / f"time{stop}", program, "--rounds", 12, "--jitter-us", 500)
        with job.running(stop) as running:
            rank = running.find()[0]
            running.wait(rank.holds, "rank 0 holds")
            calls = job.log(0).calls[:]
        job.run()  # checks itself
        again = job.log(0)
        for now, then in zip(again.calls, calls[:-1], strict=False):
            assert (now.name, now.completes) == (then.name, then.completes)
            if then.peer is not None:  # else it was open, and has its sender now
                assert (now.peer, now.tag) == (then.peer, then.tag)
        assert again.calls[-1].name == "MPI_Finalize"


def test_a_receive_that_is_cancelled_where_the_log_ends(tmp_path: Path) -> None:
    """A replay does not know how it ends, and keeps it from MPI until the log's tail: it is gone by
    then."""
    job = Layered(tmp_path / "time", "persistent", "--rounds", 2)
    with job.running(2) as running:
        rank, *others = running.find()
        for other in others:
            other.stop_at(NEVER)
        for stop in range(2, 100, 2):
            rank.stop_at(stop)
            running.wait(partial(rank.holds_at, stop), f"rank 0 holds at {stop}")
            if job.log(0).calls[-1].name == "MPI_Cancel":
                break
    assert job.log(0).calls[-1].name == "MPI_Cancel"
    job.run()  # checks itself
    assert job.log(0).calls[-1].name == "MPI_Finalize"


def all_replay(ranks: Sequence[Rank]) -> bool:
    return all(rank.clock().replaying for rank in ranks)


def written(path: Path) -> bytes:
    """A log without the part of the file that nothing was written to."""
    with path.open("rb") as file:
        tail = LogHeader.parse(file.read(clock.LOG_SIZE)).tail
        file.seek(0)
        return file.read(clock.LOG_HEADER + 16 * tail)


def put(path: Path, log: bytes, size: int) -> None:
    """Into the same file, which may be mapped: a reader of the new tail must see everything before
    it."""
    with path.open("r+b" if path.exists() else "w+b", buffering=0) as file:
        file.truncate(size)
        os.pwrite(file.fileno(), log[clock.LOG_SIZE :], clock.LOG_SIZE)
        os.pwrite(file.fileno(), log[: clock.LOG_SIZE], 0)


def barriers(log: RankLog) -> int:
    return sum(call.name == "MPI_Barrier" for call in log.calls)


# How many messages a rank sends before it cannot go on without rank 0, which holds and has this
# log. In the other program all ranks come to their stop.
SENDS: dict[str, Callable[[RankLog, int], int]] = {
    "wildcard": lambda held, rank: 1 + barriers(held),
    "testsome": lambda held, rank: 3 * (1 + barriers(held)),
    "master": lambda held, rank: sum((c.name, c.peer) == ("MPI_Send", rank) for c in held.calls),
}


def settled(job: Layered, program: str, running: Running) -> tuple[int, ...]:
    """The clocks once rank 0 holds, and nobody gets any further."""
    first, *others = running.ranks
    running.wait(first.holds, "rank 0 holds")
    if program not in SENDS:
        running.wait(running.held, "all ranks hold")
    else:
        held = job.log(0)
        for number, rank in enumerate(others, 1):
            sends = SENDS[program](held, number)

            def waits(rank: Rank = rank, number: int = number, sends: int = sends) -> bool:
                if not has_begun(job.directory / str(number)):
                    return False  # the master can do without it
                log = job.log(number)
                sent = sum(call.name == "MPI_Send" for call in log.calls)
                # all of them, and it is inside its next call
                return sent == sends and rank.clock().now == log.tail_now + 1

            running.wait(waits, f"rank {number} waits for rank 0")
    return tuple(rank.clock().now for rank in running.ranks)


@pytest.mark.parametrize(
    ("program", "stop"), [("opened", None), ("wildcard", 47), ("testsome", 90), ("master", 90)]
)
def test_receives_that_were_open_when_we_went_back(
    tmp_path: Path, program: str, stop: int | None
) -> None:
    """As after a restart: the process is at an earlier time, and the log has the later calls.

    A receive that it has posted with an open sender is inside the MPI then, and gets the recorded
    one.
    """
    directory = tmp_path / "time"
    job = Layered(directory, program, "--rounds", 12, "--jitter-us", 500)
    logs = [directory / str(rank) for rank in range(job.ranks)]
    with job.running(stop) as running:
        running.find()
        clocks = settled(job, program, running)
        early = [written(log) for log in logs]
        for rank in running.ranks:
            rank.stop_at(NEVER)
        recorded = running.finish()
    size = logs[0].stat().st_size
    late = [written(log) for log in logs]
    for _ in range(5 if program == "opened" else 2):
        job.forget()
        for log, data in zip(logs, early, strict=True):
            put(log, data, size)
        with job.running(stop) as running:
            running.find()
            assert settled(job, program, running) == clocks
            for log, data in zip(logs, late, strict=True):
                put(log, data, size)
            held = [rank for rank in running.ranks if rank.clock().held]
            running.wait(partial(all_replay, held), "they know")
            for rank in running.ranks:
                rank.stop_at(NEVER)
            assert running.finish() == recorded

"""From rank to rank along messages whose path is known; and the error where the path is unknown."""

from __future__ import annotations

import pytest

from crdebug.base.errors import BadInput, CrdebugError
from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.node import proc
from harness import looks
from harness.jobs import Heard, run_to_end
from harness.programs import build
from harness.travel import history, recorded, run_to

RANKS, ROUNDS = 4, 6
OPTIONS = ("--rounds", ROUNDS)


def sends(rank: int, step: int) -> int:
    """The tick of the call by which a rank sends in a step (tests/programs/relay.c)."""
    return 2 * step + (2 if rank == 0 else 3)


def receives(rank: int, step: int) -> int:
    return 2 * step + (3 if rank == 0 else 2)


def token(rank: int, step: int) -> int:
    """The value that it receives then."""
    a_round = sum(range(1, RANKS + 1))
    return a_round * (step + 1) if rank == 0 else a_round * step + sum(range(1, rank + 1))


async def test_along_the_messages_against_their_direction_and_with_it() -> None:
    async with recorded(build("relay"), *OPTIONS) as job:
        past = history(job)
        await run_to(job, 0, "MPI_Finalize")
        await past.goto_tick(0, receives(0, 4))
        for rank in (3, 2, 1, 0):
            moment = await past.goto_sender((rank + 1) % RANKS)
            assert (moment.focus, moment.tick) == (rank, sends(rank, 4))
            assert moment.note == (
                f"message of 8 bytes from rank {rank} to rank {(rank + 1) % RANKS}, tag 9"
            )
            assert past.focus(job.ranks) == rank
            sent = await job.evaluate(RankSet.of([rank]), "sent")
            assert int(sent.values[rank]) == token((rank + 1) % RANKS, 4)
            stack = (await job.backtrace(RankSet.of([rank]))).values[rank]
            assert [frame.location.function for frame in stack] == ["send_on", "main"]
        for rank in range(RANKS):
            moment = await past.goto_receiver(rank)
            other = (rank + 1) % RANKS
            # where a rank has just received, it sent last in the step before
            assert (moment.focus, moment.tick) == (other, receives(other, 4 - rank))
        await past.goto_tick(0, 1)
        with pytest.raises(BadInput, match="rank 0 has received nothing so far"):
            await past.goto_sender(0)


async def test_messages_on_their_way_and_since_when() -> None:
    async with recorded(build("relay"), *OPTIONS) as job:
        past = history(job)
        await run_to(job, 0, "MPI_Finalize")
        # rank 0 has sent, and not received: the others are as far as they can be without it
        await past.goto_tick(0, sends(0, 3))
        found = await past.partners.on_the_way()
        ((message, line),) = found.sent
        assert (message.sender, message.sent) == (3, sends(3, 3))
        assert (message.receiver, message.tag, message.bytes) == (0, 9, 8)
        assert line is not None and line.function == "send_on"
        assert {(each.receiver, each.posted) for each, _ in found.awaited} == {
            (rank, receives(rank, 4)) for rank in (1, 2, 3)
        }
        assert {line and line.function for _, line in found.awaited} == {"receive_from"}

        for rank, step in ((0, 4), (2, 1)):
            first, moment = await past.bisect(f"rank {rank}: token >= {token(rank, step)}", rank)
            # what a call brought shows when it has returned
            assert first.tick == moment.tick == receives(rank, step)
        first, _ = await past.bisect(f"sum(turns) >= {RANKS * 2 + 1}", 0)
        assert first.tick is not None and sends(0, 2) <= first.tick <= receives(0, 2)
        await past.goto_tick(0, receives(0, 3))
        here = past.now(0)
        first, moment = await past.bisect("any(token < 0)", 0)
        assert first.tick is None
        assert (moment.tick, moment.branch) == (here.tick, here.branch)  # where it was before
        assert int((await job.evaluate(RankSet.of([0]), "token")).values[0]) == token(0, 3)


async def test_back_from_the_end_of_the_job_and_to_its_end_again() -> None:
    heard = Heard()
    async with recorded(build("relay"), *OPTIONS, heard=heard) as job:
        past = history(job)
        for _ in range(2):
            assert await run_to_end(job) == 0
            assert heard.text().endswith(f"{token(0, ROUNDS - 1)}\n")
            for rank, step in ((2, 3), (0, 1), (3, 5)):
                moment = await past.goto_tick(rank, receives(rank, step))
                assert (moment.focus, moment.tick) == (rank, receives(rank, step))
                told = (await job.evaluate(RankSet.of([rank]), "token")).values
                assert int(told[rank]) == token(rank, step)


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.sweep), True])
async def test_back_from_a_crash_which_comes_again(killed: bool) -> None:
    async with recorded(build("relay"), *OPTIONS, "--crash", 2) as job:
        past = history(job)
        for _ in range(2):
            stop = await job.resume(job.ranks)
            (cause,) = (each for each in stop.stops if each.rank == 2)
            assert (cause.reason, cause.detail) == (StopReason.SIGNAL, "SIGSEGV")
            if killed:  # let the signal do its work
                await job.resume(job.ranks)
            moment = await past.goto_tick(2, receives(2, 1))
            assert moment.tick == receives(2, 1)
            told = (await job.evaluate(job.ranks, "token")).values
            assert int(told[2]) == token(2, 1)


async def test_a_replay_that_goes_another_way_is_noticed() -> None:
    async with recorded(build("relay"), *OPTIONS) as job:
        past = history(job)
        await run_to(job, 0, "MPI_Finalize")
        await past.goto_tick(1, receives(1, 2))
        shim = looks.shims()[1]
        # without crdebug's knowledge: it knows of another branch
        proc.write_memory(shim.pid, looks.address(shim, "alternate"), (1).to_bytes(8, "little"))
        with pytest.raises(CrdebugError) as raised:
            await past.goto_tick(1, receives(1, 4))
        assert str(raised.value).startswith(
            f"rank 1: call {sends(1, 2)} of the replay is not the recorded one: "
            "MPI_Send was recorded, and MPI_Ssend came"
        )
        # and nothing is lost
        moment = await past.goto_tick(1, receives(1, 4))
        assert moment.tick == receives(1, 4)
        assert int((await job.evaluate(job.ranks, "token")).values[1]) == token(1, 4)

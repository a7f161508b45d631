"""Interrupts of one target over a GDB in memory, and their traces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fake_mi import FakeGdb
from fake_rank import BREAKPOINT, PID, SIGSEGV, WORK, Rank, soon, turn

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, GdbDied
from crdebug.base.events import RankStopped, StopReason
from crdebug.debugger import interrupting
from crdebug.debugger.target import (
    TargetState,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("reason", [StopReason.INTERRUPT, StopReason.FOLLOWED])
async def test_a_stop_by_interrupt_has_the_reason_of_the_interrupt(
    attached: Rank, reason: StopReason
) -> None:
    await attached.target.resume(soon())
    stop = await attached.target.interrupt(soon(), reason)
    assert stop == RankStopped(2, reason, "", 1, WORK)
    assert attached.stops() == [stop]
    assert (attached.gdb.sent, attached.gdb.heeds, attached.gdb.queued) == (1, False, False)


async def test_gdb_heeds_sigstop_before_it_is_sent_and_ignores_it_after(attached: Rank) -> None:
    await attached.target.resume(soon())
    await attached.target.interrupt(soon())
    handles = [text for text in attached.gdb.transport.texts() if "handle" in text]
    assert handles == [
        '-interpreter-exec console "handle SIGSTOP stop print nopass"',
        '-interpreter-exec console "handle SIGSTOP nostop noprint nopass"',
    ]


async def test_an_interrupt_of_a_stopped_rank_does_nothing(attached: Rank) -> None:
    before = attached.target.last_stop
    assert await attached.target.interrupt(soon()) == before
    assert attached.gdb.sent == 0


async def test_it_stops_by_itself_before_the_signal_is_sent(attached: Rank) -> None:
    await attached.target.resume(soon())
    attached.gdb.silent.add("-interpreter-exec")
    task = asyncio.create_task(attached.target.interrupt(soon()))
    await turn()
    attached.gdb.stop(BREAKPOINT)
    attached.gdb.silent.clear()
    token = attached.gdb.transport.commands[-1][0]
    attached.gdb.transport.say(f"{token}^done")
    assert (await task).reason is StopReason.BREAKPOINT
    assert attached.gdb.sent == 0


async def test_it_stops_by_itself_while_the_signal_is_under_way(attached: Rank) -> None:
    await attached.target.resume(soon())
    attached.gdb.instead = [attached.gdb.stopped(BREAKPOINT, 2)]
    stop = await attached.target.interrupt(soon())
    assert stop == RankStopped(2, StopReason.BREAKPOINT, "1", 2, WORK)
    # One thread alone removed the queued SIGSTOP, and no event reported it.
    assert attached.gdb.alone == ["-exec-continue --thread 2"]
    assert (attached.gdb.queued, attached.gdb.heeds, attached.gdb.locking) == (False, False, False)
    assert attached.stops() == [stop]
    assert attached.target.last_stop == stop == await attached.target.stopped()
    assert "-thread-select 2" in attached.gdb.transport.texts()
    assert "-gdb-set scheduler-locking replay" in attached.gdb.transport.texts()


async def test_another_event_of_that_thread_counts_too(attached: Rank) -> None:
    await attached.target.resume(soon())
    attached.gdb.instead = [attached.gdb.stopped(BREAKPOINT, 2)]
    attached.gdb.transport.answer = _event_first(attached.gdb, attached.gdb.stopped(SIGSEGV, 1))
    stop = await attached.target.interrupt(soon())
    assert [each.reason for each in attached.stops()] == [StopReason.BREAKPOINT, StopReason.SIGNAL]
    assert stop.detail == "SIGSEGV"
    assert not attached.gdb.queued
    assert attached.target.last_stop == stop


def _event_first(gdb: FakeGdb, event: str) -> Callable[[str], list[str]]:
    """The first run of a thread alone ends with an event that GDB had kept back."""
    held = [event]

    def answer(command: str) -> list[str]:
        if command.startswith("-exec-continue --thread") and held:
            return ["%^running", '*running,thread-id="1"', held.pop()]
        return gdb.answer(command)

    return answer


async def test_its_end_while_the_signal_is_under_way(attached: Rank) -> None:
    await attached.target.resume(soon())
    attached.gdb.instead = ['=thread-group-exited,id="i1"', '*stopped,reason="exited-normally"']
    stop = await attached.target.interrupt(soon())
    assert stop == RankStopped(2, StopReason.EXITED, "0")
    assert attached.target.state is TargetState.EXITED
    assert attached.gdb.alone == []


async def test_two_interrupts_are_one(attached: Rank) -> None:
    await attached.target.resume(soon())
    one, other = await asyncio.gather(
        attached.target.interrupt(soon()), attached.target.interrupt(soon())
    )
    assert one == other
    assert attached.gdb.sent == 1


async def test_an_interrupt_waits_for_the_run_to_begin(attached: Rank) -> None:
    run = asyncio.create_task(attached.target.resume(soon()))
    stop = asyncio.create_task(attached.target.interrupt(soon()))
    await run
    assert (await stop).reason is StopReason.INTERRUPT


async def test_a_lost_signal_is_sent_again(attached: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupting, "_LOST_AFTER", 0.001)
    attached.gdb.loses = 2
    await attached.target.resume(soon())
    assert (await attached.target.interrupt(soon())).reason is StopReason.INTERRUPT
    assert attached.gdb.sent == 3


async def test_a_rank_that_does_not_stop_is_named_and_can_be_asked_again(
    attached: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupting, "_LOST_AFTER", 0.001)
    attached.gdb.loses = 1 << 30
    await attached.target.resume(soon())
    with pytest.raises(DeadlineExpired, match=r"rank 2 during interrupt: waited 0\.05 s for the r"):
        await attached.target.interrupt(Deadline(0.05))
    assert attached.target.state is TargetState.RUNNING
    attached.gdb.loses = 0
    assert (await attached.target.interrupt(soon())).reason is StopReason.INTERRUPT


async def test_a_stop_after_the_deadline_is_settled_before_the_next_run(
    attached: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupting, "_LOST_AFTER", 0.001)
    attached.gdb.loses = 1 << 30
    await attached.target.resume(soon())
    with pytest.raises(DeadlineExpired):
        await attached.target.interrupt(Deadline(0.01))
    attached.gdb.loses = 0
    attached.gdb.queued = True
    attached.gdb.stop(BREAKPOINT)
    await turn()
    await attached.target.detach(soon())
    assert attached.gdb.alone != []
    assert not attached.gdb.queued


async def test_somebody_elses_sigstop_is_a_signal(attached: Rank) -> None:
    await attached.target.resume(soon())
    attached.gdb.stop('reason="signal-received",signal-name="SIGSTOP",')
    assert (await attached.target.stopped()).reason is StopReason.SIGNAL


async def test_after_an_attach_a_queued_sigstop_is_taken_out(rank: Rank) -> None:
    rank.gdb.queued = True
    await rank.target.attach(PID, soon())
    assert (rank.gdb.queued, rank.gdb.heeds) == (False, False)
    assert rank.told == []
    assert rank.target.state is TargetState.STOPPED


async def test_job_controls_stop_is_lifted_when_nothing_is_queued(rank: Rank) -> None:
    rank.gdb.was_stopped = rank.gdb.queued = True
    await rank.target.attach(PID, soon())
    assert (rank.gdb.was_stopped, rank.gdb.queued) == (False, False)
    assert len(rank.gdb.alone) >= 2


async def test_settle_takes_a_queued_sigstop_from_the_kernel(attached: Rank) -> None:
    attached.gdb.queued = True
    await attached.target.settle(soon())
    assert not attached.gdb.queued


@pytest.mark.parametrize("command", ["-exec-continue", "-crdebug-as-before"])
async def test_a_thread_blocks_no_more_than_before_once_its_gdb_has_died(
    attached: Rank, command: str
) -> None:
    """While it runs alone into its SIGSTOP it blocks all other signals."""
    gdb = attached.gdb
    await attached.target.resume(soon())
    gdb.instead = [gdb.stopped(BREAKPOINT, 2)]
    gdb.silent.add(command)
    task = asyncio.create_task(attached.target.interrupt(soon()))
    before = len(gdb.transport.texts())
    await Deadline(60).until(
        lambda: any(text.startswith(command) for text in gdb.transport.texts()[before:]), command
    )
    assert gdb.blocked == []
    gdb.transport.end(-9)
    with pytest.raises(GdbDied):
        await task
    assert gdb.blocked == [(PID + 1, gdb.mask)]

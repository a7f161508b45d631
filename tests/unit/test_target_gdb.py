"""One target over a GDB in memory: states, refusals, interrupts and what they leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from fake_mi import FakeGdb

from crdebug.deadline import Deadline
from crdebug.errors import DeadlineExpired, GdbDied, GdbError, Refused
from crdebug.events import GdbSays, Location, RankRunning, RankStopped, StopReason
from crdebug.target import stopping
from crdebug.target.gdb import GdbTarget
from crdebug.target.interface import (
    BreakpointChanged,
    BreakpointGone,
    BreakpointRequest,
    Inserted,
    Notice,
    TargetState,
)

pytestmark = pytest.mark.unit

WORK = Location(0x1000, "work", "ring.c", 7)
BREAKPOINT = 'reason="breakpoint-hit",disp="keep",bkptno="1",'
SIGSEGV = 'reason="signal-received",signal-name="SIGSEGV",'


def soon() -> Deadline:
    return Deadline(10.0)


async def turn() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Rank:
    def __init__(self) -> None:
        self.gdb = FakeGdb()
        self.told: list[Notice] = []
        self.target = GdbTarget(
            2, self.gdb.transport, subscriber=self.told.append, signals=self.gdb
        )

    def stops(self) -> list[RankStopped]:
        return [each for each in self.told if isinstance(each, RankStopped)]


@pytest_asyncio.fixture
async def rank() -> AsyncIterator[Rank]:
    rank = Rank()
    yield rank
    await rank.target.close(soon())


@pytest_asyncio.fixture
async def attached(rank: Rank) -> Rank:
    await rank.target.attach(100, soon())
    rank.gdb.alone.clear()
    rank.gdb.transport.commands.clear()
    return rank


# ---- states ------------------------------------------------------------------------------------


async def test_attach_stops_it_and_tells_nobody(rank: Rank) -> None:
    stop = await rank.target.attach(100, soon())
    assert stop == RankStopped(2, StopReason.OTHER, "", 1, WORK)
    assert (rank.target.state, rank.target.pid) == (TargetState.STOPPED, 100)
    assert rank.target.last_stop == stop
    assert rank.told == []


async def test_an_attach_that_fails_changes_nothing(rank: Rank) -> None:
    rank.gdb.errors["-target-attach"] = "ptrace: Operation not permitted."
    with pytest.raises(GdbError, match="ptrace: Operation not permitted"):
        await rank.target.attach(100, soon())
    assert (rank.target.state, rank.target.pid) == (TargetState.IDLE, None)
    del rank.gdb.errors["-target-attach"]
    await rank.target.attach(101, soon())


async def test_detach_and_attach_again(attached: Rank) -> None:
    await attached.target.detach(soon())
    assert (attached.target.state, attached.target.pid) == (TargetState.IDLE, None)
    assert attached.target.last_stop is None
    await attached.target.attach(200, soon())
    assert attached.target.pid == 200


async def test_a_run_and_its_stop(attached: Rank) -> None:
    target = attached.target
    await target.resume(soon())
    assert target.state is TargetState.RUNNING
    assert target.last_stop is None
    waiters = [asyncio.create_task(target.stopped()) for _ in range(3)]
    await turn()
    waiters.pop().cancel()
    attached.gdb.stop(BREAKPOINT)
    expected = RankStopped(2, StopReason.BREAKPOINT, "1", 1, WORK)
    assert await asyncio.gather(*waiters) == [expected, expected]
    assert target.last_stop == expected
    assert attached.told == [RankRunning(2), expected]


async def test_a_stop_right_behind_the_answer_is_not_missed(attached: Rank) -> None:
    attached.gdb.next_stop = [attached.gdb.stopped(BREAKPOINT, 1)]
    await attached.target.resume(soon())
    assert (await attached.target.stopped()).reason is StopReason.BREAKPOINT


@pytest.mark.parametrize(
    ("record", "reason", "detail"),
    [
        ('reason="end-stepping-range",', StopReason.STEP, ""),
        ('reason="function-finished",return-value="5",', StopReason.FINISH, "5"),
        (SIGSEGV, StopReason.SIGNAL, "SIGSEGV"),
        ('reason="watchpoint-trigger",wpt={number="4",exp="x"},', StopReason.WATCHPOINT, "4"),
        (
            'reason="read-watchpoint-trigger",hw-rwpt={number="5",exp="x"},',
            StopReason.WATCHPOINT,
            "5",
        ),
        ('reason="watchpoint-scope",wpnum="6",', StopReason.WATCHPOINT, "6"),
        ('reason="fork",newpid="5",', StopReason.OTHER, "fork"),
        ("", StopReason.OTHER, ""),
        ('reason="signal-received",signal-name="0",', StopReason.OTHER, ""),
        (
            'reason="signal-received",signal-name="0",reason="end-stepping-range",',
            StopReason.STEP,
            "",
        ),
    ],
)
async def test_reasons(attached: Rank, record: str, reason: StopReason, detail: str) -> None:
    await attached.target.resume(soon())
    attached.gdb.stop(record)
    assert await attached.target.stopped() == RankStopped(2, reason, detail, 1, WORK)


@pytest.mark.parametrize(
    ("record", "reason", "detail"),
    [
        ('reason="exited-normally"', StopReason.EXITED, "0"),
        ('reason="exited",exit-code="03"', StopReason.EXITED, "3"),
        ('reason="exited",exit-code="0377"', StopReason.EXITED, "255"),
        ('reason="exited-signalled",signal-name="SIGKILL"', StopReason.KILLED, "SIGKILL"),
    ],
)
async def test_ends(attached: Rank, record: str, reason: StopReason, detail: str) -> None:
    await attached.target.resume(soon())
    attached.gdb.transport.say('=thread-group-exited,id="i1"', f"*stopped,{record}")
    assert await attached.target.stopped() == RankStopped(2, reason, detail)
    assert (attached.target.state, attached.target.pid) == (TargetState.EXITED, None)
    await attached.target.attach(300, soon())
    assert attached.target.state is TargetState.STOPPED


async def test_a_process_that_vanishes_while_it_stands(attached: Rank) -> None:
    attached.gdb.transport.say('=thread-group-exited,id="i1"')
    await turn()
    assert attached.target.state is TargetState.IDLE


async def test_a_typed_continue_counts_as_a_run(attached: Rank) -> None:
    attached.gdb.transport.say('*running,thread-id="all"')
    await turn()
    assert attached.target.state is TargetState.RUNNING
    attached.gdb.stop(BREAKPOINT)
    assert (await attached.target.stopped()).reason is StopReason.BREAKPOINT


async def test_a_typed_detach_ends_the_run(attached: Rank) -> None:
    await attached.target.resume(soon())
    waiter = asyncio.create_task(attached.target.stopped())
    await turn()
    attached.gdb.transport.say('=thread-group-exited,id="i1"')
    await attached.target.console("detach", soon())
    assert await waiter == RankStopped(2, StopReason.KILLED, "detach")


VERBS: dict[str, Callable[[GdbTarget], Awaitable[object]]] = {
    "continue": lambda target: target.resume(soon()),
    "step": lambda target: target.step(1, soon()),
    "next": lambda target: target.next(1, soon()),
    "finish": lambda target: target.finish(soon()),
    "detach": lambda target: target.detach(soon()),
    "kill": lambda target: target.kill(soon()),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_only_a_stopped_rank_can_do_it(rank: Rank, verb: str) -> None:
    with pytest.raises(Refused, match=f"rank 2: cannot {verb}: the rank is not attached"):
        await VERBS[verb](rank.target)
    await rank.target.attach(100, soon())
    await rank.target.resume(soon())
    with pytest.raises(Refused, match=f"rank 2: cannot {verb}: the rank is running"):
        await VERBS[verb](rank.target)
    rank.gdb.transport.say('*stopped,reason="exited-normally"')
    await rank.target.stopped()
    with pytest.raises(Refused, match=f"rank 2: cannot {verb}: the rank is at its end"):
        await VERBS[verb](rank.target)


async def test_attach_to_two_is_refused(attached: Rank) -> None:
    with pytest.raises(Refused, match="cannot attach: the rank is stopped"):
        await attached.target.attach(101, soon())
    assert attached.target.pid == 100


async def test_there_is_no_stop_to_wait_for(rank: Rank) -> None:
    with pytest.raises(Refused, match="not attached"):
        await rank.target.stopped()


async def test_a_run_that_gdb_refuses_leaves_it_stopped(attached: Rank) -> None:
    attached.gdb.errors["-exec-finish"] = '\\"finish\\" not meaningful in the outermost frame.'
    before = attached.target.last_stop
    with pytest.raises(GdbError, match='"finish" not meaningful in the outermost frame'):
        await attached.target.finish(soon())
    assert attached.target.state is TargetState.STOPPED
    assert await attached.target.stopped() == before == attached.target.last_stop


# ---- interrupts --------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [StopReason.INTERRUPT, StopReason.FOLLOWED])
async def test_an_interrupt_is_told_as_what_it_is_for(attached: Rank, reason: StopReason) -> None:
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
    # The queued SIGSTOP was taken out, by one thread alone, and nobody was told.
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
    monkeypatch.setattr(stopping, "_LOST_AFTER", 0.001)
    attached.gdb.loses = 2
    await attached.target.resume(soon())
    assert (await attached.target.interrupt(soon())).reason is StopReason.INTERRUPT
    assert attached.gdb.sent == 3


async def test_a_rank_that_does_not_stop_is_named_and_can_be_asked_again(
    attached: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_LOST_AFTER", 0.001)
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
    monkeypatch.setattr(stopping, "_LOST_AFTER", 0.001)
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
    await rank.target.attach(100, soon())
    assert (rank.gdb.queued, rank.gdb.heeds) == (False, False)
    assert rank.told == []
    assert rank.target.state is TargetState.STOPPED


async def test_job_controls_stop_is_lifted_when_nothing_is_queued(rank: Rank) -> None:
    rank.gdb.was_stopped = rank.gdb.queued = True
    await rank.target.attach(100, soon())
    assert (rank.gdb.was_stopped, rank.gdb.queued) == (False, False)
    assert len(rank.gdb.alone) >= 2


async def test_settle_takes_out_what_the_kernel_has(attached: Rank) -> None:
    attached.gdb.queued = True
    await attached.target.settle(soon())
    assert not attached.gdb.queued


# ---- death -------------------------------------------------------------------------------------

EVERY_VERB: dict[str, tuple[str, Callable[[GdbTarget], Awaitable[object]]]] = {
    "-exec-continue": ("stopped", VERBS["continue"]),
    "-exec-step 1": ("stopped", VERBS["step"]),
    "-exec-next 1": ("stopped", VERBS["next"]),
    "-exec-finish": ("stopped", VERBS["finish"]),
    "-target-detach": ("stopped", VERBS["detach"]),
    "kill": ("stopped", VERBS["kill"]),
    "-target-attach 5": ("idle", lambda target: target.attach(5, soon())),
    "print x": ("stopped", lambda target: target.evaluate("x", soon())),
    "info inferiors": ("stopped", lambda target: target.console("info inferiors", soon())),
    "-thread-info": ("stopped", lambda target: target.threads(soon())),
    "-thread-select 1": ("stopped", lambda target: target.select_thread(1, soon())),
    "-stack-info-frame": ("stopped", lambda target: target.location(soon())),
    "-stack-list-frames 0 0": ("stopped", lambda target: target.backtrace(1, soon())),
    "-break-delete 1": ("stopped", lambda target: target.delete_breakpoint(1, soon())),
    '-break-insert -f -- "f"': (
        "stopped",
        lambda target: target.insert_breakpoint(BreakpointRequest("f"), soon()),
    ),
    "handle SIGSTOP stop print nopass": ("running", lambda target: target.interrupt(soon())),
}


@pytest.mark.parametrize("command", EVERY_VERB)
async def test_gdb_dies_in_the_middle_of_every_verb(rank: Rank, command: str) -> None:
    state, verb = EVERY_VERB[command]
    if state != "idle":
        await rank.target.attach(100, soon())
    if state == "running":
        await rank.target.resume(soon())
    rank.gdb.silent.update(command.split()[:1])
    rank.gdb.silent.add("-interpreter-exec")
    task = asyncio.ensure_future(verb(rank.target))
    await turn()
    rank.gdb.transport.end(-9)
    with pytest.raises(GdbDied) as caught:
        await task
    assert caught.value.command == command
    assert str(caught.value).startswith("rank 2: gdb ended (exit status -9) during")
    assert rank.target.state is TargetState.DEAD


async def test_gdb_dies_while_the_rank_runs(attached: Rank) -> None:
    await attached.target.resume(soon())
    waiter = asyncio.create_task(attached.target.stopped())
    await turn()
    attached.gdb.transport.end(-9)
    with pytest.raises(GdbDied):
        await waiter
    with pytest.raises(GdbDied):
        await attached.target.stopped()
    with pytest.raises(GdbDied, match="during 'continue'"):
        await attached.target.resume(soon())


async def test_gdb_dies_while_nobody_waits(attached: Rank) -> None:
    attached.gdb.transport.end(-9)
    await turn()
    assert attached.target.state is TargetState.DEAD
    (told,) = attached.told
    assert isinstance(told, GdbSays)
    assert told.text.startswith("rank 2: gdb ended (exit status -9) during")


async def test_closing_is_not_told_as_a_death(attached: Rank) -> None:
    await attached.target.close(soon())
    assert attached.told == []


# ---- looking, breakpoints, what GDB says -------------------------------------------------------


async def test_evaluate_takes_the_value_without_its_number(attached: Rank) -> None:
    def answer(command: str) -> list[str]:
        assert command == '-interpreter-exec console "print/x \\"a\\" + 1"'
        return ['~"[New Thread]\\n"', '~"$17 = {a = 1,\\n  b = 2}\\n"', "%^done"]

    attached.gdb.transport.answer = answer
    assert await attached.target.evaluate('"a" + 1', soon(), "/x") == "{a = 1,\n  b = 2}"
    attached.gdb.transport.answer = attached.gdb.answer


async def test_an_evaluation_that_does_not_end_is_broken_off(attached: Rank) -> None:
    attached.gdb.silent.add("-interpreter-exec")
    with pytest.raises(DeadlineExpired):
        await attached.target.evaluate("forever()", Deadline(0.0))
    assert attached.gdb.transport.interrupts == 1


async def test_backtrace_joins_frames_and_arguments(attached: Rank) -> None:
    def answer(command: str) -> list[str]:
        if command.startswith("-stack-list-frames"):
            assert command.endswith(" 0 1")
            return [
                '%^done,stack=[frame={level="0",addr="0x10",func="f",file="a.c",line="3"},'
                'frame={level="1",addr="0x20",func="main"}]'
            ]
        return [
            '%^done,stack-args=[frame={level="0",args=[{name="n",type="int",value="3"},'
            '{name="s",type="struct s"}]},frame={level="1",args=[]}]'
        ]

    attached.gdb.transport.answer = answer
    inner, outer = await attached.target.backtrace(2, soon())
    assert (inner.level, inner.arguments) == (0, "n=3, s=...")
    assert inner.location == Location(0x10, "f", "a.c", 3)
    assert (outer.level, outer.arguments) == (1, "")
    assert outer.location == Location(0x20, "main")
    attached.gdb.transport.answer = attached.gdb.answer


async def test_threads(attached: Rank) -> None:
    first, second = await attached.target.threads(soon())
    assert (first.number, first.tid, first.name, first.state) == (1, 100, "a", "stopped")
    assert first.location == WORK
    assert second.tid == 101


async def test_a_breakpoint_request_in_mi(attached: Rank) -> None:
    answers = {
        '-break-insert -f -t -d -c "x == \\"a\\"" -i 3 -- "a file.c:7"': (
            '%^done,bkpt={number="4",type="breakpoint",addr="<PENDING>",pending="x",times="0"}'
        )
    }
    attached.gdb.transport.answer = lambda command: [answers[command]]
    request = BreakpointRequest("a file.c:7", 'x == "a"', temporary=True, ignore=3, enabled=False)
    assert await attached.target.insert_breakpoint(request, soon()) == Inserted(4, ())
    attached.gdb.transport.answer = attached.gdb.answer


async def test_what_becomes_of_breakpoints_is_told(attached: Rank) -> None:
    attached.gdb.transport.say(
        '=breakpoint-modified,bkpt={number="4",addr="0x10",func="f",file="a.c",line="3",times="2"}',
        '=breakpoint-modified,bkpt={number="5",addr="<MULTIPLE>",times="0",locations=['
        '{number="5.1",addr="0x10",func="f"},{number="5.2",addr="0x20",func="g"}]}',
        '=breakpoint-deleted,id="4"',
    )
    await turn()
    assert attached.told == [
        BreakpointChanged(2, Inserted(4, (Location(0x10, "f", "a.c", 3),), 2)),
        BreakpointChanged(2, Inserted(5, (Location(0x10, "f"), Location(0x20, "g")), 0)),
        BreakpointGone(2, 4),
    ]


async def test_gdb_says_what_is_worth_it(attached: Rank) -> None:
    attached.gdb.transport.say(
        '&"warning: Error removing breakpoint 2\\n"',
        '&"48\\tfoo.c: No such file or directory.\\n"',
        '&"warning: Unable to find libthread_db matching inferior\'s thread library\\n"',
        '~"Thread 1 hit Breakpoint 1\\n"',
        "not mi at all",
    )
    await turn()
    assert attached.told == [
        GdbSays(2, "warning: Error removing breakpoint 2\n"),
        GdbSays(2, "not mi at all"),
    ]


async def test_a_record_of_an_unknown_shape_is_told_and_survived(attached: Rank) -> None:
    attached.gdb.transport.say('=breakpoint-deleted,id="none"')
    await turn()
    assert attached.told == [GdbSays(2, "gdb's 'id' is no number: 'none'")]


async def test_a_stop_of_an_unknown_shape_is_a_stop(attached: Rank) -> None:
    await attached.target.resume(soon())
    attached.gdb.transport.say('*stopped,reason="breakpoint-hit",frame={addr="?"}')
    assert await attached.target.stopped() == RankStopped(
        2, StopReason.OTHER, "gdb's 'addr' is no number: '?'"
    )
    assert attached.target.state is TargetState.STOPPED


async def test_a_stop_that_cannot_be_read_is_a_stop(attached: Rank) -> None:
    await attached.target.resume(soon())
    attached.gdb.transport.say("*stopped,reason=breakpoint")
    assert (await attached.target.stopped()).reason is StopReason.OTHER
    assert attached.told[-1] == GdbSays(2, "*stopped,reason=breakpoint")


async def test_the_end_while_gdb_takes_note_of_an_interrupt(attached: Rank) -> None:
    await attached.target.resume(soon())
    attached.gdb.errors["-interpreter-exec"] = "Couldn't get registers: No such process."
    attached.gdb.instead = ['=thread-group-exited,id="i1"', '*stopped,reason="exited-normally"']
    assert (await attached.target.interrupt(soon())).reason is StopReason.EXITED

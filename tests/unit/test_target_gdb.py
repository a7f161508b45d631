"""One target over a GDB in memory: states, refusals, looking, GDB's output."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fake_rank import BREAKPOINT, PID, SIGSEGV, VERBS, WORK, Rank, soon, turn

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, GdbError, Refused
from crdebug.base.events import GdbSays, Location, RankRunning, RankStopped, StopReason
from crdebug.debugger.folding import MOST
from crdebug.debugger.target import (
    BreakpointChanged,
    BreakpointGone,
    BreakpointRequest,
    Inserted,
    TargetState,
)

pytestmark = pytest.mark.unit


async def test_attach_stops_it_without_an_event(rank: Rank) -> None:
    stop = await rank.target.attach(PID, soon())
    assert stop == RankStopped(2, StopReason.OTHER, "", 1, WORK)
    assert (rank.target.state, rank.target.pid) == (TargetState.STOPPED, PID)
    assert rank.target.last_stop == stop
    assert rank.told == []


async def test_an_attach_that_fails_changes_nothing(rank: Rank) -> None:
    rank.gdb.errors["-target-attach"] = "ptrace: Operation not permitted."
    with pytest.raises(GdbError, match="ptrace: Operation not permitted"):
        await rank.target.attach(PID, soon())
    assert (rank.target.state, rank.target.pid) == (TargetState.IDLE, None)
    del rank.gdb.errors["-target-attach"]
    await rank.target.attach(101, soon())


async def test_a_process_that_is_killed_while_it_is_attached_to_is_not_waited_for(
    rank: Rank,
) -> None:
    """GDB answers then, and reports neither a stop nor the end."""
    nobody = 1 << 22  # the kernel's own limit
    rank.gdb.killed = True
    with pytest.raises(GdbError, match=f"process {nobody} has ended"):
        await rank.target.attach(nobody, soon())
    assert rank.target.state is TargetState.IDLE


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


async def test_a_stop_right_after_the_answer_is_not_missed(attached: Rank) -> None:
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
        ('reason="fork",bkptno="3",newpid="5",', StopReason.CATCHPOINT, "3"),
        ('reason="no-history",', StopReason.OTHER, "no-history"),
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
    stop = await attached.target.stopped()
    assert replace(stop, note="") == RankStopped(2, reason, detail, 1, WORK)


@pytest.mark.parametrize(
    ("record", "note"),
    [
        ('wpt={number="4",exp="x"},value={old="1",new="2"},', "x was 1, is 2"),
        ('hw-rwpt={number="5",exp="x"},value={value="2"},', "x is 2"),
        ('reason="watchpoint-scope",wpnum="6",', "the block that it was in has ended"),
        ('reason="fork",bkptno="7",newpid="5",', "fork, process 5"),
        ('reason="exec",bkptno="7",new-exec="/bin/true",', "exec of /bin/true"),
        ('reason="syscall-entry",bkptno="7",syscall-name="write",', "call of write"),
        ('reason="syscall-return",bkptno="7",syscall-number="999",', "return from 999"),
    ],
)
async def test_notes(attached: Rank, record: str, note: str) -> None:
    await attached.target.resume(soon())
    known = record if "reason" in record else f'reason="watchpoint-trigger",{record}'
    attached.gdb.stop(known)
    assert (await attached.target.stopped()).note == note


async def test_a_caught_signal_is_recognized_by_the_count_of_its_catchpoint(attached: Rank) -> None:
    """GDB 13 gives no reason for that stop."""
    await attached.target.resume(soon())
    attached.gdb.transport.say(
        '=breakpoint-modified,bkpt={number="4",type="catchpoint",what="SIGUSR1",times="1"}'
    )
    attached.gdb.stop("")
    stop = await attached.target.stopped()
    assert (stop.reason, stop.detail, stop.note) == (StopReason.CATCHPOINT, "4", "SIGUSR1")


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


async def test_a_process_that_vanishes_while_it_is_stopped(attached: Rank) -> None:
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


@pytest.mark.parametrize("verb", VERBS)
async def test_only_a_stopped_rank_can_do_it(rank: Rank, verb: str) -> None:
    with pytest.raises(Refused, match=f"rank 2: cannot {verb}: the rank is not attached"):
        await VERBS[verb](rank.target)
    await rank.target.attach(PID, soon())
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
    assert attached.target.pid == PID


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


# ---- looking, breakpoints, GDB's output --------------------------------------------------------


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
            assert command.endswith(f" 0 {2 + MOST}")  # crdebug's own may be among them
            return [
                '%^done,stack=[frame={level="0",addr="0x10",func="f",file="a.c",line="3"},'
                'frame={level="1",addr="0x20",func="main"},'
                'frame={level="2",addr="0x30",func="??",from="/lib/libc.so"}]'
            ]
        return [
            '%^done,stack-args=[frame={level="0",args=[{name="n",type="int",value="3"},'
            '{name="s",type="struct s"}]},frame={level="1",args=[]}]'
        ]

    attached.gdb.transport.answer = answer
    inner, outer, outermost = await attached.target.backtrace(3, soon())
    assert (inner.level, inner.arguments) == (0, "n=3, s=...")
    assert inner.location == Location(0x10, "f", "a.c", 3)
    assert (outer.level, outer.arguments) == (1, "")
    assert outer.location == Location(0x20, "main")
    assert str(outermost.location) == "?? in libc.so"
    attached.gdb.transport.answer = attached.gdb.answer


async def test_threads(attached: Rank) -> None:
    first, second = await attached.target.threads(soon())
    assert (first.number, first.tid, first.name, first.state) == (1, PID, "a", "stopped")
    assert first.location == WORK
    assert second.tid == PID + 1


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


async def test_changes_of_breakpoints_are_reported(attached: Rank) -> None:
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


async def test_only_useful_output_of_gdb_is_passed_on(attached: Rank) -> None:
    attached.gdb.transport.say(
        '&"warning: Error removing breakpoint 2\\n"',
        '&"48\\tfoo.c: No such file or directory.\\n"',
        '&"warning: Unable to find libthread_db matching inferior\'s thread library\\n"',
        '~"Thread 1 hit Breakpoint 1\\n"',
        '&"No line 900 in file \\"a.c\\".\\n"',  # of a breakpoint that is pending
        '&"No compiled code for line 900 in file \\"a.c\\".\\n"',  # the same, from GDB 16 on
        '&"No symbol table is loaded.  Use the \\"file\\" command.\\n"',  # of one before an attach
        "not mi at all",
    )
    await turn()
    assert attached.told == [
        GdbSays(2, "warning: Error removing breakpoint 2\n"),
        GdbSays(2, "not mi at all"),
    ]


async def test_a_malformed_record_is_reported_and_survived(attached: Rank) -> None:
    attached.gdb.transport.say('=breakpoint-deleted,id="none"')
    await turn()
    assert attached.told == [GdbSays(2, "gdb's 'id' is not a number: 'none'")]


async def test_a_stop_of_an_unknown_shape_is_a_stop(attached: Rank) -> None:
    await attached.target.resume(soon())
    attached.gdb.transport.say('*stopped,reason="breakpoint-hit",frame={addr="?"}')
    assert await attached.target.stopped() == RankStopped(
        2, StopReason.OTHER, "gdb's 'addr' is not a number: '?'"
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

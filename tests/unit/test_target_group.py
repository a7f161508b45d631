"""Ranks as a group: which rank stops which, which is the cause, and the effect of failures."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from fake_job import ALL, BREAKPOINT, EXITED, FINISH, FOLLOWED, INTERRUPT, STEP, Job, reasons, turn
from fake_target import HERE

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, DeadlineExpired, GdbDied, GdbError, Refused
from crdebug.base.events import GroupStopped, RankRunning, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import BreakpointRequest, Motion, TargetState, Verb
from crdebug.gdbscripts.wire import Command
from crdebug.mi.records import MiTuple

pytestmark = pytest.mark.unit


@pytest.fixture
def job() -> Job:
    return Job()


# ---- continue ----------------------------------------------------------------------------------


async def test_one_stop_stops_all(job: Job) -> None:
    run = await job.start(job.group.resume(ALL))
    assert job.group.running == ALL
    job[2].stops(BREAKPOINT, "7")
    result = await run
    assert result.cause == (RankStopped(2, BREAKPOINT, "gdb 7", 1, HERE),)
    assert reasons(result.stops) == {0: FOLLOWED, 1: FOLLOWED, 2: BREAKPOINT, 3: FOLLOWED}
    assert job.group.running == RankSet()
    assert "interrupt" not in job[2].calls


async def test_ranks_that_are_not_meant_stay_where_they_are(job: Job) -> None:
    run = await job.start(job.group.resume(RankSet.of([1, 3])))
    job[1].stops(StopReason.SIGNAL, "SIGSEGV")
    assert reasons((await run).stops) == {1: StopReason.SIGNAL, 3: FOLLOWED}
    assert job[0].calls == job[2].calls == []


async def test_all_that_stopped_by_themselves_are_causes(job: Job) -> None:
    job[3].own_stop = BREAKPOINT
    run = await job.start(job.group.resume(ALL))
    job[0].stops(BREAKPOINT)
    job[1].stops(EXITED, "0")
    result = await run
    assert reasons(result.cause) == {0: BREAKPOINT, 1: EXITED, 3: BREAKPOINT}
    assert reasons(result.stops)[2] is FOLLOWED


async def test_a_temporary_breakpoint_is_gone_everywhere_once_it_is_hit(job: Job) -> None:
    made = await job.group.add_breakpoint(ALL, BreakpointRequest("work", temporary=True))
    kept = await job.group.add_breakpoint(ALL, BreakpointRequest("main"))
    numbers = job.group.table.gdb_numbers(made.number)
    run = await job.start(job.group.resume(ALL))
    job[2].stops(BREAKPOINT, str(numbers[2]))
    result = await run
    job[2].loses(numbers[2])  # GDB reports that after the stop
    assert result.cause[0].detail == str(made.number)
    assert job.group.table.all() == (job.group.table.get(kept.number),)
    assert [t.rank for t in job.targets if f"delete {numbers[t.rank]}" in t.calls] == [0, 1, 3]


async def test_an_exit_stops_the_others(job: Job) -> None:
    run = await job.start(job.group.resume(ALL))
    job[0].stops(EXITED, "0")
    assert reasons((await run).cause) == {0: EXITED}


async def test_a_rank_that_has_ended_is_passed_over(job: Job) -> None:
    run = await job.start(job.group.resume(ALL))
    job[0].stops(EXITED, "0")
    await run
    run = await job.start(job.group.resume(ALL))
    job[1].stops(BREAKPOINT)
    assert set(reasons((await run).stops)) == {1, 2, 3}


async def test_a_stop_before_the_others_run(job: Job) -> None:
    gate = job[3].gates["resume"] = asyncio.Event()
    run = await job.start(job.group.resume(ALL))
    job[0].stops(BREAKPOINT)
    await turn()
    assert not run.done()
    assert "interrupt" not in job[3].calls
    gate.set()
    result = await run
    assert reasons(result.stops) == {0: BREAKPOINT, 1: FOLLOWED, 2: FOLLOWED, 3: FOLLOWED}
    assert job[3].calls == ["resume", "interrupt"]


async def test_events_come_as_they_happen(job: Job) -> None:
    run = await job.start(job.group.resume(RankSet.of([0, 1])))
    assert job.told == [RankRunning(0), RankRunning(1)]
    job[1].stops(BREAKPOINT, "3")
    await run
    assert job.told[2:] == [
        RankStopped(1, BREAKPOINT, "gdb 3", 1, HERE),
        RankStopped(0, FOLLOWED, "", 1, HERE),
    ]


# ---- step, next, finish ------------------------------------------------------------------------

STEPS: dict[str, tuple[Callable[[TargetGroup, RankSet], Awaitable[GroupStopped]], StopReason]] = {
    "step": (lambda group, ranks: group.run(ranks, Motion(Verb.STEP, 2)), STEP),
    "next": (lambda group, ranks: group.run(ranks, Motion(Verb.NEXT)), STEP),
    "finish": (lambda group, ranks: group.finish(ranks), FINISH),
}


@pytest.mark.parametrize("verb", STEPS)
async def test_a_step_is_over_when_all_have_done_it(job: Job, verb: str) -> None:
    start, completed = STEPS[verb]
    for order in itertools.permutations(range(3)):
        run = await job.start(start(job.group, RankSet.span(3)))
        for rank in order[:-1]:
            job[rank].stops(completed)
            await turn()
            assert not run.done()
        job[order[-1]].stops(completed)
        result = await run
        assert result.cause == result.stops
        assert set(reasons(result.stops).values()) == {completed}
    assert all("interrupt" not in target.calls for target in job.targets)


@pytest.mark.parametrize("verb", STEPS)
@pytest.mark.parametrize("reason", [BREAKPOINT, StopReason.SIGNAL, EXITED, StopReason.KILLED])
async def test_another_stop_ends_a_step(job: Job, verb: str, reason: StopReason) -> None:
    start, completed = STEPS[verb]
    run = await job.start(start(job.group, ALL))
    job[0].stops(completed)
    await turn()
    job[2].stops(reason)
    result = await run
    assert reasons(result.cause) == {2: reason}
    assert reasons(result.stops) == {0: completed, 1: FOLLOWED, 2: reason, 3: FOLLOWED}


@pytest.mark.parametrize(
    ("motion", "asked"),
    [
        (Motion(Verb.NEXT), "-crdebug-step-ends next"),
        (Motion(Verb.UNTIL), "-crdebug-step-ends until"),
        (Motion(Verb.ADVANCE, location="work"), '-crdebug-step-ends advance "work"'),
    ],
)
async def test_a_breakpoint_where_a_step_ends_is_no_other_stop(
    job: Job, motion: Motion, asked: str
) -> None:
    run = await job.start(job.group.run(ALL, motion))
    for target in job.targets:
        target.answers[Command.STEP_ENDS] = MiTuple((("ended", "yes"),))
        assert not run.done()
        target.stops(*((STEP, "") if target.rank == 1 else (BREAKPOINT, "7")))
        await turn()
    result = await run
    assert result.cause == result.stops
    assert reasons(result.stops) == {0: BREAKPOINT, 1: STEP, 2: BREAKPOINT, 3: BREAKPOINT}
    assert [asked in target.calls for target in job.targets] == [True, False, True, True]


async def test_a_step_by_several_lines_ends_at_a_breakpoint(job: Job) -> None:
    run = await job.start(job.group.run(ALL, Motion(Verb.NEXT, 2)))
    job[0].answers[Command.STEP_ENDS] = MiTuple((("ended", "yes"),))
    job[0].stops(BREAKPOINT, "7")
    assert reasons((await run).cause) == {0: BREAKPOINT}


async def test_a_step_that_hangs_ends_by_interrupt(job: Job) -> None:
    run = await job.start(job.group.run(RankSet.of([0, 1]), Motion(Verb.NEXT)))
    job[0].stops(STEP)
    await turn()
    assert not run.done()
    await job.group.interrupt()
    result = await run
    assert reasons(result.cause) == {1: INTERRUPT}
    assert reasons(result.stops) == {0: STEP, 1: INTERRUPT}


async def test_finish_in_the_outermost_frame_of_one_rank(job: Job) -> None:
    job[1].errors["finish"] = GdbError("not meaningful", "-exec-finish", ranks=RankSet.of([1]))
    run = await job.start(job.group.finish(ALL))
    with pytest.raises(GdbError, match="rank 1: not meaningful"):
        await run
    assert job.group.in_state(TargetState.STOPPED) == ALL


async def test_the_same_error_of_many_ranks_is_one(job: Job) -> None:
    for target in job.targets:
        target.errors["finish"] = GdbError("not meaningful", "-exec-finish")
    with pytest.raises(GdbError, match="ranks 0-3: not meaningful"):
        await job.group.finish(ALL)


# ---- barrier -----------------------------------------------------------------------------------


async def test_a_barrier_where_the_user_has_a_breakpoint_too(job: Job) -> None:
    """GDB names the first breakpoint of those that a rank has come to."""
    users = await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    barrier = await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    run = asyncio.ensure_future(job.group.gather(ALL, barrier.number))
    await turn()
    for rank, number in enumerate((users.number, barrier.number, users.number)):
        job[rank].stops(BREAKPOINT, str(job.group.table.gdb_numbers(number)[rank]))
        await turn()
        assert not run.done()
    job[3].stops(BREAKPOINT, str(job.group.table.gdb_numbers(barrier.number)[3]))
    there, stop = await run
    assert there == ALL
    assert [each.detail for each in stop.stops] == ["1", "2", "1", "2"]


async def test_a_breakpoint_on_the_way_ends_a_barrier(job: Job) -> None:
    barrier = await job.group.add_breakpoint(ALL, BreakpointRequest("work"))
    run = asyncio.ensure_future(job.group.gather(ALL, barrier.number))
    await turn()
    job[1].stops(BREAKPOINT, str(job.group.table.gdb_numbers(barrier.number)[1]))
    await turn()
    job[2].stops(BREAKPOINT, "7", replace(HERE, address=0x2000))
    there, stop = await run
    assert there == RankSet.of([1])
    assert reasons(stop.cause) == {2: BREAKPOINT}
    assert reasons(stop.stops) == {0: FOLLOWED, 1: BREAKPOINT, 2: BREAKPOINT, 3: FOLLOWED}


# ---- interrupt ---------------------------------------------------------------------------------


async def test_the_users_interrupt(job: Job) -> None:
    run = await job.start(job.group.resume(ALL))
    await job.group.interrupt()
    result = await run
    assert result.cause == result.stops
    assert set(reasons(result.stops).values()) == {INTERRUPT}


async def test_interrupts_may_be_repeated(job: Job) -> None:
    run = await job.start(job.group.resume(ALL))
    await asyncio.gather(*(job.group.interrupt() for _ in range(5)))
    await run
    assert all(target.calls == ["resume", "interrupt"] for target in job.targets)


async def test_an_interrupt_before_anybody_runs(job: Job) -> None:
    gates = [target.gates.setdefault("resume", asyncio.Event()) for target in job.targets]
    run = await job.start(job.group.resume(ALL))
    await job.group.interrupt()
    for gate in gates:
        await turn()
        gate.set()
    assert set(reasons((await run).stops).values()) == {INTERRUPT}


async def test_an_interrupt_while_a_run_is_prepared_ends_it_at_once(job: Job) -> None:
    with job.group.about_to_run():
        await job.group.interrupt(coming=True)
        stop = await job.group.resume(ALL)
    assert reasons(stop.cause) == dict.fromkeys(ALL, INTERRUPT)
    with job.group.about_to_run():
        await job.group.interrupt(coming=True)
    run = await job.start(job.group.resume(ALL))  # another one is not meant
    await turn()
    assert not run.done()
    job[2].stops(BREAKPOINT)
    assert reasons((await run).cause) == {2: BREAKPOINT}


async def test_an_interrupt_of_a_stopped_job_does_nothing(job: Job) -> None:
    await job.group.interrupt()
    assert all(target.calls == [] for target in job.targets)


async def test_a_stop_at_the_moment_of_the_interrupt_keeps_its_reason(job: Job) -> None:
    run = await job.start(job.group.resume(ALL))
    job[1].stops(BREAKPOINT)
    await job.group.interrupt()
    result = await run
    assert reasons(result.cause) == {1: BREAKPOINT}


# ---- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["resume", "finish"])
async def test_a_gdb_that_dies_ends_the_run_and_leaves_the_others_usable(
    job: Job, verb: str
) -> None:
    run = await job.start(getattr(job.group, verb)(ALL))
    job[2].dies()
    with pytest.raises(GdbDied, match="rank 2: gdb ended"):
        await run
    assert job.group.in_state(TargetState.STOPPED) == RankSet.of([0, 1, 3])
    run = await job.start(job.group.resume(RankSet.of([0, 1, 3])))
    job[0].stops(BREAKPOINT)
    await run


async def test_a_gdb_that_dies_while_the_others_are_stopped(job: Job) -> None:
    gate = job[1].gates["interrupt"] = asyncio.Event()
    run = await job.start(job.group.resume(ALL))
    job[0].stops(BREAKPOINT)
    await turn()
    job[1].dies()
    gate.set()
    with pytest.raises(GdbDied, match="rank 1"):
        await run
    assert job.group.in_state(TargetState.STOPPED) == RankSet.of([0, 2, 3])


async def test_a_dead_gdb_is_an_error_before_anybody_runs(job: Job) -> None:
    job[3].dies()
    with pytest.raises(GdbDied, match="rank 3: gdb had ended before during 'continue'"):
        await job.group.resume(ALL)
    assert job[0].calls == []


async def test_a_rank_that_does_not_stop_is_named() -> None:
    job = Job(settings=Settings(stop=0.01))
    job[1].stubborn = True
    run = await job.start(job.group.resume(ALL))
    job[0].stops(BREAKPOINT)
    with pytest.raises(DeadlineExpired, match=r"rank 1: waited 0\.01 s"):
        await run
    assert job.group.running == RankSet.of([1])
    job[1].stubborn = False
    answers = await job.group.stop_all()
    assert reasons(tuple(answers.values.values())) == {1: FOLLOWED}


@pytest.mark.parametrize(("own", "seconds"), [(True, 300.0), (False, 30.0)])
async def test_a_stop_for_something_of_crdebugs_own_may_come_late(
    own: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine under load one that took longer than the user's ended the run, and the job."""
    job, given = Job(settings=Settings(stop=30.0)), []
    interrupt = job[1].interrupt

    async def noted(deadline: Deadline, reason: StopReason) -> RankStopped:
        given.append(deadline.seconds)
        return await interrupt(deadline, reason)

    monkeypatch.setattr(job[1], "interrupt", noted)
    run = await job.start(job.group.resume(ALL))
    await job.group.interrupt(patience=10 if own else 1)
    assert reasons((await run).stops) == dict.fromkeys(ALL, StopReason.INTERRUPT)
    assert given == [seconds]


async def test_interrupt_stops_ranks_that_a_failed_run_left_running() -> None:
    job = Job(settings=Settings(stop=0.01))
    job[1].stubborn = True
    run = await job.start(job.group.resume(ALL))
    await job.group.interrupt()
    with pytest.raises(DeadlineExpired):
        await run
    with pytest.raises(DeadlineExpired, match="rank 1"):
        await job.group.interrupt()
    job[1].stubborn = False
    await job.group.interrupt()
    assert job.group.running == RankSet()


async def test_a_fault_of_ours_is_not_taken_for_a_ranks(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fault(deadline: Deadline) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(job[1], "resume", fault)
    run = await job.start(job.group.resume(ALL))
    with pytest.raises(RuntimeError, match="a bug"):
        await run


async def test_refusals(job: Job) -> None:
    with pytest.raises(BadInput, match="there is no rank 9"):
        await job.group.resume(RankSet.of([0, 9]))
    run = await job.start(job.group.resume(RankSet.of([0, 1])))
    with pytest.raises(Refused, match="ranks 0-1: cannot step: a continue is under way"):
        await job.group.run(RankSet.of([2]), Motion(Verb.STEP))
    await job.group.interrupt()
    await run
    await job.group.detach_all(RankSet.of([1]))
    with pytest.raises(Refused, match="rank 1: cannot continue: not attached"):
        await job.group.resume(ALL)
    assert job[2].calls == []


async def test_nobody_is_alive(job: Job) -> None:
    run = await job.start(job.group.resume(ALL))
    for target in job.targets:
        target.stops(EXITED, "0")
    await run
    with pytest.raises(Refused, match="ranks 0-3: cannot step: no rank is alive"):
        await job.group.run(ALL, Motion(Verb.STEP))


async def test_after_a_cancelled_run_another_is_possible(job: Job) -> None:
    run = await job.start(job.group.resume(ALL))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len((await job.group.stop_all()).values) == 4
    run = await job.start(job.group.resume(ALL))
    await job.group.interrupt()
    await run


# ---- ranks that run along ------------------------------------------------------------------------


async def test_a_step_is_over_when_its_own_ranks_are(job: Job) -> None:
    run = await job.start(job.group.run(RankSet.of([1]), Motion(Verb.NEXT)))
    job.group.run_along(RankSet.of([0]))
    await turn()
    assert job.group.running == RankSet.of([0, 1])
    job[1].stops(STEP)
    assert reasons((await run).stops) == {0: FOLLOWED, 1: STEP}


async def test_a_rank_that_runs_along_after_its_step_has_another_stop(job: Job) -> None:
    run = await job.start(job.group.run(RankSet.of([0, 1]), Motion(Verb.NEXT)))
    job[0].stops(STEP)
    await turn()
    job.group.run_along(RankSet.of([0]))
    await turn()
    assert job.group.under_way is not None
    assert job.group.under_way.pending == RankSet.of([0, 1])
    job[0].stops(BREAKPOINT, "7")
    result = await run
    assert reasons(result.cause) == {0: BREAKPOINT} and reasons(result.stops)[1] is FOLLOWED


async def test_nobody_runs_along_once_it_is_over(job: Job) -> None:
    run = await job.start(job.group.run(RankSet.of([0, 1]), Motion(Verb.NEXT)))
    await job.group.interrupt()
    job.group.run_along(RankSet.of([2]))
    await run
    assert "resume" not in job[2].calls

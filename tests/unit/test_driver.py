"""The driver: how an instruction ended becomes an event, and nothing is left under way."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbDied, InvalidTransition, Refused
from crdebug.base.ranks import RankSet
from crdebug.checkpoint.driver import RankLost, drive
from crdebug.checkpoint.protocol import (
    AwaitWaitpoint,
    Detach,
    Failed,
    Instruction,
    Phase,
    Protocol,
    Rung,
)
from crdebug.checkpoint.protocol import Event as ProtocolEvent

pytestmark = pytest.mark.unit

SIZE = 3
ALL = RankSet.span(SIZE)
Call = tuple[str, int]
CHECKPOINT = (
    *("record_threads", "herd", "detach", "await_waitpoint"),
    *("dump", "publish", "attach", "walk_out"),
)
RESTART = ("restore", "retire", "await_waitpoint", "announce", "attach", "walk_out")
JOB_STEPS = ("dump", "publish", "restore", "retire", "announce")


class FakeActions:
    """JobActions and RankActions.

    calls: the calls, as (name, rank), -1 for the whole job.
    done: the completed ones.
    faults: by the same key, the exception that a call raises.
    gates: the event that a call waits for first.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.done: list[Call] = []
        self.faults: dict[Call, BaseException] = {}
        self.gates: dict[Call, asyncio.Event] = {}
        self.reached: dict[Call, asyncio.Event] = {}

    async def _do(self, call: Call) -> None:
        self.calls.append(call)
        if call in self.reached:
            self.reached[call].set()
        try:
            await asyncio.sleep(0)
            if call in self.gates:
                await self.gates[call].wait()
            if call in self.faults:
                raise self.faults[call]
        finally:
            self.done.append(call)

    def stop_at(self, name: str, rank: int = -1) -> tuple[asyncio.Event, asyncio.Event]:
        """(reached, gate)"""
        call = (name, rank)
        self.reached[call], self.gates[call] = asyncio.Event(), asyncio.Event()
        return self.reached[call], self.gates[call]

    async def record_threads(self, rank: int) -> None:
        await self._do(("record_threads", rank))

    async def herd(self, rank: int) -> None:
        await self._do(("herd", rank))

    async def detach(self, rank: int) -> None:
        await self._do(("detach", rank))

    async def await_waitpoint(self, rank: int) -> None:
        await self._do(("await_waitpoint", rank))

    async def attach(self, rank: int) -> None:
        await self._do(("attach", rank))

    async def walk_out(self, rank: int) -> None:
        await self._do(("walk_out", rank))

    async def dump(self) -> None:
        await self._do(("dump", -1))

    async def publish(self) -> None:
        await self._do(("publish", -1))

    async def restore(self) -> None:
        await self._do(("restore", -1))

    async def retire(self) -> None:
        await self._do(("retire", -1))

    async def announce(self) -> None:
        await self._do(("announce", -1))


def checkpoint() -> Protocol:
    return Protocol(ALL, restart=False, debugger=True)


def restart() -> Protocol:
    return Protocol(ALL, restart=True, debugger=True, replaces=True)


async def soon(awaitable: Awaitable[object]) -> None:
    """No operation of these tests takes time; one that hangs fails here, with its name."""
    await Deadline(20.0).wait(awaitable, "the driver")


def others() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {t for t in [asyncio.current_task()] if t is not None}


@pytest.mark.parametrize("make", [checkpoint, restart])
async def test_every_instruction_is_carried_out_and_reported(make: Callable[[], Protocol]) -> None:
    machine, actions = make(), FakeActions()
    told: list[tuple[Phase, RankSet]] = []
    await soon(drive(machine, actions, actions, lambda phase, ranks: told.append((phase, ranks))))
    assert machine.taken and not machine.problems
    names = list(dict.fromkeys(name for name, _ in actions.calls))
    assert tuple(names) == (RESTART if machine.restart else CHECKPOINT)
    per_rank = {name for name, rank in actions.calls if rank >= 0}
    for name in per_rank:
        assert sorted(rank for called, rank in actions.calls if called == name) == list(ALL)
    first = (Phase.RESTORE, RankSet()) if machine.restart else (Phase.RECORD, ALL)
    assert told[0] == first
    assert told[-1] == (Phase.ENDED, RankSet())
    assert (Phase.WALK_OUT, RankSet.of([2])) in told or (Phase.WALK_OUT, RankSet.of([0])) in told


async def test_ranks_are_asked_at_the_same_time() -> None:
    machine, actions = checkpoint(), FakeActions()
    _, gate = actions.stop_at("record_threads", 0)
    reached = actions.stop_at("record_threads", 2)[0]
    actions.gates.pop(("record_threads", 2))
    task = asyncio.create_task(drive(machine, actions, actions))
    await soon(reached.wait())
    assert ("record_threads", 0) not in actions.done
    gate.set()
    await soon(task)
    assert machine.taken


# ---- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "lost", "let_go"),
    [
        (CrdebugError("no"), False, False),
        (Refused("no"), False, False),
        (RankLost("process 7 has ended"), True, False),
        (GdbDied("gdb ended", "-target-detach", -9), False, True),
        (ProcessLookupError(errno.ESRCH, "No such process"), True, False),
        (OSError(errno.ENOSPC, "No space left on device"), False, False),
        (AssertionError("a bug"), False, False),
        (asyncio.CancelledError(), False, False),
    ],
)
async def test_the_machine_learns_how_an_action_failed(
    error: BaseException, lost: bool, let_go: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Failed] = []
    handle = Protocol.handle

    def listen(machine: Protocol, event: ProtocolEvent) -> list[Instruction]:
        if isinstance(event, Failed):
            heard.append(event)
        return handle(machine, event)

    monkeypatch.setattr(Protocol, "handle", listen)
    machine, actions = checkpoint(), FakeActions()
    actions.faults["detach", 1] = error
    await soon(drive(machine, actions, actions))
    assert [(e.instruction, e.lost, e.let_go) for e in heard] == [(Detach(1), lost, let_go)]
    assert machine.phase is Phase.ENDED and not machine.taken
    assert machine.problems[0].ranks == RankSet.of([1])
    assert machine.problems[0].phase == "detach"


async def test_an_error_keeps_the_ranks_and_the_phase_that_it_has() -> None:
    machine, actions = checkpoint(), FakeActions()
    actions.faults["record_threads", 1] = Refused("no", ranks=ALL, phase="counting")
    await soon(drive(machine, actions, actions))
    assert str(machine.problems[0]) == "ranks 0-2 during counting: no"


async def test_what_the_system_says_becomes_a_clause() -> None:
    machine, actions = checkpoint(), FakeActions()
    actions.faults["dump", -1] = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/there/file")
    await soon(drive(machine, actions, actions))
    assert str(machine.problems[0]) == "during dump: /there/file: no space left on device"
    assert isinstance(machine.problems[0].__cause__, OSError)


@pytest.mark.parametrize("name", CHECKPOINT)
async def test_a_bug_in_any_action_surfaces_with_its_traceback_and_hangs_nothing(name: str) -> None:
    machine, actions = checkpoint(), FakeActions()
    rank = -1 if name in JOB_STEPS else 1
    actions.faults[name, rank] = KeyError("a bug")
    await soon(drive(machine, actions, actions))
    assert machine.phase is Phase.ENDED
    problem = machine.problems[0]
    assert problem.problem == "internal error: KeyError('a bug')"
    assert isinstance(problem.__cause__, KeyError)
    assert problem.__cause__.__traceback__ is not None
    for r, rung in machine.rungs.items():
        assert rung is Rung.OUT or rung <= Rung.RECORDED or r in machine.held
    assert sorted(actions.calls) == sorted(actions.done)
    assert not others()


async def test_the_exception_of_a_subscriber_is_raised_at_the_end() -> None:
    machine, actions = checkpoint(), FakeActions()

    def progress(phase: Phase, ranks: RankSet) -> None:
        if phase is Phase.HOLD:
            raise RuntimeError("the subscriber's own")

    with pytest.raises(RuntimeError, match="the subscriber's own"):
        await soon(drive(machine, actions, actions, progress))
    assert machine.taken and set(machine.rungs.values()) == {Rung.OUT}
    assert not others()


async def test_a_machine_that_refuses_an_event_hangs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, actions = checkpoint(), FakeActions()
    handle = Protocol.handle

    def refuse(self: Protocol, event: ProtocolEvent) -> list[Instruction]:
        if getattr(event, "instruction", None) == AwaitWaitpoint(1):
            raise InvalidTransition("refused", story=("a", "b"))
        return handle(self, event)

    monkeypatch.setattr(Protocol, "handle", refuse)
    with pytest.raises(InvalidTransition):
        await soon(drive(machine, actions, actions))
    assert sorted(actions.calls) == sorted(actions.done)


# ---- giving up -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHECKPOINT)
async def test_a_checkpoint_that_is_cancelled_ends_first(name: str) -> None:
    machine, actions = checkpoint(), FakeActions()
    call = (name, -1 if name in JOB_STEPS else 1)
    reached, gate = actions.stop_at(*call)
    task = asyncio.create_task(drive(machine, actions, actions))
    await soon(reached.wait())
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # once more, as people do
    for _ in range(20):
        await asyncio.sleep(0)
    if call != ("dump", -1):  # a dump is cancelled, everything else completes
        assert not task.done(), "it did not wait for what was under way"
        gate.set()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert machine.phase is Phase.ENDED
    assert sorted(actions.calls) == sorted(actions.done)
    assert not machine.held
    for rung in machine.rungs.values():
        assert rung is Rung.OUT or rung <= Rung.RECORDED
    before_the_dump = CHECKPOINT.index(name) <= CHECKPOINT.index("dump")
    assert machine.taken is not before_the_dump
    if before_the_dump:
        assert machine.problems[0].problem == "interrupted"
        if call[0] != "dump":
            assert ("dump", -1) not in actions.calls
    assert not others()


@pytest.mark.parametrize("name", CHECKPOINT)
async def test_a_checkpoint_that_the_user_breaks_off_fails_and_nothing_is_raised(name: str) -> None:
    machine, actions, asked = checkpoint(), FakeActions(), asyncio.Event()
    call = (name, -1 if name in JOB_STEPS else 1)
    reached, gate = actions.stop_at(*call)
    task = asyncio.create_task(drive(machine, actions, actions, asked=asked))
    await soon(reached.wait())
    asked.set()
    for _ in range(20):
        await asyncio.sleep(0)
    gate.set()
    await soon(task)
    assert machine.phase is Phase.ENDED and not machine.held
    before_the_dump = CHECKPOINT.index(name) <= CHECKPOINT.index("dump")
    assert machine.taken is not before_the_dump
    if before_the_dump:
        assert machine.problems[0].problem == "interrupted"
    assert not others()


@pytest.mark.parametrize("name", RESTART)
async def test_a_restart_that_is_cancelled_is_completed_once_the_job_is_back(name: str) -> None:
    machine, actions = restart(), FakeActions()
    call = (name, -1 if name in JOB_STEPS else 1)
    reached, gate = actions.stop_at(*call)
    task = asyncio.create_task(drive(machine, actions, actions))
    await soon(reached.wait())
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    if call != ("restore", -1):
        assert not task.done()
        gate.set()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert machine.phase is Phase.ENDED
    back = call != ("restore", -1)
    assert machine.taken is back
    assert set(machine.rungs.values()) == ({Rung.OUT} if back else set())
    assert not others()


async def test_a_cancellation_that_comes_before_the_first_step_of_a_dump() -> None:
    """A task that is cancelled before it runs at all never reaches its own code."""
    machine, actions = checkpoint(), FakeActions()
    task: asyncio.Task[None]

    def progress(phase: Phase, ranks: RankSet) -> None:
        if phase is Phase.DUMP:
            task.cancel()

    task = asyncio.create_task(drive(machine, actions, actions, progress))
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert machine.phase is Phase.ENDED and not machine.taken
    assert set(machine.rungs.values()) == {Rung.OUT}
    assert not others()


async def test_a_cancelled_action_is_cancelled_once_and_may_clean_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, actions = checkpoint(), FakeActions()
    reached, cleaned = asyncio.Event(), asyncio.Event()

    async def dump() -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned.set()

    monkeypatch.setattr(actions, "dump", dump)
    task = asyncio.create_task(drive(machine, actions, actions))
    await soon(reached.wait())
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert cleaned.is_set()


async def test_cancelled_when_it_is_over() -> None:
    machine, actions = checkpoint(), FakeActions()
    task: asyncio.Task[None]

    def progress(phase: Phase, ranks: RankSet) -> None:
        if phase is Phase.ENDED:
            task.cancel()

    task = asyncio.create_task(drive(machine, actions, actions, progress))
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert machine.taken and not machine.problems
    assert not others()

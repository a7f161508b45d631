"""A session without processes: it answers what a test has put in, and notes what was asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from fake_history import FakeHistory

from crdebug.base.answers import Answers, comparable, same_places, some
from crdebug.base.errors import BadInput, CrdebugError, GdbError, Refused, StoreError
from crdebug.base.events import (
    Event,
    GroupStopped,
    JobEnded,
    Location,
    RankStopped,
    StopReason,
)
from crdebug.base.rank_expressions import NamedSets, resolve
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.base.summary import deviating
from crdebug.checkpoint.store import Checkpoint
from crdebug.debugger.breakpoints import Breakpoint
from crdebug.debugger.frames import Stack
from crdebug.debugger.group import HostInfo, RankInfo
from crdebug.debugger.stacktree import StackTree, merge
from crdebug.debugger.target import Frame, PointKind, ThreadInfo
from crdebug.session import Session
from crdebug.session.points import Display
from crdebug.session.running import StopMode
from crdebug.session.selecting import true_ranks, truths
from crdebug.session.waiting import StepOthers

MAIN = Location(0x1000, "main", "heat.c", 80)
RELAX = Location(0x2000, "relax", "heat.c", 41)
POLL = Location(0x7F00, "poll")


def stops(
    ranks: RankSet, reason: StopReason, detail: str = "", at: Location | None = RELAX
) -> tuple[RankStopped, ...]:
    """One stop for each rank."""
    return tuple(RankStopped(rank, reason, detail, 1, at) for rank in ranks)


def together(reason: StopReason, detail: str = "", size: int = 4) -> GroupStopped:
    """All ranks stop for the same reason."""
    at = None if reason in (StopReason.EXITED, StopReason.KILLED) else RELAX
    all_of_them = stops(RankSet.span(size), reason, detail, at)
    return GroupStopped(all_of_them, all_of_them)


def a_checkpoint(number: int, job: str = "heat", note: str = "") -> Checkpoint:
    return Checkpoint(
        job=job,
        number=number,
        time=1_700_000_000.0,
        note=note,
        size=12_345_678,
        debugger=True,
        incarnation=1,
        locations=(str(RELAX),) * 4,
    )


class FakeSession:
    """The public face of crdebug.session.Session.

    coming: the results of the next runs (a stop, or an error to raise), in order; further runs stop
        at a breakpoint.
    values: by expression, an answer for each rank; an error is that rank's error.
    asked: every verb with its arguments.
    hold: while it is not set, a run does not end; interrupt sets it.
    """

    def __init__(self, job: str = "heat", size: int = 4) -> None:
        self.sets = NamedSets()
        self.settings = Settings()
        self.group = None  # no command uses it
        self.history: FakeHistory | None = FakeHistory()
        self.job = job
        self.ranks = RankSet.span(size)
        self.ended: int | None = None
        self.attached = True
        self.stop_at_failure = True
        self.stop_mode = StopMode.JOB
        self.apart = False
        self.patience = 10.0
        self.displays: list[Display] = []
        self.step_others = StepOthers.ASK
        self.ask: object = None
        self.running = RankSet()
        self.dead = RankSet()  # whose GDBs have died
        self.of_cores = False
        self.alone = RankSet()
        self.exited = RankSet()
        self.incarnation = 1
        self.directory = Path("/nowhere")
        self.coming: deque[GroupStopped | Exception] = deque()
        self.values: dict[str, Sequence[str | CrdebugError]] = {}
        self.said: dict[str, Sequence[str]] = {}
        self.completions: tuple[str, ...] = ()
        self.frames: dict[int, tuple[Frame, ...]] = {}
        self.asked: list[tuple[object, ...]] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.started = asyncio.Event()
        self.closed = False
        self.on_close: Callable[[], None] = lambda: None
        self._subscribers: list[Callable[[Event], None]] = []
        self._breakpoints: dict[int, Breakpoint] = {}
        self._checkpoints: list[Checkpoint] = []

    # ---- beginning and end

    def tell(self, event: Event) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(event)

    def end(self, status: int) -> None:
        self.ended = status
        self.tell(JobEnded(status))

    end_told = True

    @property
    def output_told(self) -> dict[Path, int]:
        return {}

    async def detach(self, *, hold: bool = False) -> None:
        self.asked.append(("detach", "held") if hold else ("detach",))
        self.attached = False

    async def rest(self) -> None: ...

    async def kill(self) -> None:
        self.asked.append(("kill",))
        self.end(137)

    async def close(self) -> None:
        self.closed = True
        self.on_close()

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    # ---- looking

    @property
    def living(self) -> RankSet:
        return self.ranks - (self.exited if self.ended is None else self.ranks)

    def in_state(self, word: str) -> RankSet:
        gone = self.exited if self.ended is None else self.ranks
        states = {"running": self.running, "exited": gone}
        return (
            states.get(word, RankSet()) if word != "stopped" else self.ranks - self.running - gone
        )

    @property
    def hosts(self) -> dict[str, RankSet]:
        return {"node1": self.ranks}

    def info_hosts(self) -> tuple[HostInfo, ...]:
        first = RankSet.of([self.ranks.first])
        there = (("node1", first, None), ("node2", self.ranks - first, ""))
        return tuple(HostInfo(*each) for each in there)

    def info_ranks(self) -> tuple[RankInfo, ...]:
        return tuple(self._info(rank) for rank in self.ranks)

    def _info(self, rank: int) -> RankInfo:
        if self.ended is not None or rank in self.exited:
            return RankInfo(rank, "node1", "heat", None, "exited", None)
        return RankInfo(rank, "node1", "heat", 100 + rank, "stopped", RELAX)

    async def info_threads(self, ranks: RankSet) -> Answers[tuple[ThreadInfo, ...]]:
        def threads(rank: int) -> tuple[ThreadInfo, ...]:
            return (
                ThreadInfo(1, 100 + rank, "heat", RELAX, "stopped"),
                ThreadInfo(2, 200 + rank, "progress", POLL, "stopped"),
            )

        return Answers({rank: threads(rank) for rank in ranks}, {})

    async def evaluate(self, ranks: RankSet, expression: str, format: str = "") -> Answers[str]:
        self.asked.append(("evaluate", str(ranks), expression, format))
        found = self.values.get(f"{format} {expression}".strip())
        if found is None:
            text = f'No symbol "{expression}" in current context.'
            return Answers({}, {rank: GdbError(text, expression) for rank in ranks})
        answers = {rank: found[rank] for rank in ranks}
        return Answers(
            {rank: each for rank, each in answers.items() if isinstance(each, str)},
            {rank: each for rank, each in answers.items() if isinstance(each, CrdebugError)},
        )

    async def backtrace(self, ranks: RankSet, limit: int = 0) -> Answers[tuple[Frame, ...]]:
        self.asked.append(("backtrace", str(ranks), limit))
        default = (Frame(0, RELAX, "n=4"), Frame(1, MAIN, ""))
        frames = {rank: self.frames.get(rank, default) for rank in ranks}
        return Answers({rank: each[: limit or None] for rank, each in frames.items()}, {})

    async def stacks(self, ranks: RankSet, limit: int = 0) -> Answers[Stack]:
        frames = await self.backtrace(ranks, limit)
        stacks = {rank: Stack.of(each) for rank, each in frames.values.items()}
        return Answers(stacks, frames.errors)

    async def stack_tree(
        self, ranks: RankSet, *, depth: int = 0, function_only: bool = False, **_: object
    ) -> StackTree:
        found = some(await self.backtrace(ranks))
        stacks = {rank: (frames,) for rank, frames in found.values.items()}
        branches = merge(stacks, depth=depth, function_only=function_only)
        return StackTree(branches, False, found.merged_errors())

    async def select(self, text: str) -> RankSet:
        return await resolve(text, self)

    async def where(self, expression: str, ranks: RankSet) -> RankSet:
        return true_ranks(expression, some(await self.truth(ranks, expression)), self.tell)

    async def truth(self, ranks: RankSet, expression: str) -> Answers[bool]:
        return truths(expression, await self.evaluate(ranks, expression))

    async def compare(self, ranks: RankSet, expression: str) -> tuple[Answers[str], RankSet]:
        answers = comparable(expression, same_places(await self.evaluate(ranks, expression)))
        return answers, deviating(answers)

    async def complete(self, rank: int, line: str) -> tuple[str, ...]:
        self.asked.append(("complete", rank, line))
        return tuple(f"{line}{more}" for more in self.completions)

    async def gdb(self, ranks: RankSet, command: str) -> Answers[str]:
        self.asked.append(("gdb", str(ranks), command))
        return Answers(
            {rank: self.said.get(command, ("",) * len(self.ranks))[rank] for rank in ranks}, {}
        )

    # ---- running

    async def replace_dead(self, ranks: RankSet) -> RankSet:
        replaced, self.dead = ranks & self.dead, self.dead - ranks
        return replaced

    async def resume(self, ranks: RankSet) -> GroupStopped:
        return await self._run("resume", ranks)

    async def run_on(self, ranks: RankSet, *, to_end: bool = False) -> GroupStopped:
        return await self._run("run on to end" if to_end else "run on", ranks)

    async def step(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        return await self._run("step", ranks, count)

    async def next(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        return await self._run("next", ranks, count)

    async def finish(self, ranks: RankSet) -> GroupStopped:
        return await self._run("finish", ranks)

    async def _run(self, verb: str, ranks: RankSet, *more: int) -> GroupStopped:
        self.asked.append((verb, str(ranks), *more))
        self.running = ranks
        self.started.set()
        try:
            await self.hold.wait()
        finally:
            self.running = RankSet()
        if not self.coming:
            return together(StopReason.BREAKPOINT, "1", len(self.ranks))
        coming = self.coming.popleft()
        if isinstance(coming, Exception):
            raise coming
        self.exited |= RankSet.of(
            stop.rank for stop in coming.stops if stop.reason is StopReason.EXITED
        )
        return coming

    async def job_end(self) -> int:
        self.asked.append(("job_end",))
        self.end(0)
        return 0

    async def interrupt(self, ranks: RankSet | None = None) -> None:
        self.asked.append(("interrupt",))
        self.hold.set()

    # ---- displays, breakpoints

    def display(self, ranks: RankSet, expression: str, format: str = "") -> Display:
        made = Display(len(self.displays) + 1, expression, format, ranks)
        self.displays.append(made)
        return made

    def undisplay(self, numbers: Collection[int]) -> None:
        self.displays[:] = [each for each in self.displays if each.number not in numbers]

    async def add_breakpoint(
        self,
        ranks: RankSet,
        location: str,
        *,
        condition: str = "",
        temporary: bool = False,
        ignore: int = 0,
        kind: PointKind = PointKind.BREAK,
    ) -> Breakpoint:
        if location == "nowhere":
            raise GdbError('Function "nowhere" not defined.', "-break-insert nowhere", ranks=ranks)
        number = len(self._breakpoints) + 1
        places = {rank: (replace(RELAX, address=0x2000 + rank),) for rank in ranks}
        made = Breakpoint(number, location, ranks, condition, temporary, places=places, kind=kind)
        self._breakpoints[number] = made
        return made

    async def delete_breakpoint(self, number: int) -> None:
        if number not in self._breakpoints:
            raise BadInput(f"there is no breakpoint {number}")
        del self._breakpoints[number]

    def set_commands(self, number: int, lines: Sequence[str]) -> None:
        self._breakpoints[number] = replace(self._breakpoints[number], commands=tuple(lines))

    def breakpoints(self) -> tuple[Breakpoint, ...]:
        return tuple(self._breakpoints.values())

    # ---- checkpoints

    async def checkpoint(self, note: str = "") -> Checkpoint:
        if self.ended is not None:
            raise Refused("the job has ended")
        taken = a_checkpoint(len(self._checkpoints) + 1, self.job, note)
        self._checkpoints.append(taken)
        return taken

    async def restart(self, number: int | None = None) -> Checkpoint:
        if not self._checkpoints:
            raise StoreError("there is no checkpoint", hint="'checkpoint' takes one")
        number = len(self._checkpoints) if number is None else number
        if number > len(self._checkpoints):
            raise StoreError(
                f"there is no checkpoint {self.job}:{number}", hint="'info checkpoints' lists them"
            )
        self.incarnation += 1
        self.ended = None
        self.exited = RankSet()
        return self._checkpoints[number - 1]

    def checkpoint_sizes(self) -> dict[int, int]:
        return {each.number: each.size for each in self._checkpoints}

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(self._checkpoints)


def as_session(fake: FakeSession) -> Session:
    """For what is declared to work on a real one."""
    return cast(Session, fake)

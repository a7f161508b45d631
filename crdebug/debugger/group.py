"""The ranks of a job as one: fan-out by rank set, all-stop, logical breakpoints."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from crdebug.base.answers import Answers, T, classes
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, GdbError
from crdebug.base.events import Event, GroupStopped, Location, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger import python_lines, verbs
from crdebug.debugger.breakpoints import Breakpoint, BreakpointTable, StoredBreakpoint
from crdebug.debugger.folding import is_inside
from crdebug.debugger.frames import Stack, in_program
from crdebug.debugger.group_run import GroupRun
from crdebug.debugger.node import Node
from crdebug.debugger.question import Question, asked, asked_later
from crdebug.debugger.questions import Asks, ask, joined, look
from crdebug.debugger.run import stopped_at, stopped_at_all, stopped_by
from crdebug.debugger.step_ends import is_end
from crdebug.debugger.target import (
    LOOKED_AT,
    BreakpointChanged,
    BreakpointGone,
    BreakpointRequest,
    DebuggerDied,
    Frame,
    Inserted,
    Motion,
    Notice,
    Target,
    TargetState,
    ThreadInfo,
)
from crdebug.gdbscripts.wire import Command
from crdebug.mi.records import quote

V = TypeVar("V", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Identity:
    """A rank's host and program, known before a debugger attaches; the name of its core file, if it
    has one instead of a process."""

    host: str = ""
    executable: str = ""
    core: str = ""


@dataclass(frozen=True, slots=True)
class RankInfo:
    """One rank, for a list of them.

    pid: None without a process.
    state: one of TargetState's words; the name of a core file follows it.
    location: None unless stopped, or of a core file.
    """

    rank: int
    host: str
    executable: str
    pid: int | None
    state: str
    location: Location | None


@dataclass(frozen=True, slots=True)
class HostInfo:
    """A host with ranks, for a list of them.

    lost: why its agent cannot be reached any more, as words; "" as long as it can. None on
    crdebug's own host, which needs none.
    """

    name: str
    ranks: RankSet
    lost: str | None


class TargetGroup:
    """Targets that are resumed and stopped together.

    Only one running verb (resume, finish, run) at a time: a second one is refused. `interrupt` and
    all questions are allowed meanwhile. Questions go to all ranks at once, and the error of one
    rank does not spoil the answers of the others.

    settings: how long a stop and an answer may take.
    subscriber: gets every event of every rank, breakpoints by the user's numbers.
    on_death: called with the rank and its process when a GDB on this host has died and left the
    process behind.
    nodes: the other hosts of ranks; `close` ends their agents too.
    """

    def __init__(
        self,
        targets: Iterable[Target],
        *,
        settings: Settings | None = None,
        subscriber: Callable[[Event], None] = lambda event: None,
        identities: Mapping[int, Identity] | None = None,
        nodes: Sequence[Node] = (),
    ) -> None:
        self.settings = settings or Settings()
        self.subscriber = subscriber
        self.identities = dict(identities or {})
        self.nodes = tuple(nodes)
        self.table = BreakpointTable()
        self.on_death: Callable[[int, int], None] = lambda rank, pid: None
        self.replacing: set[asyncio.Task[None]] = set()  # work on targets to be replaced
        self._targets: dict[int, Target] = {}
        self._run: GroupRun | None = None
        self._preparing = False  # see about_to_run
        self._asked = False  # interrupted by then
        self._kept: dict[int, list[str]] = {}  # settings of each rank's GDB
        for target in sorted(targets, key=lambda each: each.rank):
            self._targets[target.rank] = target
            target.subscriber = self._notice

    # ---- who is there -------------------------------------------------------------------------

    @property
    def ranks(self) -> RankSet:
        """All ranks."""
        return RankSet.of(self._targets)

    @property
    def running(self) -> RankSet:
        """The ranks that run now."""
        return self.in_state(TargetState.RUNNING)

    def in_state(self, *states: TargetState) -> RankSet:
        """The ranks in one of these states."""
        return RankSet.of(rank for rank, each in self._targets.items() if each.state in states)

    def __getitem__(self, rank: int) -> Target:
        """One rank's target. Raises BadInput if there is no such rank."""
        try:
            return self._targets[rank]
        except KeyError:
            raise BadInput(
                f"there is no rank {rank}", hint=f"the job has ranks {self.ranks}"
            ) from None

    def info(self) -> tuple[RankInfo, ...]:
        """One entry for each rank, by rank. Works at any time, because it asks no GDB."""
        return tuple(self._info(rank, target) for rank, target in self._targets.items())

    def _info(self, rank: int, target: Target) -> RankInfo:
        identity = self.identities.get(rank, Identity())
        stopped = target.last_stop if target.state in LOOKED_AT else None
        return RankInfo(
            rank,
            identity.host,
            identity.executable,
            target.pid,
            f"{target.state.value} {identity.core}".rstrip(),
            stopped.location if stopped else None,
        )

    def hosts(self) -> tuple[HostInfo, ...]:
        """Those with ranks, by their first ones."""
        lost = {node.host: node.lost for node in self.nodes}
        members: dict[str, list[int]] = {}
        for rank, identity in sorted(self.identities.items()):
            members.setdefault(identity.host, []).append(rank)
        return tuple(
            HostInfo(name, RankSet.of(ranks), lost.get(name)) for name, ranks in members.items()
        )

    # ---- asking many --------------------------------------------------------------------------

    async def ask(self, ranks: RankSet, question: Asks[T]) -> Answers[T]:
        """Put one question to several ranks at once.

        Its CrdebugErrors become the ranks' errors; any other exception is a fault of ours and is
        raised.
        Raises BadInput if there is no such rank.
        """
        return await ask([self[rank] for rank in ranks], question)

    async def look(
        self,
        ranks: RankSet,
        question: Asks[T],
        *,
        also_ended: bool = False,
    ) -> Answers[T]:
        """`ask`, for questions about the ranks' memory and registers; see questions.look."""
        targets = [self[rank] for rank in ranks]
        return await look(targets, question, self._command(), also_ended=also_ended)

    async def evaluate(self, ranks: RankSet, expression: str, format: str = "") -> Answers[str]:
        """The output of print, on each rank."""
        deadline = self._command()
        return await self.look(ranks, asked(verbs.evaluate, expression, deadline, format))

    async def backtrace(self, ranks: RankSet, limit: int = 0) -> Answers[tuple[Frame, ...]]:
        """Innermost frame first; at most `limit` frames unless it is 0."""
        deadline = self._command()
        return await self.look(ranks, asked(verbs.backtrace, limit, deadline))

    async def stacks(self, ranks: RankSet, limit: int = 0) -> Answers[Stack]:
        """`backtrace`, as a Stack each: of many ranks in the same calls, these come once."""
        deadline = self._command()
        return await self.look(ranks, asked(verbs.stack, limit, deadline))

    async def threads(self, ranks: RankSet) -> Answers[tuple[ThreadInfo, ...]]:
        deadline = self._command()
        return await self.look(ranks, asked(verbs.threads, deadline))

    async def select_thread(self, ranks: RankSet, number: int) -> Answers[None]:
        deadline = self._command()
        return await self.look(ranks, asked(verbs.select_thread, number, deadline))

    async def console(self, ranks: RankSet, command: str) -> Answers[str]:
        """The output of a command on GDB's command line."""
        deadline = self._command()
        return await self.ask(ranks, asked(verbs.console, command, deadline))

    async def keep_console(self, ranks: RankSet, command: str) -> Answers[str]:
        """`console`, for a setting: GDBs that later replace these get it too."""
        answers = await self.console(ranks, command)
        for rank in answers.values:
            self._kept.setdefault(rank, []).append(command)
        return answers

    # ---- acquiring and letting go -------------------------------------------------------------

    async def detach_all(
        self,
        ranks: RankSet | None = None,
        deadline: Deadline | None = None,
        *,
        hold: bool = False,
    ) -> Answers[None]:
        """Detach every rank (of `ranks`) that has a process. Running ranks are refused.

        hold: see `Target.detach`.
        """
        limit = deadline or Deadline(self.settings.attach)
        attached = self.in_state(TargetState.STOPPED, TargetState.RUNNING)
        chosen = attached if ranks is None else attached & ranks
        return await self.ask(chosen, asked(verbs.detach, limit, hold))

    async def replace(self, target: Target) -> tuple[Breakpoint, ...]:
        """Replace a rank's target by one with a new GDB, and insert the breakpoints there.

        Does not close the old target. Returns the breakpoints that the new GDB refused; their
        `problems` say why.
        """
        self._targets[target.rank] = target
        self._targets = dict(sorted(self._targets.items()))
        target.subscriber = self._notice
        for command in self._kept.get(target.rank, ()):
            await target.console(command, self._command())
        lost = self.table.lost(target.rank)
        await asyncio.gather(
            *(self._insert(each.number, RankSet.of([target.rank])) for each in lost)
        )
        return tuple(each for each in self.table.all() if target.rank in each.problems)

    async def whole(self) -> None:
        """Wait for targets that are being replaced."""
        if self.replacing:
            await asyncio.wait(self.replacing)

    async def close(self, deadline: Deadline | None = None) -> None:
        """End every GDB. Tries all of them, then raises the first error."""
        for task in self.replacing:
            task.cancel()
        await self.whole()
        limit = deadline or Deadline(self.settings.stop)
        outcomes = await asyncio.gather(
            *(each.close(limit) for each in self._targets.values()), return_exceptions=True
        )
        left = Deadline(self.settings.stop)
        outcomes += await asyncio.gather(
            *(each.close(left) for each in self.nodes), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    # ---- running ------------------------------------------------------------------------------

    async def resume(self, ranks: RankSet) -> GroupStopped:
        """Run these ranks until one of them stops or ends; then stop the others.

        Skips ranks that have ended. Raises Refused when a rank is not stopped, or when none is
        alive; GdbDied or GdbError of a rank once all others have stopped; DeadlineExpired when
        ranks did not stop in time (they still run: `stop_all`).
        If it is cancelled, the ranks run on.
        """
        return await self._go(self._new_run(ranks, "continue", self._resuming()))

    async def finish(self, ranks: RankSet, level: int = 0) -> GroupStopped:
        """Run until a frame of each rank returns (0 is the innermost), or until a rank stops for
        another reason.

        See `resume`. If a rank waits for one that is stopped, this lasts until `interrupt`.
        """
        start = asked(verbs.finish, self._command(), level)
        done = asked_later(stopped_by, StopReason.FINISH)
        return await self._go(self._new_run(ranks, "finish", start, lambda _: done))

    async def run(
        self,
        ranks: RankSet,
        motion: Motion,
        *,
        together: bool = True,
    ) -> GroupStopped:
        """Like `finish`, for any motion. together: if False, every rank runs to its own stop."""
        start = asked(verbs.run, motion, self._command())
        done = asked_later(is_end, motion, self.settings.command)
        if not together:
            done = asked_later(stopped_at_all)
        return await self._go(self._new_run(ranks, motion.verb.value, start, lambda _: done))

    @property
    def under_way(self) -> GroupRun | None:
        """The running verb, while it lasts."""
        return self._run

    def run_along(self, ranks: RankSet) -> None:
        """Let stopped ranks run until the running verb is over."""
        if self._run is not None:
            others = [self[rank] for rank in ranks & self.in_state(TargetState.STOPPED)]
            self._run.join(others, self._resuming())

    async def gather(self, ranks: RankSet, number: int) -> tuple[RankSet, GroupStopped]:
        """Run ranks until each has come to this breakpoint, or until one stops for another reason.
        Returns those that have come there, and the stop."""
        points = self.table.points(number)

        def there(some: RankSet) -> Question[bool]:
            theirs = {rank: points[rank] for rank in some if rank in points}
            return asked_later(stopped_at, theirs)

        run = self._new_run(ranks, "barrier", self._resuming(), there)
        stop = await self._go(run)
        return run.completed, stop

    async def lead(self, rank: int, start: Callable[[Target], Awaitable[None]]) -> GroupStopped:
        """Let one rank run by `start`, and all others along with it, until one of them stops."""
        ranks = self.in_state(TargetState.STOPPED)
        return await self._go(self._new_run(ranks, "run", self._resuming(), led={rank: start}))

    def _resuming(self) -> Question[None]:
        return asked(verbs.resume, self._command())

    def _new_run(
        self,
        ranks: RankSet,
        verb: str,
        start: Question[None],
        completes: Callable[[RankSet], Question[bool]] | None = None,
        led: Mapping[int, Callable[[Target], Awaitable[None]]] | None = None,
    ) -> GroupRun:
        if self._run is not None:
            raise self._run.refuse(verb)
        targets = [self[rank] for rank in ranks]
        return GroupRun(targets, verb, start, completes, self.settings.stop, led)

    @contextlib.contextmanager
    def about_to_run(self) -> Iterator[None]:
        """In this block a verb runs ranks, after preparations that may take long. An interrupt of
        the user's that comes before a run has begun ends that at once."""
        self._preparing, self._asked = True, False
        try:
            yield
        finally:
            self._preparing, self._asked = False, False

    async def interrupt(
        self, ranks: RankSet | None = None, *, patience: int = 1, coming: bool = False
    ) -> None:
        """Ask the ranks of the running verb to stop, so that it returns. If there is none, stop all
        running ranks (of `ranks`). Allowed at any time. patience: how many times as long as usual
        ranks may take to stop.  coming: if a run is about to begin, that one is meant, too."""
        if self._run is not None:
            self._run.ask_to_stop(patience * self.settings.stop)
        else:
            self._asked = self._preparing and coming
            for error in (await self.stop_all(StopReason.INTERRUPT, ranks=ranks)).errors.values():
                raise error

    async def stop_all(
        self,
        reason: StopReason = StopReason.FOLLOWED,
        deadline: Deadline | None = None,
        ranks: RankSet | None = None,
    ) -> Answers[RankStopped]:
        """Stop every running rank (of `ranks`), whatever made it run."""
        limit = deadline or Deadline(self.settings.stop)
        chosen = self.running if ranks is None else self.running & ranks
        answers = await self.ask(chosen, asked(verbs.interrupt, limit, reason))
        stops = {rank: self.table.translate(stop) for rank, stop in answers.values.items()}
        return Answers(stops, answers.errors)

    async def _go(self, run: GroupRun) -> GroupStopped:
        self._run = run
        if self._asked:
            run.ask_to_stop()
            self._asked = False
        try:
            result = await run.until_stopped()
        finally:
            self._run = None
        await self.drop_spent(result.stops)
        inside = [each for each in result.stops if each.location and is_inside(each.location)]
        shown = {each.rank: each for each in await asyncio.gather(*map(self._in_program, inside))}
        stops = {
            stop.rank: self.table.translate(shown.get(stop.rank, stop)) for stop in result.stops
        }
        return GroupStopped(tuple(stops[stop.rank] for stop in result.cause), tuple(stops.values()))

    async def _in_program(self, stop: RankStopped) -> RankStopped:
        found = await self.ask(RankSet.of([stop.rank]), asked(in_program, stop, self._command()))
        return found.values.get(stop.rank, stop)

    # ---- breakpoints --------------------------------------------------------------------------

    async def add_breakpoint(self, ranks: RankSet, request: BreakpointRequest) -> Breakpoint:
        """Insert a breakpoint on ranks; ranks that refuse it are in its `problems`.

        Raises GdbError when every rank refuses it.
        """
        for rank in ranks:
            self[rank]  # raises an error for an unknown rank before anything is inserted
        number = self.table.add(ranks, request).number
        errors = await self._insert(number, ranks)
        if errors and len(errors) == len(ranks):
            self.table.withdraw(number)
            error = errors[ranks.first]
            if isinstance(error, GdbError):
                raise GdbError(error.problem, error.command, ranks=ranks)
            raise error
        return self.table.get(number)

    async def put_breakpoint(self, kept: StoredBreakpoint, ranks: RankSet) -> bool:
        """Insert a breakpoint of another session, with its number, on these ranks. Did any of them
        accept it?"""
        self.table.put(kept)
        if len(await self._insert(kept.number, ranks)) < len(ranks):
            return True
        self.table.remove(kept.number)
        return False

    async def _insert(self, number: int, ranks: RankSet) -> Mapping[int, CrdebugError]:
        wanted = {rank: self.table.request(number, rank) for rank in ranks}

        def insert(request: BreakpointRequest) -> Question[Inserted]:
            return asked(verbs.insert, request, self._command())

        made = await self._ask_each(wanted, insert)
        for rank, inserted in made.values.items():
            self.table.bind(number, rank, inserted)
        errors = made.errors
        for rank, error in errors.items():
            self.table.refuse(number, rank, error.clause())
        return errors

    async def delete_breakpoint(self, number: int) -> None:
        """Raises BadInput if there is no such number, GdbError if a rank keeps it."""
        numbers = self.table.gdb_numbers(number)
        answers = await self._delete(numbers)
        if answers.errors:
            for rank in answers.values:
                self.table.gone(rank, numbers[rank])
            raise next(iter(answers.errors.values()))
        self.table.remove(number)

    async def drop_spent(self, stops: Iterable[RankStopped]) -> None:
        """Delete the temporary breakpoints that these stops hit from all ranks."""
        for number, elsewhere in self.table.spent(stops).items():
            await self._delete(elsewhere)
            self.table.remove(number)

    async def _delete(self, numbers: Mapping[int, int]) -> Answers[None]:
        def delete(gdb_number: int) -> Question[None]:
            return asked(verbs.delete, gdb_number, self._command())

        return await self._ask_each(numbers, delete)

    async def _ask_each(
        self, about: Mapping[int, V], question: Callable[[V], Question[T]]
    ) -> Answers[T]:
        """Ask each rank about its own value; ranks with equal ones are asked at once."""
        parts = await asyncio.gather(
            *(self.ask(ranks, question(value)) for ranks, value in classes(about.items()))
        )
        return joined(parts)

    async def enable_breakpoint(self, number: int, enabled: bool) -> None:
        """Raises BadInput if there is no such number."""
        await self._change(number, f"-break-{'enable' if enabled else 'disable'} {{}}")
        self.table.change(number, enabled=enabled)

    async def set_condition(self, number: int, condition: str) -> None:
        """An empty condition removes it. Raises BadInput, or GdbError for a bad expression."""
        change = f"-break-condition {{}} {condition}"
        if self.table.get(number).in_python:
            python_lines.require_expression(condition)
            change = f"{Command.PYTHON_CONDITION} {{}} {quote(condition) if condition else ''}"
        await self._change(number, change)
        self.table.change(number, condition=condition)

    async def ignore_hits(self, number: int, count: int) -> None:
        """Make the next `count` hits on each rank not stop it. Raises BadInput."""
        await self._change(number, f"-break-after {{}} {count}")
        self.table.change(number, ignore=count)

    async def _change(self, number: int, command: str) -> None:
        def change(gdb_number: int) -> Question[None]:
            return asked(verbs.command, command.replace("{}", str(gdb_number), 1), self._command())

        changed = await self._ask_each(self.table.gdb_numbers(number), change)
        for error in changed.errors.values():
            raise error

    # ---- notices of the ranks -----------------------------------------------------------------

    def _notice(self, notice: Notice) -> None:
        match notice:
            case BreakpointChanged(rank=rank, inserted=inserted):
                self.table.changed(rank, inserted)
            case BreakpointGone(rank=rank, gdb_number=number):
                self.table.gone(rank, number)
            case DebuggerDied(rank=rank, pid=pid):
                if self[rank].node is None:
                    self.on_death(rank, pid)
            case RankStopped() as stop:
                self.subscriber(self.table.translate(stop))
            case event:
                self.subscriber(event)

    def _command(self) -> Deadline:
        return Deadline(self.settings.command)

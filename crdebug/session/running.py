"""Letting ranks run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable
from enum import Enum
from signal import SIGCONT, SIGSTOP

from crdebug.base import signal_names
from crdebug.base.answers import Answers
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, Refused
from crdebug.base.events import GroupStopped, Location, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger import mi_values, moving, verbs
from crdebug.debugger.question import Question, asked
from crdebug.debugger.rank_commands import has_left_mpi
from crdebug.debugger.target import BreakpointRequest, Motion, TargetState, Verb
from crdebug.session.core import ALIVE, Core
from crdebug.session.run_control import Waited
from crdebug.session.source_lines import with_file
from crdebug.session.the_past import heard
from crdebug.session.waiting import AtBarrier, HeldUp, StepOthers, patiently


class StopMode(Enum):
    """The effect of a rank's stop on the others."""

    JOB = "job"  # they are stopped too
    RANK = "rank"  # they run on


class Running(Core):
    """The verbs that let ranks run until they stop again, and those that move them.

    They raise Refused when a rank is not stopped, or when none of them is alive. After a verb that
    changes a rank's state, another branch of history begins as soon as the job runs on.

    patience: seconds after which crdebug checks a step that has not ended; 0: never.
    step_others: what to do about it then.
    ask: asks the user; None without a user.
    stop_mode: for the verbs that step, what happens to the other ranks when one of them stops for
    another reason; it also decides how the console's `continue` works.
    """

    patience: float = 10.0
    step_others: StepOthers = StepOthers.ASK
    ask: Callable[[str], Awaitable[bool]] | None = None
    stop_mode: StopMode = StopMode.JOB

    async def replace_dead(self, ranks: RankSet) -> RankSet:
        """Have other GDBs stop those of these ranks whose GDBs have died, where they are now: such
        a rank has run on, and may have ended. Returns those that stand now."""
        return await self._control.replace_dead(ranks)

    async def resume(self, ranks: RankSet) -> GroupStopped:
        """continue: run these ranks until one of them stops; then stop the others."""
        self._require_attached()
        return await self._control.resume(ranks)

    async def run_on(self, ranks: RankSet, *, to_end: bool = False) -> GroupStopped:
        """`resume`, but run on when a rank exits with status 0 and all remaining ones have called
        MPI_Finalize. to_end: run on wherever they are, and until the job has ended.

        The returned stop names all the ranks that exited meanwhile.
        """
        exits: dict[int, RankStopped] = {}

        async def passes(stop: GroupStopped) -> bool:
            if not all(s.ended_well or s.reason is StopReason.FOLLOWED for s in stop.stops):
                return False
            exits.update((each.rank, each) for each in stop.stops if each.ended_well)
            left = ranks & self._group.in_state(TargetState.STOPPED)
            return bool(left) and (to_end or await self._have_left_mpi(left))

        self._require_attached()
        stop = await self._control.resume(ranks, passes, to_end=to_end)
        if to_end and not self._group.in_state(*ALIVE):
            await self.job_end()  # the launcher still has to collect its ranks
        for each in stop.stops:
            exits.pop(each.rank, None)
        before = tuple(exits.values())
        at_end = all(each.ended_well for each in stop.cause)
        return GroupStopped((*before, *stop.cause) if at_end else stop.cause, before + stop.stops)

    async def _have_left_mpi(self, ranks: RankSet) -> bool:
        """Are all of them known to have called MPI_Finalize?"""
        limit = Deadline(self.settings.command)

        answers = await self._group.ask(ranks, asked(has_left_mpi, limit))
        return not answers.errors and all(answers.values.values())

    async def step(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        """`count` source lines, into functions."""
        return await self._by(ranks, Motion(Verb.STEP, count))

    async def next(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        """`count` source lines, over functions."""
        return await self._by(ranks, Motion(Verb.NEXT, count))

    async def stepi(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        """`count` instructions, into functions."""
        return await self._by(ranks, Motion(Verb.STEPI, count))

    async def nexti(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        """`count` instructions, over functions."""
        return await self._by(ranks, Motion(Verb.NEXTI, count))

    async def finish(self, ranks: RankSet) -> GroupStopped:
        """Until the innermost function returns."""
        return await self._by(ranks, Motion(Verb.FINISH))

    async def until(self, ranks: RankSet, location: str = "") -> GroupStopped:
        """Until a line after the current one, and so out of a loop; or until a location in the
        function, or its return."""
        location = await with_file(self._group, ranks, location)
        return await self._by(ranks, Motion(Verb.UNTIL, location=location))

    async def advance(self, ranks: RankSet, location: str) -> GroupStopped:
        """Until a location, or the return of the function."""
        location = await with_file(self._group, ranks, location)
        return await self._by(ranks, Motion(Verb.ADVANCE, location=location))

    async def _by(self, ranks: RankSet, motion: Motion) -> GroupStopped:
        """Run until all ranks have completed the motion, or one stops for another reason. If one of
        them is in its past, the others come along."""
        group, history = self._group, self.history

        async def start() -> GroupStopped:
            if history is not None and history.brings_others(ranks):
                limit = Deadline(self.settings.command)
                return await history.alongside(ranks, lambda each: each.run(motion, limit))
            verb = motion.verb.value
            async with patiently(group, history, verb, self.patience, self._may_run_along):
                return await group.run(ranks, motion, together=not self.apart)
            raise AssertionError("not reached")

        self._require_attached()
        return await self._control.run(start)

    async def _may_run_along(self, held_up: HeldUp) -> bool:
        """May the ranks that others wait for run, too?"""
        if self.step_others is StepOthers.ASK and self.ask is not None:
            return await self.ask(f"{held_up.problem}. Run them too?")
        return self.step_others is StepOthers.RUN

    async def interrupt(self, ranks: RankSet | None = None) -> None:
        """Ask running ranks to stop: those of the verb that is under way, which then returns, or if
        there is none, all (of `ranks`). Cancels a checkpoint or restart that is under way. May be
        called while another verb runs (the one exception to one operation at a time)."""
        await self._control.interrupt(ranks)

    async def barrier(self, ranks: RankSet, location: str) -> AtBarrier:
        """Run ranks until each of them has come to a location, where it waits for the others.

        Ends earlier when a rank stops for another reason, or when the missing ranks wait for those
        that are there. If that is because a rank was ahead of the others, all go on to the location
        once more. Raises BadInput for a location that does not exist.
        """
        location = await with_file(self._group, ranks, location)
        point = await self._group.add_breakpoint(ranks, BreakpointRequest(location))
        try:
            if not any(point.places.values()):
                raise BadInput(f"there is no '{location}' that ranks could come to", ranks=ranks)
            reached = await self._to_barrier(ranks, point.number)
            if reached.held_up and reached.there:
                reached = await self._to_barrier(ranks, point.number)
            return reached
        finally:
            with contextlib.suppress(BadInput):  # it has been deleted meanwhile
                await self._group.delete_breakpoint(point.number)

    async def _to_barrier(self, ranks: RankSet, number: int) -> AtBarrier:
        held_up: list[HeldUp] = []
        came: list[tuple[RankSet, GroupStopped]] = []

        async def gathered() -> GroupStopped:
            try:
                async with patiently(self._group, self.history, "the barrier", self.patience, None):
                    came.append(await self._group.gather(ranks, number))
            except HeldUp as error:  # that is part of the answer
                held_up.append(error)
            return came[0][1]

        self._require_attached()
        await self._control.run(gathered)
        there, stop = came[0]
        return AtBarrier(there, ranks - there, stop, bool(held_up))

    # ---- independently ------------------------------------------------------------------------

    @property
    def apart(self) -> bool:
        """May ranks run independently now? Not in the past: there they need each other."""
        in_the_past = self.history is not None and self.history.in_the_past
        return self.stop_mode is StopMode.RANK and not in_the_past

    @property
    def alone(self) -> RankSet:
        """The ranks that run independently now."""
        return self._control.alone

    async def let_run(self, ranks: RankSet) -> RankSet:
        """Let stopped ranks run; returns the ranks that do, as soon as they run.

        Each stop is an event (GroupStopped, of one rank), unless `wait` is waiting for it. Raises
        Refused when none of the ranks is stopped, and the first error if none could be resumed.
        """
        return await self._control.let_run(ranks)

    async def wait(self, ranks: RankSet, seconds: float | None = None) -> Waited:
        """Wait until all of these ranks have stopped or ended, at most so many seconds (None:
        without a limit). `interrupt` stops the ranks that this waits for."""
        return await self._control.wait(ranks, seconds)

    # ---- the job's end and its input ----------------------------------------------------------

    async def job_end(self) -> int:
        """Wait until the launcher has ended, which happens soon after its last rank; returns its
        status. Raises DeadlineExpired."""
        if self._attended is not None:
            await self._attended.wait_ended(Deadline(self.settings.stop))
        status = self.ended
        assert status is not None
        return status

    async def handle(self, ranks: RankSet, words: str) -> Answers[str]:
        """Set how the ranks' GDBs handle a signal: ``SIGUSR1 nostop noprint pass``; returns GDB's
        table of it. The setting survives restarts. Raises Refused for signals that crdebug itself
        needs."""
        signal = self._attended.record.signal if self._attended is not None else 0
        named = re.split(r"[\s,]+", words.strip())
        for number in filter(None, (int(SIGSTOP), int(SIGCONT), signal)):
            own = {signal_names.name_of(number), f"SIG{number}", str(number), "all"}
            if own & set(named):
                raise Refused(
                    f"crdebug itself needs {signal_names.name_of(number)}",
                    hint="name other signals",
                )
        return await self._group.keep_console(ranks, f"handle {words}")

    async def send(self, text: str | bytes) -> int:
        """Send text or bytes to the job's standard input, which rank 0 reads; returns how many
        bytes.

        Input is part of the job's history: a job that goes back reads it again. After a restart,
        input that is sent before ranks run replaces the input that was sent after that checkpoint,
        and a branch of history begins. Raises Refused.
        """
        data = text.encode() if isinstance(text, str) else text
        if data:
            await self._send(data)
        return len(data)

    async def send_end(self) -> None:
        """End the job's standard input after the bytes sent so far. Raises Refused."""
        await self._send(b"")

    async def _send(self, data: bytes) -> None:
        job = self._job("send it input")
        job.require_input()
        if job.has_later_input:
            if self.history is not None and self.history.recorded:
                await self.history.branch("", note="send")
            job.drop_later_input()
        await job.send(data)

    # ---- changing the state -------------------------------------------------------------------

    async def call(self, ranks: RankSet, expression: str) -> Answers[str]:
        """Evaluate an expression for its side effects; returns its value, "" if it has none."""
        return await self._changing(ranks, f"call {expression}")

    async def set_variable(self, ranks: RankSet, assignment: str) -> Answers[str]:
        """Evaluate ``x = 1``, for example, without showing a value."""
        return await self._changing(ranks, f"set var {assignment}")

    async def _changing(self, ranks: RankSet, line: str) -> Answers[str]:
        limit = Deadline(self.settings.command)
        said = await self._group.look(ranks, asked(verbs.console, line, limit))
        values = {rank: mi_values.printed(text) for rank, text in said.values.items()}
        return await heard(self.history, line, Answers(values, said.errors))

    async def return_(self, ranks: RankSet, value: str = "") -> Answers[Location]:
        """Make the selected function return now, with a value, skipping the rest of it; returns
        the ranks' new places."""
        limit = Deadline(self.settings.command)
        line = f"return {value}".rstrip()
        return await self._moving(ranks, line, asked(moving.return_, value, limit))

    async def jump(self, ranks: RankSet, location: str) -> GroupStopped:
        """Go on at a location of the same function, skipping the code in between; see `resume`.

        Raises the first error, before any rank runs.
        """
        limit = Deadline(self.settings.command)
        line = f"jump {location}"
        moved = await self._moving(ranks, line, asked(moving.jump, location, limit))
        for error in moved.errors.values():
            raise error
        return await self.resume(ranks)

    async def _moving(
        self, ranks: RankSet, line: str, move: Question[Location]
    ) -> Answers[Location]:
        moved = await self._group.ask(ranks, move)
        told = {rank: str(location) for rank, location in moved.values.items()}
        await heard(self.history, line, Answers(told, moved.errors))
        return moved

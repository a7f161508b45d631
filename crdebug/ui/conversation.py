"""A session and its user: scripts, then the console, then a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, assert_never

from crdebug.base.errors import CrdebugError, Refused
from crdebug.base.events import Event
from crdebug.commands.context import Context, Hangup, OnError
from crdebug.commands.preferences import Preference, prefer
from crdebug.commands.registry import Registry
from crdebug.commands.results import Left, Nothing, Result
from crdebug.commands.script import BLOCK_END, ScriptFailed, ScriptLine, play, read_script
from crdebug.commands.standard import standard
from crdebug.ui.render import places
from crdebug.ui.screen import BLOCK_PROMPT, Screen, prompt, ranks_line

if TYPE_CHECKING:
    from crdebug.session import Session

# After the third Ctrl-C during one command we stop waiting for it: the first two asked nicely.
_PATIENCE = 3

Begin = Callable[[Callable[[Event], None]], Awaitable["Session"]]
"""Starts, attaches or restarts; takes the subscriber of the session's events."""


class TerminalGone(Exception):
    """The terminal has gone, and with it the user."""


class LineSource(Protocol):
    """The source of the console's lines. waits: for a person, who takes time to type."""

    waits: bool

    async def line(self, prompt: str) -> str:
        """The next line. Raises EOFError at the end, KeyboardInterrupt when it was cleared,
        TerminalGone."""
        ...

    async def confirm(self, question: str) -> bool: ...

    def clear(self) -> None:
        """Begin the line again, as Ctrl-C does at the prompt."""


OpenSource = Callable[[Registry, Context], LineSource]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a conversation.

    scripts: files, played in order.  batch: end at the first error, and after the scripts.
    owns_job: see Context.  preferences: from the config file.  given: the settings from the command
    line.
    """

    scripts: Sequence[str] = ()
    batch: bool = False
    owns_job: bool = True
    preferences: Sequence[Preference] = ()
    given: Sequence[str] = field(default=())


async def converse(
    begin: Begin,
    plan: Plan,
    screen: Screen,
    open_source: OpenSource,
    told: Sequence[int] = (),
) -> int:
    """Hold a whole conversation; returns the exit status.

    told: gets the signal that ends it, if one does; this coroutine is cancelled then.

    Raises CrdebugError for errors at the start; it reads the scripts before it starts the job.
    """
    lines = [line for file in plan.scripts for line in read_script(file)]
    with screen.busy():
        session = await begin(screen.event)
    talk = Conversation(session, plan, screen)
    with contextlib.ExitStack() as following:
        try:
            with talk.interrupts():
                status = await talk.hold(lines, open_source)
        except TerminalGone:
            status = 128 + signal.SIGHUP
        finally:
            await talk.end(following, hangup=talk.hung_up or signal.SIGHUP in told)
        if talk.goes_on:
            await _to_its_end(session, screen)
    return status


async def _to_its_end(session: Session, screen: Screen) -> None:
    """Show the output of a job after detaching from it, as `crdebug run --no-debugger` does; the
    end of this crdebug then ends the job."""
    from crdebug.detached import jobs

    try:
        await jobs.follow(session.job, screen.event, told_before=session.output_told)
    except asyncio.CancelledError:
        await jobs.kill(session.job)
        raise


class Conversation:
    """Runs lines one after the other; the first Ctrl-C during a line interrupts the job."""

    def __init__(self, session: Session, plan: Plan, screen: Screen) -> None:
        self.registry = standard()
        self.context = Context(
            session,
            owns_job=plan.owns_job,
            show=screen.result,
            echo=self._echo,
            transcript=screen.transcript,
        )
        self.context.origins.update(dict.fromkeys(plan.given, "the command line"))
        prefer(plan.preferences, self.context)
        self._plan = plan
        self._screen = screen
        self._source: LineSource | None = None
        self._command: asyncio.Task[Result] | None = None
        self._presses = 0
        self._asking: set[asyncio.Task[None]] = set()
        self._failed = False  # whether a script of --batch failed
        self.hung_up = False
        # we started the job and have detached from it, and have not shown its end
        self.goes_on = False

    async def hold(self, lines: Sequence[ScriptLine], open_source: OpenSource) -> int:
        """The scripts, then the console unless in batch; returns the exit status."""
        session = self.context.session
        if not session.of_cores:  # the events of their opening have told it
            self._screen.note("\n".join([ranks_line(session.job, session.ranks), *self._places()]))
        try:
            await play(lines, self._run, self.registry, self._echo, self._screen.result)
        except ScriptFailed as error:
            status = self._screen.error(error)
            if self._plan.batch:
                self._failed = True
                return status
        if not self._plan.batch and not self.context.over:
            self._source = open_source(self.registry, self.context)
            self.context.confirm = session.ask = self._source.confirm
            await self._console(self._source)
        return 0

    def _echo(self, line: str) -> None:
        self._screen.command(line, self.context.focus)

    def _places(self) -> Iterator[str]:
        return places(self.context.session.info_ranks())

    async def _console(self, source: LineSource) -> None:
        while not self.context.over:
            try:
                line = await self._first_line(source)
                block = await self._block(source) if self.registry.begins_block(line) else ()
            except KeyboardInterrupt:
                continue
            except TerminalGone:
                self.hung_up = True
                raise
            except EOFError:
                line, block = "quit", ()
            await self.execute(line, block)

    async def _first_line(self, source: LineSource) -> str:
        """The beginning of a command. While a user thinks, the session makes use of the time."""
        resting = asyncio.create_task(self.context.session.rest()) if source.waits else None
        try:
            return await self._line(source, prompt(self.context.focus))
        finally:
            if resting is not None:  # a command must not come between its parts
                try:
                    await resting
                except Exception as error:  # not even a bug in it may end the session
                    self._screen.error(error)

    async def _line(self, source: LineSource, shown: str) -> str:
        """The next line; a backslash at its end continues it."""
        line = await source.line(shown)
        self._screen.typed(shown + line)
        while line.endswith("\\"):
            more = await source.line(BLOCK_PROMPT)
            self._screen.typed(BLOCK_PROMPT + more)
            line = line[:-1] + more
        return line

    async def _block(self, source: LineSource) -> tuple[str, ...]:
        """The lines that belong to a command; the end of the input also ends them."""
        lines: list[str] = []
        while True:
            try:
                line = (await self._line(source, BLOCK_PROMPT)).strip()
            except EOFError:
                return tuple(lines)
            if line == BLOCK_END:
                return tuple(lines)
            lines += [line] if line else []

    async def execute(self, line: str, block: Sequence[str] = ()) -> Result:
        """Run one line at the console: show any error, and keep the console."""
        try:
            result = await self._run(line, block)
        except TerminalGone:  # during a question
            self.hung_up = True
            raise
        except Exception as error:  # also a bug must not end the session, and so the job
            self._screen.error(error)
            return Nothing()
        await self._screen.answer(result, paged=self.context.preferences.pager)
        return result

    async def _run(self, line: str, block: Sequence[str] = ()) -> Result:
        self._presses, self.context.interrupted = 0, False
        self._command = asyncio.create_task(self.registry.run(self.context, line, block))
        try:
            with self._screen.busy():
                result = await self._command
        except asyncio.CancelledError:
            if self._presses < _PATIENCE:
                raise
            raise Refused(
                f"gave up waiting for '{line.strip()}'", hint="'info ranks' shows which still run"
            ) from None
        finally:
            self._command = None
        if self._presses and self._source is None:
            # The user's Ctrl-C ends the script as well.
            self._screen.result(result)
            raise Refused("interrupted")
        return result

    # ---- Ctrl-C -------------------------------------------------------------------------------

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """Take SIGINT for as long as the conversation lasts."""
        loop = asyncio.get_running_loop()
        before = signal.getsignal(signal.SIGINT)
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)

    def interrupt(self) -> None:
        """Ctrl-C: stop the job while a command runs, else clear the line."""
        if self._command is None:
            if self._source is not None:
                self._source.clear()
            return
        self._screen.break_line()
        self._presses += 1
        self.context.interrupted = True
        if self._presses >= _PATIENCE:
            self._command.cancel()
            return
        asking = asyncio.create_task(self._ask_to_stop())
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _ask_to_stop(self) -> None:
        try:
            await self.context.session.interrupt()
        except Exception as error:  # the pending command reports its own end
            self._screen.error(error)

    # ---- the end ------------------------------------------------------------------------------

    async def end(self, following: contextlib.ExitStack, *, hangup: bool) -> None:
        """Leave the job as promised: detach if we attached to it, else end it.

        hangup: the terminal has gone; a setting decides about the job.
        following: open until the output of a job that runs on has been shown.
        """
        session = self.context.session
        if not self.context.over and not session.living and session.ended is None:
            with contextlib.suppress(CrdebugError):  # the launcher still has to collect its ranks
                await session.job_end()
        try:
            if not self.context.over and session.ended is None and not session.of_cores:
                await self._leave(self._fate(hangup), following)
        finally:
            with self._screen.busy():
                await session.close()
            self._screen.transcript.end()

    def _fate(self, hangup: bool) -> Hangup:
        if hangup:
            return self.context.preferences.on_hangup
        if self._failed:
            match self.context.preferences.on_script_error:
                case OnError.KILL:
                    return Hangup.KILL
                case OnError.HOLD:
                    return Hangup.HOLD
                case OnError.LET_GO:
                    return Hangup.LET_GO
                case OnError.AUTO:
                    touched = self.context.changed or self.context.interrupted
                    ended = self.context.owns_job and touched
                    return Hangup.KILL if ended else Hangup.LET_GO
        return Hangup.KILL if self.context.owns_job else Hangup.LET_GO

    async def _leave(self, fate: Hangup, following: contextlib.ExitStack) -> None:
        session = self.context.session
        match fate:
            case Hangup.KILL:
                self._screen.note(f"the session is over: job {session.job} is killed")
            case Hangup.HOLD | Hangup.LET_GO:
                held = fate is Hangup.HOLD
                goes_on = self._failed and self.context.owns_job and not held
                try:
                    if goes_on:
                        from crdebug.detached import jobs

                        following.enter_context(jobs.followed(session.job))
                    await session.detach(hold=held)
                except CrdebugError as error:
                    self._screen.error(error)
                else:
                    ended = session.ended is not None  # as it was detached from
                    self.goes_on = goes_on and not (ended and session.end_told)
                    if not ended:
                        self._screen.result(Left(session.job, detached=True, held=held))
            case _:
                assert_never(fate)

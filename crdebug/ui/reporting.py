"""`crdebug run --report FILE`: run a job without a prompt, and write down what goes wrong with it.

What is in the report is what commands at the prompt say at the first failure, before the job ends
for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crdebug.base.errors import CrdebugError
from crdebug.base.events import (
    Event,
    GroupStopped,
    JobOutput,
    JobSays,
    RankStopped,
    StandsStill,
    StopReason,
)
from crdebug.base.ranks import RankSet
from crdebug.charts.pages import claim, save
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.ui.conversation import Begin
from crdebug.ui.output import Relay
from crdebug.ui.render import render
from crdebug.ui.report import Report, Section, html, shortened
from crdebug.ui.screen import exit_words
from crdebug.ui.stops import describe

if TYPE_CHECKING:
    from crdebug.session import Session

STUCK = 1  # the status for a job that crdebug ended, for instance because it could never go on
_CALLS = "What is wrong with their MPI calls"
_LAST = 1 << 16  # characters of the job's output
_FRAMES = 50  # of a stack; one that has overflown has a hundred thousand
_GATHER = 60.0  # seconds for all questions, when the job or the queue's patience ends
_FAILED = (StopReason.ENDING, StopReason.REPORT, StopReason.EXITED, StopReason.KILLED)
# signal(7): these are for errors of the program's; others it may expect.
_FATAL = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS", "SIGTRAP", "SIGXCPU")


async def reported(begin: Begin, file: Path, argv: Sequence[str], told: Sequence[int]) -> int:
    """Run the job that `begin` starts to its end; returns its exit status, or STUCK.

    told: gets the signal that ends this crdebug, if one does; this coroutine is cancelled then.
    Raises BadInput, Refused if the file cannot be written, before the job is started; and as
    `begin`.
    """
    claim(file)
    watcher = _Watcher(file, argv, told)
    try:
        session = await begin(watcher.heard)
    except (CrdebugError, asyncio.CancelledError) as error:
        watcher.never_began(error)
        raise
    try:
        return await watcher.attend(session)
    finally:
        await session.close()


class _Watcher:
    def __init__(self, file: Path, argv: Sequence[str], told: Sequence[int]) -> None:
        self._file, self._argv, self._signals = file, argv, told
        self._relay = Relay()
        self._output = ""
        self._stuck = asyncio.Event()
        self._began = time.time()
        self._summary = ""
        self._sections: list[Section] = []

    def heard(self, event: Event) -> None:
        """The session's subscriber."""
        self._relay(event)
        if isinstance(event, JobOutput):
            self._output = (self._output + event.text)[-_LAST:]
        if isinstance(event, StandsStill) and event.for_ever:
            self._stuck.set()

    def never_began(self, error: BaseException) -> None:
        """The job could not be started, or crdebug was ended before its ranks were there."""
        self._summary = f"the job was not started: {error}"
        if isinstance(error, asyncio.CancelledError):
            self._summary = self._ended_by
        self._write(None)

    @property
    def _ended_by(self) -> str:
        by = signal.Signals(self._signals[0]).name if self._signals else "a signal"
        return f"crdebug was ended by {by}, and the job with it"

    async def attend(self, session: Session) -> int:
        try:
            return await self._to_its_end(session)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GATHER):
                    await self._gather(session, self._ended_by)
            raise
        except CrdebugError as error:
            self._summary = self._summary or f"crdebug could not go on: {error}"
            raise
        finally:
            self._write(session)

    async def _to_its_end(self, session: Session) -> int:
        while session.ended is None:
            try:
                stop = await self._run_on(session)
            except CrdebugError as error:
                if not self._sections:
                    raise
                self.heard(JobSays(str(error)))  # the page is written: this is how it ended
                return session.ended or STUCK
            if stop is None:
                await self._gather(session, "no rank can ever go on, so crdebug ended the job")
                return STUCK
            failed = RankSet.of(each.rank for each in stop.cause if _is_failure(each))
            if session.ended is None and failed and not self._sections:
                await self._gather(session, "\n".join(describe(stop)), failed)
                session.stop_at_failure = False
        status = await session.job_end()
        if not self._sections:
            self._summary = f"the job ended with status {exit_words(status)}"
            past = session.history
            if past is not None and past.recorded:
                self._sections = [Section(_CALLS, shortened(await _asking(session)("check")))]
        return status

    async def _run_on(self, session: Session) -> GroupStopped | None:
        """Until a rank fails, or the job ends; None if it can never go on."""
        running = asyncio.create_task(session.run_on(session.ranks, to_end=True))
        stuck = asyncio.create_task(self._stuck.wait())
        try:
            await asyncio.wait({running, stuck}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return running.result()
            return None
        finally:
            stuck.cancel()
            with contextlib.suppress(CrdebugError, TimeoutError):
                async with asyncio.timeout(_GATHER):
                    await _stopped(session, running)

    # ---- the report ------------------------------------------------------------------------------

    async def _gather(self, session: Session, summary: str, failed: RankSet | None = None) -> None:
        """Ask what is to be known while the job stands. failed: the ranks to look at closely."""
        self._summary = summary
        self.heard(JobSays(summary))

        said = _asking(session)
        self._sections = [
            Section(title, shortened(await said(line))) for title, line in _questions(failed)
        ]
        self._write(session)
        taken = await said("checkpoint taken for the report")
        handle = re.search(rf"\b{re.escape(session.job)}:\d+", taken)
        again = f"\n\n$ crdebug restart {handle[0]}" if handle else ""
        self._sections.append(Section("To look at it again", taken + again))

    def _write(self, session: Session | None) -> None:
        name, ended = shlex.join(self._argv), None
        facts = [("command", name)]
        if session is not None:
            name, ended = session.job, session.ended
            facts += [("job", name), ("ranks", str(len(session.ranks)))]
        facts += [
            ("host", os.uname().nodename),
            ("began", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._began))),
            ("lasted", f"{time.time() - self._began:.1f} s"),
            ("ended with status", "not yet" if ended is None else exit_words(ended)),
        ]
        output = Section("The end of its output", self._output)
        save(
            html(Report(f"crdebug: {name}", self._summary, facts, [*self._sections, output])),
            self._file,
        )


def _asking(session: Session) -> Callable[[str], Awaitable[str]]:
    """A function for the answer to a command; where it fails, for why."""
    context, commands = Context(session), standard()

    async def said(line: str) -> str:
        try:
            return render(await commands.run(context, line))
        except CrdebugError as error:
            return f"({error})"

    return said


async def _stopped(session: Session, running: asyncio.Task[GroupStopped]) -> None:
    """End a run."""
    if not running.done():
        await session.interrupt()
        await running


def _is_failure(stop: RankStopped) -> bool:
    fatal = stop.reason is StopReason.SIGNAL and stop.detail in _FATAL
    return fatal or (stop.reason in _FAILED and not stop.ended_well)


def _questions(failed: RankSet | None) -> Iterator[tuple[str, str]]:
    """Titles, and the commands that answer."""
    yield "Where the ranks are", "info ranks"
    yield "Their stacks", "stack"
    yield "Why they wait", "why-blocked"
    if failed:
        yield f"The calls of {failed.words}", f"[{failed}] backtrace {_FRAMES}"
        yield f"The variables of {failed.words} there", f"[{failed}] info locals"
    yield "Their stacks in Python", "pybt --tree"
    yield "Messages on their way", "info messages"
    yield _CALLS, "check"

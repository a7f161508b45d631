"""All output goes through one object, so that no text lands in the middle of a line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, assert_never

import click

from crdebug.base.events import (
    Event,
    GdbSays,
    GroupStopped,
    JobEnded,
    JobOutput,
    JobSays,
    Progress,
    RankRestored,
    RankRunning,
    RankStopped,
    StopReason,
)
from crdebug.base.ranks import RankSet
from crdebug.commands.transcript import Transcript
from crdebug.ui import failures
from crdebug.ui.output import OutputMarks
from crdebug.ui.printable import for_stream, printable
from crdebug.ui.progress import PlainProgress, ProgressView, StatusLine
from crdebug.ui.stops import describe

if TYPE_CHECKING:
    from crdebug.commands.results import Result

BLOCK_PROMPT = "> "
_FOCUS = 30  # characters of a focus in the prompt

_COLOURS = {"out| ": "cyan", "err| ": "yellow"}
_ENDED = (StopReason.EXITED, StopReason.KILLED)


class Screen:
    """Shows results, events and errors.

    terminal: colours, a status line, lines folded at the terminal's width; else plain text.
    out, err: return the streams, each time anew: a prompt substitutes its own while it is shown.
    Progress and errors go to err, everything else to out.
    announce: write the line that MPIR debuggers look for when a rank has been restored (to err).
    """

    def __init__(
        self,
        *,
        terminal: bool,
        announce: bool = False,
        out: Callable[[], TextIO] = lambda: sys.stdout,
        err: Callable[[], TextIO] = lambda: sys.stderr,
    ) -> None:
        self.terminal = terminal
        self._announce = announce
        self._colours = terminal and "NO_COLOR" not in os.environ  # no-color.org
        self._out = out
        self._err = err
        self.transcript = Transcript()
        self._marks = OutputMarks(self._application_line)
        self._lines: ProgressView = PlainProgress(lambda text: self._put(self._err(), text))
        self._status: ProgressView = StatusLine(err) if terminal else self._lines
        self._busy = 0

    # ---- what is going on -----------------------------------------------------------------

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Inside the block an operation runs: its result will show the stops, and its progress may
        be shown."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._status.end()
            self._lines.end()

    async def answer(self, result: Result, *, paged: bool) -> None:
        """A command's answer at the prompt. paged: page by page if it is longer than the terminal;
        returns when the user has seen enough."""
        text = self._text(result)
        if not (paged and self.terminal and self._is_long(text)):
            self.result(result)
            return
        self._interlude()
        self.transcript.add(text)
        with contextlib.suppress(OSError):
            # In a thread: the ranks' GDBs and other crdebugs are served meanwhile.
            shown = printable(text) + "\n"
            await asyncio.to_thread(click.echo_via_pager, shown, color=False)

    def _text(self, result: Result) -> str:
        from crdebug.ui.render import render  # which jobs without a debugger do without

        return render(result, _terminal_size().columns if self.terminal else 0)

    def _is_long(self, text: str) -> bool:
        width, height = _terminal_size()
        rows = sum(max(1, -(-len(line) // width)) for line in text.split("\n"))
        return rows >= height

    def result(self, result: Result) -> None:
        """A command's answer."""
        from crdebug.commands.results import Text

        self.note(self._text(result))
        if result == Text(""):  # a bare echo: an empty line
            self._put(self._out(), "")

    def command(self, line: str, focus: RankSet | None = None) -> None:
        """A line that was not typed: a script's."""
        self.note(prompt(focus) + line)

    def note(self, text: str) -> None:
        """Show a message of crdebug's; nothing if it is empty."""
        self._interlude()
        if text:
            self._put(self._out(), text)

    def typed(self, line: str) -> None:
        """Record a line that the terminal has already shown, with its prompt."""
        self.transcript.add(line)

    def break_line(self) -> None:
        """The terminal has just shown ^C: begin a new line."""
        if self._out().isatty():  # also a dumb one
            self._put(self._out(), "")

    def error(self, error: BaseException) -> int:
        """Show an error; returns the exit status that goes with it."""
        self._interlude()
        text, status = failures.describe(error)
        self._put(self._err(), text, colour="red")
        return status

    def event(self, event: Event) -> None:
        """A session's subscriber."""
        match event:
            case JobOutput():
                self._status.clear()
                self._marks.feed(event)
                self._status.again()
            case JobSays():
                self.note(event.text)
            case JobEnded():
                self._marks.flush(final=True)
                self.note(f"the job ended with status {exit_words(event.status)}")
            case Progress():
                self._progress(event)
            case GdbSays():
                self.note(f"[{event.rank}] gdb: {event.text.rstrip()}")
            case GroupStopped():
                self.note("\n".join(describe(event)))
            case RankStopped():
                if not self._busy and event.reason in _ENDED:
                    self.note("\n".join(describe(GroupStopped((event,), (event,)))))
            case RankRestored():
                if self._announce:
                    self._interlude()
                    self._put(self._err(), f"MPIR_debug_info) {event.host}:{event.pid}")
            case RankRunning():
                pass
            case _:
                assert_never(event)

    def _progress(self, progress: Progress) -> None:
        if self._busy:
            self._status.show(progress)
        else:
            # Another crdebug's request while the prompt is shown: no room for a status line.
            self._lines.show(progress)

    # ---- lines ----------------------------------------------------------------------------

    def _interlude(self) -> None:
        self._status.clear()
        self._marks.flush()

    def _application_line(self, mark: str, line: str) -> None:
        self._put(self._out(), line, mark=self._coloured(mark, _COLOURS.get(mark, "cyan")))

    def _coloured(self, text: str, colour: str) -> str:
        return click.style(text, fg=colour) if self._colours else text

    def _put(self, stream: TextIO, text: str, *, mark: str = "", colour: str = "") -> None:
        """mark: put before it, and our own text."""
        self.transcript.add(click.unstyle(mark) + text)
        shown = for_stream(text, stream)
        text = mark + (self._coloured(shown, colour) if colour else shown)
        encoding = getattr(stream, "encoding", None) or "utf-8"
        line = f"{text}\n".encode(encoding, "backslashreplace").decode(encoding)
        try:
            stream.write(line)
            stream.flush()
        except OSError:
            # The reader has gone (`| head`, a closed terminal): that must not end the job.
            pass


def _terminal_size() -> os.terminal_size:
    """The present size. shutil looks at $COLUMNS and $LINES first, but programs with GNU readline
    export old values of them to their children (Python's readline: 80 and 24 without a
    terminal)."""
    with contextlib.suppress(AttributeError, ValueError, OSError):  # there is none
        size = os.get_terminal_size(sys.__stdout__.fileno())  # type: ignore[union-attr]
        if size.columns and size.lines:
            return size
    return shutil.get_terminal_size()


def exit_words(status: int) -> str:
    """An exit status; one above 128 with the name of its signal."""
    try:
        return f"{status} ({signal.Signals(status - 128).name})"
    except ValueError:
        return str(status)


def ranks_line(job: str, ranks: RankSet) -> str:
    """The line with which a session introduces its job."""
    return f"job {job}: {ranks.words}"


def prompt(focus: RankSet | None = None) -> str:
    """The text of the prompt. focus: its ranks, if they are not all."""
    if focus is None:
        return "(crdebug) "
    shown = str(focus)
    return f"(crdebug {shown if len(shown) <= _FOCUS else f'{len(focus)} ranks'}) "

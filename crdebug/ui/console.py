"""The prompt, and standard input where it is not a terminal."""

from __future__ import annotations

import asyncio
import errno
import sys
import termios
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.utils import is_dumb_terminal

from crdebug.base.settings import state_home
from crdebug.commands.completion import Candidate, Names, complete
from crdebug.commands.context import Context, agree
from crdebug.commands.registry import Registry
from crdebug.node import owners
from crdebug.ui.conversation import LineSource, TerminalGone
from crdebug.ui.printable import printable
from crdebug.ui.toolbar import Toolbar


class CommandCompleter(Completer):
    """The candidates of commands/completion.py, for prompt_toolkit."""

    def __init__(self, registry: Registry, context: Context) -> None:
        self._registry = registry
        self._context = context
        self._names = Names(registry, context)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        for each in complete(self._registry, self._context, document.text_before_cursor):
            yield _completion(each)

    async def get_completions_async(
        self, document: Document, event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Add GDB's candidates; the user can go on typing meanwhile."""
        for completion in self.get_completions(document, event):
            yield completion
        for each in await self._names.complete(document.text_before_cursor):
            yield _completion(each)


def _completion(each: Candidate) -> Completion:
    return Completion(each.text, -each.typed, display_meta=each.summary)


class Prompt:
    """Lines typed at a terminal, with history and completion.

    patched: text written while the prompt is shown appears above it.
    """

    waits = True

    def __init__(self, registry: Registry, context: Context, *, patched: bool = True) -> None:
        self._patched = patched
        self._toolbar = Toolbar(context.session)
        self._lines: PromptSession[str] = PromptSession(
            history=_history(state_home() / "history"),
            # On a dumb terminal prompt_toolkit would show only the last letter of a completion.
            completer=None if is_dumb_terminal() else CommandCompleter(registry, context),
            complete_while_typing=False,
            enable_history_search=True,
            # Shown while the user types a line; it leaves nothing on the screen.
            bottom_toolbar=self._toolbar,
            reserve_space_for_menu=4,
            key_bindings=_bindings(),
        )
        self._questions: PromptSession[str] = PromptSession(history=InMemoryHistory())
        self._reading: asyncio.Task[str | None] | None = None
        self._cleared = False

    async def line(self, prompt: str) -> str:
        self._toolbar.refresh()
        return await self._ask(self._lines, prompt)

    async def confirm(self, question: str) -> bool:
        """As GDB asks: the end of the input means yes, Ctrl-C means no; any other answer repeats
        the question."""
        asked = shown = f"{question} (y or n) "
        while True:
            try:
                answer = (await self._ask(self._questions, shown)).strip().lower()
            except KeyboardInterrupt:
                return False
            except EOFError:
                return True
            if answer in ("y", "yes", "n", "no"):
                return answer.startswith("y")
            said = f"'{printable(answer)}' is not an answer" if answer else "that is not an answer"
            shown = f"{said}: type y for yes, n for no (Ctrl-C is no)\n{asked}"

    def clear(self) -> None:
        if self._reading is not None:
            self._cleared = True
            self._reading.cancel()

    async def _ask(self, session: PromptSession[str], prompt: str) -> str:
        # The prompt has the streams only while it is shown: results are written at once.
        try:
            return await self._shown(session, prompt)
        except (EOFError, OSError):
            if is_gone(sys.stdin):
                raise TerminalGone from None
            raise

    async def _shown(self, session: PromptSession[str], prompt: str) -> str:
        with self._streams():
            # A task of its own, so that it can be cancelled: on a dumb terminal an application
            # other than session.app reads, and offers no way to end it.
            self._reading = asyncio.create_task(self._read(session, prompt))
            try:
                line = await self._reading
            except asyncio.CancelledError:
                if not self._cleared:
                    raise
                line = None
            finally:
                self._reading, self._cleared = None, False
        if line is None:
            raise KeyboardInterrupt
        return line

    @staticmethod
    async def _read(session: PromptSession[str], prompt: str) -> str | None:
        """None: the line was cleared. (A KeyboardInterrupt in a task would end the event loop.)"""
        try:
            return await session.prompt_async(prompt, handle_sigint=False)
        except KeyboardInterrupt:
            return None

    def _streams(self) -> AbstractContextManager[None]:
        return patch_stdout(raw=True) if self._patched else nullcontext()


class Pipe:
    """Lines from a standard input that is not a terminal. Questions are answered yes, as by GDB."""

    waits = False

    def __init__(self) -> None:
        self.confirm = agree

    async def line(self, prompt: str) -> str:
        line: str = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def clear(self) -> None:
        """Nothing to clear: lines are read whole."""


def open_source(registry: Registry, context: Context) -> LineSource:
    """The console's lines: a prompt on a terminal, else standard input as it comes."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return Prompt(registry, context)
    return Pipe()


def is_gone(stream: TextIO) -> bool:
    """Was it a terminal that has gone? Reading from such a terminal only gives end of file."""
    try:
        termios.tcgetattr(stream.fileno())
    except termios.error as error:
        return bool(error.args) and error.args[0] == errno.EIO
    except (OSError, ValueError):  # not a file at all
        return False
    return False


def _bindings() -> KeyBindings:
    """A Ctrl-D typed while a command ran arrives as NUL: the kernel took it for the end of a line,
    and passes such an end as NUL to a program that reads single keys (n_tty.c,
    n_tty_set_termios)."""
    bindings = KeyBindings()

    @bindings.add(Keys.ControlAt, filter=Condition(lambda: not get_app().current_buffer.text))
    def end(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError, style="class:exiting")

    return bindings


def _history(file: Path) -> History:
    """In a file that only its owner can read, if it can be written."""
    try:
        owners.make_private(file.parent)
        file.touch(mode=0o600)
        with file.open("ab"):
            return FileHistory(str(file))
    except OSError:
        return InMemoryHistory()

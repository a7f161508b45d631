"""A conversation with one GDB: tokens become futures, everything else goes to one subscriber."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, GdbDied, GdbError
from crdebug.base.ranks import RankSet
from crdebug.gdbscripts.wire import error_parts
from crdebug.mi.records import Async, Garbage, Prompt, Record, Result, Stream, parse, quote
from crdebug.mi.transport import Transport

# A result after text that something in GDB's process wrote without a newline.
_BURIED = re.compile(rb"(\d+)\^(?:done|running|connected|error|exit)\b")
_LONG = 80  # a command's name in an error is no longer than that


@dataclass(slots=True)
class _Pending:
    """A command that GDB has not answered yet.

    collect: whether stream text belongs to it.  abandoned: nobody waits for it any more, but
    GDB will answer it still, and the text before that answer is its own.
    """

    command: str
    answer: asyncio.Future[Result]
    collect: bool
    text: list[str] = field(default_factory=list)


class Connection:
    """One GDB behind a transport.

    Commands may be sent while others are unanswered; GDB answers in order, and each answer finds
    its command by its token. Records that answer nothing (async records, text that belongs to no
    command, garbage) go to the subscriber, in GDB's order, from the reader task; the subscriber
    must not raise. When GDB ends, every waiter gets GdbDied and the subscriber is told last,
    by `on_death`.

    rank: for messages only. Use from one event loop.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        rank: int,
        subscriber: Callable[[Record], None],
        on_death: Callable[[GdbDied], None] = lambda error: None,
    ) -> None:
        self._transport = transport
        self._rank = RankSet.of([rank])
        self._subscriber = subscriber
        self._on_death = on_death
        self._pending: dict[int, _Pending] = {}
        self._last_token = 0
        self._last_command = "start"
        self._death: GdbDied | None = None
        self._reader = asyncio.get_running_loop().create_task(self._read())

    @property
    def pid(self) -> int:
        """GDB's process id."""
        return self._transport.pid

    @property
    def death(self) -> GdbDied | None:
        """How GDB ended, if it did."""
        return self._death

    @property
    def busy(self) -> str | None:
        """The command that GDB works on, if it owes an answer."""
        return next((entry.command for entry in self._pending.values()), None)

    async def command(self, command: str, deadline: Deadline) -> Result:
        """Send one MI command and return its result, of kind done, running, connected or exit.

        Raises GdbError with GDB's message, GdbDied, DeadlineExpired (the command itself is not
        taken back by that), BadInput for a command of several lines.
        """
        name = command if len(command) <= _LONG else f"{command[: _LONG - 3]}..."
        return await self._wait(self._send(command, name, collect=False), deadline)

    async def console(self, command: str, deadline: Deadline) -> str:
        """Run one command of GDB's command line; the text that it printed, warnings included.

        Text that GDB prints on its own account at that very moment (a rank that runs and stops)
        cannot be told from the command's: the subscriber gets it too.  Raises like `command`.
        """
        if "\n" in command or "\r" in command:
            raise BadInput("a gdb command is one line", ranks=self._rank)
        pending = self._send(f"-interpreter-exec console {quote(command)}", command, collect=True)
        await self._wait(pending, deadline)
        return "".join(pending.text)

    def break_in(self) -> None:
        """Make GDB give up the command that it works on (Ctrl-C), if it owes an answer."""
        if self._pending:
            self._transport.interrupt()

    async def close(self, deadline: Deadline) -> None:
        """Ask GDB to exit, see to it that it does, and end the reader. Idempotent.

        GDB lets go of what it attached to, and kills what it started. Waiters get GdbDied.
        Raises DeadlineExpired if GDB could not even be killed.
        """
        if self._death is None:
            self._last_command = "-gdb-exit"
            self._transport.write(b"-gdb-exit\n")
        try:
            await self._transport.close(deadline)
            await self._reader
        finally:
            self._reader.cancel()

    def _send(self, command: str, name: str, *, collect: bool) -> _Pending:
        """name: the command's name in errors."""
        if "\n" in command or "\r" in command or "\0" in command:
            raise BadInput("an MI command is one line", ranks=self._rank)
        if self._death is not None:
            raise self._died(name)
        self._last_token += 1
        self._last_command = name
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        pending = self._pending[self._last_token] = _Pending(name, answer, collect)
        self._transport.write(f"{self._last_token}{command}\n".encode())
        return pending

    async def _wait(self, pending: _Pending, deadline: Deadline) -> Result:
        # When the deadline expires the future is cancelled, and the entry stays until GDB
        # answers: text that GDB still prints for it must not count as another command's.
        result = await deadline.wait(
            pending.answer, f"gdb's answer to '{pending.command}'", ranks=self._rank
        )
        if result.kind == "error":
            kind, problem = error_parts(result.payload.text("msg", "gdb gave no reason"))
            raise GdbError(problem, pending.command, kind, ranks=self._rank)
        return result

    async def _read(self) -> None:
        try:
            while line := await self._transport.readline():
                self._take(line)
        except Exception as error:  # a fault of ours: without a reader nobody must wait for ever
            self._end(f"its answers cannot be read any more: {error!r}", None)
            raise
        self._end("gdb ended", await self._transport.wait())

    def _take(self, line: bytes) -> None:
        match parse(line):
            case Prompt():
                pass
            case Result(token=token) as result if token in self._pending:
                self._answer(token, result)
            case Garbage(token=int(token), text=text) if token in self._pending:
                pending = self._pending.pop(token)
                error = GdbError(
                    f"gdb's answer cannot be read: {text[:200]}", pending.command, ranks=self._rank
                )
                if not pending.answer.done():
                    pending.answer.set_exception(error)
            case Garbage() as record:
                self._garbage(line, record)
            case Stream(kind="console" | "log", text=text) as record:
                oldest = next(iter(self._pending.values()), None)
                if oldest is not None and oldest.collect:
                    oldest.text.append(text)
                    if record.kind == "log":
                        return
                self._subscriber(record)
            case Stream() | Async() | Result() as record:
                self._subscriber(record)

    def _answer(self, token: int | None, result: Result) -> None:
        assert token is not None
        pending = self._pending.pop(token)
        if result.kind == "running":
            # Its *running record comes only after this answer; who awaits the answer must not find
            # the stop before (GDB manual, "GDB/MI Result Records").
            self._subscriber(result)
        if not pending.answer.done():
            pending.answer.set_result(result)

    def _garbage(self, line: bytes, record: Garbage) -> None:
        for buried in _BURIED.finditer(line):
            if int(buried[1]) in self._pending:
                self._subscriber(Garbage(line[: buried.start()].decode("utf-8", "replace")))
                self._take(line[buried.start() :])
                return
        self._subscriber(record)

    def _end(self, problem: str, status: int | None) -> None:
        words = self._transport.last_words()
        self._death = GdbDied(
            f"{problem}, saying '{words}'" if words else problem,
            next((entry.command for entry in self._pending.values()), self._last_command),
            status,
            ranks=self._rank,
        )
        pending, self._pending = self._pending, {}
        for entry in pending.values():
            if not entry.answer.done():
                entry.answer.set_exception(self._died(entry.command))
        self._on_death(self._death)

    def _died(self, command: str) -> GdbDied:
        assert self._death is not None
        return GdbDied(self._death.problem, command, self._death.status, ranks=self._rank)

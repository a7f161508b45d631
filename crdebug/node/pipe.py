"""A subprocess on pipes: the transport of a conversation with one GDB."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable

# Enough for an abort message with its reason; more would hide the reason in an error.
_LAST_WORDS = 4096


class Pipe:
    """A started process with its standard input, output and error on pipes.

    Output comes as lines of any length. The end of the process is the end of its output, even if a
    child of it still holds the pipe open. The end of its standard error is kept.
    It has a process group of its own, so that a Ctrl-C at the terminal does not reach it. If a
    signal ends it, the rest of the group is killed.

    Made by `start`. Not thread-safe. Owns the process until `close`.
    """

    def __init__(self, protocol: _Lines, transport: asyncio.SubprocessTransport) -> None:
        self._protocol = protocol
        self._transport = transport

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> Pipe:
        """Start a program.

        argv: the program, looked up in PATH, and its arguments.
        environment: the complete one; None for this process's own.
        Raises NotAvailable when the program cannot be started.
        """
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: _Lines(loop),
                *argv,
                env=environment,
                cwd=directory,
                # Not a session: the kernel's autogroups (sched(7)) share out time by session, and
                # with many of them Linux 6.18 starves some for minutes: not even SIGKILL works.
                process_group=0,
            )
        except OSError as error:
            raise NotAvailable(f"cannot start {argv[0]}: {error.strerror}") from error
        return cls(protocol, transport)

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    async def readline(self) -> bytes:
        """The next line with its newline; the rest, then b"" for ever, at the end."""
        return await self._protocol.readline()

    def write(self, data: bytes) -> None:
        """Queue bytes for its standard input; drop them if it has ended."""
        pipe = self._transport.get_pipe_transport(0)
        if isinstance(pipe, asyncio.WriteTransport) and not pipe.is_closing():
            pipe.write(data)

    def interrupt(self) -> None:
        """Send it SIGINT; nothing if it has ended."""
        if self._transport.get_returncode() is None:
            self._transport.send_signal(signal.SIGINT)

    def last_words(self) -> str:
        """The end of its standard error."""
        return self._protocol.errors.decode("utf-8", "backslashreplace").strip()

    async def wait(self) -> int:
        """Its exit status once it has ended; negative for a signal."""
        return await asyncio.shield(self._protocol.exited)

    async def close(self, deadline: Deadline) -> int:
        """End it: by the end of its input, then SIGTERM, then SIGKILL. Idempotent.

        The three share the remaining time. Returns the exit status. Raises DeadlineExpired if it
        survives even SIGKILL (uninterruptible in the kernel).
        """
        try:
            pipe = self._transport.get_pipe_transport(0)
            if isinstance(pipe, asyncio.WriteTransport):
                pipe.close()
            for force in (self._transport.terminate, self._transport.kill):
                if await self._ends_within(deadline.left / 3):
                    break
                try:
                    force()
                except ProcessLookupError:
                    break
            return await deadline.wait(self.wait(), f"the end of process {self.pid}")
        finally:
            self._transport.close()
            await self._protocol.closed(self._transport)

    async def _ends_within(self, seconds: float) -> bool:
        done, _ = await asyncio.wait([self._protocol.exited], timeout=seconds)
        return bool(done)


class _Lines(asyncio.SubprocessProtocol):
    """Splits standard output into lines, and notices the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._open = {1, 2}
        self._transport: asyncio.SubprocessTransport | None = None
        self.errors = b""
        self.exited: asyncio.Future[int] = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()

    async def readline(self) -> bytes:
        while not self._lines:
            if self._ended:
                return b""
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._lines.popleft()

    async def closed(self, transport: asyncio.SubprocessTransport) -> None:
        """Wait until the loop has closed every pipe (it does so in its next iterations)."""
        if transport.get_returncode() is not None:
            await self._lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.errors = (self.errors + data)[-_LAST_WORDS:]
            return
        *whole, rest = data.split(b"\n")
        if whole:
            self._lines.append(b"".join([*self._partial, whole[0], b"\n"]))
            self._lines.extend(line + b"\n" for line in whole[1:])
            self._partial.clear()
        if rest:
            self._partial.append(rest)
        if whole:
            self._wake()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        # A process may end before we have read its standard error: at the end of its output, its
        # last words must be there, too.
        self._open.discard(fd)
        if not self._open:
            self._end()

    def process_exited(self) -> None:
        assert self._transport is not None
        # A child of the process may hold the pipes open for ever: read what they hold, and end.
        for fd in (1, 2):
            pipe = self._transport.get_pipe_transport(fd)
            if pipe is not None and not pipe.is_closing():
                self._drain(fd, pipe.get_extra_info("pipe").fileno())
                pipe.close()
        self._end()
        status = self._transport.get_returncode()
        if status is not None and status < 0:
            # Before GDB attaches, it tries ptrace(2) on a child of its own. The child stops itself,
            # and without GDB it would stay so for ever.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), signal.SIGKILL)
        if not self.exited.done():
            self.exited.set_result(-1 if status is None else status)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    def _drain(self, fd: int, descriptor: int) -> None:
        while True:
            try:
                data = os.read(descriptor, 1 << 16)
            except OSError:  # empty now: the loop has made the descriptor non-blocking
                return
            if not data:
                return
            self.pipe_data_received(fd, data)

    def _end(self) -> None:
        if self._partial:
            self._lines.append(b"".join(self._partial))
            self._partial.clear()
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

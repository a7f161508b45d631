"""GDB's side of a connection, in memory."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable

from crdebug.base.deadline import Deadline
from crdebug.node.sigstop import PendingStops

_COMMAND = re.compile(r"(\d*)(.*)")


class FakeTransport:
    """Commands are in `commands` as (token, text); `say` is GDB speaking.

    answer: called with each command; the lines that it returns are said at once. A "%" at the
    beginning of a line becomes the command's token.
    """

    def __init__(self, answer: Callable[[str], Iterable[str]] = lambda command: ()) -> None:
        self.commands: list[tuple[str, str]] = []
        self.answer = answer
        self.interrupts = 0
        self.closed = False
        self.words = ""
        self._lines: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    # ---- the test's side ----------------------------------------------------------------------

    def say(self, *lines: str | bytes) -> None:
        for line in lines:
            data = line if isinstance(line, bytes) else line.encode()
            self._lines.append(data + b"\n")
        self._news.set()

    def end(self, status: int = 1) -> None:
        if not self._status.done():
            self._status.set_result(status)
        self._news.set()

    def texts(self) -> list[str]:
        return [text for _, text in self.commands]

    # ---- Transport ----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return 4711

    async def readline(self) -> bytes:
        while not self._lines:
            if self._status.done():
                return b""
            self._news.clear()
            await self._news.wait()
        return self._lines.popleft()

    def write(self, data: bytes) -> None:
        for line in data.decode().splitlines():
            match = _COMMAND.match(line)
            assert match is not None
            self.commands.append((match[1], match[2]))
            if match[2] == "-gdb-exit":
                self.end(0)
            for reply in self.answer(match[2]):
                self.say(match[1] + reply[1:] if reply.startswith("%") else reply)

    def interrupt(self) -> None:
        self.interrupts += 1

    def last_words(self) -> str:
        return self.words

    async def wait(self) -> int:
        return await asyncio.shield(self._status)

    async def close(self, deadline: Deadline) -> int:
        self.closed = True
        self.end(0)
        return await self.wait()


FRAME = 'frame={addr="0x1000",func="work",args=[],file="ring.c",line="7"}'


class FakeGdb:
    """A GDB with one process of two threads, as far as a target needs it; also its StopSignals.

    stop: the process's answer to SIGSTOP. None: as GDB handles it (a stop if it should heed it);
        otherwise the lines that it says instead, once, with the SIGSTOP left queued.
    """

    def __init__(self) -> None:
        self.transport = FakeTransport(self.answer)
        self.pid = 0
        self.heeds = False
        self.runs = False
        self.queued = False
        self.was_stopped = False
        self.killed = False  # just when it is attached to
        self.sent = 0
        self.alone: list[str] = []
        self.locking = False
        self.instead: list[str] | None = None
        self.loses = 0
        self.next_stop: list[str] | None = None
        self.errors: dict[str, str] = {}
        self.silent: set[str] = set()
        self.mask = 0b100
        self.blocked: list[tuple[int, int]] = []  # threads, and the signals that they were to block

    def answer(self, command: str) -> list[str]:
        verb = command.split()[0]
        if verb in self.silent:
            return []
        if verb in self.errors:
            return [f'%^error,msg="{self.errors[verb]}"']
        if "handle SIGSTOP" in command:
            self.heeds = " stop " in command
            return ["%^done"]
        match verb:
            case "-target-attach":
                self.pid = int(command.split()[1])
                return [
                    f'=thread-group-started,id="i1",pid="{self.pid}"',
                    '*running,thread-id="2"',
                    "%^done",
                    *([] if self.killed else [self.stopped("", 1)]),
                ]
            case "-target-detach":
                return ['=thread-group-exited,id="i1"', "%^done"]
            case "-exec-continue" | "-exec-step" | "-exec-next" | "-exec-finish":
                return ["%^running", '*running,thread-id="all"', *self._run(command)]
            case "-thread-info":
                return [
                    f'%^done,threads=[{{id="1",target-id="LWP {self.pid}",name="a",{FRAME},'
                    f'state="stopped"}},{{id="2",target-id="LWP {self.pid + 1}",name="b",{FRAME},'
                    'state="stopped"}],current-thread-id="2"'
                ]
            case "-crdebug-mask":
                return [f'%^done,mask="{self.mask}"']
            case "-gdb-show":
                return ['%^done,value="replay"']
            case "-gdb-set" if "scheduler-locking" in command:
                self.locking = command.endswith(" on")
        return ["%^done"]

    def _run(self, command: str) -> list[str]:
        if self.locking:
            self.alone.append(command)
        self.runs = True
        if self.queued:
            return self._take_stop()
        if self.next_stop is not None:
            self.runs = False
            lines, self.next_stop = self.next_stop, None
            return lines
        return []

    def _take_stop(self) -> list[str]:
        self.queued = False
        if not self.heeds:
            return []
        self.runs = False
        return [self.stopped('reason="signal-received",signal-name="SIGSTOP",', 1)]

    def stopped(self, reason: str, thread: int) -> str:
        return f'*stopped,{reason}{FRAME},thread-id="{thread}",stopped-threads="all"'

    def stop(self, reason: str) -> None:
        """The process stops by itself now."""
        self.runs = False
        self.transport.say(self.stopped(reason, 1))

    # ---- StopSignals --------------------------------------------------------------------------

    def send_stop(self, pid: int) -> bool:
        assert pid == self.pid
        self.sent += 1
        if self.loses:
            self.loses -= 1
            return True
        self.queued = True
        if self.runs and self.instead is not None:
            lines, self.instead = self.instead, None
            self.runs = False
            self.transport.say(*lines)
        elif self.runs:
            self.transport.say(*self._take_stop())
        return True

    def lift_stop(self, pid: int) -> None:
        assert not self.queued
        self.was_stopped = False
        self.queued = True

    async def block(self, pid: int, tid: int, mask: int, deadline: Deadline) -> None:
        assert pid == self.pid
        self.blocked.append((tid, mask))

    def pending_stops(self, pid: int) -> PendingStops:
        return PendingStops(self.queued)

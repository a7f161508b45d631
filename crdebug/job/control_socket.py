"""Requests from another crdebug to the session attached to a job (one JSON line each way)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Refused
from crdebug.node.proc import short_path


@dataclass(frozen=True, slots=True)
class Request:
    """Take a checkpoint, or end the job if `kill` is set.

    note: the checkpoint's.
    """

    note: str = ""
    kill: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer. number: of the checkpoint; 0 if none was requested, or if there is an error."""

    number: int = 0
    error: str = ""


class ControlServer:
    """Answers requests at a socket until `close`. `start` raises Refused if another session already
    does."""

    def __init__(self, path: Path, answer: Callable[[Request], Awaitable[int]]) -> None:
        self._path = path
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._silent: set[asyncio.StreamWriter] = set()  # have not asked yet

    async def start(self) -> None:
        if await is_attended(self._path):
            raise Refused(
                "the job is under another session already", hint="end that one, or use it"
            )
        self._path.unlink(missing_ok=True)  # of a session that died
        with short_path(self._path) as path:
            self._server = await asyncio.start_unix_server(self._accept, path)
        self._path.chmod(0o600)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._silent.add(writer)
        try:
            line = await reader.readline()
            self._silent.discard(writer)
            if not line:
                return  # it only checked whether we exist
            try:
                request = msgspec.json.decode(line, type=Request)
                reply = Reply(number=await self._answer(request))
            except (CrdebugError, msgspec.MsgspecError) as error:
                reply = Reply(error=str(error))
            writer.write(msgspec.json.encode(reply) + b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            pass  # it did not wait for the answer, or its line was too long
        finally:
            self._silent.discard(writer)
            writer.close()

    async def close(self) -> None:
        """Finish the answers under way, and accept no more requests."""
        if self._server is not None:
            self._server.close()
            for writer in self._silent:
                writer.close()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None
            self._path.unlink(missing_ok=True)


async def _connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    try:
        with short_path(path) as short:
            return await asyncio.open_unix_connection(short)
    except (FileNotFoundError, ConnectionRefusedError):
        return None


async def is_attended(path: Path) -> bool:
    """Is there a session at this socket?"""
    connection = await _connect(path)
    if connection is None:
        return False
    connection[1].close()
    await connection[1].wait_closed()
    return True


async def ask(path: Path, request: Request, deadline: Deadline) -> int | None:
    """The number of the checkpoint that the session took; None if there is no session.

    Raises CrdebugError with the session's own words.
    """
    connection = await _connect(path)
    if connection is None:
        return None
    reader, writer = connection
    line = b""
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        with contextlib.suppress(ConnectionError):
            line = await deadline.wait(reader.readline(), "the attached session's answer")
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    if not line:
        raise CrdebugError("the attached session ended before it answered", phase="checkpoint")
    try:
        reply = msgspec.json.decode(line, type=Reply)
    except msgspec.MsgspecError as error:
        raise CrdebugError(f"the attached session's answer cannot be read: {error}") from None
    if reply.error:
        raise CrdebugError(reply.error)
    return reply.number

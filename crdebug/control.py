"""Asking the session that is attached to a job, from another crdebug (one JSON line each way)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crdebug.deadline import Deadline
from crdebug.errors import CrdebugError, Refused
from crdebug.node.proc import short_path


@dataclass(frozen=True, slots=True)
class Request:
    """Take a checkpoint."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """number: of the checkpoint, or 0 and the error's text."""

    number: int = 0
    error: str = ""


class ControlServer:
    """Answers requests at a socket until `close`. Raises Refused if another session does."""

    def __init__(self, path: Path, answer: Callable[[Request], Awaitable[int]]) -> None:
        self._path = path
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if await _connect(self._path) is not None:
            raise Refused(
                "the job is under another session already", hint="end that one, or ask there"
            )
        self._path.unlink(missing_ok=True)  # of a session that died
        with short_path(self._path) as path:
            self._server = await asyncio.start_unix_server(self._serve, path)
        self._path.chmod(0o600)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if not line:
                return  # somebody only looked whether we are there
            try:
                request = msgspec.json.decode(line, type=Request)
                reply = Reply(number=await self._answer(request))
            except (CrdebugError, msgspec.MsgspecError) as error:
                reply = Reply(error=str(error))
            with contextlib.suppress(ConnectionError):
                writer.write(msgspec.json.encode(reply) + b"\n")
                await writer.drain()
        finally:
            writer.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
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
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        line = await deadline.wait(reader.readline(), "the attached session")
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    if not line:
        raise CrdebugError("the attached session ended", phase="checkpoint")
    reply = msgspec.json.decode(line, type=Reply)
    if reply.error:
        raise CrdebugError(reply.error)
    return reply.number

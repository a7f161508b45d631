"""This process's standard input and output as a stream of messages."""

from __future__ import annotations

import asyncio
import contextlib
import os


class StandardStreams:
    """Bytes in from standard input, out to standard output. Made by `take`."""

    def __init__(self, reader: asyncio.StreamReader, out: asyncio.WriteTransport) -> None:
        self._reader = reader
        self._out = out

    @classmethod
    async def take(cls) -> StandardStreams:
        """From now on nothing else can read the one or write the other: what is printed by mistake
        goes to standard error, and children read nothing."""
        source, sink = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        out, _ = await loop.connect_write_pipe(asyncio.Protocol, sink)
        return cls(reader, out)

    async def read(self, size: int) -> bytes:
        """Exactly so many bytes. Raises EOFError."""
        return await self._reader.readexactly(size)

    def write(self, data: bytes) -> None:
        if not self._out.is_closing():
            self._out.write(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._out.close()

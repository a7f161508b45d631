"""A process that is many hosts: each session of its ssh server is an agent with made-up ranks.

    fake_hosts_server.py DIRECTORY

DIRECTORY has the server's key (`host_key`) and the one that it lets in (`key.pub`). It prints its
port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncssh
import common

sys.path.insert(0, str(common.TOP / "tests" / "unit"))

from fake_hosts import FakeAgent


class Channel:
    """The streams of a session as a Stream."""

    def __init__(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        self._process = process

    async def read(self, size: int) -> bytes:
        return await self._process.stdin.readexactly(size)

    def write(self, data: bytes) -> None:
        if not self._process.stdout.is_closing():
            self._process.stdout.write(data)

    def close(self) -> None:
        self._process.stdout.close()


async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
    try:
        await FakeAgent(Channel(process)).run()
    finally:
        process.exit(0)


async def main(directory: Path) -> None:
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[str(directory / "host_key")],
        authorized_client_keys=str(directory / "key.pub"),
        process_factory=serve,
        encoding=None,
        backlog=1000,
    )
    print(server.get_port(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

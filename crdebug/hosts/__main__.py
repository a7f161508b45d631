"""The program that an agent is: `python -m crdebug.hosts`, on another host, with crdebug at the
other end of its standard streams."""

from __future__ import annotations

import asyncio

from crdebug.hosts.agent import Agent
from crdebug.hosts.wire import MARK
from crdebug.node.standard_streams import StandardStreams


async def main() -> None:
    streams = await StandardStreams.take()
    streams.write(MARK)
    await Agent(streams).run()


if __name__ == "__main__":
    asyncio.run(main())

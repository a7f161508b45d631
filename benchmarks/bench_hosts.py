"""What ten thousand ranks on a thousand hosts cost crdebug's own process (issue 15, figure 3).

The hosts are made up: real agents whose ranks have no processes, behind real ssh connections to a
few processes of this machine. So the commands, the merging, the wire and ssh are real; what is not
shown is a thousand interpreters starting, and a network. The times are of this process's
processor, so that the others' share of the machine does not count.

    bench_hosts.py [HOSTS [RANKS-OF-EACH]]
"""

from __future__ import annotations

import asyncio
import functools
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import common

sys.path.insert(0, str(common.TOP / "tests" / "unit"))

from fake_hosts import spread

from crdebug.base.deadline import Deadline
from crdebug.base.settings import Settings
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.hosts.attach import attach_everywhere
from crdebug.hosts.ssh import OverSsh
from crdebug.hosts.starting import Start, Started
from crdebug.hosts.wire import Stream
from crdebug.session import Session
from crdebug.ui.render import render

SERVERS = 3
TIMES = 5
BOUND, MEMORY = 0.5, 200  # seconds of processor time, MB
COMMANDS = ("print same", "print x", "backtrace", "backtrace 1", "stack", "next", "info ranks")


@dataclass
class Traffic:
    """Messages and bytes, to and from the hosts."""

    sent: int = 0
    out: int = 0
    came: int = 0
    into: int = 0

    def now(self) -> tuple[int, int, int, int]:
        return self.sent, self.out, self.came, self.into


class Counted:
    """A stream whose traffic is counted: a message is read in two parts."""

    def __init__(self, stream: Stream, traffic: Traffic) -> None:
        self._stream, self._traffic = stream, traffic

    async def read(self, size: int) -> bytes:
        data = await self._stream.read(size)
        self._traffic.came += size == 4
        self._traffic.into += size
        return data

    def write(self, data: bytes) -> None:
        self._traffic.sent += 1
        self._traffic.out += len(data)
        self._stream.write(data)

    def close(self) -> None:
        self._stream.close()


@contextmanager
def servers(directory: Path) -> Iterator[list[int]]:
    """The ports of the processes that are the hosts."""
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(directory / "host_key"))
    own = asyncssh.generate_private_key("ssh-ed25519")
    own.write_private_key(str(directory / "key"))
    own.write_public_key(str(directory / "key.pub"))
    program = common.TOP / "benchmarks/fake_hosts_server.py"
    argv = [sys.executable, str(program), str(directory)]
    made = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(SERVERS)
    ]
    try:
        yield [int(each.stdout.readline()) for each in made if each.stdout is not None]
    finally:
        for each in made:
            each.kill()
            each.communicate()


def starter(ports: Sequence[int], directory: Path, traffic: Traffic) -> Start:
    async def start(host: str, deadline: Deadline) -> Started:
        connection = await asyncssh.connect(
            "127.0.0.1",
            ports[int(host[1:]) % len(ports)],
            config=None,
            username="nobody",
            known_hosts=None,
            client_keys=[str(directory / "key")],
            encryption_algs="^aes128-gcm@openssh.com",  # as crdebug chooses
        )
        made = OverSsh(host, connection, await connection.create_process("", encoding=None))
        made.stream = Counted(made.stream, traffic)  # type: ignore[assignment]
        return made

    return start


async def measured(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Seconds of this process's processor time, and of the clock."""
    processor, clock = time.process_time(), time.perf_counter()
    await work()
    return time.process_time() - processor, time.perf_counter() - clock


async def main() -> None:
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    each = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    directory, traffic = Path.cwd(), Traffic()
    settings = Settings(attach=600.0, command=60.0, stop=60.0, host_interval=600.0, record=None)
    with servers(directory) as ports:
        found = spread([f"n{number}" for number in range(hosts)], each, os.getpid())
        session: Session

        async def attach() -> None:
            nonlocal session
            start = starter(ports, directory, traffic)
            _, group = await attach_everywhere(found, "", settings, None, start)
            session = Session(group, "bench", settings, None)

        seconds, clock = await measured(attach)
        print(f"{hosts * each} ranks on {hosts} hosts: attached in {clock:.1f} s, ", end="")
        print(
            f"{seconds:.2f} s of this process's processor ({1e3 * seconds / hosts:.2f} ms a host)"
        )
        try:
            await commands(session, traffic)
        finally:
            await session.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"memory at most {peak:.0f} MB, at most {MEMORY} MB: {_verdict(peak, MEMORY)}")


async def commands(session: Session, traffic: Traffic) -> None:
    registry, context = standard(), Context(session)

    async def line(text: str) -> None:
        render(await registry.run(context, text), 100)

    async def interrupt() -> None:
        running = asyncio.create_task(line("continue"))
        every = context.session.ranks
        while len(session.group.running) < len(every):
            await asyncio.sleep(0.05)
        before[0] = time.process_time()
        await session.interrupt()
        await running
        before[1] = time.process_time()

    before = [0.0, 0.0]
    head = ("processor", "clock", "sent", "bytes", "came", "bytes")
    print(f"{'':14}{head[0]:>10}{head[1]:>9}{head[2]:>8}{head[3]:>10}{head[4]:>8}{head[5]:>11}")
    works = {text: functools.partial(line, text) for text in COMMANDS} | {"interrupt": interrupt}
    for name, work in works.items():
        processor, clock = [], []
        was = traffic.now()
        for _ in range(TIMES):
            seconds, waited = await measured(work)
            processor.append(before[1] - before[0] if name == "interrupt" else seconds)
            clock.append(waited)
        now = [(after - first) // TIMES for after, first in zip(traffic.now(), was, strict=True)]
        middle = statistics.median(processor)
        print(
            f"{name:14}{middle:8.2f} s{statistics.median(clock):7.2f} s"
            f"{now[0]:8}{now[1]:10}{now[2]:8}{now[3]:11}  {_verdict(middle, BOUND)}"
        )


def _verdict(value: float, bound: float) -> str:
    return "met" if value <= bound else f"MISSED, {value / bound:.1f} times the bound"


if __name__ == "__main__":
    common.main(main)

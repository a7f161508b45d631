"""How fast the console answers, beside its bounds (issue 4), and a session beside one of mdb's.

mdb (PyPI: mdb-debugger) is the nearest peer. It and the MPICH that it wants are installed into an
environment of the benchmark's own, in crdebug's cache. Both debug the same program, on that MPICH,
by turns. The program records nothing there: mdb has no such thing.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from common import TOP, Pairs, main, report

from crdebug.base.settings import Settings, cache_home
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.session import Session
from crdebug.ui.render import render
from harness import mpirun
from harness.cli import argv

RANKS = 8
BESIDE_MDB = (RANKS, 16, 32)
TIMES = 50
ROUNDS = 5
BOUNDS = {"next": 20, "print sum": 10, "backtrace": 40}  # milliseconds
THREE_TIMES = 1 / 3  # as fast as mdb, or faster
SCRIPT = ("break work", "continue", "print rank", "backtrace", "next", "next", "print total")
WEIGHED = ("PSS", "private")


def compiled(compiler: str | Path) -> Path:
    program = Path.cwd() / f"stepper-{Path(compiler).parent.parent.name}"
    subprocess.run([compiler, "-g", "-O0", "-o", program, TOP / "benchmarks/stepper.c"], check=True)
    return program


# ---- one command ---------------------------------------------------------------------------------


async def answers(program: Path, ranks: int) -> None:
    """The time from a typed line to its text, at ranks that all stand in one loop."""
    started = time.perf_counter()
    session = await Session.run(
        mpirun.command(program, ranks=ranks), name="bench", settings=Settings(record=None)
    )
    print(f"\n{ranks} ranks: in main after {time.perf_counter() - started:.2f} s")
    registry, context = standard(), Context(session)

    async def line(text: str) -> str:
        return render(await registry.run(context, text), 100)

    try:
        await line("tbreak work")
        while "work (" not in await line("backtrace 1"):
            await line("continue")
        taken: dict[str, list[float]] = {text: [] for text in BOUNDS}
        for _ in range(TIMES):
            for text, times in taken.items():
                times.append(await _seconds(functools.partial(line, text)))
        for text, times in taken.items():
            middle, bound = statistics.median(times) * 1e3, BOUNDS[text]
            verdict = "met" if middle <= bound else f"missed by {middle - bound:.1f} ms"
            told = f"bound {bound} ms at {RANKS} ranks: {verdict}" if ranks == RANKS else ""
            low, high = min(times) * 1e3, max(times) * 1e3
            print(f"  {text:12} p50 {middle:6.1f} ms ({low:.1f}-{high:.1f}, n={TIMES})  {told}")
        _weigh(session)
    finally:
        await session.close()


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def _weigh(session: Session) -> None:
    """The memory of the GDBs; PSS counts a page that n processes share as 1/n of one."""
    sums = dict.fromkeys(WEIGHED, 0)
    for rank in session.ranks:
        target = session.group[rank]
        for line in Path(f"/proc/{target.gdb_pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, size = line.split()[:2]
            sums["PSS"] += int(size) if name == "Pss:" else 0
            sums["private"] += int(size) if name.startswith("Private_") else 0
    each = ", ".join(
        f"{name} {kib / len(session.ranks) / 1024:.1f} MiB" for name, kib in sums.items()
    )
    print(f"  memory of a rank's GDB: {each}")


# ---- beside mdb ----------------------------------------------------------------------------------


def peer() -> Path:
    """The environment with mdb, made when it is not there yet."""
    home = cache_home() / "bench-mdb"
    if not (home / "bin" / "mdb").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        wanted = ["mdb-debugger", "mpich"]
        subprocess.run([home / "bin" / "pip", "install", "-q", *wanted], check=True)
    return home


def ours(program: Path, starter: Path, script: Path, ranks: int) -> tuple[float, float]:
    """Seconds until all ranks stand in main, then of the script with the end of it all."""
    command = [str(starter), "-n", str(ranks), str(program)]
    options = ("--no-record", "--name", "beside", "--batch", "-x", script)
    started = time.perf_counter()
    with subprocess.Popen(
        argv("run", *options, "--", *command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=mpirun.environment(),
    ) as process:
        assert process.stdout is not None
        _until(process.stdout, f"job beside: ranks 0-{ranks - 1}")
        launched = time.perf_counter()
        rest = process.stdout.read()
    ended = time.perf_counter()
    assert process.returncode == 0 and f"[0-{ranks - 1}] = 0" in rest, rest
    return launched - started, ended - launched


def theirs(program: Path, home: Path, script: Path, ranks: int) -> tuple[float, float]:
    """The same of mdb: until its debuggers are connected, then of its script and its `quit`."""
    environment = {
        **os.environ,
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "HOME": str(Path.cwd()),
    }
    where = ["-h", "localhost", "-p", str(_port())]
    with _launched(program, ranks, where, environment) as (server, started):
        assert server.stdout is not None
        _until(server.stdout, "all debug clients connected")
        launched = time.perf_counter()
        done = subprocess.run(
            ["mdb", "attach", *where, "-x", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
        )
        ended = time.perf_counter()
    assert f"{ranks - 1}: $2 = 0" in done.stdout, done.stdout + done.stderr
    return launched - started, ended - launched


@contextmanager
def _launched(
    program: Path, ranks: int, where: list[str], environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], float]]:
    started = time.perf_counter()
    with subprocess.Popen(
        ["mdb", "launch", "-n", str(ranks), *where, "-t", str(program)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**environment, "PYTHONUNBUFFERED": "1"},
    ) as server:
        try:
            yield server, started
        finally:
            server.terminate()


def _until(lines: Iterator[str], text: str) -> None:
    assert any(text in line for line in lines), f"'{text}' was never said"


def _port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def beside_mdb() -> None:
    home = peer()
    program = compiled(home / "bin" / "mpicc")
    script, their_script = Path("script"), Path("script.mdb")
    script.write_text("\n".join(SCRIPT) + "\n")
    their_script.write_text("".join(f"command {line}\n" for line in SCRIPT) + "quit\n")
    starter = home / "bin" / "mpirun"
    ours(program, starter, script, RANKS)  # what is compiled once is there
    compared = []
    for ranks in BESIDE_MDB:
        launch = Pairs(f"launch, {ranks} ranks in main (bare: mdb)", THREE_TIMES, 0.0)
        commands = Pairs(f"script of {len(SCRIPT)} commands, {ranks} ranks", THREE_TIMES, 0.0)
        for _ in range(ROUNDS):
            mine = ours(program, starter, script, ranks)
            other = theirs(program, home, their_script, ranks)
            for pair, own, bare in zip((launch, commands), mine, other, strict=True):
                pair.ours.append(own)
                pair.bare.append(bare)
        compared += [launch, commands]
    print()
    report(compared)


async def run() -> None:
    os.environ.update(mpirun.environment())
    program = compiled("mpicc")
    for ranks in (RANKS, 32):
        await answers(program, ranks)
    await asyncio.to_thread(beside_mdb)


if __name__ == "__main__":
    main(run)

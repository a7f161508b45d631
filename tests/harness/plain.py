"""Jobs that are started as everybody starts them: plain mpirun, no crdebug, no container."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from crdebug.acquire.discovery import FoundJob, find_job
from crdebug.acquire.symbols import find_symbols
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.node import proc
from harness import mpirun, mpis
from harness.mpis import Mpi
from harness.programs import build


@dataclass(frozen=True, slots=True)
class Plain:
    """A running launcher. output: of it and its ranks."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ended(self, status: int = 0, seconds: float = 60.0) -> str:
        """Wait for the end; returns the output. Raises AssertionError for another status."""
        limit = Deadline(seconds)
        await limit.until(lambda: self.process.poll() is not None, "the launcher to end")
        text = self.output.read_text()
        assert self.process.returncode == status, f"status {self.process.returncode}\n{text}"
        return text


@contextmanager
def started(argv: Sequence[str], output: Path) -> Iterator[Plain]:
    """Start a launcher; it is gone afterwards with all that is below it."""
    with (
        output.open("ab") as file,
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            # Whatever networks the machine has: Debian 13's Open MPI complains of some.
            env=mpirun.environment({"OMPI_MCA_btl_tcp_if_include": "lo"}),
            start_new_session=True,
        ) as process,
    ):
        # Whoever starts jobs waits for them: a number is not free before.
        threading.Thread(target=process.wait, daemon=True).start()
        try:
            yield Plain(process, output)
        finally:
            family = []
            with suppress(psutil.NoSuchProcess):  # it has just ended, and was waited for
                family = psutil.Process(process.pid).children(recursive=True)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                for each in family:
                    if each.is_running():
                        each.kill()


@asynccontextmanager
async def quiet(
    directory: Path,
    ranks: int = 2,
    locked: int = -1,
    mpi: Mpi | None = None,
    program: Path | None = None,
    launcher: Sequence[str] = (),
) -> AsyncIterator[tuple[Plain, FoundJob]]:
    """tests/programs/quiet.c under plain mpirun, once all of its ranks wait. See `let_end`.

    mpi: another than the one in use.  program: not as it is usually compiled.  launcher: with its
    options, in place of that MPI's mpirun.
    """
    fifo = directory / "fifo"
    os.mkfifo(fifo)
    with mpis.using(mpi) if mpi else nullcontext():
        program = program or build("quiet")
        own = ("--fifo", str(fifo), "--locked", str(locked))
        argv = mpirun.command(program, *own, ranks=ranks)
    if launcher:
        argv = [*launcher, str(program), *own]
    with started(argv, directory / "output") as plain:
        limit, found = Deadline(60), list[FoundJob]()

        def waits() -> bool:
            try:
                found[:] = [find_job(plain.pid)]
                return len(found[0].entries) == ranks and all(
                    proc.read_memory(e.pid, find_symbols(e.pid, ["ready"])["ready"], 1) == b"\1"
                    and proc.status(e.pid)["State"][0] == "S"
                    for e in found[0].entries
                )
            except (CrdebugError, OSError, KeyError):
                return False

        await limit.until(waits, "all ranks to wait")
        yield plain, found[0]


def let_end(directory: Path, ranks: int = 2) -> None:
    """Let the ranks of `quiet` run to their end."""
    descriptor = os.open(directory / "fifo", os.O_RDWR)
    os.write(descriptor, b"." * ranks)
    os.close(descriptor)

"""Programs under bare mpirun with the MPI layer before them: no crdebug, no containers."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable
from crdebug.native.recorder import clock
from crdebug.native.recorder.build import build_layer, mpicc_of
from crdebug.native.recorder.clock import Clock
from crdebug.timeline.log import RankLog, read_log
from harness.matcher import library

from . import mpirun
from .mpis import Mpi
from .programs import build


@dataclass(frozen=True, slots=True)
class Rank:
    """A running rank's clock, seen through its memory."""

    pid: int
    address: int

    def clock(self) -> Clock:
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            return Clock.parse(os.pread(memory.fileno(), clock.SIZE, self.address))

    def holds(self) -> bool:
        """Does the rank hold at the chosen stop?"""
        return self.clock().held == clock.Held.AT_STOP

    def holds_at(self, now: int) -> bool:
        return self.holds() and self.clock().now == now

    def write(self, offset: int, value: int, size: int = 8) -> None:
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as memory:
            os.pwrite(memory.fileno(), value.to_bytes(size, "little"), self.address + offset)

    def stop_at(self, now: int) -> None:
        self.write(clock.STOP_OFFSET, now)


class Running:
    """A job that is running, with its ranks once they have come to MPI_Init."""

    def __init__(self, process: subprocess.Popen[str], layer: Path, ranks: int) -> None:
        self._process = process
        self._layer = layer
        self._count = ranks
        self.ranks: tuple[Rank, ...] = ()

    def wait(
        self,
        condition: Callable[[], bool],
        what: str,
        seconds: float = 200.0,
        every: float = 0.005,
    ) -> None:
        """Until it holds. Raises AssertionError when the job ends before, or the time.

        every: seconds between two looks.
        """
        deadline = Deadline(seconds)
        while not condition():
            assert self._process.poll() is None, f"the job ended before {what}:\n{self.output()}"
            assert deadline.left > 0, f"waited {seconds:g} s for {what}"
            asyncio.run(asyncio.sleep(every))

    def find(self) -> tuple[Rank, ...]:
        # This looks at all processes of the machine: more often it would keep the job from coming.
        self.wait(self._found, "all ranks have come to MPI_Init", every=0.05)
        return self.ranks

    def _found(self) -> bool:
        found = {}
        for child in psutil.Process(self._process.pid).children(recursive=True):
            try:
                told = child.environ()
                rank = told.get("OMPI_COMM_WORLD_RANK", told.get("PMI_RANK"))
                maps = Path(f"/proc/{child.pid}/maps").read_text().splitlines()
            except (psutil.Error, OSError):
                continue
            bases = [
                int(line.split("-")[0], 16) for line in maps if line.endswith(self._layer.name)
            ]
            if rank is not None and bases:
                found[int(rank)] = Rank(child.pid, min(bases) + symbol(self._layer, clock.SYMBOL))
        self.ranks = tuple(found[rank] for rank in sorted(found))
        try:
            return len(found) == self._count and all(rank.clock().now > 0 for rank in self.ranks)
        except (ProcessLookupError, FileNotFoundError):  # one has ended already
            return False
        except NotAvailable:  # the layer is mapped, and its data are not there yet
            return False

    @property
    def launcher(self) -> int:
        return self._process.pid

    def goes_on(self) -> bool:
        return self._process.poll() is None

    def held(self) -> bool:
        return all(rank.holds() for rank in self.ranks)

    def finish(self, seconds: float = 200.0) -> str:
        out, err = self._process.communicate(timeout=seconds)
        assert self._process.returncode == 0, f"status {self._process.returncode}\n{out}{err}"
        return out

    def output(self) -> str:
        return "\n".join(self._process.communicate(timeout=10))


@functools.cache  # each look at a job asks for it, and the library has a thousand symbols
def symbol(library: Path, name: str) -> int:
    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(section, SymbolTableSection)
        found = section.get_symbol_by_name(name)
        assert found is not None and len(found) == 1
        return int(found[0]["st_value"])


class Layered:
    """Runs of one program, with their logs in a directory of its own.

    program: its name, to be compiled; or where it is. mpi: by default that of mpirun.
    """

    def __init__(
        self,
        directory: Path,
        program: str | Path,
        *arguments: object,
        ranks: int = 4,
        flags: tuple[str, ...] = (),
        mpi: Mpi | None = None,
    ) -> None:
        mpicc = mpicc_of("mpirun") if mpi is None else mpi.tool("mpicc")
        assert mpicc is not None
        self.layer = asyncio.run(build_layer(mpicc, Deadline(120)))
        self.directory = directory
        if isinstance(program, str):
            program = build(program, flags=flags, compiler=mpicc if mpi else "")
        if mpi is None:
            self.argv = mpirun.command(program, *arguments, ranks=ranks)
        else:
            self.argv = [*mpi.launch(ranks), str(program), *map(str, arguments)]
        self.ranks = ranks
        directory.mkdir(exist_ok=True)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.layer), "CRDEBUG_TIME": str(self.directory), **(extra or {})}

    def run(self, extra: Mapping[str, str] | None = None, seconds: float = 200.0) -> str:
        """What the program prints; recorded the first time, repeated from then on."""
        finished = mpirun.run(self.argv, extra=self.environment(extra), seconds=seconds)
        return finished.expect().stdout

    @contextmanager
    def running(self, stop: int | None = None) -> Iterator[Running]:
        """The job while it runs; stop: where all ranks hold. It is ended at the end."""
        extra = {} if stop is None else {"CRDEBUG_STOP": str(stop)}
        with subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=mpirun.environment(self.environment(extra)),
        ) as process:
            try:
                yield Running(process, self.layer, self.ranks)
            finally:
                if process.poll() is None:
                    mpirun._end(process)

    def log(self, rank: int) -> RankLog:
        return read_log(self.directory / str(rank), library())

    def forget(self) -> None:
        for path in self.directory.iterdir():
            path.unlink()

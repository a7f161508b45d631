"""Why ranks wait: one program for each kind of hang, and programs that go on."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from crdebug.detached.why import told
from crdebug.job.clocks import RankClock
from harness.layered import Layered, Running
from harness.matcher import library
from harness.mpis import MPIS, Mpi
from harness.programs import source

DEBIANS = [mpi for mpi in MPIS if "Debian" in mpi.origin]
SOURCE = source("hangs").read_text().splitlines()


def line(text: str, after: str) -> str:
    """The first line with this text in a function of the program, as `why` shows it."""
    start = next(n for n, each in enumerate(SOURCE) if re.match(rf".*\bvoid {after}\(void\)", each))
    return f"hangs.c:{next(n for n in range(start, len(SOURCE)) if text in SOURCE[n]) + 1}"


def of(name: str, text: str) -> str:
    return re.escape(f"({line(text, name)})")


RECEIVED_AT = next(n for n, each in enumerate(SOURCE, 1) if "MPI_Recv(&value" in each)
RECEIVE = re.escape(f"(hangs.c:{RECEIVED_AT})")
POSTED_AT = next(n for n, each in enumerate(SOURCE, 1) if "MPI_Irecv(&values[1]" in each)
POSTED = re.escape(f"(hangs.c:{POSTED_AT})")
SWEPT = (pytest.mark.sweep,)
CLAIM = "whatever else happens"
DEADLOCK = r"^[0-9 →]+: a deadlock, whatever else happens$"
NO_DEADLOCK = "no deadlock"

# By mode, what some of the lines say.
EXPECTED: dict[str, tuple[str, ...]] = {
    "cycle": (rf"^0-3 wait in MPI_Recv from .*, tag 7 {RECEIVE}", DEADLOCK),
    "member": (
        rf"^0-2 wait in MPI_Barrier {of('member', 'MPI_Barrier')} for 3",
        rf"^3 waits in MPI_Recv from 0, tag 7 {RECEIVE}",
        DEADLOCK,
    ),
    "tag": (DEADLOCK, rf"have sent .* nobody has asked for: tag 8 {of('tag', 'MPI_Send')}"),
    "comm": (DEADLOCK, rf"have sent .* nobody has asked for: tag 7 on .* {of('comm', 'MPI_Send')}"),
    "collective": (
        r"these do not fit: collective \d+ on world: .*MPI_Bcast on 1-3",
        r"MPI_Gather on 0",
    ),
    "root": (r"these do not fit: collective \d+ on world, MPI_Bcast: root: .*1 on 0,2.*",),
    "wildcard": (
        rf"^0 waits in MPI_Recv from anyone, any tag {RECEIVE}",
        rf"^1-3 wait in MPI_Recv from 0, tag 7 {RECEIVE}",
        "whatever else happens",
    ),
    "rendezvous": (
        rf"^0-3 wait in MPI_Send to .*, tag 7, 4194304 bytes {of('rendezvous', 'MPI_Send')}",
        "deadlock",
    ),
    "synchronous": (rf"MPI_Ssend to .*, tag 7, 4 bytes {of('synchronous', 'MPI_Ssend')}", DEADLOCK),
    "waitall": (
        rf"^0 waits in MPI_Waitall {of('waitall', 'MPI_Waitall')} for 3, to complete "
        rf"MPI_Irecv, tag 7 {POSTED}, since",
        DEADLOCK,
    ),
    "waitany": (
        rf"^0,2 wait in MPI_Waitany {of('waitany', 'MPI_Waitany')} for one of 1,3",
        DEADLOCK,
    ),
    "halves": (r"^0-3 wait in MPI_Sendrecv from .*, tag 7 and to .*, tag 8", DEADLOCK),
    "probe": (rf"^0-3 wait in MPI_Probe from .*, tag 7 {of('probe', 'MPI_Probe')}", DEADLOCK),
    "fence": (r"^0-2 wait in MPI_Win_fence, on window.* for 3", DEADLOCK),
    "lock": (r"^1 waits in MPI_Recv from 2", r"^2 waits in MPI_Win_(un)?lock", "deadlock"),
    "computes": (r"^3 computes", NO_DEADLOCK, "rank 3, which computes"),
    "stopped": (r"^3 is stopped", NO_DEADLOCK, "rank 3, which is stopped"),
    "finalize": (r"^0-2 wait in MPI_Barrier .* for 3", r"^3 waits in MPI_Finalize", DEADLOCK),
    "polls": (r"MPI_Test",),
}
WITHOUT_A_DEADLOCK = ("computes", "stopped", "polls")


def ask(job: Layered, running: Running) -> list[str]:
    found = [RankClock(n, each.pid, each.address, 0) for n, each in enumerate(running.ranks)]
    return asyncio.run(told(found, library(), lambda: sorted(job.directory.iterdir())))


@pytest.mark.parametrize(
    ("mpi", "mode"),
    [
        pytest.param(mpi, mode, id=f"{mode}, {mpi.name}", marks=() if first else SWEPT)
        for mpi in DEBIANS
        for mode in EXPECTED
        for first in [mpi is DEBIANS[0] or mode in ("rendezvous", "root", "waitany", "lock")]
    ],
)
def test_each_kind_of_hang_is_named_with_the_lines_of_its_calls(
    mode: str, mpi: Mpi, tmp_path: Path
) -> None:
    job = Layered(tmp_path / "time", "hangs", "--mode", mode, mpi=mpi)
    lines: list[str] = []

    def said() -> bool:
        lines[:] = ask(job, running)
        if mode in WITHOUT_A_DEADLOCK:  # not at any moment
            assert not any(CLAIM in each for each in lines), lines
        return all(any(re.search(p, each) for each in lines) for p in EXPECTED[mode])

    with job.running() as running:
        running.find()
        try:
            running.wait(said, f"the answer of mode {mode}", seconds=20, every=0.1)
        except AssertionError as error:
            pytest.fail(f"{error}: " + "\n".join(lines))


@pytest.mark.parametrize("program", ["master", "testsome", "wildcard", "collectives"])
def test_of_a_program_that_goes_on_no_deadlock_is_claimed(program: str, tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", program, "--rounds", 40, "--jitter-us", 3000)
    with job.running() as running:
        running.find()
        answers = []
        while running.goes_on():
            answers.append(ask(job, running))
            assert not any(CLAIM in each for each in answers[-1]), answers[-1]
        running.finish()
    assert len(answers) > 2


def test_a_rank_that_is_killed_while_it_is_asked_is_named(tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "hangs", "--mode", "cycle")
    with job.running() as running:
        pids = [each.pid for each in running.find()]
        running.wait(lambda: any(CLAIM in each for each in ask(job, running)), "a verdict")
        os.kill(running.launcher, signal.SIGSTOP)  # it would end the others
        os.kill(pids[2], signal.SIGKILL)
        running.wait(
            lambda: any(re.match("2 has ended", each) for each in ask(job, running)), "its end"
        )
        os.kill(running.launcher, signal.SIGCONT)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "hangs", "--mode", "member")
    with job.running() as running:
        running.find()
        running.wait(lambda: any(CLAIM in each for each in ask(job, running)), "a verdict")
        with (job.directory / "1").open("r+b") as log:
            log.write(bytes(64))
        lines = ask(job, running)
    assert any("MPI_Barrier" in each for each in lines), lines
    assert lines[-1] == "the record of 1 cannot be read: its messages are not known", lines
    assert not any("nobody has asked for" in each for each in lines), lines

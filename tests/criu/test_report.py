"""`run --report`: what goes wrong with a job that nobody watches is in a page, and nowhere else."""

from __future__ import annotations

import asyncio
import html
import re
import signal
import subprocess
from pathlib import Path

import pytest

from crdebug.detached import jobs
from crdebug.ui.reporting import STUCK
from harness.cli import argv, finish, started
from harness.mpirun import Finished, command, run
from harness.mpis import MPIS
from harness.programs import build, source


def text(file: Path) -> str:
    """The page without its marks."""
    return html.unescape(re.sub(r"<[^>]*>", "", file.read_text()))


async def ended(*arguments: object) -> Finished:
    return await asyncio.to_thread(run, argv("run", *arguments), seconds=120)


async def reported(file: Path, job: list[str]) -> Finished:
    return await ended("--report", file, "--name", "report", "--", *job)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


async def test_of_a_crash_it_has_the_place_and_a_checkpoint_to_look_again(file: Path) -> None:
    ends = ["--rank", 2, "--how", "segv", "--step", 4]
    ran = await reported(file, command(build("dies"), *ends, ranks=3))
    assert ran.status == 139
    line = source("dies").read_text().splitlines().index("        *(volatile int *)8 = 1;") + 1
    told = text(file)
    assert re.search(rf"rank 2 got SIGSEGV: die at \S*dies.c:{line}", told), told
    assert re.search(rf"#0 +die \(\) at \S*dies.c:{line}\n +#1 +work_step", told)
    assert "1 waits in MPI_Allreduce" in told
    assert "ended with status139 (SIGSEGV)" in told
    assert "exited on signal 11" in told  # the launcher's words
    assert "exited on signal 11" in ran.stdout + ran.stderr
    again = re.search(r"\$ crdebug restart (report:\d+)", told)
    assert again is not None
    (checkpoint,) = await jobs.list_checkpoints("report")
    assert checkpoint.handle == again[1]


async def test_of_a_stack_that_has_overflown_the_page_stays_short(file: Path) -> None:
    ends = ["--rank", 1, "--how", "overflow", "--step", 4]
    ran = await reported(file, command(build("dies"), *ends, ranks=2))
    assert ran.status != 0
    told = text(file)
    assert "rank 1 got SIGSEGV: deep" in told
    assert "no room on the stack of thread" in told
    assert len(told.splitlines()) < 1000


async def test_a_job_that_can_never_go_on_is_ended(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('patience = "1 s"\n')
    monkeypatch.setenv("CRDEBUG_CONFIG", str(config))
    ran = await reported(file, command(build("hangs"), "--mode", "member", ranks=4))
    assert ran.status == STUCK
    told = text(file)
    assert "no rank can ever go on, so crdebug ended the job" in told
    assert "0 → 3 → 0: a deadlock, whatever else happens" in told
    assert re.search(r"3 waits in MPI_Recv from 0, tag 7 \(hangs.c:\d+\)", told)


@pytest.mark.parametrize("how", ["mpi-abort", "assert", "exit"])
async def test_of_an_end_before_its_time(file: Path, how: str) -> None:
    ends = ["--rank", 1, "--how", how, "--step", 4]
    ran = await reported(file, command(build("dies"), *ends, ranks=2))
    assert ran.status not in (0, None)
    told = text(file)
    assert re.search(r"rank 1 (is about to end|got SIGABRT)", told), told
    assert "work_step" in told


async def test_of_an_exception_it_has_pythons_stack(file: Path, tmp_path: Path) -> None:
    program = tmp_path / "raises.py"
    program.write_text(
        "from mpi4py import MPI\n"
        "def fails():\n"
        "    raise ValueError('<b>odd</b>')\n"
        "if MPI.COMM_WORLD.rank == 1:\n"
        "    fails()\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )
    mpi = next(mpi for mpi in MPIS if "mpi4py" in mpi.languages)
    await reported(file, [*mpi.launch(2), str(mpi.python), "-m", "mpi4py", str(program)])
    assert "ValueError: <b>odd</b>" in text(file)
    assert "<b>odd" not in file.read_text()
    assert re.search(r"rank 1 is about to end: MPI_Abort", text(file)), text(file)


async def test_of_a_good_end_it_says_so(file: Path) -> None:
    ran = await reported(file, command(build("longrun"), "--steps", 20, ranks=2))
    assert ran.status == 0
    told = text(file)
    assert "the job ended with status 0" in told
    assert "Their stacks" not in told
    assert "restart" not in told
    assert "nothing wrong is on record" in told
    assert ran.stdout.strip() in told


async def test_what_went_well_only_this_time(file: Path) -> None:
    job = command(build("wrong_messages"), "--mode", "no_receive", "--right", 0, ranks=3)
    ran = await reported(file, job)
    assert ran.status == 0
    told = text(file)
    assert "the job ended with status 0" in told
    assert re.search(r"MPI_Send \(.*\) sends tag 7, which is not received by MPI_Finalize", told)


async def test_a_queue_that_ends_it_finds_out_where_it_was(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = command(build("prints"), "--rounds", 10**7, ranks=2)
    with started("run", "--report", file, "--name", "report", "--", *job) as running:
        assert running.stdout is not None
        while "step 3" not in (line := await asyncio.to_thread(running.stdout.readline)):
            assert line
        running.send_signal(signal.SIGTERM)
        status, *_ = await finish(running)
    assert status == 128 + signal.SIGTERM
    told = text(file)
    assert "crdebug was ended by SIGTERM, and the job with it" in told
    assert re.search(r"main at \S*prints.c", told), told
    assert "running" not in told


async def test_a_file_that_cannot_be_written_is_refused_before_the_job(tmp_path: Path) -> None:
    other = tmp_path / "notes.html"
    other.write_text("mine")
    job = command(build("longrun"), "--steps", 5, ranks=1)
    for file, words in (
        (other, "exists, and is not one of crdebug's pages"),
        (tmp_path / "no" / "report.html", "there is no directory"),
    ):
        ran = await ended("--report", file, "--", *job)
        assert ran.status == 1
        assert words in ran.stderr
        assert "out" not in ran.stdout
    assert other.read_text() == "mine"


async def test_a_program_that_is_no_job_is_told_in_the_page_too(file: Path) -> None:
    ran = await reported(file, ["sh", "-c", "echo '<script>no</script>'; exit 3"])
    assert ran.status == 1
    assert "<script" not in file.read_text()
    assert "the job was not started: " in text(file)


async def test_hostile_output_has_no_marks_in_the_page(file: Path, tmp_path: Path) -> None:
    program = tmp_path / "hostile.c"
    program.write_text(
        "#include <mpi.h>\n#include <stdio.h>\nint main(int n, char **v) {\n"
        'MPI_Init(&n, &v); puts("<script>x</script>\\033[2J"); fflush(stdout);\n'
        "return MPI_Finalize(); }\n"
    )
    subprocess.run(["mpicc", "-g", "-o", tmp_path / "hostile", program], check=True)
    ran = await reported(file, command(tmp_path / "hostile", "<i>", ranks=1))
    assert ran.status == 0
    written = file.read_text()
    assert "<script" not in written and "<i>" not in written
    assert "\033" not in written
    assert "<script>x</script>\\x1b[2J" in text(file)

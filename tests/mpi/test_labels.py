"""Output labelled by rank, from each launcher that is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.base.events import JobSays
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.job.output import NO_LABELS
from harness import mpis
from harness.cli import crdebug
from harness.jobs import Heard, bare_job, run_to_end, session
from harness.mpirun import command
from harness.mpis import Mpi
from harness.programs import build

RANKS = 11  # two of them with two figures


def of(rank: int) -> list[str]:
    """The lines of a rank of speaks.c."""
    said = [f"rank {rank} begins and goes on", "x" * 4500 + "\u00e9", "\ufffd\0bin", ""]
    return [f"[{rank}] {line}" for line in (*said, "[7] is mine", "the end")]


@pytest.mark.parametrize("mpi", mpis.MPIS, ids=[each.name for each in mpis.MPIS])
async def test_each_line_says_which_rank_wrote_it(mpi: Mpi) -> None:
    heard = Heard()
    with mpis.using(mpi):
        settings = Settings(label_output=True)
        async with bare_job(build("speaks"), ranks=RANKS, settings=settings) as job:
            assert await jobs.follow(job.name, heard) == 0
    lines = heard.text().split("\n")
    for rank in range(RANKS):
        assert [line for line in lines if line.startswith(f"[{rank}] ")] == of(rank)
    assert len(lines) == RANKS * len(of(0)) + 1
    errors = heard.text("stderr").splitlines()
    assert [line for line in errors if line.endswith("an error")] == sorted(
        (f"[{rank}] an error" for rank in range(RANKS)), key=errors.index
    )


async def test_of_a_launcher_in_a_script_they_have_none_and_the_user_is_told(
    tmp_path: Path,
) -> None:
    """The script would start the job if it was asked which launcher it is."""
    script = tmp_path / "job"
    script.write_text("#!/bin/sh\necho started\n")
    script.chmod(0o755)
    heard = Heard()
    job = await jobs.run_detached([str(script)], "speaks", Settings(label_output=True))
    assert await jobs.follow(job.name, heard) == 0
    assert heard.text() == "started\n"
    assert heard.events.count(JobSays(NO_LABELS)) == 1


async def test_under_the_debugger() -> None:
    heard, settings = Heard(), Settings(label_output=True)
    async with session(build("speaks"), ranks=2, settings=settings, heard=heard) as job:
        assert await run_to_end(job) == 0
    assert sorted(heard.text().splitlines()) == sorted([*of(0), *of(1)])


async def test_in_the_shell_and_in_the_log(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"log {tmp_path}/log\ncontinue\n")
    argv = ["run", "--label-output", "--batch", "-x", script, "--"]
    ran = await crdebug(*argv, *command(build("speaks"), ranks=2))
    assert "out| [1] rank 1 begins and goes on\n" in ran.stdout
    assert "err| [0] an error\n" in ran.stdout + ran.stderr
    assert "out| [0] the end\n" in (tmp_path / "log").read_text()


async def test_the_config_file_s_setting_is_for_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("label-output = true\n")
    monkeypatch.setenv("CRDEBUG_CONFIG", str(config))
    ran = await crdebug("run", "--no-debugger", "--", *command(build("speaks"), ranks=1))
    assert ran.stdout.startswith("rank 0 begins and goes on\n")
    assert ran.stderr.endswith("an error\n") and "[0] " not in ran.stdout + ran.stderr

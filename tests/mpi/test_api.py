"""crdebug as a library: the example of docs/api.md, and how its blocks leave a job."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import crdebug
from crdebug.detached import jobs
from harness import mpirun
from harness.jobs import JOB, Heard, bare_job, run_to_end
from harness.programs import build
from harness.talk import Talk

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_example_of_the_manual_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "examples/heat/heat" in example
    (tmp_path / "example.py").write_text(example.replace("examples/heat/heat", str(build("heat"))))
    ran = mpirun.run([sys.executable, str(tmp_path / "example.py")]).expect()
    first, *values = ran.stdout.splitlines()
    assert re.fullmatch(r"rank \d: breakpoint at relax at .*heat\.c:\d+", first)
    assert values and all(re.fullmatch(r"\[[-\d,]+\] step = [456]", line) for line in values)


async def test_a_block_detaches_from_the_job_it_attached_to() -> None:
    async with bare_job(build("threads"), "--steps", 10**9, "--delay-us", 1000, ranks=2):
        for _ in range(2):
            async with crdebug.attach(JOB) as job:
                assert job.attached and not job.running
            assert not job.attached
            (info,) = await jobs.list_jobs()
            assert info.state == "running"


async def test_environment_and_directory_reach_the_job_and_are_shown(tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    directory.mkdir()
    heard, command = Heard(), mpirun.command(build("tells"), ranks=1)
    given = {"TELLS": "ä  'b'", "OMPI_MCA_btl": "self,vader"}
    async with crdebug.run(command, env=given, cwd=directory, subscriber=heard) as job:
        told = await Talk(job)("info launch")
        assert await run_to_end(job) == 0
    assert heard.text().splitlines() == [
        "rank 0: TELLS is <ä  'b'>",
        f"rank 0: in <{directory}>",
    ]
    assert f"\nin {directory}\n" in told
    assert all(f"\n{name}={value}: by --env\n" in told for name, value in given.items())
    assert "\nstandard input: what 'send' gives it\n" in told

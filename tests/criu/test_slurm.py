"""In Slurm: jobs that srun has started, and the example's job script, in a Slurm of the test's
own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crdebug.acquire.discovery import find_job
from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.job.directory import JobDirectory
from crdebug.node import proc
from crdebug.session import Session
from harness import looks, plain, slurm
from harness.cli import complaint, crdebug, in_path
from harness.mpirun import reference
from harness.mpis import MPIS
from harness.programs import build

SCRIPT = Path(__file__).parents[2] / "examples" / "slurm" / "job.sh"
ENDLESS = ("--mib", 2, "--delay-us", 5000, "--steps", 10**9)
# Debian's MPIs are those that Debian's Slurm can start.
BY_SRUN = {"Open MPI 4.1": "pmix", "MPICH 4.0": "pmi2"}


async def test_jobs_of_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.require()
    async with slurm.cluster(tmp_path / "slurm", monkeypatch):
        for mpi in MPIS:
            if mpi.name not in BY_SRUN:
                continue
            place = tmp_path / mpi.name.replace(" ", "-")
            place.mkdir()
            launcher = ["srun", "-n", "2", "--overcommit", f"--mpi={BY_SRUN[mpi.name]}"]
            async with plain.quiet(place, mpi=mpi, launcher=launcher) as (job, found):
                assert found.how == f"the MPIR process table of srun (process {job.pid})"
                by_rank = find_job(found.entries[1].pid)
                assert "environment" in by_rank.how and "slurmstepd" in by_rank.how, by_rank.how
                assert [each.pid for each in by_rank.entries] == [e.pid for e in found.entries]

                both = await Session.attach(str(job.pid))
                try:
                    assert list(both.ranks) == [0, 1]
                    for frames in (await both.backtrace(both.ranks)).values.values():
                        assert "main" in [each.location.function for each in frames]
                    with pytest.raises(Refused, match=r"srun is not a launcher .* as its children"):
                        await both.checkpoint()
                finally:
                    await both.detach()
                one = await Session.attach(str(job.pid), "1")
                try:
                    assert [info.pid for info in one.info_ranks()] == [found.entries[1].pid]
                finally:
                    await one.detach()
                for entry in found.entries:
                    assert {thread.tracer for thread in proc.threads(entry.pid)} == {0}
                plain.let_end(place)
                await job.ended()
        ran = await crdebug("run", "--", "srun", "-n", "2", build("quiet"), status=1)
        assert "srun has Slurm's daemon start the ranks" in complaint(ran)


async def test_the_job_script_goes_on_where_its_time_was_up(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.require()
    in_path(tmp_path, monkeypatch)
    program = build("memory")
    words = ("mpirun", "--oversubscribe", "-n", 2, program, *ENDLESS)
    monkeypatch.setenv("COMMAND", " ".join(map(str, words)))
    monkeypatch.setenv("NAME", "piece")
    monkeypatch.setenv("STATE", str(home))
    async with slurm.cluster(tmp_path / "slurm", monkeypatch):
        said = slurm.ask("sbatch", SCRIPT)
        number = re.fullmatch(r"Submitted batch job (\d+)", said)
        assert number is not None, said
        directory = JobDirectory("piece")
        await Deadline(60).until(lambda: directory.exists(), "the job to start")
        await looks.reach(3, "piece")
        # What --signal=B:USR1@120 has Slurm do two minutes before the end of the time.
        slurm.ask("scancel", "--batch", "--signal=USR1", number[1])
        limit = Deadline(120)
        await limit.until(lambda: directory.read().incarnation == 2, "the next piece to start")
        await looks.reach(0, "piece")
        assert [each.number for each in directory.store.list()] == [1]
        session = await Session.attach("piece")
        record, added = session.info_launch()
        assert record.argv[0] == "mpirun" and record.incarnation == 2
        assert "Slurm" in added["HYDRA_LAUNCHER"]
        await session.detach()
        last = looks.end_soon("piece")
        await slurm.gone(Deadline(120), "both pieces to end")
    first, second = (
        (tmp_path / f"slurm-{each}.out").read_text().splitlines()
        for each in (int(number[1]), int(number[1]) + 1)
    )
    assert "crdebug: checkpoint piece:1 taken; the job is ended" in first, first
    assert "piece: to be continued" in first and second[-1] == "piece: done", (first, second)
    assert looks.output("piece") == reference(program, "--mib", 2, "--steps", last, ranks=2)

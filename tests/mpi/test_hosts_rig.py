"""The hosts that tests over several of them have (harness/hosts.py): they are apart, MPI jobs run
over them, one can fail, and nothing is left of them."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence

import pexpect
import pytest

from crdebug.acquire import mpir
from crdebug.acquire.discovery import rank_of
from crdebug.base.deadline import Deadline
from crdebug.node import proc
from harness import hosts, nobody, slurm_hosts, users
from harness.hosts import Cluster
from harness.mpis import MPIS

pytestmark = nobody.needs_root


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The ordinary user's."""
    with users.clean_home() as home, hosts.cluster(3, home) as made:
        yield made


# Open MPI 4.1 sets the process group of an ssh in the launcher, too: too late if that runs already
# (setpgid(2), EACCES), which it says.
_TOO_LATE = re.compile(rb"[^\n]*plm:rsh: Warning: setpgid[^\n]*\n")


def lines(process: subprocess.Popen[bytes], count: int) -> list[str]:
    """What it prints next: so many lines, and no more."""
    assert process.stdout is not None
    limit, said = Deadline(60), b""
    while said.count(b"\n") < count:
        assert select.select([process.stdout], [], [], limit.left)[0], said
        more = os.read(process.stdout.fileno(), 4096)
        assert more, said
        said = _TOO_LATE.sub(b"", said + more)
    return said.decode().splitlines()


def test_a_host_is_apart_and_its_files_are_not(cluster: Cluster) -> None:
    one, two, _ = cluster.hosts
    assert cluster.home is not None
    (cluster.home / "shared").touch(0o644)
    for host in (one, two):
        ran = host.run(["sh", "-c", "hostname; whoami; ls ~; ls /dev/shm /run/lock"]).expect()
        assert ran.stdout.split("\n")[:4] == [host.name, users.NAME, "shared", "tmp"]
        assert set(host.pids()) == {pid for pid in proc.pids() if is_of(pid, host.namespace)}
    assert not set(one.pids()) & set(two.pids())


def is_of(pid: int, namespace: str) -> bool:
    try:
        return proc.namespace(pid, "pid") == namespace
    except OSError:
        return False


def test_both_users_go_from_host_to_host_by_ssh(cluster: Cluster) -> None:
    for user, name in ((True, users.NAME), (False, "root")):
        for at in cluster.hosts[1:]:
            words = ["ssh", at.name, "hostname; whoami"]
            ran = cluster.hosts[0].run(words, user=user).expect()
            assert ran.stdout.split() == [at.name, name]


def test_a_command_line_passes_on_status_signals_and_streams(cluster: Cluster) -> None:
    host = cluster.hosts[1]
    assert host.run(["sh", "-c", "exit 7"]).status == 7
    assert host.run(["sh", "-c", "kill -9 $$"]).status == -signal.SIGKILL
    assert host.run(["no-such-program"]).status == 125
    script = 'trap "echo caught" USR1; echo ready; until read line; do :; done'
    with host.started(["sh", "-c", f'{script}; echo "$line" >&2; exit 3']) as process:
        assert lines(process, 1) == ["ready"]
        process.send_signal(signal.SIGUSR1)
        assert lines(process, 1) == ["caught"]
        assert process.communicate(b"a line\n", timeout=30)[0] == b"a line\n"
        assert process.returncode == 3


def test_a_program_has_the_terminal_of_its_command_line(cluster: Cluster) -> None:
    host = cluster.hosts[1]
    command, *arguments = host.argv(["sh", "-c", "tty -s && echo ready; sleep 1000; echo $?"])
    with pexpect.spawn(command, arguments, env=dict(host.environment), timeout=30) as terminal:
        terminal.expect("ready")
        terminal.sendintr()
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert terminal.signalstatus == signal.SIGINT


def test_a_program_ends_with_the_command_line_that_runs_it(cluster: Cluster) -> None:
    host = cluster.hosts[1]
    with host.started(["sh", "-c", "echo ready; exec sleep 1000"]) as process:
        assert lines(process, 1) == ["ready"]
        inside = hosts.program(process.pid)
        assert inside in host.pids()
        watched = os.pidfd_open(inside)
        process.kill()
        assert select.select([watched], [], [], 30)[0]
        os.close(watched)


@contextlib.contextmanager
def where(cluster: Cluster, mpi: str, launcher: Sequence[str]) -> Iterator[int]:
    """tests/programs/where.c, two ranks on each host, which say so; its launcher's PID."""
    program = hosts.give(cluster, "where", hosts.mpi(mpi))
    fifo = program.with_suffix(".fifo")
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    with cluster.hosts[0].started([*launcher, program, "--fifo", fifo]) as process:
        assert lines(process, 6) == [f"rank {rank}: {host}" for rank, host in enumerate(ON)]
        yield hosts.program(process.pid)
        descriptor = os.open(fifo, os.O_RDWR)
        os.write(descriptor, b"." * 6)
        os.close(descriptor)
        assert process.communicate(timeout=60)[0] == b""
        assert process.returncode == 0


THERE = {mpi.name for mpi in MPIS}
ON = ("n1", "n1", "n2", "n2", "n3", "n3")


def is_right(cluster: Cluster, table: mpir.Table) -> bool:
    """Has a launcher's process table each rank's host, and its number there?"""
    there = {host.name: set(map(proc.inner_pid, host.pids())) for host in cluster.hosts}
    return tuple(entry.host for entry in table.entries) == ON and all(
        entry.pid in there[entry.host] for entry in table.entries
    )


def ranks_by_host(cluster: Cluster) -> list[set[int]]:
    """By the environment of their processes."""
    return [{found[1] for pid in host.pids() if (found := rank_of(pid))} for host in cluster.hosts]


def test_debians_mpis_run_over_hosts(cluster: Cluster) -> None:
    """Its MPICH's launcher is stripped, and has no process table."""
    for mpi, launch in hosts.LAUNCHERS.items():
        if mpi not in THERE:
            continue
        with where(cluster, mpi, launch(cluster, 6)) as launcher:
            assert ranks_by_host(cluster) == [{0, 1}, {2, 3}, {4, 5}]
            assert mpir.is_starter(launcher) == (mpi != "MPICH 4.0")
            assert mpi == "MPICH 4.0" or is_right(cluster, mpir.read_table(launcher))


def test_slurm_runs_debians_mpis_over_hosts(cluster: Cluster) -> None:
    with slurm_hosts.slurm(cluster):
        for mpi in slurm_hosts.BY_SRUN:
            if mpi not in THERE:
                continue
            with where(cluster, mpi, slurm_hosts.srun(cluster, mpi, 6)) as srun:
                assert is_right(cluster, mpir.read_table(srun))
                assert ranks_by_host(cluster) == [{0, 1}, {2, 3}, {4, 5}]


def reaches(cluster: Cluster, name: str, seconds: float) -> bool:
    """Does n1 get an answer of this host's sshd in this time?"""
    script = f"exec 3<>/dev/tcp/{name}/22; read line <&3"
    words = ["timeout", str(seconds), "bash", "-c", script]
    return cluster.hosts[0].run(words).status == 0


def test_a_link_is_cut_and_mended(cluster: Cluster) -> None:
    for _ in range(2):
        assert reaches(cluster, "n2", 30)
        cluster.hosts[1].cut()
        assert not reaches(cluster, "n2", 0.5)
        assert reaches(cluster, "n3", 30)
        cluster.hosts[1].mend()
    assert reaches(cluster, "n2", 30)


def test_a_connection_outlives_a_cut(cluster: Cluster) -> None:
    """What is sent meanwhile arrives when the link is mended."""
    one, two, _ = cluster.hosts
    with one.started(["ssh", "n2", "echo ready; read line; echo $line"]) as process:
        assert lines(process, 1) == ["ready"]
        two.cut()
        assert process.stdin is not None
        process.stdin.write(b"sent\n")
        two.mend()
        assert lines(process, 1) == ["sent"]
        assert process.wait(30) == 0


def test_a_host_that_is_killed_is_gone_and_the_others_stay(cluster: Cluster) -> None:
    two = cluster.hosts[1]
    assert two.pids()
    with two.started(["sh", "-c", "echo ready; exec sleep 1000"]) as process:
        lines(process, 1)
        two.kill()
        assert process.wait(30) == -signal.SIGKILL
    assert two.pids() == ()
    assert not reaches(cluster, "n2", 0.5)
    assert reaches(cluster, "n3", 30)


def test_clusters_do_not_meet() -> None:
    """They have the same names and addresses, and may be those of other test runs."""
    with hosts.cluster(2) as one, hosts.cluster(2) as other:
        for each in (one, other):
            ran = each.hosts[0].run(["ssh", "n2", "echo $HOME"]).expect()
            assert ran.stdout.strip() == str(each.directory / "root")
        other.hosts[1].kill()
        assert reaches(one, "n2", 30)


def test_nothing_is_left_of_a_cluster() -> None:
    """The leak check of this tier looks at processes, mounts and descriptors."""
    with hosts.cluster(2) as made:
        namespaces = {host.namespace for host in made.hosts}
        assert made.directory.is_dir()
        # one that has left its session, and that nobody waits for
        words = ["sh", "-c", "setsid --fork sleep 1000 >/dev/null 2>&1"]
        made.hosts[0].run(words).expect()
        assert any(proc.command_line(pid)[:1] == ("sleep",) for pid in made.hosts[0].pids())
    assert not made.directory.exists()
    assert not any(is_of(pid, each) for pid in proc.pids() for each in namespaces)

"""Jobs over several hosts, as an ordinary user: the same answers as on one, however they were
started; and what is said when a host cannot be reached."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from crdebug.node import proc
from harness import hosts, nobody, slurm_hosts, users
from harness.crdebug_on_hosts import agents, console, crdebug
from harness.hosts import Cluster
from harness.mpis import MPIS

pytestmark = nobody.needs_root

RANKS = 6
OPEN_MPI, MPICH = "Open MPI 4.1", "MPICH 4.0"
THERE = {mpi.name for mpi in MPIS}
# Every rank comes to `add_up` with the same token each time; it is not known where one stands that
# waits in MPI, so nothing asks for that.
SCRIPT = """\
info sets
break add_up
delete 1
set var go = 1
barrier add_up
print token
next
print my_rank
up
down
backtrace
stack
plot token
info table my_rank, step
[@n1] print rank_count
[where my_rank > 3] print token
finish
barrier pass
[2-3] print token
set var rounds = 0
detach
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The ordinary user's."""
    with users.clean_home() as home, hosts.cluster(3, home) as made:
        yield made


@contextlib.contextmanager
def gated(cluster: Cluster, mpi: str, launcher: list[str]) -> Iterator[int]:
    """tests/programs/gated.c, all of whose ranks wait; its launcher's PID on the first host."""
    program = hosts.give(cluster, "gated", hosts.mpi(mpi))
    with cluster.hosts[0].started([*launcher, program]) as process:
        assert process.stdout is not None
        lines: list[bytes] = []
        said: set[bytes] = set()  # by the ranks; launchers have their own words between
        while len(said) < RANKS and (line := process.stdout.readline()):
            lines.append(line)
            said |= {line} if line.endswith(b"waits\n") else set()
        assert said == {f"rank {rank}: waits\n".encode() for rank in range(RANKS)}, lines
        yield proc.inner_pid(hosts.program(process.pid))


BATCH = ("--batch", "-x", "/dev/null")


def attach(pid: int, *options: object) -> list[object]:
    return crdebug("attach", *options, pid)


def played(cluster: Cluster, pid: int, *options: object) -> str:
    """What a script's commands say, without the names that differ from job to job."""
    script = Path(str(cluster.home), "script")
    script.write_text(SCRIPT)
    script.chmod(0o644)
    words = attach(pid, "--batch", "-x", script, *options)
    said = cluster.hosts[0].run(words, seconds=120).expect().stdout
    return re.sub(r"job \d+|attach \d+", "job", said.partition("(crdebug)")[2])


def test_the_answers_are_those_of_one_host(cluster: Cluster) -> None:
    if OPEN_MPI not in THERE:
        pytest.skip("there is no Open MPI 4.1 here")
    alone = [hosts.mpi(OPEN_MPI).tool("mpirun"), "-n", str(RANKS), "--oversubscribe"]
    with gated(cluster, OPEN_MPI, [*alone, "--bind-to", "none"]) as pid:
        expected = played(cluster, pid)
    assert "[0,5] = 15" in expected and "[0-5] = 6\n" in expected, expected
    one_host = expected.replace("[0-5] = 6\n", "[0-1] = 6\n")
    for mpi, launch in hosts.LAUNCHERS.items():
        if mpi in THERE:
            with gated(cluster, mpi, launch(cluster, RANKS)) as pid:
                assert played(cluster, pid) == one_host, mpi
    with slurm_hosts.slurm(cluster):
        for mpi in slurm_hosts.BY_SRUN:
            if mpi in THERE:
                with gated(cluster, mpi, slurm_hosts.srun(cluster, mpi, RANKS)) as pid:
                    assert played(cluster, pid) == one_host, mpi


# ---- one host, and hosts that are lost ----------------------------------------------------------


def answers(at: pexpect.spawn[str], command: str, words: str) -> None:
    at.sendline(command)
    at.expect(words)


@pytest.fixture
def run(cluster: Cluster) -> Iterator[int]:
    """A job of Open MPI's over the hosts; its launcher's PID."""
    if OPEN_MPI not in THERE:
        pytest.skip("there is no Open MPI 4.1 here")
    with gated(cluster, OPEN_MPI, hosts.open_mpi(cluster, RANKS)) as pid:
        yield pid


def test_only_the_hosts_of_the_ranks_that_are_wanted_have_agents(
    cluster: Cluster, run: int
) -> None:
    one, two, three = cluster.hosts
    with console(one, attach(run, "--ranks", "4-5"), "4-5") as at:
        answers(at, "info hosts", r"n3 +2 +\[4-5\] +reached\r\n")
        assert not agents(two) and len(agents(three)) == 1
        answers(at, "print my_rank", r"\[4\] = 4\r\n\[5\] = 5")
        answers(at, "checkpoint", r"cannot checkpoint: the job has ranks on other hosts \(n3\)")
        answers(at, "detach", "runs on")
        at.expect(pexpect.EOF)
    assert not agents(three)


def test_a_link_that_is_cut_for_a_while_costs_nothing(cluster: Cluster, run: int) -> None:
    one, two, _ = cluster.hosts
    with console(one, attach(run), ".*") as at:
        two.cut()
        at.sendline("print my_rank * 7")
        at.expect(r"print my_rank")
        two.mend()
        at.expect(r"\[2\] = 14\r\n\[3\] = 21")
        answers(at, "info hosts", r"n2 +2 +\[2-3\] +reached")
        answers(at, "detach", "runs on")
        at.expect(pexpect.EOF)


def test_a_host_that_is_lost_is_named_and_the_others_go_on(run_alone: tuple[Cluster, int]) -> None:
    cluster, run = run_alone
    one, two, three = cluster.hosts
    with console(one, attach(run), ".*") as at:
        answers(at, "set host-interval 0.5", "0.5 s")
        three.kill()
        at.expect(r"the agent on n3 (has not answered|cannot be reached|has ended).*: ranks 4-5 ")
        two.cut()
        at.expect(r"the agent on n2 has not answered for 1.5 s: ranks 2-3 are let go")
        answers(at, "info hosts", r"n2 +2 +\[2-3\] +lost: .*n3 +2 +\[4-5\] +lost: ")
        answers(at, "[0-1] print my_rank + 40", r"\[0\] = 40\r\n\[1\] = 41")
        answers(at, "[@dead] print my_rank", r"\[2-3\] the agent on n2 has")
        answers(at, "detach", "runs on")
        at.expect(pexpect.EOF)
    two.mend()


@pytest.fixture
def run_alone() -> Iterator[tuple[Cluster, int]]:
    """A job whose hosts are its own, and may be killed."""
    if OPEN_MPI not in THERE:
        pytest.skip("there is no Open MPI 4.1 here")
    with users.clean_home() as home, hosts.cluster(3, home) as made:
        with gated(made, OPEN_MPI, hosts.open_mpi(made, RANKS)) as pid:
            yield made, pid


# ---- before there is a job ----------------------------------------------------------------------


def test_the_doctor_says_how_far_a_user_can_go_on_each_host(cluster: Cluster) -> None:
    """Those with the same answer are one line. The first is asked without an agent."""
    one = cluster.hosts[0]
    doctor = crdebug("doctor", "--hosts")
    alone = one.run([*doctor, "n1"]).expect().stdout
    levels = re.fullmatch(r"ok +n1  (look, .*)\n(?: .*\n)*ready: .*\n", alone)
    assert levels is not None, alone
    ran = one.run([*doctor, "n1,n2,n3,n9"])
    assert ran.status == 1, ran
    first, *_, last = ran.stdout.splitlines()
    assert first.split(maxsplit=2) == ["ok", "n1,n2,n3", levels[1]], ran
    assert re.search(r"^missing +n9 +cannot reach n9 by ssh: ", ran.stdout, re.M), ran
    assert last == "not ready: n9"
    assert not any(agents(host) for host in cluster.hosts)


# ---- hosts that will not have it -----------------------------------------------------------------


def refused(cluster: Cluster, run: int) -> str:
    """What attaching says when it fails, as a user reads it. No rank is left with a debugger."""
    ran = cluster.hosts[0].run(attach(run, *BATCH), seconds=120)
    assert ran.status == 1, ran
    for host in cluster.hosts:
        assert not agents(host)
        for pid in host.pids():
            assert proc.status(pid)["TracerPid"] == "0"
    return ran.stderr


@contextlib.contextmanager
def replaced(path: Path, text: str) -> Iterator[None]:
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


def test_a_key_that_the_hosts_do_not_know(cluster: Cluster, run: int) -> None:
    with replaced(cluster.directory / "authorized_keys", ""):
        said = refused(cluster, run)
    assert re.search(r"cannot reach n[23] by ssh: .*ssh n[23] true", said), said


def test_a_host_that_is_not_the_known_one(cluster: Cluster, run: int) -> None:
    assert cluster.home is not None
    known = cluster.home / ".ssh/known_hosts"
    one, two, three = (line.split(" ", 1) for line in known.read_text().splitlines())
    swapped = "\n".join([" ".join(one), f"{two[0]} {three[1]}", f"{three[0]} {two[1]}", ""])
    with replaced(known, swapped):
        said = refused(cluster, run)
    assert re.search(r"cannot reach n[23] by ssh: ", said), said


def test_a_host_that_nobody_answers_on(cluster: Cluster, run: int) -> None:
    names = cluster.directory / "hosts"
    nobody_there = names.read_text().replace(cluster.hosts[2].address, "10.77.0.99")
    with replaced(names, nobody_there):
        said = refused(cluster, run)
    assert "cannot reach n3 by ssh: no route to host" in said, said


def test_without_asyncssh_it_says_what_to_install(cluster: Cluster, run: int) -> None:
    assert cluster.home is not None
    hidden = cluster.home / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "asyncssh.py").write_text("raise ImportError('not here')\n")
    words = ["env", f"PYTHONPATH={hidden}", *attach(run, *BATCH)]
    ran = cluster.hosts[0].run(words)
    assert ran.status == 1 and "pip install 'crdebug[hosts]'" in ran.stderr, ran

"""`crdebug run` of a job over several hosts, as an ordinary user: all ranks stop at main, wherever
they are, and what follows is what `attach` gives; and what is left when something is killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from crdebug.node import proc
from harness import crdebug_on_hosts, hosts, nobody, slurm_hosts, users
from harness.crdebug_on_hosts import agents, crdebug, leavings
from harness.hosts import Cluster, Host
from harness.mpirun import Finished
from harness.mpis import MPIS

pytestmark = nobody.needs_root

RANKS = 6
OPEN_MPI, MPICH = "Open MPI 4.1", "MPICH 4.0"
THERE = {mpi.name for mpi in MPIS}
TO_THE_END = """\
info hosts
tbreak wait_here
continue
set var go = 1
break add_up
barrier add_up
print token
delete
continue --to-end
"""
# Where ranks stand that others had stopped is not asked for.
ENDING = "ranks 0-5 exited with status 0\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The ordinary user's."""
    with users.clean_home() as home, hosts.cluster(3, home) as made:
        yield made
        assert not leavings(made)


def script(cluster: Cluster, text: str) -> Path:
    path = Path(str(cluster.home), "script")
    path.write_text(text)
    path.chmod(0o644)
    return path


def launcher(cluster: Cluster, mpi: str, *, named: bool) -> list[str]:
    """A command line that starts all ranks; with its hosts if they are `named`."""
    program = str(hosts.give(cluster, "gated", hosts.mpi(mpi)))
    words: list[str] = hosts.LAUNCHERS[mpi](cluster, RANKS, program)
    if not named:
        at = next(at for at, word in enumerate(words) if word in ("--host", "-hosts"))
        del words[at : at + 2]
    return words


def played(cluster: Cluster, options: list[object], words: list[str]) -> Finished:
    file = script(cluster, TO_THE_END)
    argv = crdebug("run", "--batch", "-x", file, *options, "--", *words)
    return cluster.hosts[0].run(argv, seconds=120)


def is_whole(cluster: Cluster, ran: Finished) -> None:
    """All of it went as on one host, and nothing is left of it anywhere."""
    said = ran.expect().stdout
    assert "[0-5] main at " in said and said.count("/gated.c") >= 3, said
    for host, ranks in (("n1", "0-1"), ("n2", "2-3"), ("n3", "4-5")):
        assert re.search(rf"^{host} +2 +\[{ranks}\] +", said, re.M), said
    assert re.search(r"\[0,5\] = 15\n\[1\] = 1\n\[2\] = 3\n\[3\] = 6\n\[4\] = 10\n", said), said
    assert ENDING in said and "is killed" not in said, said
    nothing_is_left(cluster)


def nothing_is_left(cluster: Cluster) -> None:
    hosts.until(lambda: not of_jobs(cluster), hosts.PATIENCE, "all processes of the job to end")
    hosts.until(lambda: not leavings(cluster), hosts.PATIENCE, "the job's scratch to be removed")


def of_jobs(cluster: Cluster) -> list[tuple[str, ...]]:
    """What runs there of jobs, and of crdebug."""
    found = []
    for host in cluster.hosts:
        for pid in host.pids():
            with contextlib.suppress(OSError):
                line = proc.command_line(pid)
                ours = ("gated-", "crdebug.hosts", "slurmstepd")
                if any(name in word for word in line for name in ours):
                    found.append(line)
    return found


@pytest.mark.parametrize("mpi", [OPEN_MPI, MPICH])
def test_hosts_that_crdebug_is_given(cluster: Cluster, mpi: str) -> None:
    words = launcher(cluster, mpi, named=False)
    is_whole(cluster, played(cluster, ["--hosts", "n1:2,n2:2,n3:2"], words))


@pytest.mark.parametrize("mpi", [OPEN_MPI, MPICH])
def test_hosts_that_the_launcher_is_given(cluster: Cluster, mpi: str) -> None:
    is_whole(cluster, played(cluster, [], launcher(cluster, mpi, named=True)))


def test_a_file_of_hosts(cluster: Cluster) -> None:
    file = Path(str(cluster.home), "hosts")
    file.write_text("# ours\nn1 slots=2\nn2 slots=2  # too\n\nn3 slots=2\n")
    file.chmod(0o644)
    words = launcher(cluster, OPEN_MPI, named=False)
    is_whole(cluster, played(cluster, ["--hostfile", file], words))


def test_an_allocation(cluster: Cluster) -> None:
    """Nobody names a host: Slurm has, and its srun, or Open MPI's mpirun, starts the ranks."""
    with slurm_hosts.slurm(cluster):
        file = script(cluster, TO_THE_END)
        for mpi in slurm_hosts.BY_SRUN.keys() & THERE:
            program = hosts.give(cluster, "gated", hosts.mpi(mpi))
            srun = slurm_hosts.srun(cluster, mpi, RANKS, program)
            inner = crdebug("run", "--batch", "-x", file, "--", *srun)
            is_whole(cluster, cluster.hosts[0].run(["salloc", "-N3", *inner], seconds=120))
        words = launcher(cluster, OPEN_MPI, named=False)
        inner = crdebug("run", "--batch", "-x", file, "--", *words)
        allocated = ["salloc", "-N3", "--ntasks-per-node=2", "--overcommit", *inner]
        is_whole(cluster, cluster.hosts[0].run(allocated, seconds=120))


# ---- letting go, and kills -----------------------------------------------------------------------


@contextlib.contextmanager
def console(host: Host, words: list[object]) -> Iterator[pexpect.spawn[str]]:
    with crdebug_on_hosts.console(host, words, "0-5") as at:
        at.expect_exact("(crdebug) ")
        yield at


def ask(at: pexpect.spawn[str], command: str, words: str) -> None:
    at.sendline(command)
    at.expect(words)
    at.expect_exact("(crdebug) ")


@contextlib.contextmanager
def running(cluster: Cluster, name: str) -> Iterator[pexpect.spawn[str]]:
    words = launcher(cluster, OPEN_MPI, named=True)
    with console(cluster.hosts[0], crdebug("run", "--name", name, "--", *words)) as at:
        yield at


def test_what_is_not_there_says_why(cluster: Cluster) -> None:
    with running(cluster, "limits") as at:
        ask(at, "checkpoint", "cannot take a checkpoint: .* because it runs over several hosts")
        ask(at, "restart", "cannot restart: .* because it runs over several hosts")
        ask(at, "verify", "cannot compare the memory of ranks: the job runs over several hosts")
        ask(at, "info launch", "CRDEBUG_OVER_HOSTS")
        jobs = cluster.hosts[0].run(crdebug("jobs")).expect().stdout
        assert re.search(r"^limits +debugged +6 ", jobs, re.M), jobs
        ran = cluster.hosts[0].run(crdebug("checkpoint", "limits"))
        assert ran.status == 1 and "because it runs over several hosts" in ran.stderr, ran
        at.sendline("quit")
        at.expect_exact("(y or n) ")
        at.sendline("y")
        at.expect(pexpect.EOF)
    nothing_is_left(cluster)


def test_it_is_attached_to_by_name_after_a_detach(cluster: Cluster) -> None:
    one = cluster.hosts[0]
    with running(cluster, "again") as at:
        ask(at, "break add_up", "breakpoint 1 on ")
        at.sendline("detach")
        at.expect("runs on")
        at.expect(pexpect.EOF)
    with console(one, crdebug("attach", "again")) as at:
        ask(at, "info breakpoints", "add_up")
        ask(at, "set var go = 1", "")
        ask(at, "barrier add_up", "ranks? 0-5")
        at.sendline("detach")
        at.expect("runs on")
        at.expect(pexpect.EOF)
    nothing_is_left(cluster)  # it ends by itself


def test_a_crdebug_that_is_killed_leaves_ranks_that_another_finds(cluster: Cluster) -> None:
    """They stand before their main on crdebug's own host, and run on elsewhere."""
    one = cluster.hosts[0]
    with running(cluster, "orphan") as at:
        assert at.pid is not None
        os.kill(hosts.program(at.pid), signal.SIGKILL)
        at.expect(pexpect.EOF)
    with console(one, crdebug("attach", "orphan")) as at:
        ask(at, "print my_rank", r"\[0-5\]|\[5\] = 5")
        ask(at, "set var go = 1", "")
        ask(at, "continue --to-end", "ranks 0-5 exited with status 0")
        at.sendline("quit")
        at.expect(pexpect.EOF)
    nothing_is_left(cluster)


def test_an_agent_that_is_killed_is_replaced(cluster: Cluster) -> None:
    """While its ranks stand, and while they run: another one takes them up, where they are."""
    two = cluster.hosts[1]
    again = "another agent on n2 has ranks 2-3, which stand where they are now"

    def kill() -> None:
        for pid in agents(two):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    with running(cluster, "served") as at:
        ask(at, "break add_up", "breakpoint 1 on ")
        kill()
        at.expect_exact(again)
        at.sendline("continue")
        # Killed before the run, the agent would be waited for, and the run begin after that.
        at.expect(r"rank \d: waits")
        kill()
        at.expect_exact("the agent on n2 has ended: ranks 2-3 run on without a debugger")
        at.expect_exact(again)
        ask(at, "set var go = 1", "")
        ask(at, "barrier add_up", "ranks? 0-5")
        ask(at, "info hosts", r"n2 +2 +\[2-3\] +reached")
        ask(at, "delete 1", "")
        ask(at, "continue --to-end", "ranks 0-5 exited with status 0")
        at.sendline("quit")
        at.expect(pexpect.EOF)
    nothing_is_left(cluster)


@pytest.mark.parametrize("where", [0, 1], ids=["of crdebug's own host", "of another host"])
def test_gdbs_that_are_killed_are_replaced(cluster: Cluster, where: int) -> None:
    """While their ranks stand, and while they run: others stop these where they are then."""
    host, ranks = cluster.hosts[where], f"{2 * where}-{2 * where + 1}"
    killed: set[int] = set()

    def gdbs(states: str) -> set[int]:
        return traced_by(host, states) - killed

    def kill(states: str) -> None:
        hosts.until(lambda: len(gdbs(states)) == 2, hosts.PATIENCE, f"GDBs of ranks in {states}")
        killed.update(found := gdbs(states))
        # They die together: stopped, the one answers nothing while the other is killed.
        for each in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                os.kill(pid, each)

    with running(cluster, "renewed") as at:
        ask(at, "break add_up", "breakpoint 1 on ")
        kill("t")
        for _ in range(2):
            at.expect(r"gdb ended [^\r]*\(the rank runs on\)")
        again = f"another gdb stopped ranks {ranks} where they are now\r\n"
        ask(at, f"[{ranks}] print go", rf"{again}\[{ranks}\] = 0")
        at.sendline("continue")
        for _ in range(RANKS):  # before that, the GDBs may stand between two commands
            at.expect(r"rank \d: waits")
        kill("SRD")
        at.expect("gdb ended .*another gdb stopped the rank where it is now")
        at.expect_exact("(crdebug) ")
        ask(at, f"[{ranks}] print go", rf"\[{ranks}\] = 0")
        ask(at, "set var go = 1", "")
        ask(at, "barrier add_up", "ranks? 0-5")
        ask(at, "delete 1", "")
        ask(at, "continue --to-end", "ranks 0-5 exited with status 0")
        at.sendline("quit")
        at.expect(pexpect.EOF)
    nothing_is_left(cluster)


def test_another_gdb_stops_a_rank_before_it_ends(cluster: Cluster) -> None:
    """As the one did that it replaces."""
    file = hosts.give(cluster, "dies", hosts.mpi(OPEN_MPI))
    argv = [str(file), "--rank", "3", "--how", "exit", "--step", "4", "--status", "7"]
    words = hosts.open_mpi(cluster, RANKS, *argv)
    with console(cluster.hosts[0], crdebug("run", "--name", "exits", "--", *words)) as at:
        ask(at, "barrier work_step", "ranks? 0-5")
        for pid in traced_by(cluster.hosts[1]):
            os.kill(pid, signal.SIGKILL)
        at.expect("gdb ended")
        ask(at, "continue", r"rank 3 .*exit\(7\)")
        at.sendline("quit")
        at.expect_exact("(y or n) ")
        at.sendline("y")
        at.expect(pexpect.EOF)
    nothing_is_left(cluster)


def traced_by(host: Host, states: str = "t") -> set[int]:
    """The GDBs there of ranks in one of these states."""
    found = set()
    for pid in host.pids():
        with contextlib.suppress(OSError):
            status = proc.status(pid)
            if status["State"][0] in states:
                found.add(int(status["TracerPid"]))
    return found - {0}


def test_kill_ends_it_everywhere(cluster: Cluster) -> None:
    one = cluster.hosts[0]
    with running(cluster, "short") as at:
        one.run(crdebug("kill", "short")).expect()
        at.sendline("quit")
        at.expect(pexpect.EOF)
    nothing_is_left(cluster)


def test_a_host_that_cannot_be_reached_is_named_and_nothing_starts(cluster: Cluster) -> None:
    words = launcher(cluster, OPEN_MPI, named=False)
    ran = played(cluster, ["--hosts", "n1:2,n2:2,n9:2"], words)
    assert ran.status == 1 and "cannot reach n9 by ssh" in ran.stderr, ran
    nothing_is_left(cluster)


def test_a_program_that_is_not_there_ends_it_with_the_launchers_words(cluster: Cluster) -> None:
    words = [*launcher(cluster, OPEN_MPI, named=True)[:-1], "/there/is/none"]
    ran = played(cluster, [], words)
    assert ran.status == 1 and "the program cannot be run" in ran.stderr, ran
    nothing_is_left(cluster)

"""MPI calls of a job over hosts are recorded on each host: why it hangs, what is wrong in it, and
its messages, at the prompt and from the shell."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from harness import crdebug_on_hosts, hosts, nobody, slurm_hosts, users
from harness.crdebug_on_hosts import crdebug, leavings
from harness.hosts import Cluster
from harness.mpis import MPIS

pytestmark = nobody.needs_root

RANKS = 4
PROMPT = "(crdebug) "
HANGS = "a deadlock, whatever else happens"
SWEPT = (pytest.mark.sweep,)
DEBIANS = [
    pytest.param(mpi.name, marks=() if "Open MPI" in mpi.name else SWEPT)
    for mpi in MPIS
    if mpi.name in hosts.LAUNCHERS
]
# In its container a job on one host has no other.
_LINKS = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The ordinary user's, of two hosts."""
    with users.clean_home() as home, hosts.cluster(2, home) as made:
        yield made
        assert not leavings(made), "a job has left files on a host"


class Console:
    """crdebug's prompt on the first host."""

    def __init__(self, at: pexpect.spawn[str]) -> None:
        self._at = at

    def say(self, command: str) -> list[str]:
        self._at.sendline(command)
        self._at.expect_exact(command)  # whatever was told before it may have brought a prompt
        return self._lines()

    def _lines(self) -> list[str]:
        self._at.expect_exact(PROMPT)
        assert self._at.before is not None
        return [line.rstrip() for line in self._at.before.splitlines()[1:] if line.strip()]

    def continue_until(self, words: str) -> list[str]:
        """Let the job run until this is said, and interrupt it; returns what was said. (Before
        that, MPI_Init may take long enough to be told.)"""
        self._at.sendline("continue")
        self._at.expect(words)
        assert self._at.before is not None and isinstance(self._at.after, str)
        said = (self._at.before + self._at.after).splitlines()
        self._at.sendintr()
        self._lines()
        return said

    def goes_on(self, command: str) -> None:
        """The job goes on with this, and can be interrupted."""
        self._at.sendline(command)
        came = self._at.expect_exact([PROMPT, pexpect.TIMEOUT], timeout=2)
        assert came == 1, self._at.before
        self._at.sendintr()
        self._lines()

    def hear(self, words: str) -> None:
        """Without being asked."""
        self._at.expect(words)

    def leave(self, command: str) -> None:
        self._at.sendline(command)
        while self._at.expect([pexpect.EOF, r"\(y or n\) "]):
            self._at.sendline("y")


@contextlib.contextmanager
def running(
    cluster: Cluster, mpi: str, name: str, program: str, *arguments: object
) -> Iterator[Console]:
    file = hosts.give(cluster, program, hosts.mpi(mpi))
    words = hosts.LAUNCHERS[mpi](cluster, RANKS, file, *arguments)
    one = cluster.hosts[0]
    line = crdebug("run", "--name", name, "--", *words)
    try:
        with console(cluster, line) as at:
            yield at
    finally:
        one.run(crdebug("kill", name))
    nothing_is_left(cluster)


def nothing_is_left(cluster: Cluster) -> None:
    hosts.until(lambda: not leavings(cluster), hosts.PATIENCE, "the job's files to be removed")


@contextlib.contextmanager
def console(cluster: Cluster, words: list[object]) -> Iterator[Console]:
    with crdebug_on_hosts.console(cluster.hosts[0], words, "0-3") as at:
        at.expect_exact(PROMPT)
        yield Console(at)


def is_told(lines: list[str], at: str = r"hangs\.c:\d+") -> None:
    """Why `hangs --mode member` does."""
    said = "\n".join(lines)
    assert re.search(rf"^ *0-2 wait in MPI_Barrier \({at}\) for 3, since tick 8", said, re.M), said
    assert re.search(rf"^ *3 waits in MPI_Recv from 0, tag 7 \({at}\), since", said, re.M), said
    assert re.search(r"^ *0 → 3 → 0: a deadlock, whatever else happens$", said, re.M), said


@pytest.mark.parametrize("mpi", DEBIANS)
def test_why_it_hangs(cluster: Cluster, mpi: str) -> None:
    one = cluster.hosts[0]
    with running(cluster, mpi, "stuck", "hangs", "--mode", "member") as at:
        at.say("set patience 2")
        is_told(at.continue_until(HANGS))
        is_told(at.say("why-blocked"))
        assert at.say("[3] why-blocked")[0].startswith("3 waits in MPI_Recv from 0")
        (_, message) = at.say("info messages")
        assert re.fullmatch(r"awaited +0 +3 \(tick 8\) +7 +world +receive at \S+:\d+", message)
        *_, last = at.say("info timeline")
        assert last.startswith("3 waits in MPI_Recv from 0, tag 7 (hangs.c:"), last
        assert at.say("info comms")[1].split() == ["world", "0-3", "3"]
        is_told(one.run(crdebug("why", "stuck")).expect().stdout.splitlines())
        assert one.run(crdebug("check", "stuck")).expect().stdout.startswith("nothing wrong")
        at.leave("detach")
        is_told(one.run(crdebug("why", "stuck")).expect().stdout.splitlines())
        with console(cluster, crdebug("attach", "stuck")) as again:
            is_told(again.say("why-blocked"))
            again.leave("quit")


@pytest.fixture(scope="module")
def slurm(cluster: Cluster) -> Iterator[None]:
    with slurm_hosts.slurm(cluster):
        yield


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("mpi", DEBIANS)
def test_of_ranks_that_slurm_starts(cluster: Cluster, mpi: str) -> None:
    """Whose MPI nobody knows but the program."""
    program = hosts.give(cluster, "hangs", hosts.mpi(mpi))
    srun = slurm_hosts.srun(cluster, mpi, RANKS, program, "--mode", "member")
    inner = crdebug("run", "--name", "slurms", "--", *srun)
    with console(cluster, ["salloc", "-N2", *inner]) as at:
        at.say("set patience 2")
        is_told(at.continue_until(HANGS))
        cluster.hosts[0].run(crdebug("kill", "slurms")).expect()
        at.leave("quit")
    nothing_is_left(cluster)


def test_the_requests_that_ranks_hold(cluster: Cluster) -> None:
    with running(cluster, "Open MPI 4.1", "held", "hangs", "--mode", "waitall") as at:
        at.say("set patience 1")
        at.continue_until("in MPI_Waitall")
        held = "\n".join(at.say("info requests"))
        assert re.search(r"\[0-3\] MPI_Irecv \(hangs\.c:\d+\) of tag 7: not sent", held), held
        at.leave("quit")


@pytest.mark.parametrize("mode", ["no_receive", pytest.param("receive_not_completed", marks=SWEPT)])
def test_check_says_what_it_says_on_one_host(cluster: Cluster, mode: str) -> None:
    """And from the shell, when the job has ended."""
    mpi = hosts.mpi("Open MPI 4.1")
    program = hosts.give(cluster, "wrong_messages", mpi)
    script = Path(str(cluster.home), "script")
    script.write_text("set stop-at-failure off\ncontinue --to-end\ncheck\n")
    script.chmod(0o644)
    alone = [mpi.tool("mpirun"), "-n", "3", "--oversubscribe", "--bind-to", "none"]
    over_hosts = hosts.open_mpi(cluster, 3)
    said = []
    for words in (alone, over_hosts):
        run = crdebug("run", "--batch", "--name", mode, "-x", script, "--", *words, program)
        extra = dict.fromkeys(_LINKS, "lo") if words is alone else {}
        ran = cluster.hosts[0].run([*run, "--mode", mode], seconds=120, extra=extra).expect().stdout
        checked = cluster.hosts[0].run(crdebug("check", mode)).expect().stdout
        at_the_prompt = ran.partition("(crdebug) check")[2]
        said.append((at_the_prompt.replace("the job ended with status 0\n", ""), checked))
    assert "wrong_messages.c:" in said[0][0] and "wrong_messages.c:" in said[0][1], said[0]
    assert said[0] == said[1]


def test_without_a_debugger(cluster: Cluster) -> None:
    """Its record is there for the shell, and for whoever attaches later, from the beginning."""
    one = cluster.hosts[0]
    program = hosts.give(cluster, "hangs", hosts.mpi("Open MPI 4.1"))
    words = hosts.open_mpi(cluster, RANKS, program, "--mode", "member")
    at = words.index("--host")
    named = ["--hosts", words[at + 1]]
    del words[at : at + 2]
    run = crdebug("run", "--no-debugger", "--record", "--name", "alone", *named, "--", *words)
    with one.started(run) as process:
        assert process.stdout is not None
        first = process.stdout.readline().decode()
        assert "this job may use n1, n2: it goes back in time by snapshots" in first, first
        hosts.until(lambda: "a deadlock" in _why(cluster, "alone"), hosts.PATIENCE, "the deadlock")
        is_told(_why(cluster, "alone").splitlines())
        assert re.search(r"^alone +running +4 ", one.run(crdebug("jobs")).stdout, re.M)
        with console(cluster, crdebug("attach", "alone")) as prompt:
            is_told(prompt.say("why-blocked"))
            prompt.leave("detach")
        one.run(crdebug("kill", "alone")).expect()
        rest = process.stdout.read().decode()
        assert process.wait(hosts.PATIENCE) == 143, rest
    nothing_is_left(cluster)


def _why(cluster: Cluster, name: str) -> str:
    return cluster.hosts[0].run(crdebug("why", name)).stdout


@pytest.mark.parametrize("record", ["--record", pytest.param("--no-record", marks=SWEPT)])
def test_one_that_ends_by_itself(cluster: Cluster, record: str) -> None:
    """At once, too; its status is the launcher's, and nothing of it is left."""
    program = hosts.give(cluster, "where", hosts.mpi("Open MPI 4.1"))
    words = hosts.open_mpi(cluster, RANKS, program)
    ran = cluster.hosts[0].run(crdebug("run", "--no-debugger", record, "--", *words))
    assert ran.expect().stdout.count("rank ") >= RANKS or ran.stdout, ran
    nothing_is_left(cluster)


def test_what_a_lost_host_knew_is_as_it_was() -> None:
    with users.clean_home() as home, hosts.cluster(2, home) as cluster:
        program = hosts.give(cluster, "hangs", hosts.mpi("Open MPI 4.1"))
        words = hosts.open_mpi(cluster, RANKS, program, "--mode", "member")
        with console(cluster, crdebug("run", "--name", "lost", "--", *words)) as at:
            at.say("set patience 2")
            at.say("set host-interval 0.5")
            is_told(at.continue_until(HANGS))
            cluster.hosts[1].kill()
            at.hear("the agent on n2 (has not answered|cannot be reached|has ended).*: ranks 2-3 ")
            said = "\n".join(at.say("why-blocked"))
            assert re.search(r"^0-1 wait in MPI_Barrier \(hangs.c:\d+\)", said, re.M), said
            assert re.search(r"^2-3 .*the agent on n2 ", said, re.M), said
            assert "a deadlock" not in said, said
            assert at.say("when")[0] == "[0-3] tick 7, inside the next call"
            assert at.say("info timeline")[0].endswith("| 7 calls")
            assert "'[@stopped] continue' leaves them out" in at.say("continue")[0]
            at.goes_on("[@stopped] continue")
            said = "\n".join(at.say("goto tick 3 on 0"))
            assert "the agent on n2 " in said or "ranks 2-3" in said, said
            at.leave("quit")


def test_of_a_job_that_ended_without_crdebug_nothing_is_claimed(cluster: Cluster) -> None:
    """Its last calls were recorded where nobody could read them any more."""
    one = cluster.hosts[0]
    with running(cluster, "Open MPI 4.1", "left", "gated") as at:
        at.say("tbreak wait_here")
        at.say("continue")
        at.say("set var go = 1")
        at.leave("detach")
        hosts.until(
            lambda: "left" not in one.run(crdebug("jobs")).stdout, hosts.PATIENCE, "the job to end"
        )
        ran = one.run(crdebug("check", "left"))
        assert ran.status == 1 and "no record is kept of job 'left'" in ran.stderr, ran

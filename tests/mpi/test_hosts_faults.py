"""Something fails while crdebug has a job over hosts, whatever it does at that moment: nobody
hangs, and `attach` takes up what is there."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pexpect
import pytest

from crdebug.node import proc
from harness import crdebug_on_hosts, hosts, nobody, users
from harness.crdebug_on_hosts import agents, crdebug, leavings, spawned
from harness.hosts import Cluster, Host

pytestmark = nobody.needs_root

RANKS, NAME = 4, "faulty"
PROMPT = "(crdebug) "
SWEPT = (pytest.mark.sweep,)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The ordinary user's, of two hosts."""
    with users.clean_home() as home, hosts.cluster(2, home) as made:
        yield made
        hosts.until(lambda: not leavings(made), hosts.PATIENCE, "the job's files to be removed")


@dataclass
class Job:
    """With crdebug's console on the first host. heal: what undoes a fault."""

    cluster: Cluster
    at: pexpect.spawn[str]
    heal: list[Callable[[], None]] = field(default_factory=list)

    @property
    def two(self) -> Host:
        return self.cluster.hosts[1]

    def ranks(self, host: Host | None = None) -> list[dict[str, str]]:
        """What the kernel says of those on a host; without one, on the second."""
        found = []
        for pid in (host or self.two).pids():
            with contextlib.suppress(OSError):
                if any("gated-" in word for word in proc.command_line(pid)[:1]):
                    found.append(proc.status(pid))
        return found

    def ask(self, command: str, words: str) -> None:
        self.at.sendline(command)
        self.at.expect(words)
        self.at.expect_exact(PROMPT)


# ---- what crdebug does --------------------------------------------------------------------------


def stands(job: Job) -> None:
    pass


def runs(job: Job) -> None:
    """In MPI_Init GDB has breakpoints of its own, and a rank may meet one when its GDB is gone, see
    docs/limits.md."""
    job.at.sendline("continue")
    for _ in range(RANKS):
        job.at.expect("rank .: waits")


def is_interrupted(job: Job) -> None:
    runs(job)
    job.at.sendintr()


def is_asked(job: Job) -> None:
    job.at.sendline("backtrace")


def steps(job: Job) -> None:
    job.at.sendline("next 1000")
    job.at.expect("next 1000")


def detaches(job: Job) -> None:
    job.at.sendline("detach")


MEANWHILE = [stands, runs, is_interrupted, is_asked, steps, detaches]


# ---- what fails ---------------------------------------------------------------------------------


def the_agent_is_killed(job: Job) -> None:
    for pid in agents(job.two):
        send(pid, signal.SIGKILL)


def the_agent_is_stopped(job: Job) -> None:
    for pid in agents(job.two):
        send(pid, signal.SIGSTOP)
        job.heal.append(partial(send, pid, signal.SIGCONT))


def the_gdbs_are_killed(job: Job) -> None:
    for each in job.ranks():
        if (tracer := int(each["TracerPid"])) != 0:
            send(tracer, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def the_link_is_cut(job: Job) -> None:
    job.two.cut()
    job.heal.append(job.two.mend)


def the_link_is_cut_for_a_while(job: Job) -> None:
    job.two.cut()
    time.sleep(1)
    job.two.mend()


def crdebug_is_killed(job: Job) -> None:
    assert job.at.pid is not None
    os.kill(hosts.program(job.at.pid), signal.SIGKILL)


IS_LOST = (the_agent_is_stopped, the_link_is_cut)  # then the host is
FAULTS = [
    the_agent_is_killed,
    the_agent_is_stopped,
    the_gdbs_are_killed,
    the_link_is_cut,
    the_link_is_cut_for_a_while,
    crdebug_is_killed,
]


# ---- the sweep ----------------------------------------------------------------------------------


@contextlib.contextmanager
def started(cluster: Cluster) -> Iterator[Job]:
    one = cluster.hosts[0]
    program = hosts.give(cluster, "gated", hosts.mpi("Open MPI 4.1"))
    words = hosts.open_mpi(cluster, RANKS, program)
    line = crdebug("run", "--name", NAME, "--", *words)
    with crdebug_on_hosts.console(one, line, "0-3") as at:
        job = Job(cluster, at)
        try:
            at.expect_exact(PROMPT)
            job.ask("set host-interval 0.5", "0.5 s")
            yield job
        finally:
            for heal in job.heal:
                heal()
            one.run(crdebug("kill", NAME))


def is_over(job: Job, meanwhile: Callable[[Job], None], state: str) -> None:
    """What crdebug did, and crdebug itself after that. state: of the second host, by then."""
    if meanwhile in (runs, steps):
        job.at.sendintr()
    if meanwhile in (runs, steps, is_interrupted, is_asked):
        job.at.expect_exact(PROMPT)
    if meanwhile is not detaches:
        while True:  # until it is so; nobody answers what is wrong for longer than a test may take
            job.at.sendline("info hosts")
            kinds = ("reached", "lost")
            said = kinds[job.at.expect([rf"n2 +2 +\[2-3\] +{kind}" for kind in kinds])]
            job.at.expect_exact(PROMPT)
            if said in state:
                break
        job.at.sendline("detach")
    job.at.expect(pexpect.EOF)


def taken_up(cluster: Cluster, *, may_trap: bool) -> None:
    """By another crdebug, as soon as nobody else has it; then it goes on to its end. may_trap: a
    rank may have run into SIGTRAP instead, see docs/limits.md."""
    one = cluster.hosts[0]
    said = [""]

    def attached() -> bool:
        with spawned(one, crdebug("attach", NAME)) as at:
            if at.expect([r"job .*: ranks 0-3\r\n", pexpect.EOF]):
                said.append(str(at.before))
                return may_trap and "has ended with status 133" in said[-1]
            job = Job(cluster, at)
            at.expect_exact(PROMPT)
            job.ask("print go", r"\[0-3\] = 0")
            job.ask("set var go = 1", "")
            job.ask("continue --to-end", "ranks 0-3 exited with status 0")
            at.sendline("quit")
            at.expect(pexpect.EOF)
            return True

    try:
        hosts.until(attached, hosts.PATIENCE, "another crdebug to have the job")
    except Exception as error:
        raise AssertionError(f"{error}\n{said[-1]}") from None


EACH_RUN = [(runs, the_agent_is_stopped), (steps, the_link_is_cut_for_a_while)]
CASES = [
    pytest.param(meanwhile, fault, marks=() if (meanwhile, fault) in EACH_RUN else SWEPT)
    for meanwhile in MEANWHILE
    for fault in FAULTS
]


@pytest.mark.parametrize("meanwhile, fault", CASES, ids=lambda each: each.__name__)
def test_a_fault(
    cluster: Cluster, meanwhile: Callable[[Job], None], fault: Callable[[Job], None]
) -> None:
    with started(cluster) as job:
        meanwhile(job)
        fault(job)
        if fault is crdebug_is_killed:
            job.at.expect(pexpect.EOF)
        else:
            is_over(job, meanwhile, "lost" if fault in IS_LOST else "reached or lost")
        while job.heal:
            job.heal.pop()()
        taken_up(cluster, may_trap=meanwhile is steps and fault is the_gdbs_are_killed)


@pytest.fixture
def mortal() -> Iterator[Cluster]:
    """A cluster whose hosts may be killed."""
    with users.clean_home() as home, hosts.cluster(2, home) as made:
        yield made


@pytest.mark.sweep  # of test_what_a_lost_host_knew_is_as_it_was, and others
@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda each: each.__name__)
def test_a_host_that_is_killed(mortal: Cluster, meanwhile: Callable[[Job], None]) -> None:
    """Its launcher may end what is left of the job, too."""
    with started(mortal) as job:
        meanwhile(job)
        job.two.kill()
        is_over(job, meanwhile, "lost")
        one = mortal.hosts[0]
        one.run(crdebug("kill", NAME))
        hosts.until(lambda: not job.ranks(one), hosts.PATIENCE, "the ranks that are left to end")


IMPATIENT = """\
limit-attach = "15s"
limit-launch = "20s"
host-interval = "0.5s"
host-patience = "5s"
"""


@pytest.mark.sweep  # of test_a_fault: before there is a job
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6, 1.0])
@pytest.mark.parametrize(
    "fault",
    [the_agent_is_killed, the_agent_is_stopped, the_link_is_cut],
    ids=lambda each: each.__name__,
)
def test_a_fault_while_it_is_started(
    cluster: Cluster, fault: Callable[[Job], None], seconds: float
) -> None:
    """seconds: since the agent on the second host has begun."""
    one = cluster.hosts[0]
    config = Path(str(cluster.home), "impatient.toml")
    config.write_text(IMPATIENT)
    config.chmod(0o644)
    words = hosts.open_mpi(cluster, RANKS, hosts.give(cluster, "gated", hosts.mpi("Open MPI 4.1")))
    line = crdebug("run", "--name", NAME, "--", *words)
    with spawned(one, line, timeout=120, CRDEBUG_CONFIG=str(config)) as at:
        job = Job(cluster, at)
        before = job.two.pids()
        try:
            hosts.until(lambda: bool(agents(job.two)), hosts.PATIENCE, "an agent")
            time.sleep(seconds)
            fault(job)
            if at.expect_exact([PROMPT, pexpect.EOF]) == 0:
                at.sendline("detach")
                at.expect(pexpect.EOF)
        finally:
            for heal in job.heal:
                heal()
            one.run(crdebug("kill", NAME))
            if fault is the_link_is_cut:  # its Open MPI learns of the end after 5 minutes
                end_all_but(job.two, before)


def end_all_but(host: Host, others: tuple[int, ...]) -> None:
    """But not what removes the job's files there, and the agent."""

    def left() -> set[int]:
        found = set()
        for pid in set(host.pids()) - set(others):
            with contextlib.suppress(OSError):
                if not {"--sweep", "crdebug.hosts"} & {*proc.command_line(pid)}:
                    found.add(pid)
                    os.kill(pid, signal.SIGKILL)
        return found

    hosts.until(lambda: not left(), hosts.PATIENCE, "what is left on a host to end")

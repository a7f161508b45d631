"""A job over hosts goes back in time: the stories of examples/advect, as an ordinary user."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import psutil
import pytest

from crdebug.node import in_flight
from harness import advect, crdebug_on_hosts, hosts, mpis, nobody, slurm_hosts, users
from harness.crdebug_on_hosts import agents, crdebug, leavings
from harness.hosts import Cluster, Host
from harness.programs import source

pytestmark = nobody.needs_root

RANKS = 4
SWEPT = (pytest.mark.sweep,)
DEBIANS = [
    pytest.param(name, marks=() if "Open MPI" in name else SWEPT) for name in hosts.LAUNCHERS
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The ordinary user's, of two hosts."""
    with users.clean_home() as home, hosts.cluster(2, home) as made:
        yield made
        hosts.until(lambda: not leavings(made), hosts.PATIENCE, "the job's files to be removed")


def program(cluster: Cluster, name: str) -> Path:
    """The example, made for this MPI where the user can run it on all hosts."""
    assert cluster.home is not None
    place = cluster.home / name.replace(" ", "-")
    if place.is_dir():
        return place / "advect"
    place.mkdir()
    mpi = hosts.mpi(name)
    with mpis.using(mpi):
        made = advect.make(place)
        if name == "MPICH 4.0":  # see hosts.give
            header = source("where").with_name("ends.h")
            flags = ("-g", "-O0", "-ffp-contract=off", "-include", str(header))
            words = [mpi.tool("mpicc"), *flags, "-o", "advect", "advect.c", "-lm"]
            subprocess.run(words, cwd=place, check=True)
    for each in (place, *place.iterdir()):
        shutil.chown(each, users.NAME, users.NAME)
    return made


def play(cluster: Cluster, mpi: str, script: str, *arguments: object) -> str:
    words = hosts.LAUNCHERS[mpi](cluster, RANKS, program(cluster, mpi), *arguments)
    options = ("--batch", "-x", advect.EXAMPLE / script, "--name", "example")
    one = cluster.hosts[0]
    try:
        ran = one.run(crdebug("run", *options, "--", *words), seconds=240)
    finally:
        one.run(crdebug("kill", "example"))  # if the script has ended early
    assert ran.status == 0, ran.stdout + ran.stderr
    print(ran.stdout + ran.stderr)
    return ran.stdout


def on_their_way() -> int:
    """Bytes in the connections between ranks."""
    ranks = [
        each.pid
        for each in psutil.process_iter(["name"])
        if each.info["name"].startswith("parcels")
    ]
    channels = [each for pid in ranks for each in in_flight.in_flight(pid)]
    return sum(each.unread for each in channels if each.ends)


def has_ended_well(host: Host, job: str) -> bool:
    told = host.run(crdebug("jobs")).expect().stdout
    return re.search(rf"^{job} +ended \(0\)", told, re.M) is not None


class Console:
    """crdebug's prompt on the first host."""

    def __init__(self, at: pexpect.spawn[str]) -> None:
        self._at = at

    def say(self, command: str) -> str:
        self.begin(command)
        return self.end()

    def begin(self, command: str) -> None:
        self._at.sendline(command)
        self._at.expect_exact(command)  # whatever was told before it may have brought a prompt

    def kill(self) -> None:
        assert self._at.pid is not None
        os.kill(hosts.program(self._at.pid), signal.SIGKILL)
        self._at.expect(pexpect.EOF)

    def end(self) -> str:
        self._at.expect_exact("(crdebug) ")
        assert self._at.before is not None
        return self._at.before


@contextlib.contextmanager
def console(cluster: Cluster, mpi: str, name: str, *words: object) -> Iterator[Console]:
    one = cluster.hosts[0]
    line = crdebug("run", "--name", name, "--", *hosts.LAUNCHERS[mpi](cluster, RANKS, *words))
    try:
        with crdebug_on_hosts.console(one, line, "0-3") as at:
            at.expect_exact("(crdebug) ")
            yield Console(at)
    finally:
        one.run(crdebug("kill", name))


@pytest.mark.parametrize("mpi", DEBIANS)
def test_messages_on_their_way_come_again(cluster: Cluster, mpi: str) -> None:
    with console(cluster, mpi, "parcels", hosts.give(cluster, "parcels", hosts.mpi(mpi))) as at:
        at.say("[0] tbreak sent")
        assert "rank 0 hit breakpoint" in at.say("continue")
        assert on_their_way() > 20_000
        at.say("[0] set var changed = 1")  # history begins anew here, with a snapshot
        told = ""
        for _ in range(3):
            told += (said := at.say("continue"))
            assert "about to call MPI_Finalize" in said, said
            assert not on_their_way()
            assert "rank 0 at tick 22 of 22" in at.say("goto tick 22 on 0")
            assert on_their_way() > 20_000
            assert "[0] = 1" in at.say("[0] print changed")
        told += at.say("continue --to-end")
        assert told.count("all parcels came") == 1 and "ended with status 0" in told, told


@pytest.mark.parametrize("mpi", DEBIANS)
def test_a_changed_past_begins_anew(cluster: Cluster, mpi: str) -> None:
    with console(cluster, mpi, "anew", program(cluster, mpi), 200) as at:
        assert "about to call MPI_Finalize" in at.say("continue")
        (first,) = re.findall(r"\[0\] = (.*)", at.say("[0] print total"))
        at.say("goto tick 300 on 0")
        at.say("[0] set var u[2] = 5")
        said = at.say("continue")
        assert "history begins here now: over several hosts one branch is kept" in said, said
        (other,) = re.findall(r"\[0\] = (.*)", at.say("[0] print total"))
        assert first != other
        for _ in range(2):
            assert "rank 0 at tick 900 of" in at.say("goto tick 900 on 0")
            assert "about to call MPI_Finalize" in at.say("continue")
            assert f"[0] = {other}" in at.say("[0] print total")
        assert "nothing is kept of branch main" in at.say("goto tick 200 on 0")
        assert "nothing is kept of branch main" in at.say("switch main")
        assert "ended with status 0" in at.say("continue --to-end")


@pytest.fixture(scope="module")
def slurm(cluster: Cluster) -> Iterator[None]:
    with slurm_hosts.slurm(cluster):
        yield


@pytest.mark.sweep  # of test_a_rank_of_another_host
@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("mpi", DEBIANS)
def test_ranks_that_slurm_starts(cluster: Cluster, mpi: str) -> None:
    one = cluster.hosts[0]
    srun = slurm_hosts.srun(cluster, mpi, RANKS, program(cluster, mpi), 800)
    words = ["salloc", "-N2", *crdebug("run", "--name", "slurms", "--", *srun)]
    try:
        with crdebug_on_hosts.console(one, words, "0-3") as found:
            found.expect_exact("(crdebug) ")
            backwards(Console(found))
    finally:
        one.run(crdebug("kill", "slurms"))


def backwards(at: Console) -> None:
    """On a rank of the other host, which the wave has reached by then."""
    assert "about to call MPI_Finalize" in at.say("continue")
    said = at.say("goto tick 3900 on 3")
    assert "rank 3 at tick 3900 of" in said, said
    value = at.say("[3] print u[20]").split("\n")[-2]
    said = at.say("[3] last u[20]")
    assert "u[20] has just been changed here" in said and "advect.c" in said, said
    assert "u[i] = next_u[i];" in said, said
    said = at.say("[3] reverse-next")
    assert "[3] " in said and "for (int i = HALO" in said, said
    at.say("goto tick 3900 on 3")
    assert at.say("[3] print u[20]").split("\n")[-2] == value
    assert "message of 16 bytes from rank" in at.say("[3] goto-sender")
    assert "ended with status 0" in at.say("continue --to-end")


@pytest.mark.parametrize("mpi", DEBIANS)
def test_a_rank_of_another_host(cluster: Cluster, mpi: str) -> None:
    with console(cluster, mpi, "other", program(cluster, mpi), 800) as at:
        backwards(at)


@pytest.mark.parametrize(
    "when", [0.1, *(pytest.param(each, marks=SWEPT) for each in (0.0, 0.05, 0.2, 0.4, 0.8, 1.6))]
)
def test_an_agent_killed_on_a_way_back(cluster: Cluster, when: float) -> None:
    """The way fails, in words; nobody hangs, and the job can be ended."""
    mpi = "Open MPI 4.1"
    with console(cluster, mpi, "cut", program(cluster, mpi), 200) as at:
        assert "about to call MPI_Finalize" in at.say("continue")
        at.begin("goto tick 300 on 0")
        time.sleep(when)
        for pid in agents(cluster.hosts[1]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        said = at.end()
        assert "the agent on n2 has ended" in said or "rank 0 at tick 300" in said, said
        assert "n2" in at.say("info hosts")


@pytest.mark.parametrize(
    "when", [None, *(pytest.param(each, marks=SWEPT) for each in (0.0, 0.05, 0.1, 0.2, 0.4, 0.8))]
)
def test_a_crdebug_killed_in_the_past(cluster: Cluster, when: float | None) -> None:
    """Its ranks can be let go, wherever they hold; on a way back perhaps only ended. when: seconds
    after that has begun; None: once it is over."""
    one, mpi = cluster.hosts[0], "Open MPI 4.1"
    with console(cluster, mpi, "orphan", program(cluster, mpi), 200) as at:
        assert "about to call MPI_Finalize" in at.say("continue")
        at.begin("goto tick 300 on 0")
        if when is None:
            assert "rank 0 at tick 300" in at.end()
        else:
            time.sleep(when)
        at.kill()
        ran = one.run(crdebug("release", "orphan"), seconds=120)
        if when is not None and "went back in memory" in ran.stderr:
            assert ran.status == 1 and "'crdebug kill orphan'" in ran.stderr, ran
            return  # the console's end kills it
        assert ran.status == 0 and "rank 0 let go" in ran.stdout, ran
        hosts.until(lambda: has_ended_well(one, "orphan"), hosts.PATIENCE, "the job to end")


@pytest.mark.sweep  # the others go there, too
@pytest.mark.parametrize("mpi", DEBIANS)
def test_to_ticks_and_a_mark(cluster: Cluster, mpi: str) -> None:
    part = advect.parts(play(cluster, mpi, "goto.crdebug", 200))
    alone = hosts.LAUNCHERS[mpi](cluster, RANKS, program(cluster, mpi), 200)
    advect.went_to(part, cluster.hosts[0].run(alone).stdout)


@pytest.mark.parametrize("mpi", DEBIANS)
def test_back_by_lines_and_stops(cluster: Cluster, mpi: str) -> None:
    advect.went_backwards(advect.parts(play(cluster, mpi, "reverse.crdebug", 200)))


@pytest.mark.parametrize("mpi", DEBIANS)
def test_a_bug_is_traced_to_its_line(cluster: Cluster, mpi: str) -> None:
    advect.traced(advect.parts(play(cluster, mpi, "trace.crdebug")))


@pytest.mark.sweep  # the others go there, too
@pytest.mark.parametrize("mpi", DEBIANS)
def test_from_one_end_of_a_message_to_the_other(cluster: Cluster, mpi: str) -> None:
    advect.followed_messages(advect.parts(play(cluster, mpi, "messages.crdebug", 200)))


@pytest.mark.sweep  # of test_travel_messages, over hosts, where others go back and forth
@pytest.mark.parametrize("mpi", DEBIANS)
def test_since_when(cluster: Cluster, mpi: str) -> None:
    advect.bisected(advect.parts(play(cluster, mpi, "bisect.crdebug", 400)))

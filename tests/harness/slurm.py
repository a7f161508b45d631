"""A Slurm of one node, for one test: its daemons, with all that they write, in one directory.

It needs what Debian's package slurm-wlm has; no daemon of the machine's is used or changed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from harness import mpirun, plain

_NEEDED = ("slurmctld", "slurmd", "srun", "sbatch", "squeue", "scancel", "sinfo")

# No accounts, no cgroups: root's processes on this machine, known by their parents.
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus}
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:4
"""


def require() -> None:
    """Skip the test, with a reason, if Slurm is not installed or is already running."""
    missing = [each for each in _NEEDED if shutil.which(each) is None]
    if missing:
        pytest.skip(f"there is no Slurm here: {', '.join(missing)} (apt-get install slurm-wlm)")


def _ports(count: int) -> list[int]:
    """Free ones."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def ask(*words: object) -> str:
    """Run one of Slurm's commands; returns its output. Raises AssertionError."""
    ran = mpirun.run([str(word) for word in words], seconds=60)
    return ran.expect(0).stdout.strip()


def version() -> tuple[int, ...]:
    """As in "slurm-wlm 24.11.5"."""
    return tuple(int(each) for each in ask("slurmd", "-V").split()[-1].split(".")[:2])


async def gone(deadline: Deadline, what: str) -> None:
    """Wait until no jobs are left."""
    await deadline.until(lambda: not ask("squeue", "--noheader"), what)


@asynccontextmanager
async def cluster(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Slurm's commands use it from now on; all jobs and both daemons are gone afterwards."""
    directory.mkdir()
    for each in ("state", "spool"):
        (directory / each).mkdir()
    host = socket.gethostname().partition(".")[0]
    configuration = directory / "slurm.conf"
    text = _CONFIGURATION.format(
        host=host, directory=directory, ports=_ports(2), cpus=len(os.sched_getaffinity(0))
    )
    configuration.write_text(text)
    if version() >= (23, 11):  # it wants cgroups otherwise; before, it does not know the word
        (directory / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    with ExitStack() as daemons:
        for words in (["slurmctld", "-D", "-c"], ["slurmd", "-D", "-c"]):
            daemons.enter_context(plain.started(words, directory / f"{words[0]}.out"))
        try:
            limit = Deadline(60)
            await limit.until(lambda: _state() == "idle", "Slurm's node to be idle")
            yield
        finally:
            subprocess.run(["scancel", "--user=root", "--full"], check=False)
            await gone(Deadline(60), "all of Slurm's jobs to end")


def _state() -> str:
    said: Sequence[str] = mpirun.run(["sinfo", "--noheader", "-o", "%T"], seconds=60).stdout.split()
    return said[0] if said else ""

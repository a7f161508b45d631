"""A Slurm over the hosts of a test (harness/hosts.py): slurmctld on the first, a slurmd on each.

with slurm_hosts.slurm(cluster):
    cluster.hosts[0].run(["srun", "-N3", "-n6", "--mpi=pmix", program])
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.hosts import SCRATCH, Cluster, Host, end, until
from harness.slurm import require, version

# What its daemons write is on their hosts' own file systems.
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={first.name}({first.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
TmpFS={scratch}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdTimeout=0
SchedulerParameters=batch_sched_delay=0,sched_interval=1
{nodes}
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:4
"""
PATIENCE = 60.0  # seconds: for its nodes to be idle
# Debian's MPIs are those that Debian's Slurm can start.
BY_SRUN = {"Open MPI 4.1": "pmix", "MPICH 4.0": "pmi2"}


def srun(cluster: Cluster, mpi: str, ranks: int, *program: object) -> list[str]:
    """To be run on any host; each gets as many ranks, one host after the other.

    mpi: one of BY_SRUN.  program: with its arguments.
    """
    return [
        *("srun", f"-N{len(cluster.hosts)}", f"-n{ranks}", "--distribution=block", "--overcommit"),
        f"--mpi={BY_SRUN[mpi]}",
        *map(str, program),
    ]


@contextlib.contextmanager
def slurm(cluster: Cluster) -> Iterator[None]:
    """Its commands work on every host meanwhile. What its jobs leave goes when the cluster does.

    Skips the test where Slurm is not installed."""
    require()
    directory = cluster.directory / "slurm"
    directory.mkdir(mode=0o755)
    first = cluster.hosts[0]
    cpus = len(os.sched_getaffinity(0))
    nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs={cpus}" for host in cluster.hosts]
    text = _CONFIGURATION.format(scratch=SCRATCH, first=first, nodes="\n".join(nodes))
    (directory / "slurm.conf").write_text(text)
    if version() >= (23, 11):  # it wants cgroups otherwise; before, it does not know the word
        (directory / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    with contextlib.ExitStack() as daemons:
        for host in cluster.hosts:
            words = ["mount", "--bind", directory, "/etc/slurm"]
            host.run(words, user=False).expect()
            daemons.callback(host.run, ["umount", "/etc/slurm"], user=False)
        daemons.enter_context(_daemon(first, "slurmctld", directory))
        for host in cluster.hosts:
            daemons.enter_context(_daemon(host, "slurmd", directory))
        wanted = ["idle"] * len(cluster.hosts)

        def idle() -> bool:
            return first.run(["sinfo", "--noheader", "--Node", "-o", "%T"]).stdout.split() == wanted

        until(idle, PATIENCE, "Slurm's nodes to be idle")
        yield


@contextlib.contextmanager
def _daemon(host: Host, name: str, directory: Path) -> Iterator[None]:
    with (
        (directory / f"{name}.{host.name}.log").open("wb") as log,
        subprocess.Popen(
            host.argv([name, "-D", "-c"], user=False),
            env={**os.environ, "TMPDIR": SCRATCH},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            yield
        finally:
            end(process)

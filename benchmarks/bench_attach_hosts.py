"""Attaching to 64 ranks over 8 hosts of this machine, beside as many bare `gdb -p` in parallel: at
most 1.3 times as long (issue 15, figure 5). Both let the ranks go again.

The hosts are namespaces, as the tests have them: this takes root, and Debian's openssh-server.

    bench_attach_hosts.py [HOSTS [RANKS-OF-EACH]]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench_attach import bare_gdbs
from common import Pairs, main, report

from crdebug.node import proc
from harness import hosts
from harness.crdebug_on_hosts import crdebug
from harness.hosts import Cluster

ROUNDS = 3
MPI = "Open MPI 4.1"


async def run() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    each = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    with hosts.cluster(count) as cluster:
        pairs = await measured(cluster, count * each)
    report([pairs])


async def measured(cluster: Cluster, ranks: int) -> Pairs:
    pairs = Pairs(f"attach to {ranks} ranks on {len(cluster.hosts)} hosts", 1.3, 0.0)
    program = hosts.give(cluster, "gated", hosts.mpi(MPI))
    first = cluster.hosts[0]
    with first.started([*hosts.LAUNCHERS[MPI](cluster, ranks), program]) as process:
        assert process.stdout is not None
        waiting = 0
        while waiting < ranks:
            waiting += process.stdout.readline().endswith(b"waits\n")
        pids = [
            pid
            for host in cluster.hosts
            for pid in host.pids()
            if str(program) in proc.command_line(pid)[:1]
        ]
        assert len(pids) == ranks, f"{len(pids)} ranks"
        launcher = proc.inner_pid(hosts.program(process.pid))
        script = Path("detach")
        script.write_text("detach\n")
        for _ in range(ROUNDS):
            started = time.perf_counter()
            words = crdebug("attach", "--batch", "-x", script.resolve(), launcher)
            first.run(words, seconds=300).expect()
            pairs.ours.append(time.perf_counter() - started)
            pairs.bare.append(await bare_gdbs(pids))
    return pairs


if __name__ == "__main__":
    main(run)

"""The job container: namespaces with our starter as PID 1 (design: "Job container")."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from crdebug.deadline import Deadline
from crdebug.errors import NotAvailable
from crdebug.node import proc, programs

JOB_DIRECTORY = "/run/crdebug"  # CRDEBUG_DIR of crdebug.h


async def start(
    starter: Path,
    shim: Path | None,
    launcher: Sequence[str],
    *,
    job: str,
    directory: Path,
    hold: bool,
    signal: int,
    environment: Mapping[str, str],
    working_directory: Path,
    deadline: Deadline,
) -> int:
    """Start a job; returns the host PID of PID 1 of its container.

    directory (on the host) becomes the job's own: stdout, stderr, events. The launcher runs by
    then, the ranks need not yet. Raises NotAvailable with the starter's reason.
    """
    reader, writer = os.pipe()
    options = ["--job", job, "--dir", str(directory), "--signal", str(signal)]
    options += ["--shim", str(shim)] if shim else []
    options += ["--hold"] if hold else []
    try:
        done = await programs.run(
            [str(starter), *options, "--report", str(writer), "--", *launcher],
            deadline,
            "the job container",
            environment=environment,
            directory=working_directory,
            pass_fds=(writer,),
        )
    finally:
        os.close(writer)
        with os.fdopen(reader) as report:
            text = report.read()
    if done.status != 0 or not text.strip():
        raise NotAvailable(
            f"cannot make the job container: {done.err.strip() or done.status}",
            hint="see 'crdebug doctor'",
        )
    return int(text)


def machine_mounts(pid: int) -> tuple[proc.Mount, ...]:
    """The mounts of a container that are the machine's, not the container's own: the CRS is told
    to leave them alone and to bind them again on restart."""
    ours = {"/", "/proc", "/dev/shm", "/dev/pts", JOB_DIRECTORY}
    points: dict[str, proc.Mount] = {}
    for mount in proc.mounts(pid):
        if mount.point not in ours:
            points[mount.point] = mount
    return tuple(points.values())

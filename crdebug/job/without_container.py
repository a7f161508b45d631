"""What a job without a container lacks, for people: said at its start, and when it is wanted."""

from __future__ import annotations

from crdebug.base.errors import NotAvailable
from crdebug.job.directory import JobRecord

_LEFT = "going back in time needs none: 'goto', 'last' and the reverse commands use snapshots"


def at_the_start(record: JobRecord) -> str:
    """The sentence; "" for a job that lacks nothing."""
    if record.container != "none":
        return ""
    if record.hosts:
        may = f"this job may use {', '.join(record.hosts)}"
        if not record.layer:
            return f"{may}: its MPI calls are not recorded, and it does not go back in time"
        return (
            f"{may}: it goes back in time by snapshots in memory on each of them, to the end of "
            "MPI_Init at most and only while all ranks live; it has no checkpoints, and so no "
            "'restart' and no 'compare', and keeps one branch of history"
        )
    return (
        f"this job has no container, because {record.no_container}: it goes back in time by "
        "snapshots in memory, to the end of MPI_Init at most and only while all ranks live, and "
        "has no checkpoints, and so no 'restart' and no 'compare'"
    )


def require_container(record: JobRecord, what: str) -> None:
    """Raises NotAvailable if something cannot be done because the job has no container. what: an
    infinitive, as in "take a checkpoint"."""
    if record.container == "none":
        raise NotAvailable(
            f"cannot {what}: the job has no container, because {record.no_container}",
            hint=_LEFT if record.layer or not record.hosts else None,
        )

"""What a job without a container lacks, for people: said at its start, and when it is wanted."""

from __future__ import annotations

from crdebug.base.errors import NotAvailable, Refused
from crdebug.job.directory import JobRecord

_LEFT = "going back in time needs none: 'goto', 'last' and the reverse commands use snapshots"


def at_the_start(record: JobRecord) -> str:
    """The sentence; "" for a job that lacks nothing."""
    if record.container != "none":
        return ""
    if record.hosts:
        calls = "" if record.layer else ", and its MPI calls are not recorded"
        return (
            f"this job may use {', '.join(record.hosts)}: it does not go back in time{calls}; "
            "checkpoints are of jobs on one host"
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
            hint=_LEFT if not record.hosts else None,
        )


def no_way_back_over_hosts() -> Refused:
    """The error for a way back in a job over hosts."""
    return Refused("there is no way back in time: the job runs over several hosts")

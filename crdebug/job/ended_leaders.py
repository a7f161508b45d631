"""Refuse operations on ranks whose main thread has ended while others live."""

from __future__ import annotations

from crdebug.base.errors import Refused
from crdebug.base.ranks import RankSet
from crdebug.node.leaderless import leader_has_ended


def _refuse(pid: int, rank: int, what: str, hint: str) -> None:
    """Raises Refused if the rank's main thread has ended while others live."""
    if leader_has_ended(pid):
        raise Refused(
            f"its main thread has ended (pthread_exit), and {what}",
            ranks=RankSet.of([rank]),
            hint=hint,
        )


def refuse_undumpable(pid: int, rank: int) -> None:
    """Raises Refused if the CRS cannot dump the rank (CRIU: "Zombies with threads are not
    supported")."""
    hint = "take checkpoints before main leaves its other threads behind"
    _refuse(pid, rank, "CRIU cannot dump such a process", hint)


def refuse_unattachable(pid: int, rank: int) -> None:
    """Raises Refused if GDB cannot attach to the rank: GDB begins with the main thread."""
    hint = "start the job under the debugger: 'crdebug run'"
    _refuse(pid, rank, "GDB cannot attach to such a process", hint)

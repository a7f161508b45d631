"""Jobs and checkpoints as the command line shows them: for people, and for programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from crdebug.ui.render import moment
from crdebug.ui.tables import table

if TYPE_CHECKING:
    from crdebug.checkpoint.store import Checkpoint
    from crdebug.detached.jobs import JobInfo


def job_table(jobs: Iterable[JobInfo]) -> str:
    """Jobs as a table; below it, what opens those that are held."""
    jobs = tuple(jobs)
    headers = ("job", "state", "ranks", "incarnation", "checkpoints", "pid", "started", "command")
    rows = [
        (
            each.name,
            each.state if each.status is None else f"{each.state} ({each.status})",
            str(each.ranks),
            str(each.incarnation),
            str(each.checkpoints),
            str(each.pid),
            moment(each.started),
            shlex.join(each.argv),
        )
        for each in jobs
    ]
    held = [each.name for each in jobs if each.state == "held"]
    hints = [
        f"job {name} waits for a debugger that is not there: "
        f"'crdebug attach {name}' or 'crdebug release {name}' lets it go on"
        for name in held
    ]
    return "\n".join([table(headers, rows), *hints]) if rows else "there are no jobs"


def jobs_json(jobs: Iterable[JobInfo]) -> str:
    """Jobs as a JSON list; the keys are JobInfo's fields."""
    return json.dumps([asdict(each) for each in jobs], indent=2)


def checkpoints_json(checkpoints: Iterable[Checkpoint]) -> str:
    """Checkpoints as a JSON list; the keys are Checkpoint's fields, and the handle."""
    return json.dumps([_checkpoint(each) for each in checkpoints], indent=2)


def checkpoint_json(checkpoint: Checkpoint) -> str:
    """One checkpoint as a JSON object."""
    return json.dumps(_checkpoint(checkpoint), indent=2)


def _checkpoint(checkpoint: Checkpoint) -> dict[str, object]:
    return {"handle": checkpoint.handle, **asdict(checkpoint)}

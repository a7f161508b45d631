"""Jobs and checkpoints, with or without a session: for people, and for programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from crdebug.base.answers import classes
from crdebug.ui.printable import printable
from crdebug.ui.tables import table

if TYPE_CHECKING:
    from crdebug.detached.jobs import JobInfo
    from crdebug.session.values import Checkpoint


def job_table(jobs: Iterable[JobInfo]) -> str:
    """Jobs as a table; below it, how to release those that are held."""
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
        f"job {name} is held, and no debugger is attached: "
        f"'crdebug attach {name}' or 'crdebug release {name}' lets it go on"
        for name in held
    ]
    return "\n".join([table(headers, rows), *hints]) if rows else "there are no jobs"


def size(count: int) -> str:
    """A number of bytes for people."""
    from rich.filesize import decimal

    return decimal(count)


def moment(time: float) -> str:
    """A time since 1970 as local date and time."""
    return datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M:%S")


def checkpoint_taken(checkpoint: Checkpoint) -> str:
    """The sentence for a new checkpoint."""
    since = f", changed since {checkpoint.bases[0]}" if checkpoint.bases else ""
    return f"checkpoint {checkpoint.handle} taken ({size(checkpoint.size)}{since})"


def checkpoint_table(
    checkpoints: tuple[Checkpoint, ...], width: int = 0, *, long: bool = False
) -> str:
    """Checkpoints as a table; below it, why some are unusable. long: with their times."""
    if not checkpoints:
        return "there are no checkpoints"
    staged = any("staged" in each.places for each in checkpoints)
    place = ("place",) if staged else ()
    built = any(each.bases for each in checkpoints)
    on = ("on",) if built else ()
    times = ("stopped for", "safe after") if long else ()
    headers = ("checkpoint", "taken", *times, "size", *on, "incarnation", "debugger", *place)
    rows = (
        (
            each.handle,
            moment(each.time),
            *((_seconds(each.paused), _seconds(each.latency)) if long else ()),
            size(each.size),
            *((str(each.bases[0]) if each.bases else "",) if built else ()),
            "-" if each.problem else str(each.incarnation),
            "-" if each.problem else "yes" if each.debugger else "no",
            *((", ".join(each.places),) if staged else ()),
            "cannot be restarted" if each.problem else _taken_at(each.locations),
            each.note,
        )
        for each in checkpoints
    )
    why = (f"{each.handle}: {each.problem}" for each in checkpoints if each.problem)
    return printable("\n".join((table((*headers, "where", "note"), rows, width), *why)))


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value else "-"


def _taken_at(locations: tuple[str, ...]) -> str:
    known = classes((rank, place) for rank, place in enumerate(locations) if place)
    if not known:
        return ""
    ranks, place = known[0]
    more = f" and {len(known) - 1} other places" if len(known) > 1 else ""
    return f"[{ranks}] {place}{more}"


def killed(job: str) -> str:
    """The sentence for a job that `kill` has ended."""
    return f"job {job} was killed; its checkpoints stay"


# ---- for programs ------------------------------------------------------------------------------


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

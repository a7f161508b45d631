"""The history as a whole: when, info timeline, timeline --html, info snapshots."""

from __future__ import annotations

from pathlib import Path

from crdebug.base.errors import BadInput, Refused
from crdebug.commands.arguments import Completes, flag, rest
from crdebug.commands.history import HISTORY, history
from crdebug.commands.registry import Call, Requires
from crdebug.commands.results import Result, Snapshots, Text, Timeline, Whereabouts

HTML = flag("--html", "write a page for a browser, which needs nothing else")
FILE = rest("FILE", "where to write it", default="", completes=Completes.FILE)


@HISTORY.command(
    "when",
    """
Show where the job is in its history.

That is each rank's tick: the number of counted MPI calls that it has completed. Also shown are the
marks, the nearest checkpoint before this place, and how far back you can go. 'info timeline' shows
everything.
""",
    requires=Requires.ANY,
    ranks=True,
)
async def when(call: Call) -> Result:
    past = history(call)
    return Whereabouts(await past.overview(past.focus(call.ranks)), call.ranks)


@HISTORY.command(
    "info timeline",
    """
Show the history, a line for each rank.

On it are the checkpoints, the marks, and where the job is; below, the calls that ranks are in and
that have not returned. Checkpoints that crdebug takes by itself are a1, a2, ...; see 'help set'.
""",
    requires=Requires.ANY,
)
async def info_timeline(call: Call) -> Result:
    past = history(call)
    seen = await past.overview(past.focus(call.ranks))
    return Timeline(seen, tuple(await past.survey.calls()))


@HISTORY.command(
    "info snapshots",
    """
Show the snapshots of the job in memory, oldest first, and their cost.

They are taken while the job runs, as often as 'set snapshot-cost' allows, and on ways back. A
snapshot's memory is the part that only it holds. It is frozen if it is a clone of the ranks, which
shares their memory until they change it, else copied.
""",
    requires=Requires.ANY,
    ranks=True,
)
async def info_snapshots(call: Call) -> Result:
    past = history(call)
    stock = await past.stock()
    marks = tuple((name, mark.cut) for name, mark in past.marks.items())
    return Snapshots(past.focus(call.ranks), stock, marks)


@HISTORY.command(
    "timeline",
    """
Show the history; with --html FILE, write it as a page for a browser.

The page has each rank's calls with their source lines, messages as arrows, collective operations,
checkpoints, marks, and where the job is. An existing file is overwritten only if it is such a page.
""",
    arguments=(HTML, FILE),
    requires=Requires.ANY,
)
async def timeline(call: Call) -> Result:
    if not call[HTML]:
        if call[FILE]:
            raise BadInput(
                "a file needs --html", hint=f"to write a page: timeline --html {call[FILE]}"
            )
        return await info_timeline(call)
    if not call[FILE]:
        raise BadInput("FILE is missing", hint="usage: timeline --html FILE")
    if call.context.session.running:
        raise Refused("the job runs", hint="'interrupt' stops it")
    past = history(call)
    path = Path(call[FILE]).expanduser()
    await past.survey.save(await past.overview(past.focus(call.ranks)), path)
    return Text(f"the timeline is in {path}: open it in a browser")

"""The commands that crdebug has."""

from __future__ import annotations

import crdebug.commands.branches
import crdebug.commands.charts
import crdebug.commands.displays
import crdebug.commands.python
import crdebug.commands.requests
import crdebug.commands.stacks
import crdebug.commands.tables
import crdebug.commands.timeline
import crdebug.commands.traces
import crdebug.commands.verify
import crdebug.commands.why  # noqa: F401 - declare more of groups
from crdebug.commands.breakpoints import BREAKPOINTS
from crdebug.commands.checkpoints import CHECKPOINTS
from crdebug.commands.gdb_commands import LOOKING
from crdebug.commands.help import HELP
from crdebug.commands.history import HISTORY
from crdebug.commands.job import JOB
from crdebug.commands.looking import DATA
from crdebug.commands.registry import Registry
from crdebug.commands.running import RUNNING
from crdebug.commands.sets import SETS
from crdebug.commands.settings import GROUP as SETTINGS


def standard() -> Registry:
    """A registry of all commands."""
    return Registry(
        (RUNNING, DATA, SETS, LOOKING, BREAKPOINTS, CHECKPOINTS, HISTORY, JOB, SETTINGS, HELP)
    )

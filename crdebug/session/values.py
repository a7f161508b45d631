"""The types that a session's verbs take and return, from the packages below. `commands` and `ui`
import them from here."""

from crdebug.checkpoint.store import Checkpoint
from crdebug.debugger.breakpoints import Breakpoint
from crdebug.debugger.frames import Stack, agreed
from crdebug.debugger.group import HostInfo, RankInfo
from crdebug.debugger.stacktree import Branch, StackTree
from crdebug.debugger.target import Frame, PointKind, ThreadInfo
from crdebug.debugger.traces import Traced
from crdebug.timeline.requests import Communicator
from crdebug.travel.auto_checkpoints import EVERY, Bound
from crdebug.travel.branching import Compared
from crdebug.travel.goto_partner import OnTheWay
from crdebug.travel.history import History
from crdebug.travel.memory_snapshots import Stock
from crdebug.travel.moment import Moment
from crdebug.travel.overview import Overview
from crdebug.travel.snapshot_cost import BUDGET
from crdebug.travel.verify import Verified

__all__ = [
    "BUDGET",
    "EVERY",
    "Bound",
    "Branch",
    "Breakpoint",
    "Checkpoint",
    "Communicator",
    "Compared",
    "Frame",
    "History",
    "HostInfo",
    "Moment",
    "OnTheWay",
    "Overview",
    "PointKind",
    "RankInfo",
    "Stack",
    "StackTree",
    "Stock",
    "ThreadInfo",
    "Traced",
    "Verified",
    "agreed",
]

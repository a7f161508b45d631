"""A session: one debugger on one job, and its verbs."""

from crdebug.job.over_hosts import Named
from crdebug.session.session import Session, checkpoint_once

__all__ = ["Named", "Session", "checkpoint_once"]

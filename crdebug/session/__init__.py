"""A session: one debugger on one job, and its verbs."""

from crdebug.session.session import Session, checkpoint_once

__all__ = ["Session", "checkpoint_once"]

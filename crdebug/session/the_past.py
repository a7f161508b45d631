"""A session's history, where it has one."""

from __future__ import annotations

from crdebug.base.answers import Answers
from crdebug.travel.history import History


def past(history: History | None) -> History:
    """The history of a job that crdebug started: such a job has one."""
    assert history is not None
    return history


async def heard(history: History | None, line: str, answers: Answers[str]) -> Answers[str]:
    """The answers to a line that was typed for GDB. The history, if any, takes note of it."""
    if history is not None:
        await history.typed(line, answers)
    return answers

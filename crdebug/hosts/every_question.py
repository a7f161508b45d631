"""Imports every module that registers questions, so that an agent knows all of them."""

from crdebug.debugger import (
    arrays,
    completion,
    frames,
    moving,
    python,
    rank_commands,
    run,
    step_ends,
    threads,
    traces,
    variables,
    verbs,
)

__all__ = [
    "arrays",
    "completion",
    "frames",
    "moving",
    "python",
    "rank_commands",
    "run",
    "step_ends",
    "threads",
    "traces",
    "variables",
    "verbs",
]

"""Fixtures of several test files of this tier, which are only imported here; see [tool.mypy]."""

from past import open_past, past, past_processes  # noqa: F401
from processes import launch, program, spawn  # noqa: F401

from harness.leaks import no_leaks  # noqa: F401

"""Fixtures of several test files of this tier; only imported here, see [tool.mypy]."""

from fake_rank import attached, rank  # noqa: F401

"""Reverse execution by steps; loaded on first use."""

from . import commands, meet

__all__ = ["commands", "meet"]

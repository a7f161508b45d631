"""Reverse execution by steps; loaded when it is first needed."""

from . import commands, meet

__all__ = ["commands", "meet"]

"""Helpers for the tests of all tiers: programs under test, launching them, looking at processes
from outside, and checking that a test leaves nothing.

`tests/` is on the import path (its conftest.py puts it there), so a test says ``from
harness.programs import build``.
"""

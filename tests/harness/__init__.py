"""What the tests of all tiers share: programs under test, launching them, looking at processes from
outside, and looking for what a test left behind.

`tests/` is on the import path (its conftest.py puts it there), so a test says
``from harness.programs import build``.
"""

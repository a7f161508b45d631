"""A rank's GDB stops it where it is about to end, whatever it has executed and loaded before."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.programs import build

SCRIPTS = Path(__file__).parents[2] / "gdbscripts"


@pytest.mark.parametrize("flags", [("-pie", "-fPIE"), ("-no-pie", "-fno-pie")])
@pytest.mark.parametrize("through", [(), ("/bin/sh", "-c", 'exec "$0"')])
def test_after_libraries_and_other_programs(
    flags: tuple[str, ...], through: tuple[str, ...]
) -> None:
    program = str(build("executes", compiler="gcc", flags=flags))
    gdb = ["gdb", "-q", "-nx", "-batch", "-ex", f"source {SCRIPTS}/rank_gdb.py"]
    looks = ["-ex", "run", "-ex", "print $_siginfo.si_signo", "-ex", "kill"]
    argv = [*gdb, *looks, "--args", *through, program]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert "crdebug-ending exit(3), from main at" in ran.stdout, ran
    assert "$1 = 5" in ran.stdout, ran  # SIGTRAP: it stands there
    assert "Exception" not in ran.stderr, ran
    assert "Cannot" not in ran.stderr, ran

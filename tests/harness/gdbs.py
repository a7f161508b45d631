"""The GDBs that are here: the usual one, and a newer one if crdebug setup --gdb has put it
below $CRDEBUG_DATA/gdb."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.settings import Settings, data_home
from crdebug.native.build import build

NEWER = data_home() / "gdb" / "bin" / "gdb"
GDBS = ("usual", "newer")


def use_gdb(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on it is the one in PATH. The test is skipped, in words, where it is not there."""
    if which == "newer":
        if not NEWER.exists():
            pytest.skip(f"there is no newer GDB here: {NEWER} (crdebug setup --gdb)")
        monkeypatch.setenv("PATH", f"{NEWER.parent}:{os.environ['PATH']}")


async def preload() -> Path:
    """The library that crdebug has its GDBs load."""
    return (await build(Settings().compiler, Deadline(120.0))).xstate

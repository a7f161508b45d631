"""The clocks of ranks, from outside."""

from __future__ import annotations

import mmap
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from crdebug.base.errors import CrdebugError
from crdebug.job import clocks
from crdebug.job.waitpoint import WaitpointHold
from crdebug.node import proc

pytestmark = pytest.mark.unit


def test_of_a_rank_that_is_gone_there_is_a_clock_that_says_so() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (clock,) = clocks.find([cast(WaitpointHold, SimpleNamespace(rank=3, pid=gone.pid))], "/pmpi.so")
    assert clock.rank == 3
    for look in (clock.read, lambda: clock.set_stop(clocks.NEVER)):
        with pytest.raises(ProcessLookupError) as error:
            look()
        # whoever did not expect it says it in words
        assert isinstance(error.value, CrdebugError)
        assert str(error.value).startswith("rank 3: it has ended")


def test_a_rank_that_is_ending_has_no_memory_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last thread has given it up, and its file was open, a read has no bytes."""
    monkeypatch.setattr(proc, "read_memory", lambda pid, address, size: b"")
    with pytest.raises(clocks.RankGone):
        clocks.RankClock(3, 1, 0x1000, 0).read()


def test_logs_that_are_overwritten_stay_the_files_that_ranks_have_mapped(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for place, text in (
        (run, b"what was recorded here, and is longer"),
        (other, b"another"),
    ):
        (place / "time").mkdir(parents=True)
        for rank in ("0", "1"):
            (place / "time" / rank).write_bytes(text)
    (run / "time" / "kept").touch()
    with open(run / "time" / "0", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        clocks.overwrite(run, other)
        assert mapped[: len(b"another")] == b"another"
    assert sorted(path.name for path in (run / "time").iterdir()) == ["0", "1"]
    assert (run / "time" / "1").read_bytes() == b"another"

"""The logs of a job, read together."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from rank_log import LogWriter

from crdebug.base.errors import NotAvailable, Refused
from crdebug.base.ranks import RankSet
from crdebug.timeline.recorded import Recorded
from harness.matcher import library

pytestmark = pytest.mark.unit


def logs(directory: Path) -> list[Path]:
    """Of three ranks, each with a call."""
    paths = [directory / str(rank) for rank in range(3)]
    for rank, path in enumerate(paths):
        LogWriter(path, rank, world=3).call("MPI_Barrier")
    return paths


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(8)  # rank, world
        file.write(b"\xff" * 8)


@pytest.mark.parametrize("which", [{0}, {1}, {2}, {0, 2}], ids=str)
def test_a_damaged_log_is_left_out_and_named(which: set[int], tmp_path: Path) -> None:
    paths = logs(tmp_path)
    for rank in which:
        damage(paths[rank])
    with pytest.raises(NotAvailable, match=f"rank {min(which)}: .* is damaged: its header"):
        Recorded(library()).read(paths)
    found = Recorded(library())
    errors = found.read_sound(paths, room=math.inf)
    assert found.logs.keys() == {0, 1, 2} - which
    assert all(len(log.calls) == 1 for log in found.logs.values())
    assert [each.ranks for each in errors] == [RankSet.of([rank]) for rank in sorted(which)]


def test_without_memory_for_it_it_is_not_read(tmp_path: Path) -> None:
    paths = logs(tmp_path)
    with pytest.raises(Refused, match="too long for this machine: 3 records are not read yet"):
        Recorded(library()).read_sound(paths, room=0)

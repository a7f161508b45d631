"""The memory that new processes can use, where a control group limits it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.node import memory

pytestmark = pytest.mark.unit

MACHINE = 8000 << 10
V1_NONE = 0x7FFFFFFFFFFFF000


def group(place: Path, version: int, limit: object, used: int, cached: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    (place / names[0]).write_text(f"{limit}\n")
    (place / names[1]).write_text(f"{used}\n")
    (place / "memory.stat").write_text(f"anon 5\n{names[2]} {cached}\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8000 KiB, and this process in a group of both versions."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    told = "7:cpu,memory:/job/step\n3:pids:/\n0::/slice/job\n"
    (tmp_path / "proc" / "self" / "cgroup").write_text(told)
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "groups")
    return tmp_path / "groups"


def test_without_groups_it_is_the_machine_s(groups: Path) -> None:
    assert memory.available() == MACHINE


def test_groups_without_a_limit_change_nothing(groups: Path) -> None:
    group(groups / "slice" / "job", 2, "max", 100, 0)
    group(groups / "memory" / "job" / "step", 1, V1_NONE, 100, 0)
    assert memory.available() == MACHINE


@pytest.mark.parametrize("place", ["slice/job", "slice"])
def test_the_innermost_group_or_one_around_it_limits_it(groups: Path, place: str) -> None:
    group(groups / place, 2, 5000, 3000, 700)
    assert memory.available() == 2700
    group(groups / place, 2, 5000, 6000, 0)
    assert memory.available() == 0


def test_so_does_one_of_version_1(groups: Path) -> None:
    group(groups / "memory" / "job" / "step", 1, 9000, 3000, 10)
    assert memory.available() == 6010

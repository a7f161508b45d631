"""Source lines below the places where ranks stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crdebug.base.events import GroupStopped, Location, RankStopped, StopReason
from crdebug.debugger.group import RankInfo
from crdebug.ui.render import places
from crdebug.ui.source import read_line
from crdebug.ui.stops import describe

pytestmark = pytest.mark.unit

SOURCE = "int main(void) {\n\tint x = 1;  \n  return x;\n}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a b.c"
    path.write_text(SOURCE)
    return path


def at(line: int, path: object, function: str = "main", address: int = 0x10) -> Location:
    """The name that the compiler was given is relative to a directory that is not ours."""
    return Location(address, function, "../a b.c", line, str(path))


def stopped(rank: int, where: Location | None, reason: StopReason) -> RankStopped:
    return RankStopped(rank, reason, "1" if reason is StopReason.BREAKPOINT else "", 1, where)


def told(*stops: RankStopped) -> list[str]:
    cause = tuple(each for each in stops if each.reason is not StopReason.FOLLOWED)
    return list(describe(GroupStopped(cause, stops)))


def test_each_place_has_its_line_once(file: Path) -> None:
    assert told(
        stopped(0, at(2, file, address=1), StopReason.BREAKPOINT),
        stopped(1, at(2, file, address=2), StopReason.BREAKPOINT),
        stopped(2, at(3, file), StopReason.FOLLOWED),
        stopped(3, at(3, file), StopReason.FOLLOWED),
        stopped(4, at(2, file), StopReason.FOLLOWED),
        stopped(5, Location(0x7F00, "poll"), StopReason.FOLLOWED),
    ) == [
        "ranks 0-1 hit breakpoint 1: main at ../a b.c:2; ranks 2-5 were stopped too",
        "2\t\tint x = 1;",
        "  [2-3] main at ../a b.c:3",
        "  3\t  return x;",
        "  [4] main at ../a b.c:2",
        "  [5] poll",
    ]


@pytest.mark.parametrize(
    "reason", [each for each in StopReason if each not in (StopReason.EXITED, StopReason.KILLED)]
)
def test_every_kind_of_stop_shows_it(file: Path, reason: StopReason) -> None:
    stop = stopped(0, at(3, file), reason)
    assert list(describe(GroupStopped((stop,), (stop,))))[1:] == ["3\t  return x;"]


def test_a_rank_that_has_ended_is_nowhere() -> None:
    assert told(stopped(0, None, StopReason.EXITED)) == ["rank 0 exited with status 0"]


def test_the_positions_of_ranks_after_the_start_and_a_restart(file: Path) -> None:
    ranks = [RankInfo(n, "here", "a", 100 + n, "stopped", at(1, file)) for n in range(3)]
    ranks.append(RankInfo(3, "here", "a", None, "exited", None))
    assert list(places(ranks)) == [
        "  [0-2] main at ../a b.c:1",
        "  1\tint main(void) {",
        "  [3] exited",
    ]


def test_a_source_that_is_not_here_is_not_shown(tmp_path: Path, file: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for where in (
        at(2, tmp_path / "gone.c"),
        at(2, file / "below"),
        at(2, tmp_path),
        at(2, fifo),
        at(2, "\0"),
        at(2, ""),
        at(0, file),
        at(5, file),
    ):
        line = f"rank 0 hit breakpoint 1: main at ../a b.c:{where.line}"
        assert told(stopped(0, where, StopReason.BREAKPOINT)) == [line]


def test_the_file_is_read_as_it_is_now(file: Path) -> None:
    assert read_line(str(file), 1) == "int main(void) {"
    file.write_text("changed\n")
    assert read_line(str(file), 1) == "changed"
    assert read_line(str(file), 2) is None


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b"/* Gr\xfc\xdfe */\r\n", "/* Gr\\xfc\\xdfe */"),
        ("/* Grüße */\n".encode(), "/* Grüße */"),
        (b"a\x1b[2Jb\x0c\x00\tc\n", "a[2Jb\tc"),
        (b"a\rb\n", "ab"),
        (b"\n", ""),
    ],
)
def test_no_text_can_disturb_the_terminal(tmp_path: Path, written: bytes, text: str) -> None:
    path = tmp_path / "odd.c"
    path.write_bytes(written + b"next\n")
    assert read_line(str(path), 1) == text

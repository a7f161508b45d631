"""Copies of files that are made while the job runs, and updated when it is stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from crdebug.checkpoint import open_files
from crdebug.checkpoint.open_files import SavedFile, copy_ahead, save

SIZE = (3 << 20) + 17


def nothing(_file: Path) -> None:
    """It is as it was."""


def overwrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(2 << 20)
        opened.write(b"changed")


def grow(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more" * 1000)


def shrink(file: Path) -> None:
    os.truncate(file, 1 << 19)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(open_files, "_LARGE", 1 << 20)
    monkeypatch.setattr(open_files, "_clone", lambda source, target: False)
    file = tmp_path / "table"
    file.write_bytes(os.urandom(SIZE))
    return file


@pytest.mark.parametrize("change", [nothing, overwrite, grow, shrink])
def test_a_copy_made_ahead_is_brought_up_to_date(
    tmp_path: Path, file: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = SavedFile(str(file), SIZE, "0")
    ahead = copy_ahead([saved], tmp_path / "files")
    assert [*ahead] == [str(file)]
    change(file)
    # what is copied only now would be no gain
    monkeypatch.setattr(
        open_files, "_copy", lambda *arguments: pytest.fail("it is copied once more")
    )
    save([saved], tmp_path / "files", ahead)
    assert (tmp_path / "files" / "0").read_bytes() == file.read_bytes()
    assert os.listdir(tmp_path / "files") == ["0"]


def test_what_is_not_open_any_more_leaves_nothing(tmp_path: Path, file: Path) -> None:
    ahead = copy_ahead([SavedFile(str(file), SIZE, "0")], tmp_path / "files")
    save([], tmp_path / "files", ahead)
    assert not os.listdir(tmp_path / "files")


def test_what_gains_nothing_is_not_copied_ahead(tmp_path: Path, file: Path) -> None:
    grown = SavedFile(str(file), SIZE)
    small, holes = tmp_path / "small", tmp_path / "holes"
    small.write_bytes(b"few")
    holes.touch()
    os.truncate(holes, 1 << 30)
    others = [SavedFile(str(each), 0, str(at)) for at, each in enumerate((small, holes))]
    gone = SavedFile(str(tmp_path / "gone"), 0, "5")
    assert not copy_ahead([grown, *others, gone], tmp_path / "files")
    assert not os.listdir(tmp_path / "files")


def test_where_blocks_are_shared_nothing_is_copied_ahead(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "_clone", lambda source, target: True)
    assert not copy_ahead([SavedFile(str(file), SIZE, "0")], tmp_path / "files")
    assert not os.listdir(tmp_path / "files")

"""Files that the job has open for writing go back with it, and can be put forward again."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crdebug.checkpoint import files
from crdebug.checkpoint.files import RollBack, SavedFile, find_open_files, save
from crdebug.errors import StoreError

pytestmark = pytest.mark.unit

THEN = {"log": b"1\n2\n", "table": b"abcdef", "gone": b"kept", "empty": b""}
NOW = {"log": b"1\n2\n3\n4\n", "table": b"ABCDEFGHI", "empty": b"more"}


class World:
    """Files of a job at a checkpoint, and later on."""

    def __init__(self, tmp_path: Path) -> None:
        self.here = tmp_path / "data"
        self.source, self.undo = tmp_path / "saved", tmp_path / "undo"
        self.here.mkdir()
        self.put(THEN)
        self.saved = (
            SavedFile(str(self.here / "log"), 4),
            SavedFile(str(self.here / "table"), 6, "1"),
            SavedFile(str(self.here / "gone"), 4, "2"),
            SavedFile(str(self.here / "empty"), 0),
        )
        self.saved = save(self.saved, self.source)
        self.put(NOW)
        (self.here / "gone").unlink()

    def put(self, contents: dict[str, bytes]) -> None:
        for name, data in contents.items():
            (self.here / name).write_bytes(data)

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.here.iterdir()}

    def roll_back(self, extra: tuple[SavedFile, ...] = ()) -> RollBack:
        return RollBack((*self.saved, *extra), self.source, self.undo)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_apply_brings_back_what_was_and_undo_what_is(world: World) -> None:
    rollback = world.roll_back()
    for _ in range(2):
        rollback.apply()
        assert world.contents() == THEN
        rollback.undo()
        assert world.contents() == NOW
        assert not world.undo.exists()


def test_undo_without_apply_and_twice_changes_nothing(world: World) -> None:
    rollback = world.roll_back()
    rollback.undo()
    assert world.contents() == NOW
    rollback.apply()
    rollback.undo()
    world.put({"log": b"5"})
    rollback.undo()
    assert world.contents() == {**NOW, "log": b"5"}


def test_a_file_keeps_its_inode_and_owner_and_in_the_end_its_mode(world: World) -> None:
    for name in NOW:
        (world.here / name).chmod(0o640)
    before = {name: (world.here / name).stat() for name in NOW}
    rollback = world.roll_back()
    rollback.apply()
    rollback.undo()
    for name, was in before.items():
        now = (world.here / name).stat()
        assert (now.st_ino, now.st_mode, now.st_uid) == (was.st_ino, was.st_mode, was.st_uid)
        assert stat.S_IMODE(now.st_mode) == 0o640


def test_whoever_has_the_file_open_sees_the_roll_back(world: World) -> None:
    with open(world.here / "table", "rb") as reader:
        world.roll_back().apply()
        assert reader.read() == THEN["table"]


def test_a_directory_that_was_removed_is_made_again(world: World) -> None:
    lost = SavedFile(str(world.here / "a" / "b" / "c"), 6, "1")
    rollback = RollBack([lost], world.source, world.undo)
    rollback.apply()
    assert Path(lost.path).read_bytes() == THEN["table"]
    rollback.undo()
    assert not Path(lost.path).exists()


@pytest.mark.parametrize(
    ("now", "words"),
    [(b"123", "has 3 bytes"), (b"", "has 0 bytes"), (None, "is missing")],
)
def test_a_file_that_only_grew_and_is_shorter_now_is_refused_and_nothing_changed(
    world: World, now: bytes | None, words: str
) -> None:
    late = world.here / "zlog"
    if now is not None:
        late.write_bytes(now)
    before = world.contents()
    with pytest.raises(StoreError) as caught:
        world.roll_back((SavedFile(str(late), 4),)).apply()
    assert str(caught.value) == (
        f"{late} {words}, and had 4 bytes at the checkpoint "
        "(put the file back, or restart from another checkpoint)"
    )
    assert world.contents() == before


def test_a_file_that_only_grew_and_was_written_anew_is_refused(world: World) -> None:
    world.put({"log": b"one\ntwo\nthree\n"})
    before = world.contents()
    with pytest.raises(StoreError, match="log was written anew since the checkpoint"):
        world.roll_back().apply()
    assert world.contents() == before


def test_a_roll_back_that_was_broken_off_is_undone_by_the_next(world: World) -> None:
    """Also when we died in the middle of a file, or of a line of the journal."""
    world.roll_back().apply()  # and nothing after that
    world.put({"table": b"ab"})
    with open(world.undo / "journal", "ab") as journal:
        journal.write(b'{"file":{"path"')
    world.roll_back().recover()
    assert world.contents() == NOW
    assert not world.undo.exists()
    world.roll_back().recover()
    assert world.contents() == NOW


def test_what_cannot_be_put_back_is_kept_and_named_and_the_rest_is_put_back(world: World) -> None:
    rollback = world.roll_back()
    rollback.apply()
    (world.here / "table").unlink()
    (world.here / "table").mkdir()
    with pytest.raises(StoreError) as caught:
        rollback.undo()
    kept = world.undo / "1"
    assert str(caught.value) == (
        f"cannot put back {world.here / 'table'}: Is a directory; what it held is in {kept}"
    )
    assert kept.read_bytes() == NOW["table"]
    (world.here / "table").rmdir()
    assert world.contents() == {name: NOW[name] for name in ("log", "empty")}
    rollback.undo()
    assert world.contents() == NOW


def test_a_file_gets_the_mode_that_it_had(world: World) -> None:
    """The CRS refuses one that has another."""

    def modes() -> dict[str, int]:
        return {path.name: stat.S_IMODE(path.stat().st_mode) for path in world.here.iterdir()}

    world.saved = tuple(replace(each, mode=0o666) for each in world.saved)
    before = modes()
    rollback = world.roll_back()
    rollback.apply()
    assert modes() == dict.fromkeys(THEN, 0o666)
    rollback.undo()
    assert modes() == before


def test_holes_stay_holes_both_ways(tmp_path: Path) -> None:
    here, source, undo = (tmp_path / name for name in ("file", "saved", "undo"))

    def write(head: bytes, tail: bytes) -> tuple[bytes, int]:
        with open(here, "wb") as file:
            file.write(head)
            file.seek(64 << 20)
            file.write(tail)
        return here.read_bytes(), here.stat().st_blocks

    then = write(b"a", b"b")
    saved = save([SavedFile(str(here), len(then[0]), "0")], source)
    now = write(b"x" * 10000, b"y" * 10000)
    rollback = RollBack(saved, source, undo)
    rollback.apply()
    assert (here.read_bytes(), here.stat().st_blocks) == then
    assert (source / "0").stat().st_blocks == then[1] < 100
    rollback.undo()
    assert (here.read_bytes(), here.stat().st_blocks) == now


# Every call that changes something on the disk, or reads what is to be put there.
CALLS: dict[str, tuple[object, int]] = {
    "truncate": (os, 2),  # the two that only grew
    "ftruncate": (os, 10),  # two for each copy: three that are kept, two that are put back
    "pwrite": (os, 5),
    "pread": (os, 7),  # and two to see whether it is the same file
    "mkdir": (Path, 3),
}
FAULTS = [(call, number) for call, (_, most) in CALLS.items() for number in range(1, most + 1)]


def _fail(
    monkeypatch: pytest.MonkeyPatch, call: str, number: int, error: BaseException
) -> Callable[[], int]:
    owner, _ = CALLS[call]
    real, calls = getattr(owner, call), []

    def count(*arguments: object, **options: object) -> object:
        calls.append(call)
        if len(calls) == number:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(owner, call, count)
    return lambda: len(calls)


@pytest.mark.parametrize(("call", "number"), FAULTS)
def test_a_failure_anywhere_in_the_middle_leaves_everything_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        calls = _fail(patch, call, number, full)
        with pytest.raises(StoreError, match=r"cannot roll back .*: No space left on device"):
            world.roll_back().apply()
    assert calls() >= number
    assert world.contents() == NOW


@pytest.mark.parametrize("call", CALLS)
def test_the_faults_are_swept_to_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    calls = _fail(monkeypatch, call, 0, AssertionError())
    world.roll_back().apply()
    assert calls() == CALLS[call][1]


def test_a_saved_copy_that_is_missing_is_one_sentence(world: World) -> None:
    (world.source / "2").unlink()
    before = world.contents()
    with pytest.raises(StoreError, match=r"cannot roll back .*/gone: No such file or directory"):
        world.roll_back().apply()
    assert world.contents() == before


def test_a_file_that_cannot_be_saved_is_one_sentence(tmp_path: Path) -> None:
    missing = SavedFile(str(tmp_path / "x"), 1, "0")
    with pytest.raises(StoreError, match=f"cannot save {missing.path}: No such file"):
        save([missing], tmp_path / "saved")


# ---- which files -------------------------------------------------------------------------------


@contextlib.contextmanager
def mapped(path: Path, access: int) -> Iterator[None]:
    """A file that is closed, and still mapped; Python's own mmap would keep it open."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    with open(path, "r+b") as file:
        address = libc.mmap(None, 4096, access, mmap.MAP_SHARED, file.fileno(), 0)
    yield
    assert libc.munmap(address, 4096) == 0


def test_open_files_are_found_each_once_with_what_must_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_OWN", (f"{tmp_path}/own/",))
    (tmp_path / "own").mkdir()
    for name in ("grown", "both", "rewritten", "read", "own/x", "unlinked", "shared", "seen"):
        (tmp_path / name).write_bytes(b"12345")
    opened = ("grown ab", "both ab", "both r+b", "rewritten r+b", "read rb", "own/x ab")
    with contextlib.ExitStack() as stack:
        for name, mode in (each.split() for each in (*opened, "unlinked r+b")):
            stack.enter_context(open(tmp_path / name, mode))
        (tmp_path / "unlinked").unlink()
        stack.enter_context(mapped(tmp_path / "shared", mmap.PROT_READ | mmap.PROT_WRITE))
        stack.enter_context(mapped(tmp_path / "seen", mmap.PROT_READ))
        # ourselves twice, and somebody who has gone
        found = find_open_files([os.getpid(), 1 << 22, os.getpid()])
    mine = {
        Path(each.path).name: (each.size, bool(each.saved))
        for each in found
        if each.path.startswith(str(tmp_path))
    }
    kept = dict.fromkeys(("both", "rewritten", "shared"), (5, True))
    assert mine == {"grown": (5, False), **kept}
    copies = [each.saved for each in found if each.saved]
    assert len(copies) == len(set(copies))

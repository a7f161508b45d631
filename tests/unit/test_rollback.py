"""Files that the job has open for writing go back with it, once a restart is final, not before."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import mmap
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import StoreError
from crdebug.base.settings import Settings
from crdebug.checkpoint import open_files
from crdebug.checkpoint.commit import Plan
from crdebug.checkpoint.open_files import RollBack, SavedFile, find_open_files, save
from crdebug.native.build import build
from crdebug.node import container, proc

pytestmark = pytest.mark.unit

THEN = {"log": b"1\n2\n", "table": b"abcdef", "gone": b"kept", "empty": b""}
NOW = {"log": b"1\n2\n3\n4\n", "table": b"ABCDEFGHI", "empty": b"more"}


class World:
    """Files of a job at a checkpoint, and later on; and processes that make a restart final."""

    def __init__(self, tmp_path: Path, starter: Path) -> None:
        self.tmp, self.starter = tmp_path, starter
        self.here, self.source, self.made = (tmp_path / name for name in ("data", "saved", "made"))
        self.here.mkdir()
        self.put(THEN)
        files = (
            SavedFile(str(self.here / "log"), 4),
            SavedFile(str(self.here / "table"), 6, "1"),
            SavedFile(str(self.here / "gone"), 4, "2"),
            SavedFile(str(self.here / "empty"), 0),
        )
        self.saved = save(files, self.source)
        self.put(NOW)
        (self.here / "gone").unlink()

    def put(self, contents: dict[str, bytes]) -> None:
        for name, data in contents.items():
            (self.here / name).write_bytes(data)

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.here.iterdir()}

    def roll_back(self, extra: tuple[SavedFile, ...] = ()) -> RollBack:
        return RollBack((*self.saved, *extra), self.source, self.made)

    def carry_out(self, plan: Plan | bytes) -> str:
        """What the action script says of a plan, as the CRS's at post-restore."""
        path = self.tmp / "plan"
        if isinstance(plan, bytes):
            path.write_bytes(plan)
        else:
            plan.write(path)
        with socket.socket(socket.AF_UNIX) as server:
            with proc.short_path(self.tmp / "socket") as address:
                server.bind(address)
                server.listen()
                outside = self.tmp / "outside"
                action_script = [str(self.starter), "--crs-action", address, str(outside)]
                words = container.entering(self.starter, None, action_script, outside)
                environment = {
                    **os.environ,
                    "CRTOOLS_SCRIPT_ACTION": "post-restore",
                    "CRTOOLS_INIT_PID": "4711",
                }
                action = subprocess.Popen(words, env=environment)
                channel, _ = server.accept()
            with channel, channel.makefile("rb") as lines:
                assert lines.readline() == b"post-restore 4711\n"
                channel.sendall(b"carry out " + os.fsencode(path) + b"\n")
                told = lines.readline().decode().strip()
        (self.tmp / "socket").unlink()
        outside.unlink()
        assert (action.wait(60) == 0) == (told == "done")
        return told

    def apply(self) -> None:
        rollback = self.roll_back()
        rollback.prepare()
        assert self.carry_out(Plan(files=rollback.steps())) == "done"


@pytest.fixture(scope="module")
def starter() -> Path:
    settings = Settings()
    return asyncio.run(build(settings.compiler, Deadline(settings.launch))).starter


@pytest.fixture
def world(tmp_path: Path, starter: Path) -> World:
    return World(tmp_path, starter)


def test_nothing_that_is_there_is_touched_before_it_is_final(world: World) -> None:
    rollback = world.roll_back()
    rollback.prepare()
    assert world.contents() == {**NOW, "gone": THEN["gone"]}
    rollback.give_up()
    assert world.contents() == NOW
    assert not world.made.exists()
    world.apply()
    assert world.contents() == THEN


def test_it_can_be_done_again_from_the_start_wherever_it_was_broken_off(world: World) -> None:
    """Also in the middle of a file, and with one that grew since as if it had not been cut."""
    for half in ({"log": b"1\n2\n3"}, {"table": b""}, {"table": b"ab"}, {"empty": b""}):
        world.put(half)
        world.apply()
        assert world.contents() == THEN
        world.made.unlink(missing_ok=True)


def test_a_file_keeps_its_inode_and_owner_and_gets_the_mode_that_it_had(world: World) -> None:
    """The CRS refuses one that has another."""
    world.saved = tuple(replace(each, mode=0o666) for each in world.saved)
    before = {name: (world.here / name).stat() for name in NOW}
    world.apply()
    for name, was in before.items():
        now = (world.here / name).stat()
        assert (now.st_ino, now.st_uid) == (was.st_ino, was.st_uid)
    assert {stat.S_IMODE(path.stat().st_mode) for path in world.here.iterdir()} == {0o666}


def test_a_process_that_has_the_file_open_sees_the_rollback(world: World) -> None:
    with open(world.here / "table", "rb") as reader:
        world.apply()
        assert reader.read() == THEN["table"]


def test_a_directory_that_was_removed_is_made_again(world: World) -> None:
    lost = SavedFile(str(world.here / "a" / "b" / "c"), 6, "1")
    rollback = RollBack([lost], world.source, world.made)
    rollback.prepare()
    assert Path(lost.path).read_bytes() == THEN["table"]
    rollback.give_up()
    assert not Path(lost.path).exists()


def test_content_written_since_by_others_is_not_removed(world: World) -> None:
    """Whoever made files died before the restart was final; the job that is there runs on."""
    world.roll_back().prepare()
    (world.here / "gone").write_bytes(b"its own")
    world.roll_back().give_up()
    assert world.contents() == {**NOW, "gone": b"its own"}
    assert not world.made.exists()


def test_one_that_was_being_made_is_taken_away_whatever_it_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(open_files, "_copy", die)
        patch.setattr(RollBack, "give_up", lambda self: None)
        with pytest.raises(Killed):
            world.roll_back().prepare()
    assert world.contents() == {**NOW, "gone": b""}
    with open(world.made, "ab") as notes:
        notes.write(b'{"path"')  # it died in the middle of a line, too
    world.roll_back().give_up()
    assert world.contents() == NOW


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
        world.roll_back((SavedFile(str(late), 4),)).prepare()
    assert str(caught.value) == (
        f"{late} {words}, and had 4 bytes at the checkpoint "
        "(put the file back, or restart from another checkpoint)"
    )
    assert world.contents() == before


def test_a_file_that_only_grew_and_was_rewritten_is_refused(world: World) -> None:
    world.put({"log": b"one\ntwo\nthree\n"})
    before = world.contents()
    with pytest.raises(StoreError, match="log was rewritten since the checkpoint"):
        world.roll_back().prepare()
    assert world.contents() == before


def test_what_is_no_file_any_more_is_refused_and_nothing_changed(world: World) -> None:
    (world.here / "table").unlink()
    (world.here / "table").mkdir()
    with pytest.raises(StoreError, match=r"cannot roll back .*/table: it is no file any more"):
        world.roll_back().prepare()
    assert not (world.here / "gone").exists()


def test_too_little_room_is_refused_beforehand(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.here / "table").write_bytes(b"")
    before = world.contents()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))
    with pytest.raises(StoreError, match=r"cannot roll back .*/table: that takes \d+ KiB more"):
        world.roll_back().prepare()
    assert world.contents() == before


def test_holes_stay_holes(tmp_path: Path, world: World) -> None:
    here, source = tmp_path / "file", tmp_path / "sparse"

    def write(head: bytes, tail: bytes) -> tuple[bytes, int]:
        with open(here, "wb") as file:
            file.write(head)
            file.seek(64 << 20)
            file.write(tail)
        return here.read_bytes(), here.stat().st_blocks

    then = write(b"a", b"b")
    saved = save([SavedFile(str(here), len(then[0]), "0")], source)
    write(b"x" * 10000, b"y" * 10000)
    assert world.carry_out(Plan(files=RollBack(saved, source, world.made).steps())) == "done"
    assert (here.read_bytes(), here.stat().st_blocks) == then
    assert (source / "0").stat().st_blocks == then[1] < 100


def test_a_source_that_is_shortened_meanwhile_is_copied_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else writes to it: that ends all the same."""
    here = tmp_path / "shared"
    here.write_bytes(b"x" * (3 << 20))
    real = os.pread

    def shorten(file: int, size: int, at: int) -> bytes:
        if at:
            os.truncate(here, 1 << 20)
        return real(file, size, at)

    monkeypatch.setattr(open_files, "_clone", lambda source, target: False)
    monkeypatch.setattr(os, "pread", shorten)
    save([SavedFile(str(here), 3 << 20, "0")], tmp_path / "saved")
    assert (tmp_path / "saved" / "0").read_bytes() == b"x" * (1 << 20)


# ---- a failure while files are prepared ----------------------------------------------------------

# Every call that changes something on the disk, or reads content to be put there.
CALLS: dict[str, tuple[object, int]] = {
    "ftruncate": (os, 1),
    "pwrite": (os, 1),
    "pread": (os, 3),  # two to see whether it is the same file
    "fchmod": (os, 1),
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

    monkeypatch.setattr(open_files, "_clone", lambda source, target: False)  # not where it can
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
            world.roll_back().prepare()
    assert calls() >= number
    assert world.contents() == NOW
    assert not world.made.exists()


@pytest.mark.parametrize("call", CALLS)
def test_the_faults_are_swept_to_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    calls = _fail(monkeypatch, call, 0, AssertionError())
    world.roll_back().prepare()
    assert calls() == CALLS[call][1]


def test_a_saved_copy_that_is_missing_is_one_sentence(world: World) -> None:
    (world.source / "2").unlink()
    before = world.contents()
    with pytest.raises(StoreError, match=r"cannot roll back .*/gone: No such file or directory"):
        world.roll_back().prepare()
    assert world.contents() == before


def test_a_file_that_cannot_be_saved_is_one_sentence(tmp_path: Path) -> None:
    missing = SavedFile(str(tmp_path / "x"), 1, "0")
    with pytest.raises(StoreError, match=f"cannot save {missing.path}: No such file"):
        save([missing], tmp_path / "saved")


# ---- what makes it final -------------------------------------------------------------------------


def test_processes_are_ended_before_a_file_changes_and_the_record_comes_last(world: World) -> None:
    """One that writes all the time, two threads of it; nobody waits for it but the plan."""
    log = world.here / "log"
    code = (
        "import os, sys, threading\n"
        "def write():\n"
        "    with open(sys.argv[1], 'ab', buffering=0) as file:\n"
        "        while True: file.write(b'more\\n')\n"
        "threading.Thread(target=write).start()\n"
        "print('writes', flush=True)\n"
        "write()\n"
    )
    words = [sys.executable, "-IS", "-c", code, str(log)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"writes\n"
        (world.tmp / "next").write_text("new")
        plan = Plan(
            kill={writer.pid: proc.started(writer.pid)},
            files=((world.saved[0], ""),),
            rename=(world.tmp / "next", world.tmp / "record"),
        )
        assert world.carry_out(plan) == "done"
        assert log.read_bytes() == THEN["log"]
        assert (world.tmp / "record").read_text() == "new"
        assert writer.wait(60) == -signal.SIGKILL
    assert log.read_bytes() == THEN["log"]


def test_another_process_with_the_number_is_left_alone(world: World) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        wrong = Plan(kill={other.pid: proc.started(other.pid) + 1})
        assert world.carry_out(wrong) == "done"
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (b"file\0/x\0", "is not whole"),
        (b"rename\0a\0b\0", "is not whole"),
        (b"erase\0all\0end\0", "holds 'erase'"),
        (b"", "is not whole"),
    ],
)
def test_a_plan_that_is_not_whole_is_refused(world: World, plan: bytes, words: str) -> None:
    assert words in world.carry_out(plan)


def test_what_cannot_be_rolled_back_is_named_and_the_record_stays(world: World) -> None:
    (world.tmp / "record").write_text("old")
    (world.tmp / "next").write_text("new")
    missing = SavedFile(str(world.here / "gone"), 4, "2")
    plan = Plan(
        files=((missing, str(world.source / "2")),),
        rename=(world.tmp / "next", world.tmp / "record"),
    )
    told = world.carry_out(plan)
    assert told == f"cannot roll back {missing.path}: No such file or directory"
    assert (world.tmp / "record").read_text() == "old"


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


def test_open_files_are_found_once_each_with_the_content_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "_OWN", (f"{tmp_path}/own/",))
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
        # ourselves twice, and a process that has ended
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

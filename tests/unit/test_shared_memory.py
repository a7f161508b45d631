"""A container's /dev/shm is saved and put back as it was; here it is any directory."""

from __future__ import annotations

import hashlib
import mmap
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.base.errors import StoreError
from crdebug.checkpoint import shared_memory
from crdebug.checkpoint.holes import data_ranges
from crdebug.checkpoint.shared_memory import put_back, save, size_of, sweep_aside
from harness.faults import small_disk

pytestmark = pytest.mark.unit

MIB = 1 << 20
LONG_AGO = 1_234_567_890_123_456_789  # ns


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "shm" / "crdebug").mkdir(parents=True)
    (tmp_path / "shm" / "crdebug" / "starter").write_text("the job's own directory")
    return tmp_path / "shm"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    (tmp_path / "new" / "crdebug").mkdir(parents=True)
    return tmp_path / "new"


def sparse(path: Path, *parts: tuple[int, bytes], size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)
        for at, data in parts:
            file.seek(at)
            file.write(data)


def fill(root: Path) -> None:
    """One of each kind, and what may go wrong with it."""
    (root / "empty").touch()
    (root / "small").write_bytes(b"content")
    sparse(root / "vast", (0, b"a" * 5000), (1 << 40, b"b"), (3 << 38, b"c"), size=1 << 41)
    sparse(root / "hole", size=MIB)
    sparse(root / "large", (17, os.urandom(3 * MIB)), size=5 * MIB + 3)
    (root / "a name\n\u00e4").write_bytes(b"odd")
    (root / os.fsdecode(b"\xff\xfe")).write_bytes(b"no text")
    (root / "session" / "deep" / "er").mkdir(parents=True)
    (root / "session" / "deep" / "file").write_bytes(b"below")
    (root / "session" / "crdebug").mkdir()
    (root / "session" / "crdebug" / "kept").write_bytes(b"not ours")
    os.link(root / "small", root / "session" / "twin")
    os.link(root / "vast", root / "zz")
    os.symlink("small", root / "to-small")
    os.symlink("/no/such\nplace", root / "session" / "dangling")
    os.mkfifo(root / "fifo", 0o640)
    (root / ".crdebug").mkdir(mode=0o700)
    (root / ".crdebug" / "20001.0").write_bytes(b"aside")
    for name, mode in (("empty", 0o400), ("large", 0o666), ("small", 0o4711), ("session", 0o1777)):
        (root / name).chmod(mode)
    (root / "session" / "deep").chmod(0o555)
    if os.geteuid() == 0:
        os.chown(root / "small", 12, 34)
        os.chown(root / "to-small", 56, 78, follow_symlinks=False)
        (root / "small").chmod(0o6711)  # owners come first
    for path in (root / "hole", root / "session", root / "fifo", root / "to-small"):
        os.utime(path, ns=(LONG_AGO, LONG_AGO + 1), follow_symlinks=False)


def content_of(path: Path) -> str:
    """Of a file, by its parts that are data: nobody reads the whole of a vast one."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        for start, end in data_ranges(file.fileno(), path.stat().st_size):
            data = os.pread(file.fileno(), end - start, start)
            if data.strip(b"\0"):
                digest.update(f"{start}".encode() + data)
    return digest.hexdigest()


def told(root: Path) -> dict[str, tuple[object, ...]]:
    """All that a program can see of it."""
    found: dict[str, tuple[object, ...]] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if name.split("/")[0] == "crdebug":
            continue
        facts = path.lstat()
        what: tuple[object, ...] = (facts.st_mode, facts.st_uid, facts.st_gid, facts.st_mtime_ns)
        if stat.S_ISREG(facts.st_mode):
            same = sorted(
                str(each.relative_to(root))
                for each in root.rglob("*")
                if each.lstat().st_ino == facts.st_ino
            )
            what += (facts.st_size, content_of(path), *same)
        elif stat.S_ISLNK(facts.st_mode):
            what += (os.readlink(path),)
        found[name] = what
    return found


def test_each_kind_of_file_comes_back_as_it_was(root: Path, new: Path, tmp_path: Path) -> None:
    fill(root)
    before = told(root)
    assert len(before) == 20
    written = save(root, tmp_path / "saved")
    put_back(tmp_path / "saved", new)
    assert told(new) == before == told(root)
    assert os.listdir(new / "crdebug") == []
    saved = {path.name: path.stat() for path in (tmp_path / "saved").iterdir()}
    assert stat.S_IMODE((tmp_path / "saved").stat().st_mode) == 0o700
    assert written == sum(each.st_size for each in saved.values())
    assert size_of(root) <= written + 16 * 4096 < 5 * MIB  # no hole of the 2 TiB is kept
    assert (new / "vast").stat().st_blocks * 512 < MIB


def test_sockets_are_left_out_and_their_directories_are_not(
    root: Path, new: Path, tmp_path: Path
) -> None:
    (root / "of-one").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(root / "of-one" / "door"))
    save(root, tmp_path / "saved")
    put_back(tmp_path / "saved", new)
    assert os.listdir(new / "of-one") == []


def test_nothing_is_there_and_nothing_comes_back(root: Path, new: Path, tmp_path: Path) -> None:
    save(root, tmp_path / "saved")
    put_back(tmp_path / "saved", new)
    assert told(new) == {} and size_of(root) == 0


@pytest.fixture
def little(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "little", 1) as path:
        yield path


def test_a_disk_that_is_full_is_named_with_the_file(
    root: Path, little: Path, tmp_path: Path
) -> None:
    (root / "first").write_bytes(b"x")
    (root / "second").write_bytes(os.urandom(2 * MIB))
    with pytest.raises(StoreError) as refused:
        save(root, little / "saved")
    assert str(refused.value) == f"cannot save {root / 'second'}: No space left on device"
    shutil.rmtree(little / "saved")
    save(root, tmp_path / "saved")
    with pytest.raises(StoreError) as refused:
        put_back(tmp_path / "saved", little)
    assert str(refused.value) == f"cannot put back {little / 'second'}: No space left on device"


def test_a_limit_of_file_sizes_is_named_with_the_file(root: Path, tmp_path: Path) -> None:
    (root / "large").write_bytes(os.urandom(MIB))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB // 2, hard))
    try:
        with pytest.raises(StoreError, match=rf"cannot save {root}/large: File too large"):
            save(root, tmp_path / "saved")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["file", "directory", "link"])
def test_what_vanishes_meanwhile_is_left_out(
    root: Path, new: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file").write_bytes(b"1")
    (root / "directory").mkdir()
    os.symlink("file", root / "link")
    (root / "stays").write_bytes(b"2")
    found = shared_memory._found

    def vanishing(start: Path) -> Iterator[tuple[Path, os.stat_result]]:
        for path, details in found(start):
            if path.name == name:
                (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
            yield path, details

    monkeypatch.setattr(shared_memory, "_found", vanishing)
    save(root, tmp_path / "saved")
    put_back(tmp_path / "saved", new)
    gone = set() if name == "directory" else {name}  # it was there when it was found
    assert {*told(new)} == {"file", "directory", "link", "stays"} - gone


def test_a_file_that_is_shortened_meanwhile_is_saved_as_far_as_it_goes(
    root: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file").write_bytes(b"x" * MIB)
    (root / "next").write_bytes(b"next")

    def shortening(file: int, end: int) -> Iterator[tuple[int, int]]:
        for part in [*data_ranges(file, end)]:
            if end == MIB:
                os.truncate(root / "file", 4096)
            yield part

    with monkeypatch.context() as patch:
        patch.setattr(shared_memory, "data_ranges", shortening)
        save(root, tmp_path / "saved")
    put_back(tmp_path / "saved", new)
    assert (new / "file").read_bytes() == b"x" * 4096 + bytes(MIB - 4096)
    assert (new / "next").read_bytes() == b"next"


def test_what_is_damaged_says_so(root: Path, new: Path, tmp_path: Path) -> None:
    (root / "file").write_bytes(b"x" * 5000)
    save(root, tmp_path / "saved")
    os.truncate(tmp_path / "saved" / shared_memory.CONTENT, 4999)
    with pytest.raises(StoreError, match="ends too early"):
        put_back(tmp_path / "saved", new)
    (tmp_path / "saved" / shared_memory.INDEX).write_text("[{}]")
    with pytest.raises(StoreError, match=f"{shared_memory.INDEX} cannot be read"):
        put_back(tmp_path / "saved", new)


USER = """
import mmap, os, sys
opened = os.open(sys.argv[1] + "/open", os.O_RDONLY)
mapped = os.open(sys.argv[1] + "/mapped", os.O_RDWR)
place = mmap.mmap(mapped, 4096)
os.close(mapped)
print("ready", flush=True)
sys.stdin.read()
"""


def test_files_aside_that_nobody_uses_are_removed(root: Path) -> None:
    aside = root / shared_memory.ASIDE
    assert sweep_aside([os.getpid()], root) == 0
    aside.mkdir()
    for name in ("open", "mapped", "unused"):
        (aside / name).write_bytes(bytes(mmap.PAGESIZE))
    (root / "other").write_bytes(b"not aside")
    with subprocess.Popen(
        [sys.executable, "-c", USER, aside],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as user:
        assert user.stdout is not None and user.stdout.readline() == "ready\n"
        assert sweep_aside([os.getpid(), user.pid], root) == mmap.PAGESIZE
        assert {*os.listdir(aside)} == {"open", "mapped"}
        user.communicate()
    assert sweep_aside([os.getpid(), user.pid], root) == 2 * mmap.PAGESIZE
    assert os.listdir(aside) == [] and (root / "other").exists()

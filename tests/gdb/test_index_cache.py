"""Several GDBs share one index cache: only complete files come into it, even if a GDB dies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from processes import Spawn, kill_gdb, soon

from crdebug.attached.gdbs import scripts
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.startup import index_cache
from harness.gdbs import GDBS, use_gdb
from harness.nobody import needs_root


def whole(path: Path) -> bool:
    """The constant pool comes last in an index (GDB manual, "Index Section Format")."""
    data = path.read_bytes()
    version = int.from_bytes(data[:4], "little")
    last = 4 * (6 if version > 8 else 5)
    start = int.from_bytes(data[last : last + 4], "little")
    return start < len(data) and data.endswith(b"\0")


@pytest.mark.parametrize("which", GDBS)
async def test_a_file_is_shared_once_its_gdb_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawn: Spawn, which: str
) -> None:
    use_gdb(which, monkeypatch)
    monkeypatch.setenv("CRDEBUG_CACHE", str(tmp_path))
    shared, pid = index_cache(), spawn().pid

    def owned(target: GdbTarget) -> list[Path]:
        return list(Path("/dev/shm").glob(f"crdebug-index-{target.gdb_pid}-*"))

    async def reads_it() -> GdbTarget:
        target = await GdbTarget.launch(0, soon(), scripts=scripts())
        await target.attach(pid, soon())
        await target.console("info line main", soon())  # waits for the index, and its writer
        return target

    async def stats(target: GdbTarget) -> str:
        return await target.console("show index-cache stats", soon())

    killed = await reads_it()
    kill_gdb(killed)
    await killed.close(soon())
    assert not list(shared.iterdir())

    first = await reads_it()
    assert "hits (this session): 0" in await stats(first)
    assert len(owned(first)) == 1 and not owned(killed) and not list(shared.iterdir())
    await first.close(soon())
    files = sorted(shared.iterdir())
    assert files and all(map(whole, files)) and not owned(first)

    second = await reads_it()
    assert "hits (this session): 0" not in await stats(second)
    (own,) = owned(second)
    assert sorted(each.name for each in own.iterdir() if each.is_symlink()) == [
        each.name for each in files
    ]
    await second.close(soon())
    assert sorted(shared.iterdir()) == files and not owned(second)


async def test_what_was_read_longest_ago_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawn: Spawn
) -> None:
    """A program that is compiled again and again leaves an index each time."""
    monkeypatch.setenv("CRDEBUG_CACHE", str(tmp_path))
    shared, most = index_cache(), 300
    shared.mkdir(parents=True)
    old = [shared / f"{number:040x}.gdb-index" for number in range(most + 5)]
    for number, path in enumerate(old):
        path.touch()
        os.utime(path, (1000 + number, 1000))
    huge = shared / f"{most:041x}.gdb-index"
    with huge.open("wb") as file:
        file.truncate(1 << 30)  # has no blocks on disk
    os.utime(huge, (1100.5, 1000))
    target = await GdbTarget.launch(0, soon(), scripts=scripts())
    await target.attach(spawn().pid, soon())
    await target.console("info line main", soon())
    await target.close(soon())
    left = sorted(shared.iterdir(), key=lambda path: -path.stat().st_atime_ns)
    new = [path for path in left if path not in old]
    assert new and huge not in left and all(map(whole, new))
    assert [path for path in left if path in old] == old[101:][::-1]


async def test_a_gdb_that_cannot_write_there_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawn: Spawn
) -> None:
    monkeypatch.setenv("CRDEBUG_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    target = await GdbTarget.launch(0, soon(), scripts=scripts())
    await target.attach(spawn().pid, soon())
    assert "is off" in await target.console("show index-cache enabled", soon())
    await target.close(soon())


@needs_root
async def test_only_directories_of_ours_are_emptied(tmp_path: Path, spawn: Spawn) -> None:
    """Anybody may make a directory or a link with the name that one of a GDB's would have."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").touch()
    dead = 1 << 22  # no process has this number (proc(5), /proc/sys/kernel/pid_max)
    link = Path(f"/dev/shm/crdebug-index-{dead}-link")
    foreign = Path(f"/dev/shm/crdebug-index-{dead}-foreign")
    own = Path(f"/dev/shm/crdebug-index-{dead}-own")
    link.symlink_to(theirs)
    for each in (foreign, own):
        each.mkdir()
        (each / "file").touch()
    shutil.chown(foreign, "nobody")
    try:
        target = await GdbTarget.launch(0, soon(), scripts=scripts())
        await target.close(soon())
        assert (theirs / "file").exists()
        assert (foreign / "file").exists()
        assert not own.exists()
    finally:
        link.unlink()
        shutil.rmtree(foreign)
        shutil.rmtree(own, ignore_errors=True)

"""Debug files that are compressed are unpacked once, if GDBs have read them."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crdebug.acquire.debug_files import unpack
from crdebug.base.deadline import Deadline

pytestmark = pytest.mark.unit

PACKED, PLAIN, UNREAD = "aa01", "bb02", "cc03"


def place(build_id: str) -> str:
    return f".build-id/{build_id[:2]}/{build_id[2:]}.debug"


def is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return any(each["sh_flags"] & 0x800 for each in ELFFile(file).iter_sections())


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path, Path]:
    """GDB's index cache, the unpacked files, and the distribution's files."""
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text("int numbers[64];\nint main(void) { return numbers[1]; }\n" + "// \n" * 9)
    indexes, unpacked, packed = (tmp_path / name for name in ("indexes", "unpacked", "packed"))
    subprocess.run(["cc", "-g3", "-o", program, source], check=True)
    for build_id, how in ((PACKED, "zlib"), (PLAIN, "none"), (UNREAD, "zlib")):
        path = packed / place(build_id)
        path.parent.mkdir(parents=True)
        only = ["--only-keep-debug", f"--compress-debug-sections={how}"]
        subprocess.run(["objcopy", *only, program, path], check=True)
        assert is_compressed(path) is (how == "zlib")
    indexes.mkdir()
    for build_id in (PACKED, PLAIN, "dd04"):
        (indexes / f"{build_id}.gdb-index").touch()
    return indexes, unpacked, packed


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


async def test_what_gdbs_have_read_is_unpacked_once(directories: tuple[Path, Path, Path]) -> None:
    indexes, unpacked, packed = directories
    both = (unpack(indexes, unpacked, Deadline(60.0), packed) for _ in range(2))
    await asyncio.gather(*both)
    assert files(unpacked) == {place(PACKED)}
    assert not is_compressed(unpacked / place(PACKED)) and is_compressed(packed / place(PACKED))
    before = (unpacked / place(PACKED)).stat()  # the next time nothing is left to be done
    await unpack(indexes, unpacked, Deadline(60.0), packed)
    assert (unpacked / place(PACKED)).stat() == before
    # what was removed from the machine goes, too
    (packed / place(PACKED)).unlink()
    await unpack(indexes, unpacked, Deadline(60.0), packed)
    assert files(unpacked) == set()


@pytest.mark.parametrize("objcopy", [None, "exit 1", 'echo half >"$3"; exit 1'])
async def test_what_cannot_be_unpacked_is_left(
    directories: tuple[Path, Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    objcopy: str | None,
) -> None:
    indexes, unpacked, packed = directories
    if objcopy is not None:
        (tmp_path / "objcopy").write_text(f"#!/bin/sh\n{objcopy}\n")
        (tmp_path / "objcopy").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    await unpack(indexes, unpacked, Deadline(60.0), packed)
    assert files(unpacked) == set()


async def test_without_an_index_cache_there_is_nothing_to_unpack(tmp_path: Path) -> None:
    await unpack(tmp_path / "none", tmp_path / "unpacked", Deadline(60.0), tmp_path)
    assert not (tmp_path / "unpacked").exists()

"""Images as a restart gets them, from images made by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from test_images import block, number

from crdebug.base.errors import StoreError
from crdebug.checkpoint.image_edits import link
from crdebug.checkpoint.images import fields, messages

pytestmark = pytest.mark.unit

HEAD = struct.pack("<II", 0x54564319, 0x56303138)


def image(*entries: bytes) -> bytes:
    return HEAD + b"".join(struct.pack("<I", len(entry)) + entry for entry in entries)


def regular(identity: int, name: str, mount: int) -> bytes:
    """FileEntry{type, id, reg{id, flags, pos, fown, name, mnt_id (signed), size, ext, mode}}."""
    entry = number(1, identity) + number(2, 2) + number(3, 4711) + block(5, b"\x08\x01")
    entry += block(6, name.encode()) + number(7, mount * 2 if mount >= 0 else -mount * 2 - 1)
    entry += number(8, 300) + number(9, 0) + number(10, 0o100600)
    return number(1, 1) + number(2, identity) + block(3, entry)


FILES = image(
    regular(1, "/data/log", 10),
    regular(2, "/lib/x.so", 11),
    regular(3, "/gone", -1),
    number(1, 3) + number(2, 5) + block(8, b"\x08\x05"),  # an eventfd
)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    path = tmp_path / "images"
    path.mkdir()
    (path / "files.img").write_bytes(FILES)
    (path / "pages-1.img").write_bytes(b"pages")
    (tmp_path / "older").mkdir()
    (path / "parent").symlink_to("../older")
    return path


def test_only_the_intended_parts_differ(images: Path, tmp_path: Path) -> None:
    target = link(images, tmp_path / "linked", {"/data/log"})
    assert {path.name for path in target.iterdir()} == {path.name for path in images.iterdir()}
    assert (target / "parent").resolve() == (tmp_path / "older")
    assert (target / "pages-1.img").is_symlink()
    assert not (target / "files.img").is_symlink()
    for was, now in zip(
        messages(images / "files.img"), messages(target / "files.img"), strict=True
    ):
        before, after = dict(fields(was)), dict(fields(now))
        if before.get(2) == 1:
            then, entry = (dict(fields(each.pop(3))) for each in (before, after))  # type: ignore[arg-type]
            assert (then.pop(8), then.pop(10)) == (300, 0o100600)
            assert entry == then
        assert after == before


def test_cut_off_anywhere_it_is_one_sentence(images: Path, tmp_path: Path) -> None:
    whole = (images / "files.img").read_bytes()
    lengths = [at for at in range(9, len(whole)) if not _ends_at(whole, at)]
    for length in lengths:
        (images / "files.img").write_bytes(whole[:length])
        with pytest.raises(StoreError, match="cannot read the image"):
            link(images, tmp_path / f"{length}", {"/data/log"})


def _ends_at(data: bytes, wanted: int) -> bool:
    """Is that the end of a message?"""
    at = 8
    while at < wanted:
        at += 4 + int.from_bytes(data[at : at + 4], "little")
    return at == wanted

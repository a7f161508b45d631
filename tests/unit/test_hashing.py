"""Hashes of files that are still being written."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import pytest

from crdebug.checkpoint.hashing import RunningHashes

pytestmark = pytest.mark.unit

SIZE = 5 << 20
# What asks for a directory's files by way of Path; from Python 3.13 on glob does not.
LOOKS = ("is_dir", "stat") if sys.version_info < (3, 13) else ("stat",)


def test_the_hash_covers_the_final_content(tmp_path: Path) -> None:
    hashes = RunningHashes(tmp_path)
    image, digest = tmp_path / "pages-1.img", hashlib.sha256()
    with open(image, "wb", buffering=0) as file:
        for byte in b"abc":
            file.write(bytes([byte]) * SIZE)
            digest.update(bytes([byte]) * SIZE)
    (tmp_path / "pages-2.img").write_bytes(b"small")
    (tmp_path / "core-1.img").write_bytes(bytes(SIZE))
    assert hashes.finish() == {image: (3 * SIZE, digest.hexdigest())}


@pytest.mark.parametrize("name", LOOKS)
def test_an_image_that_is_given_up_meanwhile_is_no_fault(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, look = tmp_path / "images", getattr(Path, name)
    images.mkdir()
    (images / "pages-1.img").write_bytes(bytes(SIZE))

    def gone_meanwhile(path: Path, **given: bool) -> object:
        answer = look(path, **given)
        if path == images or path.parent == images:
            shutil.rmtree(images, ignore_errors=True)
        return answer

    monkeypatch.setattr(Path, name, gone_meanwhile)
    hashes = RunningHashes(images)
    assert {*hashes.finish()} <= {images / "pages-1.img"}
    assert not images.exists()

"""The CRS's images, edited for a restart that must not be as strict as they are.

Files that are rolled back once the new job is whole may have any length and mode until then: CRIU
would refuse files that have changed. The images that were taken are not touched: what differs is
written beside them.

An image is a head and messages: `files.img` has one for each open file, also for those that are
mapped or worked in (images/fdinfo.proto, regfile.proto).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterator
from pathlib import Path

from crdebug.checkpoint.images import fields, messages, named, slice_of, varint

_FILES = "files.img"
_HEAD = 8  # bytes: two magic numbers
# FileEntry.reg; RegFileEntry.name, .size, .mode
_REGULAR, _NAME, _SIZE, _MODE = 3, 6, 8, 10


def _text(value: int | bytes | None) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else ""


def link(images: Path, target: Path, open_ended: Container[str]) -> Path:
    """Link the images into another directory, except those that are to differ; returns the
    directory.

    open_ended: the paths of files that may have changed. Raises StoreError.
    """
    target.mkdir(mode=0o700)
    home = images.resolve()
    for path in images.iterdir():
        if path.name == _FILES:
            with named(path):
                _write(path, target, (_relaxed(each, open_ended) for each in messages(path)))
        else:
            os.symlink(
                path.resolve() if path.is_symlink() else home / path.name, target / path.name
            )
    return target


def _write(path: Path, target: Path, entries: Iterator[bytes]) -> None:
    head = path.read_bytes()[:_HEAD]
    body = b"".join(struct.pack("<I", len(each)) + each for each in entries)
    (target / path.name).write_bytes(head + body)


def _relaxed(entry: bytes, paths: Container[str]) -> bytes:
    regular = dict(fields(entry)).get(_REGULAR)
    if not isinstance(regular, bytes) or _text(dict(fields(regular)).get(_NAME)) not in paths:
        return entry
    less = _without(regular, (_SIZE, _MODE))
    return _without(entry, (_REGULAR,)) + _block(_REGULAR, less)


def _without(data: bytes, unwanted: Container[int]) -> bytes:
    """A message without some of its fields."""
    kept, at = bytearray(), 0
    while at < len(data):
        key, behind = varint(data, at)
        if key & 7 == 2:
            length, behind = varint(data, behind)
            behind += length
        elif key & 7 == 0:
            _, behind = varint(data, behind)
        else:
            behind += {1: 8, 5: 4}[key & 7]
        if key >> 3 not in unwanted:
            kept += slice_of(data, at, behind - at)
        at = behind
    return bytes(kept)


def _block(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _as_varint(len(data)) + data


def _as_varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _as_varint(rest) if rest else bytes([low])

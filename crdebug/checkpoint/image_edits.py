"""The CRS's images, edited for a restart that must not be as strict as they are.

Files that are rolled back once the new job is whole may have any length and mode until then: CRIU
would refuse files that have changed. And the images list all of the machine's mounts: those that
have gone are left out if the job uses nothing on them. The images that were taken are not touched:
what differs is written beside them.

An image is a head and messages: `files.img` has one for each open file, also for those that are
mapped or worked in (images/fdinfo.proto, regfile.proto, sk-unix.proto), `mountpoints-N.img` one for
each mount (images/mnt.proto).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crdebug.checkpoint.images import fields, messages, named, slice_of, varint

_FILES, _MOUNTS = "files.img", "mountpoints-*.img"
_HEAD = 8  # bytes: two magic numbers
# FileEntry.reg, .usk; RegFileEntry.name, .mnt_id, .size, .mode; UnixSkEntry.mnt_id
_REGULAR, _SOCKET, _NAME, _FILE_MOUNT, _SIZE, _MODE, _SOCKET_MOUNT = 3, 16, 6, 7, 8, 10, 17
# MntEntry.mnt_id, .parent_mnt_id, .ext_key
_ID, _PARENT, _KEY = 2, 4, 18


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mount in the images. key: the name that it was given at the dump, "" if it has none."""

    number: int
    parent: int
    key: str


def _text(value: int | bytes | None) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else ""


def _number(value: int | bytes | None) -> int:
    return value if isinstance(value, int) else 0


def _part(message: bytes, wanted: int) -> Mapping[int, int | bytes]:
    part = dict(fields(message)).get(wanted)
    return dict(fields(part)) if isinstance(part, bytes) else {}


def _mount(message: bytes) -> _Mount:
    entry = dict(fields(message))
    return _Mount(_number(entry.get(_ID)), _number(entry.get(_PARENT)), _text(entry.get(_KEY)))


def _in_use(images: Path) -> frozenset[int]:
    """The numbers of the mounts that something open is on."""
    path, found = images / _FILES, set()
    with named(path):
        for entry in messages(path):
            for kind, field in ((_REGULAR, _FILE_MOUNT), (_SOCKET, _SOCKET_MOUNT)):
                value = _part(entry, kind).get(field)
                if isinstance(value, int):
                    found.add(value >> 1 ^ -(value & 1))  # a signed one, "ZigZag" of protobuf.dev
    return frozenset(found)


def used_mounts(images: Path) -> frozenset[str]:
    """The mounts that the job uses, directly or as parents of others, by the names that they were
    given at the dump. Raises StoreError."""
    used, found = _in_use(images), set()
    for path in images.glob(_MOUNTS):
        with named(path):
            mounts = {each.number: each for each in map(_mount, messages(path))}
        for number in used & mounts.keys():
            above: _Mount | None = mounts[number]
            while above is not None and above.key not in found:
                found.add(above.key)
                above = mounts.get(above.parent)
    return frozenset(found - {""})


def link(images: Path, target: Path, open_ended: Container[str], left_out: Container[str]) -> Path:
    """Link the images into another directory, except those that are to differ; returns the
    directory.

    open_ended: the paths of files that may have changed.  left_out: names of mounts.
    Raises StoreError.
    """
    target.mkdir(mode=0o700)
    for path in images.iterdir():
        if path.name == _FILES:
            with named(path):
                _write(path, target, (_relaxed(each, open_ended) for each in messages(path)))
        elif path.match(_MOUNTS):
            with named(path):
                _write(path, target, _without_mounts(messages(path), left_out))
        else:
            os.symlink(path.resolve(), target / path.name)
    return target


def _write(path: Path, target: Path, entries: Iterator[bytes]) -> None:
    head = path.read_bytes()[:_HEAD]
    body = b"".join(struct.pack("<I", len(each)) + each for each in entries)
    (target / path.name).write_bytes(head + body)


def _without_mounts(entries: list[bytes], left_out: Container[str]) -> Iterator[bytes]:
    """Without some mounts, and without the mounts below them."""
    mounts = {each.number: each for each in map(_mount, entries)}

    def stays(mount: _Mount | None) -> bool:
        while mount is not None and mount.parent != mount.number:
            if mount.key and mount.key in left_out:
                return False
            mount = mounts.get(mount.parent)
        return True

    return (entry for entry in entries if stays(_mount(entry)))


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

"""The manifest: written whole, read strictly."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.base.errors import StoreError
from crdebug.checkpoint import manifest as manifests
from crdebug.checkpoint.manifest import (
    NAME,
    VERSION,
    Base,
    Binary,
    Manifest,
    RankRecord,
    Stamp,
    ThreadRecord,
)
from crdebug.checkpoint.open_files import SavedFile

pytestmark = pytest.mark.unit

WORD = (1 << 64) - 1


A_THREAD = ThreadRecord(7, 1, WORD, 2, WORD, "0b00000000000000" + "01000000", told=True)


def a_manifest() -> Manifest:
    """One with something in every field."""
    return Manifest(
        version=VERSION,
        job="heat",
        number=3,
        time=1_700_000_000.25,
        note='a "note", ünïcode\n',
        debugger=True,
        incarnation=2,
        argv=("mpirun", "-n", "2", "./a b"),
        directory="/home/me",
        host="node1",
        kernel="6.1",
        crs="criu 4.2",
        shim="/cache/shim.so",
        layer="/cache/pmpi.so",
        branch="main",
        signal=62,
        added={"UCX_TLS": "self,posix,cma,tcp"},
        first=20001,
        mounts={"/": "ext4"},
        ranks=(
            RankRecord(0, 7, "/bin/a", "f at a.c:1", (A_THREAD,), 7, 12),
            RankRecord(1, 8, "/bin/a", "", (), 0, 13),
        ),
        binaries=(Binary("/bin/a", "abc"),),
        saved=(SavedFile("/tmp/x", 10, "0"), SavedFile("/tmp/y", 11)),
        files={"images/a.img": Stamp("00", 1, 2, 3, 4), "files/0": Stamp("01", 1, 2, 3, 4)},
        bases=(Base(2, "ab"), Base(1, "cd")),
        memory=4096,
        paused=0.25,
        latency=1.5,
    )


def written(directory: Path, data: bytes) -> Path:
    (directory / NAME).write_bytes(data)
    return directory


def test_a_fault_is_distinguished_from_a_sent_signal() -> None:
    assert (A_THREAD.signal_number, A_THREAD.is_fault) == (11, True)
    sent = dataclasses.replace(A_THREAD, signal="0b00000000000000" + "fa" + "ff" * 3)
    assert (sent.signal_number, sent.is_fault) == (11, False)
    none = dataclasses.replace(A_THREAD, signal="")
    assert (none.signal_number, none.is_fault) == (0, False)


def test_a_written_record_is_read_back_unchanged(tmp_path: Path) -> None:
    data = manifests.encode(a_manifest())
    assert manifests.read(written(tmp_path, data)) == a_manifest()
    assert data.endswith(b"}\n")


def test_no_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"{tmp_path} holds no checkpoint: there is no {NAME}"):
        manifests.read(tmp_path)


@pytest.mark.parametrize("version", [0, VERSION + 1, "1", None, 1.5])
def test_another_version_is_refused_whatever_else_is_in_it(tmp_path: Path, version: object) -> None:
    data = json.dumps({"version": version, "new": [], "seal": "0"}).encode()
    with pytest.raises(StoreError) as caught:
        manifests.read(written(tmp_path, data))
    assert str(caught.value) == (
        f"{tmp_path / NAME} has version {version}, this crdebug reads version {VERSION} "
        "(use the crdebug that took the checkpoint)"
    )


def test_cut_off_anywhere_it_is_refused(tmp_path: Path) -> None:
    data = manifests.encode(a_manifest())
    for length in range(0, len(data) - 2):  # the last two bytes are "}" and a newline
        with pytest.raises(StoreError, match="cannot be read"):
            manifests.read(written(tmp_path, data[:length]))


def _paths(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where every value in a JSON document is, the containers too."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _paths(each, (*at, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _paths(each, (*at, index))


DOCUMENT = json.loads(manifests.encode(a_manifest()))
del DOCUMENT["seal"]
PATHS = list(_paths(DOCUMENT))


def _damage(data: bytes, chance: random.Random) -> bytes:
    """As a disk, or a hand, may do it."""
    at, length = chance.randrange(len(data)), chance.randrange(1, 40)
    match chance.randrange(5):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[at + length :]
        case 2:
            return data[:at] + chance.randbytes(length) + data[at + length :]
        case 3:
            return data[:at] + data[at : at + length] * chance.randrange(2, 4) + data[at + length :]
        case _:
            digits = [match.span() for match in re.finditer(rb"[0-9]+", data)]
            first, end = chance.choice(digits)
            return data[:first] + str(chance.choice(ODD)).encode() + data[end:]


ODD = (0, 1, -1, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 10**400, 1.5, "1e999", "[" * 5000)


def _read_or_refuse(directory: Path, data: bytes) -> Manifest | None:
    """The manifest; None when it is refused, in one sentence."""
    try:
        return manifests.read(written(directory, data))
    except StoreError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000
        return None


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.sweep)])
def test_any_damage_is_refused_in_one_sentence(tmp_path: Path, count: int) -> None:
    chance, data = random.Random(count), manifests.encode(a_manifest())
    for _ in range(count):
        damaged = _damage(data, chance)
        same = _read_or_refuse(tmp_path, damaged)
        assert same in (None, a_manifest()), damaged


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.sweep)])
def test_a_resealed_file_is_a_manifest_or_refused(tmp_path: Path, count: int) -> None:
    """Changed by anybody with write access; an accepted manifest leads only into the checkpoint."""
    chance = random.Random(count)
    odd: tuple[object, ...] = (
        *ODD,
        "",
        "../../x",
        "/etc/passwd",
        "files/../../x",
        "\0",
        None,
        [],
        {},
        "é" * 300,
    )
    accepted = 0
    for _ in range(count):
        path, value = chance.choice(PATHS), chance.choice(odd)
        found = _read_or_refuse(tmp_path, _changed(path, value))
        accepted += found is not None
        for name in found.files if found else ():
            assert (tmp_path / name).resolve().is_relative_to(tmp_path), (path, value)
    assert accepted


@pytest.mark.parametrize(
    "name", ["../x", "images/../../x", "/etc/passwd", "images/", "x", "images//x", "images/..", ""]
)
def test_no_part_leads_out_of_the_checkpoint(tmp_path: Path, name: str) -> None:
    stamp = DOCUMENT["files"]["images/a.img"]
    with pytest.raises(StoreError, match=rf"'{name}' is not part of a checkpoint"):
        manifests.read(written(tmp_path, _changed(("files",), {"files/0": stamp, name: stamp})))


@pytest.mark.parametrize("name", [NAME, "."])
@pytest.mark.parametrize("mode", [0o777, 0o602])
@pytest.mark.root
def test_one_that_others_could_have_written_is_refused(
    tmp_path: Path, name: str, mode: int
) -> None:
    """Whatever its seal: that keeps damage out, and its place keeps others out."""
    path = written(tmp_path, manifests.encode(a_manifest())) / name
    path.chmod(mode)
    with pytest.raises(StoreError, match=rf"{path} can be changed by other users"):
        manifests.read(tmp_path)
    path.chmod(0o700)
    assert manifests.read(tmp_path) == a_manifest()


def _changed(path: tuple[str | int, ...], value: object = ..., *, drop: bool = False) -> bytes:
    document = json.loads(json.dumps(DOCUMENT))
    owner = document
    for step in path[:-1]:
        owner = owner[step]
    if drop:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    return manifests.seal(document)


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a_value_of_another_type_is_refused(tmp_path: Path, path: tuple[str | int, ...]) -> None:
    for value in (None, {"odd": 1}, [[1]]):
        with pytest.raises(StoreError):
            manifests.read(written(tmp_path, _changed(path, value)))


# A field of a struct; not an element of a list, nor an entry of a dictionary.
DICTIONARIES = (("mounts",), ("added",))
FIELDS = [path for path in PATHS if isinstance(path[-1], str) and path[-2:-1] not in DICTIONARIES]
FIELDS = [path for path in FIELDS if path[:-1] != ("files",)]


@pytest.mark.parametrize("path", FIELDS, ids=str)
def test_a_missing_field_is_refused(tmp_path: Path, path: tuple[str | int, ...]) -> None:
    with pytest.raises(StoreError):
        manifests.read(written(tmp_path, _changed(path, drop=True)))


def test_an_unknown_field_is_refused_anywhere(tmp_path: Path) -> None:
    structs: list[tuple[str | int, ...]] = [(), ("ranks", 0), ("ranks", 0, "threads", 0)]
    structs += [("binaries", 0), ("saved", 0), ("files", "images/a.img")]
    for struct in structs:
        with pytest.raises(StoreError, match="foreign"):
            manifests.read(written(tmp_path, _changed((*struct, "odd"), 1)))


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b"{}" * 2])
def test_what_is_no_manifest_at_all_is_one_sentence(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(StoreError) as caught:
        manifests.read(written(tmp_path, data))
    assert str(caught.value).startswith(f"{tmp_path / NAME} ")
    assert "\n" not in str(caught.value)


def test_every_field_is_swept() -> None:
    assert {path[0] for path in PATHS} == {f.name for f in dataclasses.fields(Manifest)}

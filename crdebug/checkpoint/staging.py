"""Checkpoints in a second place: copied there, compressed where that pays, and fetched back.

STAGE/JOB/job.json    the job's record, so that a node that has never seen it can bring it back
STAGE/JOB/N/          the same files as in the job's own store, some of them with `.zst` added
STAGE/JOB/N/staged.json  written last, by rename: what proves the copy whole

The checkpoints that it builds on are copied with it, see crdebug.checkpoint.incremental.

The first place is to be fast and near (a local disk), the second one to outlive it. A copy is made
while the job runs on, by a thread that gives way to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard

from crdebug.base.errors import StoreError
from crdebug.checkpoint import incremental
from crdebug.checkpoint import manifest as manifests
from crdebug.checkpoint.manifest import Manifest, Stamp, require_own
from crdebug.checkpoint.store import (
    Checkpoint,
    CheckpointStore,
    described,
    stamp_of,
    sync,
)
from crdebug.node import owners

NAME = "staged.json"
RECORD = "job.json"
LOCK = "staging"
_BLOCK = 1 << 20
_SAMPLES = 8
_WORTH = 0.7  # compressed to less than this part of its size
_LEVEL = 1  # zstd's fastest: the copy shares the machine with the job
_NICE = 15


@dataclass(frozen=True, slots=True)
class Copy:
    """A file in the second place. sha256: of what lies there.  packed: it is compressed."""

    sha256: str
    size: int
    packed: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """The files of the copy of one checkpoint, by their names there."""

    version: int
    files: dict[str, Copy]


def stage(store: CheckpointStore, number: int, place: Path, *, compress: bool = True) -> int:
    """Copy a checkpoint; returns the bytes that the copy has. Slow, see `gives_way`.

    It is copied with what it builds on, unless that is there. Data that is read is compared with
    the manifest's hashes on the way, and data that was written is read again. Raises StoreError,
    with nothing at the place that looks whole.
    """
    manifest = store.load(number)
    require_own(place / store.job)
    try:
        with _the_only_one(store):
            _sweep(store, place)
            _stage_bases(store, manifest, place, compress)
            size = _stage_one(store, manifest, place, compress, NAME)
            _stage_bases(store, manifest, place, compress)  # one may have been forgotten meanwhile
    except OSError as error:
        raise StoreError(f"cannot stage {store.job}:{number} to {place}: {error}") from None
    return size


@contextlib.contextmanager
def _the_only_one(store: CheckpointStore) -> Iterator[None]:
    """No other crdebug copies checkpoints of this job meanwhile: it waits. The lock is beside the
    job's own store, for a second place may have none. Raises OSError."""
    with open(store.root.parent / LOCK, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(store: CheckpointStore, place: Path) -> None:
    """Remove what a crdebug that was killed has left of copies."""
    for draft in (place / store.job).glob(".draft-*"):
        shutil.rmtree(draft, ignore_errors=True)


def _stage_bases(store: CheckpointStore, manifest: Manifest, place: Path, compress: bool) -> None:
    for base in reversed(manifest.bases):
        there = place / store.job / str(base.number)
        with contextlib.suppress(StoreError):
            if (
                incremental.proof_in(there, NAME)
                and manifests.read(there).identity == base.identity
            ):
                continue
        known = store.read_base(base.number)
        deleted = incremental.proof_in(store.path(base.number), manifests.NAME) == incremental.BASE
        _stage_one(store, known, place, compress, incremental.BASE if deleted else NAME)


def _stage_one(
    store: CheckpointStore, manifest: Manifest, place: Path, compress: bool, proof: str
) -> int:
    number = manifest.number
    home = store.path(number)
    target = place / store.job / str(number)
    draft = target.with_name(f".draft-{number}")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        owners.make_private(draft / "images")
        copies = {}
        for name, stamp in _files(manifest, proof):
            packed = compress and _pays(home / name)
            there = draft / (f"{name}.zst" if packed else name)
            owners.make_private(there.parent)
            _copy_one(home / name, there, packed, stamp.sha256)
            copies[name] = Copy(_hash(there), there.stat().st_size, packed)
        if manifest.bases:
            incremental.link(draft, manifest.bases[0].number)
        _write(draft / manifests.NAME, manifests.encode(manifest))
        _write(draft / proof, msgspec.json.encode(Staged(1, copies)))
        for directory, _, _ in os.walk(draft):
            sync(Path(directory))
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        sync(target.parent)
    except (OSError, zstandard.ZstdError) as error:
        raise StoreError(f"cannot stage {store.job}:{number} to {place}: {error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return sum(copy.size for copy in copies.values())


def _files(manifest: Manifest, proof: str) -> list[tuple[str, Stamp]]:
    """The files to copy; of a deleted checkpoint, the ones that others need."""
    return [
        (name, stamp)
        for name, stamp in manifest.files.items()
        if proof != incremental.BASE or incremental.is_shared(name)
    ]


def numbers(job: str, place: Path) -> tuple[int, ...]:
    """The checkpoints of a job that are whole in the second place, in order."""
    return incremental.listed(place / job, NAME)


def everywhere(store: CheckpointStore, place: Path | None) -> tuple[Checkpoint, ...]:
    """The checkpoints of a job in its own store and in the second place, each once, in order."""
    local = {each.number: each for each in store.list()}
    there = numbers(store.job, place) if place is not None else ()
    for number in there:
        assert place is not None
        if number in local:
            local[number] = replace(local[number], places=("local", "staged"))
            continue
        home = place / store.job / str(number)
        known = described(store.job, number, home, partial(_read_own, home))
        if known is not None:
            local[number] = replace(known, places=("staged",))
    return tuple(local[number] for number in sorted(local))


def _read_own(home: Path) -> Manifest:
    require_own(home, whole=True)
    return manifests.read(home)


def fetch(store: CheckpointStore, number: int, place: Path) -> None:
    """Bring a checkpoint back into the job's own store, verified on the way. Raises StoreError.

    The checkpoints that it builds on come with it if they are missing or damaged. Nothing is
    fetched from a place that others could have changed.
    """
    manifest = _read_own(place / store.job / str(number))
    for base in reversed(manifest.bases):
        if not store.is_base(base):
            _fetch_one(store, base.number, place)
    _fetch_one(store, number, place)


def _fetch_one(store: CheckpointStore, number: int, place: Path) -> None:
    home = place / store.job / str(number)
    require_own(home, whole=True)
    proof = incremental.proof_in(home, NAME) or NAME
    try:
        staged = msgspec.json.decode((home / proof).read_bytes(), type=Staged)
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"{store.job}:{number} is not whole in {place}: {error}") from None
    manifest = manifests.read(home)
    draft = store.draft(number)
    try:
        stamps = dict(manifest.files)
        for name, stamp in _files(manifest, proof):
            copy, there = staged.files[name], draft.path / name
            owners.make_private(there.parent)
            _unpack(home / (f"{name}.zst" if copy.packed else name), there, copy, stamp.sha256)
            stamps[name] = stamp_of(there, stamp.sha256)
        if manifest.bases:
            incremental.link(draft.path, manifest.bases[0].number)
        known = manifests.NAME if proof == NAME else incremental.BASE
        _write(draft.path / known, manifests.encode(replace(manifest, files=stamps)))
        store.put(draft)
    except (OSError, KeyError, zstandard.ZstdError) as error:
        raise StoreError(f"cannot fetch {store.job}:{number} from {place}: {error}") from None
    finally:
        store.discard(draft)


def forget(job: str, number: int, place: Path) -> None:
    """Remove the copy of a checkpoint. Raises StoreError, also if others could change the place."""
    require_own(place / job)
    try:
        incremental.remove(place / job, number, NAME)
    except OSError as error:
        raise StoreError(f"cannot delete {job}:{number} in {place}: {error.strerror}") from None


# ---- one file --------------------------------------------------------------------------------


def _pays(path: Path) -> bool:
    """Do some blocks from all over a file compress by 30 % or more?"""
    size = path.stat().st_size
    if size < 1 << 12:
        return False
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    read = packed = 0
    with open(path, "rb") as file:
        for sample in range(_SAMPLES):
            file.seek(sample * size // _SAMPLES)
            data = file.read(min(_BLOCK // 4, size // _SAMPLES + 1))
            read, packed = read + len(data), packed + len(compressor.compress(data))
    return packed < _WORTH * read


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def _hash(path: Path) -> str:
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(data)
    unfinished.chmod(0o600)
    sync(unfinished)
    unfinished.rename(path)


def _copy_one(source: Path, target: Path, packed: bool, sha256: str) -> None:
    digest = hashlib.sha256()
    with open(source, "rb", buffering=0) as file, open(target, "wb") as out:
        with contextlib.ExitStack() as stack:
            write: Callable[[bytes], object] = out.write
            if packed:
                compressor = zstandard.ZstdCompressor(level=_LEVEL)
                write = stack.enter_context(compressor.stream_writer(out, closefd=False)).write
            for block in _blocks(file):
                digest.update(block)
                write(block)
        out.flush()
        os.fsync(out.fileno())
    target.chmod(0o600)
    if digest.hexdigest() != sha256:
        raise StoreError(f"{source} was changed since the checkpoint")


def _unpack(source: Path, target: Path, copy: Copy, sha256: str) -> None:
    if _hash(source) != copy.sha256:
        raise StoreError(f"{source} was changed since it was staged")
    digest = hashlib.sha256()
    with open(source, "rb") as file, open(target, "wb") as out:
        reader = zstandard.ZstdDecompressor().stream_reader(file) if copy.packed else file
        for block in _blocks(reader):
            digest.update(block)
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
    target.chmod(0o600)
    if digest.hexdigest() != sha256:
        raise StoreError(f"{source} is not what was staged")


def gives_way() -> None:
    """Make this thread give way to the job. In Linux a nice value is a thread's own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)

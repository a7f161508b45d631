"""Checkpoints on disk: whole, or not there.

A checkpoint is made in a draft directory; its manifest is written last, and the directory then
gets its number by one rename. A directory without a manifest is not a checkpoint. See
crdebug.checkpoint.incremental for those that others build on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from crdebug.base.errors import BadInput, StoreError
from crdebug.checkpoint import incremental, shared_memory
from crdebug.checkpoint import manifest as manifests
from crdebug.checkpoint.manifest import Base, Manifest, Stamp
from crdebug.node import owners

_BLOCK = 1 << 20
_SPARE = 64 << 20  # bytes that must stay free besides an image
_KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint, as its manifest describes it.

    number: from 1, per job.  time: seconds since 1970.  note: the user's.
    size: bytes on disk.  debugger: a debugger was attached when it was taken.
    locations: by rank, where the first thread of each rank was, as text ("" if not known).
    kept: the user wants it to stay, whatever else goes (see crdebug.checkpoint.retention).
    places: where it is: "local", "staged" (see crdebug.checkpoint.staging), or both.
    added: what crdebug had set in the launcher's environment, see `info launch`.
    bases: the numbers that its images build on, the nearest first; none if they are full.  What
    those that were deleted still take is in the `size` of the oldest that builds on them.
    paused, latency: see Manifest; 0 if they are not known.
    problem: why it is of no use here, "" if it is: its manifest cannot be read, or is another
    version's. Then only its number, size and time are known.
    """

    job: str
    number: int
    time: float
    note: str
    size: int
    debugger: bool
    incarnation: int
    locations: tuple[str, ...]
    kept: bool = False
    places: tuple[str, ...] = ("local",)
    added: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    bases: tuple[int, ...] = ()
    paused: float = 0.0
    latency: float = 0.0

    @property
    def handle(self) -> str:
        return f"{self.job}:{self.number}"


@dataclass(frozen=True, slots=True)
class Draft:
    """A checkpoint in the making."""

    number: int
    path: Path

    @property
    def images(self) -> Path:
        return self.path / "images"

    @property
    def files(self) -> Path:
        return self.path / "files"

    @property
    def run(self) -> Path:
        return self.path / "run"

    @property
    def shared(self) -> Path:
        """What the job has in /dev/shm, see crdebug.checkpoint.shared_memory."""
        return self.run / shared_memory.DIRECTORY


def describe(manifest: Manifest) -> Checkpoint:
    return Checkpoint(
        job=manifest.job,
        number=manifest.number,
        time=manifest.time,
        note=manifest.note,
        size=sum(stamp.size for stamp in manifest.files.values()),
        debugger=manifest.debugger,
        incarnation=manifest.incarnation,
        locations=tuple(rank.location for rank in manifest.ranks),
        added=manifest.added,
        bases=tuple(base.number for base in manifest.bases),
        paused=manifest.paused,
        latency=manifest.latency,
    )


def described(job: str, number: int, home: Path, read: Callable[[], Manifest]) -> Checkpoint | None:
    """A checkpoint in a directory, whose manifest may be unreadable; None if it has just been
    deleted. read: raises StoreError."""
    try:
        return describe(read())
    except StoreError as error:
        problem = str(error)
    size = _size(home)
    try:
        taken = (home / manifests.NAME).stat().st_mtime
    except FileNotFoundError:
        return None
    bases = incremental.chain(home.parent, number)
    return Checkpoint(job, number, taken, "", size, False, 0, (), problem=problem, bases=bases)


def none_yet() -> BadInput:
    return BadInput("there is no checkpoint yet", hint="take one with 'checkpoint'")


def sync(path: Path) -> None:
    """Afterwards everything written to a file or a directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def stamp_of(path: Path, sha256: str) -> Stamp:
    """The stamp of a file as it is now, with the hash that it is known to have."""
    details = path.stat()
    return Stamp(sha256, details.st_size, details.st_ino, details.st_mtime_ns, details.st_ctime_ns)


def _stamp_and_sync(path: Path, known: tuple[int, str] | None) -> Stamp:
    sync(path)
    whole = known is not None and known[0] == path.stat().st_size
    return stamp_of(path, known[1] if known is not None and whole else _hash(path))


class CheckpointStore:
    """One job's checkpoints. Callers hold the job's lock while they change it."""

    def __init__(self, job: str, root: Path) -> None:
        self.job = job
        self.root = root

    def path(self, number: int) -> Path:
        return self.root / str(number)

    def numbers(self) -> tuple[int, ...]:
        """The numbers that have a manifest, in order."""
        return incremental.listed(self.root, manifests.NAME)

    def list(self) -> tuple[Checkpoint, ...]:
        """Every checkpoint, in order; those that cannot be used say why."""
        found = []
        numbers = self.numbers()
        counted = set(numbers)
        for number in numbers:
            home = self.path(number)
            each = described(self.job, number, home, partial(self.load, number))
            if each is not None:
                deleted = set(each.bases) - counted
                counted |= deleted
                size = each.size + sum(_size(self.path(base)) for base in deleted)
                kept = (home / _KEPT).exists()
                found.append(replace(each, size=size, kept=kept))
        return tuple(found)

    def keep(self, number: int, kept: bool) -> None:
        """Keep a checkpoint, or stop keeping it. Raises StoreError when there is none."""
        self.load(number)
        if kept:
            (self.path(number) / _KEPT).touch(0o600)
        else:
            (self.path(number) / _KEPT).unlink(missing_ok=True)

    def newest_good(self) -> int:
        """The number of the newest that is whole and unchanged. Raises BadInput, StoreError."""
        damage: StoreError | None = None
        for number in reversed(self.numbers()):
            try:
                self.verify(self.load(number))
                return number
            except StoreError as error:
                damage = damage or error
        raise damage or none_yet()

    def load(self, number: int | None) -> Manifest:
        """None: the newest. Raises BadInput when there is none at all, StoreError when there is no
        such checkpoint, or its manifest is unreadable."""
        if number is None:
            if not self.numbers():
                raise none_yet()
            number = self.numbers()[-1]
        if number not in self.numbers():
            known = ", ".join(map(str, self.numbers())) or "none"
            raise StoreError(
                f"there is no checkpoint {self.job}:{number}",
                hint=f"the job's checkpoints are: {known}",
            )
        manifest = manifests.read(self.path(number))
        if (manifest.job, manifest.number) != (self.job, number):
            raise StoreError(f"{self.path(number)} holds {manifest.job}:{manifest.number}")
        return manifest

    def verify(self, manifest: Manifest) -> None:
        """Are all files that the manifest names there, unchanged? Raises StoreError.

        And the needed files of those that it builds on; and can nobody else have put them there? A
        file with the stamp that it had when its hash was taken is not read again: nothing changes a
        file's content and leaves its inode, size, mtime and ctime.
        """
        what, problem = "is damaged", self._damage(manifest, manifest.files)
        for base in manifest.bases:
            if problem:
                break
            what, problem = f"builds on {self.job}:{base.number}", self._why_no_base(base)
        if problem:
            handle = f"{self.job}:{manifest.number}"
            hint = f"use another one, or 'crdebug delete {handle}'"
            raise StoreError(f"checkpoint {handle} {what}: {problem}", hint=hint)

    def _why_no_base(self, base: Base) -> str:
        """Why no checkpoint can build on this one; "" if one can. Raises StoreError."""
        home = self.path(base.number)
        if not home.exists():
            return "it is missing"
        try:
            manifest = self.read_base(base.number)
        except StoreError as error:
            return error.problem
        if manifest.identity != base.identity:
            return "it was replaced by another checkpoint"
        return self._damage(manifest, filter(incremental.is_shared, manifest.files))

    def read_base(self, number: int) -> Manifest:
        """The manifest of one that others build on, even if that was deleted. Raises StoreError."""
        home = self.path(number)
        return manifests.read(home, incremental.proof_in(home, manifests.NAME) or manifests.NAME)

    def is_base(self, base: Base) -> bool:
        """Can something build on it?"""
        try:
            return not self._why_no_base(base)
        except StoreError:
            return False

    def _damage(self, manifest: Manifest, names: Iterable[str]) -> str:
        """The first of these files, or of those that they build on, that is not as the manifest
        says, and why; "" if none."""
        base = manifest.bases[0].number if manifest.bases else 0
        manifests.require_own(self.path(manifest.number), whole=True)
        if incremental.base_of(self.path(manifest.number)) != base:
            return f"{incremental.PARENT} was changed or is missing"
        for name in names:
            path, stamp = self.path(manifest.number) / name, manifest.files[name]
            try:
                same = stamp_of(path, stamp.sha256) == stamp or _hash(path) == stamp.sha256
            except FileNotFoundError:
                same = False
            except OSError as error:
                raise StoreError(f"cannot read {path}: {error.strerror}") from None
            if not same:
                return f"{name} {'was changed' if path.exists() else 'is missing'}"
        return ""

    def require_space(self, size: int) -> None:
        """Raises StoreError unless an image of so many bytes would fit."""
        owners.make_private(self.root)
        free = shutil.disk_usage(self.root).free
        if free < size + _SPARE:
            raise StoreError(
                f"a checkpoint needs about {size >> 20} MiB and {_SPARE >> 20} MiB to spare, "
                f"{free >> 20} MiB are free",
                hint="delete checkpoints ('crdebug delete'), or set $CRDEBUG_HOME",
            )

    def begin(self) -> Draft:
        """A fresh draft; what earlier ones left behind is removed. Raises StoreError."""
        try:
            owners.make_private(self.root)
            self.sweep()
            return self.draft(self._last() + 1)
        except OSError as error:
            raise StoreError(f"cannot write to {self.root}: {error.strerror}") from None

    def draft(self, number: int) -> Draft:
        """An empty one for this number. Raises StoreError."""
        draft = Draft(number, self.root / f".draft-{number}")
        try:
            owners.make_private(self.root)
            for directory in (draft.path, draft.images, draft.files, draft.run):
                directory.mkdir(mode=0o700)
        except OSError as error:
            self.discard(draft)
            raise StoreError(f"cannot write to {self.root}: {error.strerror}") from None
        return draft

    def has_remains(self) -> bool:
        """Is anything there that `sweep` would remove?"""
        return any(self.root.glob(".draft-*")) or incremental.has_remains(self.root, manifests.NAME)

    def sweep(self) -> None:
        """Remove what is not a checkpoint and will not become one."""
        for draft in self.root.glob(".draft-*"):
            shutil.rmtree(draft, ignore_errors=True)
        incremental.sweep(self.root, manifests.NAME)

    def _last(self) -> int:
        """The highest number ever given: none is given twice, whatever was deleted."""
        noted = 0
        with contextlib.suppress(FileNotFoundError, ValueError):
            noted = int((self.root / "last").read_text())
        return max(noted, *self.numbers(), 0)

    def note_last(self, number: int) -> None:
        """This number was given."""
        unfinished = self.root / ".draft-last"
        unfinished.write_text(str(max(number, self._last())))
        unfinished.replace(self.root / "last")

    def put(self, draft: Draft) -> None:
        """Move a whole draft to where one of this number may be. Raises OSError."""
        target = self.path(draft.number)
        incremental.drop(target, manifests.NAME)  # damaged, or deleted and needed by others
        draft.path.rename(target)
        sync(self.root)

    def discard(self, draft: Draft) -> None:
        shutil.rmtree(draft.path, ignore_errors=True)

    def publish(
        self,
        draft: Draft,
        manifest: Manifest,
        hashes: Mapping[Path, tuple[int, str]] = MappingProxyType({}),
        began: float | None = None,
    ) -> Checkpoint:
        """Make a draft a checkpoint; slow (it reads and syncs every file), so run in a thread.

        manifest: without `files`, which are found here.  hashes: of files hashed while they were
        written, with how many bytes of them, see RunningHashes.  began: when all this did
        (time.monotonic), for the manifest's `latency`. Raises StoreError; the draft is gone then.
        """
        try:
            paths = list(_files_below(draft.path))
            for path in paths:
                path.chmod(0o600)
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                stamps = list(pool.map(_stamp_and_sync, paths, map(hashes.get, paths)))
            names = [str(path.relative_to(draft.path)) for path in paths]
            latency = manifest.latency if began is None else time.monotonic() - began
            stamped = dict(zip(names, stamps, strict=True))
            whole = replace(manifest, files=stamped, latency=latency)
            unfinished = draft.path / f".{manifests.NAME}"
            unfinished.write_bytes(manifests.encode(whole))
            unfinished.chmod(0o600)
            sync(unfinished)
            unfinished.rename(draft.path / manifests.NAME)
            for directory in (draft.images, draft.files, draft.run, draft.path):
                sync(directory)
            self.note_last(draft.number)
            draft.path.rename(self.path(draft.number))
            sync(self.root)
        except OSError as error:
            self.discard(draft)
            # it may not outlive the machine: not a checkpoint
            incremental.drop(self.path(draft.number), manifests.NAME)
            raise StoreError(f"cannot publish the checkpoint: {error}") from None
        return describe(whole)

    def delete(self, number: int) -> None:
        """Raises StoreError when there is none."""
        if number not in self.numbers():
            self.load(number)
        try:
            incremental.remove(self.root, number, manifests.NAME)
        except OSError as error:
            raise StoreError(
                f"cannot delete checkpoint {self.job}:{number}: {error.strerror}"
            ) from None


def _files_below(root: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(root):
        for name in sorted(names):
            if not (path := Path(directory) / name).is_symlink():
                yield path


def _size(home: Path) -> int:
    """Of all files that are there; some may be deleted meanwhile."""
    size = 0
    for path in _files_below(home):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size

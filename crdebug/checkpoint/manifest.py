"""The proof that a checkpoint is whole, and what a restart needs besides the images.

Written last, with a seal, which shows damage; who could have put it there shows in its owner and
mode. Read strictly: an unknown version, a missing or a foreign field is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from signal import SIGBUS, SIGFPE, SIGILL, SIGSEGV

import msgspec

from crdebug.base.errors import StoreError
from crdebug.base.ranks import RankSet
from crdebug.checkpoint.open_files import SavedFile
from crdebug.node import owners

VERSION = 8
NAME = "manifest.json"
_SEAL = "seal"
_MOST_RANKS = 1 << 16  # MAX_RANKS of native/starter/starter.c
# The files of a draft (crdebug.checkpoint.store), and nothing that leads out of it.
_PART = re.compile(r"(images|files|run)(/(?!\.\.?(/|\Z))[^/\0]+)+")
_SIGNAL = re.compile(r"([0-9a-f]{2}){12,}|")
_FAULTS = frozenset((SIGSEGV, SIGBUS, SIGILL, SIGFPE))


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """Where a thread was. tid: in the job's PID namespace. orig_rax: the system call's number it
    was in; 2**64 - 1 if in none.

    signal: the siginfo_t, in hexadecimal, of the signal that it had stopped at and was to get when
    it went on; empty if there was none. told: had the debugger told of that?"""

    tid: int
    pc: int
    sp: int
    rax: int
    orig_rax: int
    signal: str = ""
    told: bool = False

    @property
    def siginfo(self) -> bytes:
        """The siginfo_t itself; empty if there is none."""
        return bytes.fromhex(self.signal)

    @property
    def signal_number(self) -> int:
        """0 if there is none."""
        return int.from_bytes(self.siginfo[:4], "little")

    @property
    def is_fault(self) -> bool:
        """Is it caused by the instruction that the thread is at, which would cause it again?"""
        code = int.from_bytes(self.siginfo[8:12], "little", signed=True)
        return self.signal_number in _FAULTS and code > 0


@dataclass(frozen=True, slots=True)
class RankRecord:
    """pid: in the job's PID namespace; 0 if the rank had ended. location: for people.
    threads: empty without a debugger. selected: the TID of the debugger's thread, 0 if there was
    none. now: the rank's clock in half ticks, see crdebug.base.instant; 0 if its MPI calls were
    not recorded."""

    rank: int
    pid: int
    executable: str
    location: str
    threads: tuple[ThreadRecord, ...]
    selected: int
    now: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file that belongs to the checkpoint: its content, and what shows without reading it that
    it was not touched since."""

    sha256: str
    size: int
    inode: int
    modified: int
    changed: int


@dataclass(frozen=True, slots=True)
class Binary:
    """A file that the job's processes have mapped. build_id: of the ELF note, or "size:mtime"."""

    path: str
    build_id: str


@dataclass(frozen=True, slots=True)
class Base:
    """An earlier checkpoint whose images are needed too. identity: see Manifest.identity."""

    number: int
    identity: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint. time: seconds since 1970. layer: what records MPI calls, or "".
    branch: of the job's history. added: what crdebug had set in the launcher's environment.
    first: the PID of the job's first process, in its PID namespace. mounts: by mount point, the
    kind of file system on which the job has files open.
    bases: what the images build on, the nearest first; empty if they are full.
    memory: bytes that the processes need.  paused: seconds that the CRS took, in which the job
    stood.  latency: seconds from its begin until all but this was safe on the disk."""

    version: int
    job: str
    number: int
    time: float
    note: str
    debugger: bool
    incarnation: int
    argv: tuple[str, ...]
    directory: str
    host: str
    kernel: str
    crs: str
    shim: str
    layer: str
    branch: str
    signal: int
    added: dict[str, str]
    first: int
    mounts: dict[str, str]
    ranks: tuple[RankRecord, ...]
    binaries: tuple[Binary, ...]
    saved: tuple[SavedFile, ...]
    files: dict[str, Stamp]
    bases: tuple[Base, ...]
    memory: int
    paused: float
    latency: float

    @property
    def alive(self) -> RankSet:
        """The ranks that had not ended."""
        return RankSet.of(rank.rank for rank in self.ranks if rank.pid)

    @property
    def ended(self) -> RankSet:
        """The ranks that had ended: a restart does not bring them back."""
        return RankSet.of(rank.rank for rank in self.ranks if not rank.pid)

    @property
    def identity(self) -> str:
        """A hash of its files' hashes: the same wherever the checkpoint lies."""
        text = "".join(f"{name} {self.files[name].sha256}\n" for name in sorted(self.files))
        return hashlib.sha256(text.encode()).hexdigest()


def encode(manifest: Manifest) -> bytes:
    """A manifest as it is on disk: JSON, with its seal."""
    document = msgspec.to_builtins(manifest)
    return seal(document)


def seal(document: dict[str, object]) -> bytes:
    """A manifest's fields as they are on disk: the last one is the SHA-256 of all others."""
    whole = {**document, _SEAL: _sha256(document)}
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


def _sha256(document: Mapping[str, object]) -> str:
    rest = {name: document[name] for name in sorted(document) if name != _SEAL}
    return hashlib.sha256(msgspec.json.encode(rest, order="sorted")).hexdigest()


def read(directory: Path, name: str = NAME) -> Manifest:
    """The manifest of a checkpoint's directory. Raises StoreError: also if others than its owner
    could have changed it, since a restart obeys it."""
    path = directory / name
    try:
        data = path.read_bytes()
        require_own(path)
        return _decode(data, path)
    except FileNotFoundError:
        raise StoreError(f"{directory} holds no checkpoint: there is no {name}") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}",
            hint="it was changed since it was written; delete the checkpoint",
        ) from None


def require_own(path: Path, *, whole: bool = False) -> None:
    """Raises StoreError when others could change the files there. whole: all that is in it."""
    try:
        problem = (owners.why_not_all_own if whole else owners.why_not_own)(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None
    if problem:
        hint = "a checkpoint is a program that is run: take it only from a place of yours"
        raise StoreError(problem, hint=hint)


def _decode(data: bytes, path: Path) -> Manifest:
    """Raises StoreError, msgspec.MsgspecError, RecursionError."""
    document = msgspec.json.decode(data, type=dict[str, object])
    version = document.get("version")
    if version != VERSION:
        raise StoreError(
            f"{path} has version {str(version)[:20]}, this crdebug reads version {VERSION}",
            hint="use the crdebug that took the checkpoint",
        )
    if document.pop(_SEAL, None) != _sha256(document):
        raise msgspec.ValidationError("it is not what was sealed")
    manifest = msgspec.convert(document, type=Manifest, strict=True)
    # msgspec passes over foreign fields of a dataclass, and fills in those that have a default.
    if msgspec.json.decode(msgspec.json.encode(manifest)) != document:
        raise msgspec.ValidationError("it has foreign or missing fields")
    for problem in _unsound(manifest):
        raise msgspec.ValidationError(problem)
    return manifest


def _unsound(manifest: Manifest) -> Iterator[str]:
    """What no crdebug would have written."""
    for name in manifest.files:
        if not _PART.fullmatch(name):
            yield f"{name[:80]!r} is not part of a checkpoint"
    for file in manifest.saved:
        copied = file.saved == "" or f"files/{file.saved}" in manifest.files
        if not (copied and file.path.startswith("/") and file.size >= 0):
            yield f"{file.path[:80]!r} is not a saved file"
    numbers = [manifest.number, *(base.number for base in manifest.bases), 0]
    if any(above <= below for above, below in pairwise(numbers)):
        yield "it builds on a newer checkpoint"
    ranks = [rank.rank for rank in manifest.ranks]
    if ranks != sorted(set(ranks)) or not all(0 <= rank < _MOST_RANKS for rank in ranks):
        yield "its ranks are not in order"
    for rank in manifest.ranks:
        if rank.pid < 0 or any(not _SIGNAL.fullmatch(each.signal) for each in rank.threads):
            yield f"rank {rank.rank} is not a process"
        if rank.pid == 0 and rank.threads:
            yield f"rank {rank.rank} has ended, and has threads"
    if ranks and not any(rank.pid for rank in manifest.ranks):
        yield "all ranks have ended"

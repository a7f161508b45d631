"""What proves a checkpoint whole, and what a restart needs besides the images.

Written last; read strictly: an unknown version, a missing or a foreign field is refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from signal import SIGBUS, SIGFPE, SIGILL, SIGSEGV

import msgspec

from crdebug.checkpoint.files import SavedFile
from crdebug.errors import StoreError

VERSION = 5
NAME = "manifest.json"
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
    def signal_number(self) -> int:
        """0 if there is none."""
        return int.from_bytes(bytes.fromhex(self.signal)[:4], "little")

    @property
    def is_fault(self) -> bool:
        """Is it of an instruction that the thread is at, and which does it again?"""
        code = int.from_bytes(bytes.fromhex(self.signal)[8:12], "little", signed=True)
        return self.signal_number in _FAULTS and code > 0


@dataclass(frozen=True, slots=True)
class RankRecord:
    """pid: in the job's PID namespace. location: for people. threads: empty without a debugger.
    selected: the TID of the debugger's thread, 0 if there was none. now: the rank's clock in half
    ticks, see crdebug.timeline.calls; 0 if its MPI calls were not recorded."""

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
    bases: what the images build on, the nearest first; empty if they are full.
    memory: bytes that the processes need."""

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
    mounts: dict[str, str]
    ranks: tuple[RankRecord, ...]
    binaries: tuple[Binary, ...]
    saved: tuple[SavedFile, ...]
    files: dict[str, Stamp]
    bases: tuple[Base, ...]
    memory: int

    @property
    def identity(self) -> str:
        """Of what the checkpoint is made of, wherever it lies: a hash of its files' hashes."""
        text = "".join(f"{name} {self.files[name].sha256}\n" for name in sorted(self.files))
        return hashlib.sha256(text.encode()).hexdigest()


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def read(directory: Path, name: str = NAME) -> Manifest:
    """The manifest of a checkpoint's directory. Raises StoreError."""
    path = directory / name
    try:
        data = path.read_bytes()
        document = msgspec.json.decode(data, type=dict[str, object])
        version = document.get("version")
        if version != VERSION:
            raise StoreError(
                f"{path} has version {version}, this crdebug reads version {VERSION}",
                hint="use the crdebug that took the checkpoint",
            )
        manifest = msgspec.json.decode(data, type=Manifest, strict=True)
        # msgspec passes over foreign fields of a dataclass, and fills in those that have a default.
        if msgspec.json.decode(encode(manifest)) != document:
            raise msgspec.ValidationError("it has foreign or missing fields")
        return manifest
    except FileNotFoundError:
        raise StoreError(f"{directory} holds no checkpoint: there is no {name}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}",
            hint="it was changed since it was written; delete the checkpoint",
        ) from None

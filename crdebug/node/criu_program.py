"""Find a CRIU that works on the running kernel. We try each one (crdebug.node.criu_trial), and
never trust its version or `criu check`."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crdebug.base import settings
from crdebug.node import criu_trial, owners, proc, scratch
from crdebug.node.ask import find_program, first_line, run

# `criu check --feature`: optional features that make checkpoints faster or smaller.
_TRACKS = "mem_dirty_track"
CRIU_FEATURES = (_TRACKS, "uffd", "pidfd_store")

TRIAL = Path(criu_trial.__file__)


@dataclass(frozen=True, slots=True)
class CriuProgram:
    """A CRIU that works on the running kernel.

    path: absolute.  version: as printed by `criu --version`.  tried: what it did in the trial.
    tracks: the kernel tracks the pages that change after a dump (CRIU itself tries that).
    """

    path: str
    version: str
    tried: str
    tracks: bool


@dataclass(frozen=True, slots=True)
class CriuAttempt:
    """One candidate for the CRIU, and the outcome of its trial.

    program: None if it failed, or does not exist.  said: what it did, or why it failed.
    """

    candidate: str
    program: CriuProgram | None
    said: str
    there: bool = True


def find_criu() -> CriuProgram | None:
    """The first of crdebug.base.settings.criu_candidates() that works, else None.

    A trial takes some tenths of a second; a success is kept on disk, for this boot and this state
    of the program's file, so that checkpoints need not wait for a trial.
    """
    return probe_criu()[-1].program


def probe_criu() -> tuple[CriuAttempt, ...]:
    """The outcome for each candidate, up to the first that works."""
    attempts: list[CriuAttempt] = []
    for candidate in settings.criu_candidates():
        attempts.append(try_criu(candidate))
        if attempts[-1].program:
            break
    return tuple(attempts)


def try_criu(candidate: str) -> CriuAttempt:
    """Try this program, unless the outcome is known; only this process remembers a failure."""
    path = find_program(candidate)
    if path is None:
        return CriuAttempt(candidate, None, "there is no such program", there=False)
    try:
        conditions = _conditions(path)
    except OSError as error:  # crdebug may be where this user cannot read
        return CriuAttempt(candidate, None, f"it cannot be tried: {error}")
    return _try_criu(candidate, path, conditions)


@functools.cache
def _try_criu(candidate: str, path: str, conditions: str) -> CriuAttempt:
    known = _remembered(path, conditions)
    if known is not None:
        return CriuAttempt(candidate, known, known.tried)
    # a process of its own: it adopts the processes that the CRIU restores
    with scratch.directory() as work:
        ran = run([sys.executable, "-I", "-S", str(TRIAL), path], cwd=str(work))
    said = first_line(ran.out) or first_line(ran.err) or f"exit status {ran.status}"
    if not ran.ok:
        return CriuAttempt(candidate, None, said)
    version = run([path, "--version"]).out
    numbers = [line.split(":", 1)[1].strip() for line in version.splitlines() if ":" in line]
    tracks = run([path, "check", "--feature", _TRACKS]).ok
    program = CriuProgram(path, numbers[0] if numbers else "", said, tracks)
    _remember(program, conditions)
    return CriuAttempt(candidate, program, said)


# ---- earlier successes --------------------------------------------------------------------------


def _conditions(path: str) -> str:
    """The conditions of a trial's outcome that are quick to find out. A kernel cannot change
    without a new boot id; this user's rights, and the trial itself, can."""
    details = Path(path).stat()
    trial = hashlib.sha256(TRIAL.read_bytes()).hexdigest()
    state = (details.st_ino, details.st_size, details.st_mtime_ns, details.st_ctime_ns)
    return " ".join(map(str, (proc.boot_id(), os.geteuid(), *state, trial)))


@dataclass(frozen=True, slots=True)
class _Memory:
    conditions: str
    program: CriuProgram


def _memory_of(path: str) -> Path:
    return settings.cache_home() / "criu" / f"{hashlib.sha256(path.encode()).hexdigest()[:16]}.json"


def _remembered(path: str, conditions: str) -> CriuProgram | None:
    try:
        memory = msgspec.json.decode(_memory_of(path).read_bytes(), type=_Memory)
    except (OSError, msgspec.MsgspecError):
        return None
    known = memory.conditions == conditions and memory.program.path == path
    return memory.program if known else None


def _remember(program: CriuProgram, conditions: str) -> None:
    target = _memory_of(program.path)
    # if it cannot be kept, the only cost is another trial next time
    with contextlib.suppress(OSError):
        owners.make_readable(target.parent)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as unfinished:
            unfinished.write(msgspec.json.encode(_Memory(conditions, program)))
        os.replace(unfinished.name, target)


# ---- the rest -----------------------------------------------------------------------------------


def probe_criu_features(program: CriuProgram) -> tuple[tuple[str, bool], ...]:
    """Which of CRIU_FEATURES this kernel supports."""
    return tuple(
        (feature, run([program.path, "check", "--feature", feature]).ok)
        for feature in CRIU_FEATURES
    )

"""Which CRIU works on the running kernel? Tried by `criu check`, never inferred from a version."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from crdebug import config
from crdebug.node.ask import find_program, first_line, run

# `criu check --feature`: what would make checkpoints faster or smaller, and is not needed.
CRIU_FEATURES = ("mem_dirty_track", "uffd", "pidfd_store")


@dataclass(frozen=True, slots=True)
class CriuProgram:
    """A CRIU that works on the running kernel.

    path: absolute.  version: as `criu --version` tells.  checked: what `criu check` said.
    """

    path: str
    version: str
    checked: str


@dataclass(frozen=True, slots=True)
class CriuAttempt:
    """One candidate for the CRIU, tried by `criu check`.

    program is None when it failed, or is not there at all.  said: what it said of itself.
    """

    candidate: str
    program: CriuProgram | None
    said: str
    there: bool = True


def find_criu() -> CriuProgram | None:
    """The first of crdebug.config.criu_candidates() that passes `criu check`, else None.

    The answer holds for the running kernel, and is kept for this process's lifetime (a check
    takes about 40 ms, so nothing is kept on disk, where it could outlive a kernel).
    """
    return probe_criu()[-1].program


def probe_criu() -> tuple[CriuAttempt, ...]:
    """What became of each candidate, until the first that works."""
    attempts: list[CriuAttempt] = []
    for candidate in config.criu_candidates():
        attempts.append(try_criu(candidate))
        if attempts[-1].program:
            break
    return tuple(attempts)


def try_criu(candidate: str) -> CriuAttempt:
    """Run `criu check` with this program; once for each state of its file."""
    path = find_program(candidate)
    if path is None:
        return CriuAttempt(candidate, None, "there is no such program", there=False)
    return _try_criu(candidate, path, Path(path).stat().st_mtime_ns)


@functools.cache
def _try_criu(candidate: str, path: str, _changed: int) -> CriuAttempt:
    ran = run([path, "check"])
    if not ran.ok:
        said = criu_complaint(ran.err or ran.out) or f"exit status {ran.status}"
        return CriuAttempt(candidate, None, said)
    version = run([path, "--version"]).out
    said = first_line(ran.out) or first_line(ran.err)
    numbers = [line.split(":", 1)[1].strip() for line in version.splitlines() if ":" in line]
    return CriuAttempt(candidate, CriuProgram(path, numbers[0] if numbers else "", said), said)


def criu_complaint(text: str) -> str:
    """The first line of CRIU's output that names the cause. Pure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # "util.c: exited, status=1" is a helper that ended, not why
    telling = [line for line in lines if "criu/util.c" not in line]
    errors = [line for line in telling if "Error" in line]
    return next(iter([*errors, *telling, *lines]), "")


def probe_criu_features(program: CriuProgram) -> tuple[tuple[str, bool], ...]:
    """Which of CRIU_FEATURES this kernel gives."""
    return tuple(
        (feature, run([program.path, "check", "--feature", feature]).ok)
        for feature in CRIU_FEATURES
    )

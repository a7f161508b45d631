"""Jobs without a container, where namespaces are refused: why, and which processes are a job's.

The starter and its keeper end such a job (native/starter/bare.c). In case both were killed, its
processes are known by a variable in their environment, too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable
from crdebug.node import proc, programs, signals

MARK = "CRDEBUG_JOB"
DIRECTORY = "CRDEBUG_DIR"  # of places.h
LOGS = "CRDEBUG_TIME"  # of clock.h
TRACER = "CRDEBUG_TRACER"  # of places.h
OVER_HOSTS = "CRDEBUG_OVER_HOSTS"  # of places.h
RANK = "CRDEBUG_RANK"  # of shim.c
CONNECT = "CRDEBUG_CONNECT"  # of clock.h
VARIABLES = (MARK, DIRECTORY, LOGS, TRACER, OVER_HOSTS, RANK, CONNECT)
_SYSTEM = Path("/proc/sys")
_SYS_ADMIN = 1 << 21  # of capabilities(7)
_PLACES = (Path("/dev/shm"), Path("/tmp"))
_ROUNDS, _PAUSE = 500, 0.002  # seconds

# ---- why there is no container -------------------------------------------------------------------


async def why_no_container(starter: Path, deadline: Deadline) -> str:
    """The reason, as a clause, why no container can be made for a job; "" if one can."""
    root, own = os.geteuid() == 0, proc.status(os.getpid())
    if root and _is_privileged(own):
        return ""  # if it fails all the same, its error says more
    tried = await programs.run([str(starter), "--try-container"], deadline, "a container")
    if tried.status == 0:
        return ""
    number, _, step = tried.out.partition(" ")
    return in_words(int(number or 0), step.strip(), own, root=root)


def _is_privileged(status: Mapping[str, str]) -> bool:
    return bool(int(status["CapEff"], 16) & _SYS_ADMIN) and status.get("Seccomp", "0") == "0"


def in_words(
    error: int, step: str, status: Mapping[str, str], *, root: bool, system: Path = _SYSTEM
) -> str:
    """Why a step of making a container failed with this error. status: of this process, as in
    proc(5); system: /proc/sys."""
    if not root and _number(system / "user/max_user_namespaces") == 0:
        return "user namespaces are switched off (user.max_user_namespaces is 0)"
    if error == errno.ENOSPC:
        return "there are as many namespaces as this machine allows (user.max_*_namespaces)"
    if status.get("Seccomp", "0") != "0" and error in (errno.EPERM, errno.ENOSYS):
        return f"a seccomp filter, as containers have one, does not allow it to {step}"
    if not root and _number(system / "kernel/unprivileged_userns_clone") == 0:
        return "user namespaces are root's only (kernel.unprivileged_userns_clone is 0)"
    if not root and _number(system / "kernel/apparmor_restrict_unprivileged_userns") == 1:
        return (
            "AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)"
        )
    return f"the kernel does not let it {step}: {os.strerror(error)}"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


# ---- Yama ----------------------------------------------------------------------------------------


def yama_scope(system: Path = _SYSTEM) -> int:
    """Yama's ptrace_scope; 0 without Yama."""
    return _number(system / "kernel/yama/ptrace_scope") or 0


def why_no_tracing(scope: int, *, root: bool) -> str:
    """The reason, as a sentence, why no process can be debugged at all; "" if it can."""
    if scope >= 3:
        return "Yama lets nobody debug a process (kernel.yama.ptrace_scope is 3)"
    if scope == 2 and not root:
        return "Yama lets only root debug a process (kernel.yama.ptrace_scope is 2)"
    return ""


# ---- its processes -------------------------------------------------------------------------------


def new_mark() -> str:
    """A value for MARK that nobody can guess."""
    return secrets.token_hex(16)


def scratch_of(mark: str) -> Path:
    """Where the MPI of a job has its files: in memory if that can be, with a short path for
    sockets."""
    place = next((each for each in _PLACES if os.access(each, os.W_OK | os.X_OK)), _PLACES[-1])
    return place / f"crdebug-{mark[:16]}"


def make_scratch(mark: str) -> Path:
    """Make that directory. Raises NotAvailable."""
    scratch = scratch_of(mark)
    try:
        scratch.mkdir(mode=0o700)
    except OSError as error:
        raise NotAvailable(f"cannot make {scratch}: {error.strerror}") from None
    return scratch


def processes_of(mark: str) -> tuple[int, ...]:
    """The live processes with this value of MARK in their environment, as it was when their program
    started."""
    wanted = f"{MARK}={mark}".encode()
    return tuple(
        pid
        for pid in proc.pids()
        if wanted in _environment(pid).split(b"\0") and proc.is_alive(pid) and pid != os.getpid()
    )


def _environment(pid: int) -> bytes:
    try:
        return (proc.PROC / str(pid) / "environ").read_bytes()
    except OSError:  # another user's, or it has ended
        return b""


def end_remains(mark: str) -> None:
    """End what is left of a job whose starter has ended, and remove its files."""
    for _ in range(_ROUNDS):  # one may have begun another while it was looked for
        if not (pids := processes_of(mark)):
            break
        signals.kill_all(pids, signal.SIGKILL)
        time.sleep(_PAUSE)
    with contextlib.suppress(OSError):
        place = os.open(scratch_of(mark), os.O_RDONLY | os.O_DIRECTORY)
        try:  # somebody may still read there, and then whoever waits for that removes it
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(scratch_of(mark))
        finally:
            os.close(place)

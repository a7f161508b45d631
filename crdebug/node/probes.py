"""The abilities of this machine, found by trying; never inferred from a version.

Every probe returns data and raises nothing: "missing" is an answer too. They take from a few
milliseconds (capabilities) to some tenths of a second (starting a GDB), so they are plain
functions; call them in a thread if the event loop must not wait. crdebug.commands.doctor reports
the answers; the tests' tiers use the three *_obstacle functions.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from crdebug.base import settings
from crdebug.node import scratch
from crdebug.node.ask import Ran, find_program, first_line, gdb_program, not_found, run
from crdebug.node.criu_program import TRIAL, CriuAttempt, probe_criu, probe_criu_features
from crdebug.node.criu_program import CriuProgram as CriuProgram
from crdebug.node.criu_program import find_criu as find_criu
from crdebug.node.launchers import LAUNCHER_VARIANTS, LAUNCHERS

# (name, bit), include/uapi/linux/capability.h
CAPABILITIES = (
    ("CAP_KILL", 5),
    ("CAP_NET_ADMIN", 12),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_RESOURCE", 24),
    ("CAP_CHECKPOINT_RESTORE", 40),
)

# Linux's switches by which an ordinary user may make no user namespace, and what they are set to
# then: user_namespaces(7), Debian's patch (until 10), Ubuntu's AppArmor (since 23.10).
SWITCHES = (
    ("user.max_user_namespaces", "0"),
    ("kernel.unprivileged_userns_clone", "0"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
)
# not of the machine, but of the process: a container's engine has put a filter on system calls
SECCOMP = "seccomp"

# Attach to the process in the argument as a debugger would: from a process that is not its parent,
# where Yama's ptrace_scope makes a difference.
_PTRACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
libc.ptrace.restype = ctypes.c_long
PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000
pid = int(sys.argv[1])
for request in (PTRACE_ATTACH, PTRACE_DETACH):
    if libc.ptrace(request, pid, None, None) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    if request == PTRACE_ATTACH:
        os.waitpid(pid, WALL)
"""


# A process as in a job that crdebug starts, for the above: it allows debuggers (PR_SET_PTRACER, for
# Yama 1), and is in a user namespace that the user owns, if he may make one (for Yama 2).
_LIKE_A_RANK = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
if os.geteuid():
    libc.unshare(0x10000000)
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether something works.

    works: it passed the trial.  said: one line of its output.
    path: the program, if there is one.  version: its own version text.
    """

    works: bool
    said: str = ""
    path: str | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class GdbAnswer:
    """A GDB: works means that it started and ran Python. python: the version inside it."""

    works: bool
    said: str = ""
    path: str | None = None
    version: str = ""
    python: str = ""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program that starts MPI jobs. family is "Open MPI", "MPICH" or "" when unknown."""

    path: str
    family: str
    version: str


@dataclass(frozen=True, slots=True)
class Ptrace:
    """works: a process could trace any of this user's that is not its child.  ranks: at least one
    like those that crdebug starts.  scope: Yama's, None without Yama."""

    works: bool
    said: str
    scope: int | None
    ranks: bool = True


@dataclass(frozen=True, slots=True)
class Namespaces:
    """works: a job's container could be made.  against: the SWITCHES, and SECCOMP, that are set
    against it."""

    works: bool
    said: str
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Space:
    """Free bytes where `path` is, or would be created."""

    path: str
    free: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The answers of all probes."""

    python: Answer
    gdb: GdbAnswer
    cc: Answer
    mpicc: Answer
    mpifort: Answer
    asyncssh: Answer
    launchers: tuple[Launcher, ...]
    criu: tuple[CriuAttempt, ...]
    criu_features: tuple[tuple[str, bool], ...]
    ptrace: Ptrace
    namespaces: Namespaces
    capabilities: tuple[tuple[str, bool], ...]
    space: Space
    kernel: str
    root: bool


# ---- debugger and compilers --------------------------------------------------------------------


@functools.cache
def probe_gdb(program: str = "gdb") -> GdbAnswer:
    """Start this GDB and run Python in it."""
    path = find_program(gdb_program(program))
    if path is None:
        return GdbAnswer(False, not_found(program))
    version = first_line(run([path, "--version"]).out)
    # -nx: the user's own start-up files must neither help nor break the answer
    script = "python import platform; print('python', platform.python_version())"
    ran = run([path, "-nx", "-batch", "-ex", script])
    lines = [line for line in ran.out.splitlines() if line.startswith("python ")]
    if not ran.ok or not lines:
        said = first_line(ran.err) or first_line(ran.out) or f"exit status {ran.status}"
        return GdbAnswer(False, said, path, version)
    return GdbAnswer(True, "", path, version, lines[-1].split()[1])


def _probe_compiler(name: str, suffix: str, source: str) -> Answer:
    path = find_program(name)
    if path is None:
        return Answer(False, not_found(name))
    version = first_line(run([path, "--version"]).out)
    with scratch.directory() as directory:
        text = directory / f"probe{suffix}"
        text.write_text(source)
        ran = run([path, "-o", "probe", text.name], cwd=str(directory))
    errors = [line for line in ran.err.splitlines() if "error" in line.lower()]
    said = "" if ran.ok else first_line("\n".join(errors) or ran.err) or "it gives no reason"
    return Answer(ran.ok, said, path, version)


@functools.cache
def probe_cc(program: str = "cc") -> Answer:
    """Compile and link a C program with threads, like crdebug's native part."""
    return _probe_compiler(program, ".c", "#include <pthread.h>\nint main(void) { return 0; }\n")


@functools.cache
def probe_mpicc(program: str = "mpicc") -> Answer:
    """Compile and link a C program with MPI."""
    return _probe_compiler(
        program, ".c", "#include <mpi.h>\nint main(void) { MPI_Init(0, 0); return 0; }\n"
    )


@functools.cache
def probe_mpifort(program: str = "mpifort") -> Answer:
    """Compile and link a Fortran program with MPI."""
    source = "program probe\n  use mpi\n  integer :: e\n  call mpi_init(e)\nend program\n"
    return _probe_compiler(program, ".f90", source)


# ---- MPI ---------------------------------------------------------------------------------------


@functools.cache
def probe_launchers() -> tuple[Launcher, ...]:
    """Every MPI launcher in PATH, one entry for each real file, in PATH's order."""
    found: dict[str, Launcher] = {}
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for name in (base + variant for base in LAUNCHERS for variant in LAUNCHER_VARIANTS):
            path = Path(directory or ".", name).absolute()
            # os.path, as PATH may lead through directories that this user may not enter.
            if not (os.path.isfile(path) and os.access(path, os.X_OK)):
                continue
            real = str(path.resolve())
            if real not in found:
                found[real] = _launcher(path)
    return tuple(found.values())


def _launcher(path: Path) -> Launcher:
    ran = run([str(path), "--version"])
    family, version = mpi_family(ran.out + ran.err)
    if family == "MPICH":
        # hydra's own version can differ from the library's, which mpichversion prints
        teller = path.with_name("mpichversion")
        if os.path.isfile(teller):
            version = mpi_family("MPICH\n" + run([str(teller)]).out)[1] or version
    return Launcher(str(path), family, version)


def mpi_family(text: str) -> tuple[str, str]:
    """Family and version, from the output of a launcher's --version. Pure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        # "mpirun (Open MPI) 4.1.4"; Open MPI 5 the same, or "prterun (PRRTE) 3.0.11"
        if any(word in line for word in ("(Open MPI)", "(OpenRTE)", "PRRTE")):
            return "Open MPI", line.split(")", 1)[-1].strip() or line
    joined = text.lower()
    if "hydra" in joined or "mpich" in joined:
        for line in lines:
            key, colon, value = line.partition(":")
            if colon and key.strip().lower() in ("version", "mpich version"):
                return "MPICH", value.strip()
        return "MPICH", ""
    return "", lines[0] if lines else ""


# ---- the kernel's permissions ------------------------------------------------------------------


def _status_field(name: str) -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return ""


def probe_capabilities() -> tuple[tuple[str, bool], ...]:
    """Which of CAPABILITIES are effective in this process."""
    effective = int(_status_field("CapEff") or "0", 16)
    return tuple((name, bool(effective >> bit & 1)) for name, bit in CAPABILITIES)


def _yama_scope() -> int | None:
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return None


@functools.cache
def probe_ptrace() -> Ptrace:
    """Let one child of ours trace another one, as GDB traces a rank."""
    # both wait for input that never comes, and end on their own if we die
    ran = _trace(["cat"])
    ranks = ran.ok or _trace([sys.executable, "-I", "-c", _LIKE_A_RANK], says_ready=True).ok
    return Ptrace(ran.ok, "" if ran.ok else first_line(ran.err), _yama_scope(), ranks)


def _trace(argv: Sequence[str], *, says_ready: bool = False) -> Ran:
    try:
        started = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        return Ran(None, "", error.strerror or str(error))
    with started as tracee:
        try:
            if says_ready:
                assert tracee.stdout is not None
                tracee.stdout.readline()
            return run([sys.executable, "-I", "-c", _PTRACE, str(tracee.pid)])
        finally:
            tracee.kill()


@functools.cache
def probe_namespaces() -> Namespaces:
    """Make a job's container, with a process in it."""
    ran = run([sys.executable, "-I", "-S", str(TRIAL), "--container"])
    if ran.ok:
        return Namespaces(True, "")
    said = first_line(ran.out) or first_line(ran.err) or f"exit status {ran.status}"
    against = [name for name, value in SWITCHES if _switch(name) == value]
    if int(_status_field("Seccomp") or "0"):
        against.append(SECCOMP)
    return Namespaces(False, said, tuple(against))


def _switch(name: str) -> str:
    """The value of one of sysctl(8)'s, "" if there is no such."""
    try:
        return Path("/proc/sys", *name.split(".")).read_text().strip()
    except OSError:
        return ""


# ---- the rest ----------------------------------------------------------------------------------


def probe_space(path: Path) -> Space:
    """Free space at the nearest directory above `path` that exists."""
    existing = next(place for place in (path, *path.parents) if os.path.exists(place))
    return Space(str(path), shutil.disk_usage(existing).free)


def probe_package(name: str) -> Answer:
    """Is a Python package there, for this Python?"""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Answer(False, "not installed")
    return Answer(True, version=version)


def probe_machine(*, gdb: str = "gdb", compiler: str = "cc") -> Machine:
    """Run all probes; takes about a second."""
    criu = probe_criu()
    program = criu[-1].program if criu else None
    return Machine(
        python=Answer(sys.version_info >= (3, 11), "", sys.executable, platform.python_version()),
        gdb=probe_gdb(gdb),
        cc=probe_cc(compiler),
        mpicc=probe_mpicc(),
        mpifort=probe_mpifort(),
        asyncssh=probe_package("asyncssh"),
        launchers=probe_launchers(),
        criu=criu,
        # asked outside of a container, where an ordinary user's CRIU refuses to answer
        criu_features=probe_criu_features(program) if program and os.geteuid() == 0 else (),
        ptrace=probe_ptrace(),
        namespaces=probe_namespaces(),
        capabilities=probe_capabilities(),
        space=probe_space(settings.state_home()),
        kernel=platform.release(),
        root=os.geteuid() == 0,
    )


# ---- obstacles ----------------------------------------------------------------------------------


def debugging_obstacle() -> str | None:
    """Why a program cannot be compiled and debugged here, or None."""
    gdb, cc, ptrace = probe_gdb(), probe_cc(), probe_ptrace()
    if not gdb.works:
        return f"gdb: {gdb.said}"
    if not cc.works:
        return f"cc: {cc.said}"
    return None if ptrace.ranks else f"ptrace: {ptrace.said}"


def mpi_obstacle() -> str | None:
    """Why an MPI program cannot be compiled, started and debugged here, or None."""
    mpicc = probe_mpicc()
    if not mpicc.works:
        return f"mpicc: {mpicc.said}"
    if not probe_launchers():
        return f"mpi: {not_found(LAUNCHERS[0])}"
    return debugging_obstacle()


def checkpoint_obstacle() -> str | None:
    """Why an MPI job cannot be checkpointed and restarted here, or None."""
    if find_criu() is None:
        return "criu: " + "; ".join(f"{one.candidate}: {one.said}" for one in probe_criu())
    namespaces = probe_namespaces()
    if not namespaces.works:
        return f"namespaces: {namespaces.said}"
    return mpi_obstacle()

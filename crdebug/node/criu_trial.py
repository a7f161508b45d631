"""Does a CRIU work on the running kernel, for this user? Make it dump and restore two processes.

    python3 criu_trial.py CRIU          status 0, or 1; one line gives the result
    python3 criu_trial.py --container   the same, of a container alone

`criu check` is not enough: it says "Looks good" where a dump fails because the kernel has changed
its handling of a kind of socket (CRIU 4.1 on Linux 6.16, CRIU's issue 2705). So the processes here
have all that a job has: a container like a job's, a TCP connection, a listening socket, shared
memory, a pipe, a terminal; and CRIU gets the same options as for a job.

This file needs only Python's own library: scripts/setup runs it before anything else is installed.
It is always a process of its own, since it adopts what it starts. It leaves nothing behind; if it
is killed, its containers end on their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

# ---- CRIU's options, for a job and for a trial (criu(8)) ---------------------------------------

COMMON = (
    "--tcp-established",  # the launcher's connections to its ranks
    "--ext-unix-sk",
    "--file-locks",
    "--link-remap",  # for unlinked files that have another name
    "--ghost-limit",  # … or none: MPICH's shared memory is 4 MB of that, the default is 1 MB
    "512M",
    "--manage-cgroups=ignore",
)
# One machine, and all of it frozen: no packet can arrive meanwhile. The default calls iptables.
DUMP = ("--network-lock", "skip", "--leave-running")
RESTORE = ("--restore-detached",)
# For a user who is not root, of whatever capabilities in the container.
UNPRIVILEGED = ("--unprivileged",)

# CRIU reports the first where a host forbids raising RLIMIT_NOFILE, and carries on. The second, a
# helper's exit status, is not the cause of a failure.
_HARMLESS = ("RLIMIT_NOFILE", "exited, status=")
_ERROR = re.compile(r"^(?:\([\d.]+\))?\s*(?:\d+: )?Error \([^)]*\): (.*)$")


def errors_in(log: str) -> tuple[str, ...]:
    """The first few causes in a log of CRIU, oldest first. Pure."""
    found = (_ERROR.match(line) for line in log.splitlines())
    texts = [match[1].strip() for match in found if match]
    return tuple(text for text in texts if not any(part in text for part in _HARMLESS))[:4]


# ---- limits ------------------------------------------------------------------------------------

PATIENCE = 45  # seconds; some tenths of one are usual

_MEMORY = "crdebug-trial"  # a file in /dev/shm

# Exit statuses of the first tried process after its restore.
_NO_CONNECTION, _NO_LISTENER, _NO_MEMORY, _NO_PIPE, _NO_TERMINAL = range(11, 16)
_COMPLAINTS = {
    _NO_CONNECTION: "a restored TCP connection is dead",
    _NO_LISTENER: "a restored socket does not listen",
    _NO_MEMORY: "restored memory has changed",
    _NO_PIPE: "a restored pipe has lost what was written to it",
    _NO_TERMINAL: "a restored terminal is dead",
}


# mount(2) fails with EINVAL in a chroot, whose mounts cannot be made private.
NO_MOUNT_POINT = (
    "the root directory is not a mount point, as in a chroot: from outside, 'mount --bind DIR DIR' "
    "before 'chroot DIR'"
)


class Failed(Exception):
    """The CRIU does not work; the text says why."""


# ---- system calls that Python's library lacks ---------------------------------------------------

_CLONE_NEWIPC, _CLONE_NEWUSER = 0x08000000, 0x10000000
# mount, UTS, IPC, PID and network, as for a job (crdebug/native/starter/container.c)
_NAMESPACES = 0x00020000 | 0x04000000 | _CLONE_NEWIPC | 0x20000000 | 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 0x4000, 1 << 18
_PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 36, 47, 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_SETGID, _CAP_SETUID = 6, 7

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def _mount(kind: bytes, point: bytes, flags: int, options: bytes) -> None:
    done = _libc.mount(kind, point, kind, ctypes.c_ulong(flags), options)
    _check(done, f"mount {point.decode()}")


def _raise_loopback() -> None:
    """`ip link set lo up` in this network namespace, without a program (netdevice(7))."""
    up_and_running = 0x1 | 0x40
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        fcntl.ioctl(channel, 0x8914, struct.pack("16sh22x", b"lo", up_and_running))


def _keep_capabilities() -> None:
    """Keep those of the user namespace over execve(2), as ambient ones; root keeps them anyway. But
    with CAP_SETUID and CAP_SETGID, CRIU would become the namespace's root, which nobody is."""
    if os.geteuid() == 0:
        return
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    held = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, held), "capget")
    effective, permitted, _, *high = struct.unpack("6I", held.raw)
    low = permitted & ~(1 << _CAP_SETGID | 1 << _CAP_SETUID)
    data = struct.pack("6I", low & effective, low, low, high[0], high[1], high[1])
    _check(_libc.capset(header, data), "capset")
    for number in range(64):
        if (high[1] << 32 | low) >> number & 1:
            raised = _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0)
            _check(raised, "ambient capabilities")


def _this(*arguments: str) -> list[str]:
    """This program's command line."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), *arguments]


# ---- the container ------------------------------------------------------------------------------

# The tried processes have larger PIDs, so that these are free in a container with a CRIU at work.
_BELOW = 20000


def _make_namespaces() -> None:
    """An ordinary user gets a user namespace that owns the others, and in which he is himself."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _check(_libc.unshare(_NAMESPACES), "namespaces")
        return
    _check(_libc.unshare(_NAMESPACES | _CLONE_NEWUSER), "namespaces of a user")
    maps = (
        ("uid_map", f"{user} {user} 1"),
        ("setgroups", "deny"),
        ("gid_map", f"{group} {group} 1"),
    )
    for name, text in maps:
        try:
            Path("/proc/self", name).write_text(text)
        except OSError as error:
            raise OSError(error.errno, f"write {name}: {error.strerror}") from None


def _build_container() -> None:
    """By PID 1."""
    if _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
        error = ctypes.get_errno()
        if error != errno.EINVAL:
            raise OSError(error, f"mount /: {os.strerror(error)}")
        raise OSError(error, NO_MOUNT_POINT)
    _mount(b"proc", b"/proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"")
    _mount(b"tmpfs", b"/dev/shm", _MS_NOSUID | _MS_NODEV, b"mode=1777")
    _mount(b"devpts", b"/dev/pts", _MS_NOSUID | _MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=0620")
    bound = _libc.mount(b"/dev/pts/ptmx", b"/dev/ptmx", None, ctypes.c_ulong(_MS_BIND), None)
    _check(bound, "mount /dev/ptmx")
    _raise_loopback()


def _keep(control: int, report: int, *, first: bool) -> NoReturn:
    """PID 1, which is not dumped. It reports `ready PID` with the first tried process, if it is to
    start one, and `ended PID STATUS` of all children; it asks the process whose PID it reads, which
    then ends (`gone PID` if there is none); and ends with whoever writes those."""
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    ready = f"ready {_start_tried() if first else 0}\n"
    os.write(report, ready.encode())
    while True:
        asked, _, _ = select.select([control, woken], [], [])
        if woken in asked:
            os.read(woken, 4096)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    line = f"ended {ended[0]} {os.waitstatus_to_exitcode(ended[1])}\n"
                    os.write(report, line.encode())
        if control in asked:
            pid = os.read(control, 64).strip()
            if not pid:
                os._exit(0)
            try:
                os.kill(int(pid), signal.SIGUSR1)
            except ProcessLookupError:
                os.write(report, b"gone %s\n" % pid)


def _start_tried() -> int:
    """Start the tried processes; returns the PID of the first once all is ready. Raises OSError.

    It executes this program anew: otherwise its file would be mapped from the mount namespace
    outside, and CRIU could not find it in the one inside.
    """
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(_BELOW))
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        os.chdir("/")
        # Nor may a file of the mount namespace outside stay open.
        os.dup2(writer, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        argv = _this("--tried", "3")
        os.execv(argv[0], argv)
    os.close(writer)
    with open(reader, "rb") as problem:
        said = problem.read().decode(errors="replace")
    if said:
        raise OSError(errno.EIO, said)
    return first


# ---- the processes that are tried ---------------------------------------------------------------


def _echo(channel: socket.socket, pipe: int) -> NoReturn:
    """The second process: answers over its TCP connection as long as there is one, after what is in
    the pipe."""
    while data := channel.recv(16):
        channel.sendall(os.read(pipe, 16) + data)
    os._exit(0)


def _tried(report: int) -> NoReturn:
    """Set everything up, close `report` when ready, and wait for the signal to check whether it is
    all still there."""
    if os.geteuid() == 0:
        # as a job's, for System V's shared memory; to restore it takes root
        _check(_libc.unshare(_CLONE_NEWIPC), "an IPC namespace")
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    for descriptor in range(3):
        os.close(descriptor)
        os.open("/dev/null", os.O_RDWR)
    signals = {signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    memory = _shared_memory()
    memory[:5] = b"crdeb"
    outlet, inlet = os.pipe()
    terminal, program = os.openpty()
    listener = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(listener.getsockname())
    there, _ = listener.accept()
    if os.fork() == 0:
        os.close(report)
        here.close()
        listener.close()
        _echo(there, outlet)
    there.close()
    os.write(inlet, b"piped ")
    os.close(report)

    signal.sigwait(signals)
    if bytes(memory[:5]) != b"crdeb":
        os._exit(_NO_MEMORY)
    try:
        here.sendall(b"ping")
        answer = here.recv(16)
    except OSError:
        answer = b""
    if answer != b"piped ping":
        os._exit(_NO_PIPE if answer else _NO_CONNECTION)
    try:
        socket.create_connection(listener.getsockname(), timeout=10).close()
    except OSError:
        os._exit(_NO_LISTENER)
    os.write(program, b"typed")
    os._exit(0 if os.read(terminal, 16) == b"typed" else _NO_TERMINAL)


def _shared_memory() -> mmap.mmap:
    """Shared memory as MPI libraries use it; the file keeps its name (crdebug/native/shim)."""
    descriptor = os.open(f"/dev/shm/{_MEMORY}", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, mmap.PAGESIZE)
    mapped = mmap.mmap(descriptor, mmap.PAGESIZE)
    os.close(descriptor)
    return mapped


# ---- the trial ----------------------------------------------------------------------------------


class Container:
    """A container, whose keeper is our child. What it does raises Failed."""

    def __init__(self, until: float, *, first: bool) -> None:
        """first: start the tried processes in it; else it is for restored ones."""
        self._until = until
        self._report, report = os.pipe()
        control, self._control = os.pipe()
        self._said = b""
        if os.fork() == 0:
            _become_keeper(control, report, first=first)
        os.close(control)
        os.close(report)
        found: dict[str, str] = {}
        while len(found) < 2:
            word, _, rest = self._line().partition(" ")
            if word == "failed":
                raise Failed(f"cannot make a container: {rest}")
            found[word] = rest
        self.keeper = int(found["keeper"])
        self.first = int(found["ready"])  # its PID inside; 0: none

    def _line(self) -> str:
        while b"\n" not in self._said:
            left = max(0.0, self._until - time.monotonic())
            if not select.select([self._report], [], [], left)[0]:
                raise Failed(f"a container does not answer within {PATIENCE} s")
            data = os.read(self._report, 4096)
            if not data:
                raise Failed("a container has ended")
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        return line.decode(errors="replace")

    def question(self, pid: int) -> int | None:
        """Make a first process check whether everything is there. Returns the status with which it
        ends; None if there is no such process."""
        os.write(self._control, f"{pid}\n".encode())
        while True:
            word, of, *status = self._line().split()
            if int(of) == pid:
                return int(status[0]) if word == "ended" else None


def _become_keeper(control: int, report: int, *, first: bool) -> NoReturn:
    """In a child. unshare(2) puts only the children of this process into the new PID namespace."""
    try:
        for name in os.listdir("/proc/self/fd"):  # the other container's, among them
            if int(name) not in (0, 1, 2, control, report):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        _make_namespaces()
        keeper = os.fork()
        if keeper == 0:
            _build_container()
            _keep(control, report, first=first)
        os.write(report, f"keeper {keeper}\n".encode())
        os._exit(0)
    except BaseException as error:
        os.write(report, f"failed {getattr(error, 'strerror', None) or error}\n".encode())
        os._exit(1)


class Trial:
    """One trial of one CRIU, with one deadline for everything."""

    def __init__(self, criu: str, work: Path) -> None:
        self._criu = criu
        self._work = work
        self._images = work / "images"
        self._until = time.monotonic() + PATIENCE

    def run(self) -> None:
        """Raises Failed."""
        self._images.mkdir()
        old = Container(self._until, first=True)
        self._ask_criu(old, ["dump", "--tree", str(old.first), *COMMON, *DUMP])
        # Next to the first one, as in a restart.
        new = Container(self._until, first=False)
        shared = "/proc/{}/root/dev/shm/" + _MEMORY
        shutil.copy2(shared.format(old.keeper), shared.format(new.keeper))
        self._ask_criu(new, ["restore", *COMMON, *RESTORE])
        for container, verb in ((new, "restore"), (old, "dump")):
            status = container.question(old.first)
            if status is None:
                raise Failed(f"{verb}: there is no restored process")
            if status != 0:
                why = _COMPLAINTS.get(status, f"the process ends with {status}")
                raise Failed(f"{verb}: {why}")

    def _ask_criu(self, container: Container, arguments: Sequence[str]) -> None:
        log = self._work / f"{arguments[0]}.log"
        command = _this("--enter", str(container.keeper), self._criu, *arguments)
        command += UNPRIVILEGED if os.geteuid() != 0 else ()
        command += ["--images-dir", str(self._images), "--work-dir", str(self._work)]
        command += ["--log-file", str(log), "-v1"]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=max(0.0, self._until - time.monotonic()),
                check=False,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{arguments[0]}: no end within {PATIENCE} s") from None
        if done.returncode != 0:
            logged = log.read_text(errors="replace") if log.exists() else ""
            causes = errors_in(logged) or errors_in(done.stdout) or tuple(done.stdout.split("\n"))
            why = causes[0].strip() or f"exit status {done.returncode}"
            raise Failed(f"{arguments[0]}: {why}")


def _enter(keeper: int, argv: list[str]) -> int:
    """Run a program in a container; returns its exit status."""
    process = os.pidfd_open(keeper)
    if not os.path.samefile(f"/proc/{keeper}/ns/user", "/proc/self/ns/user"):
        _check(_libc.setns(process, _CLONE_NEWUSER), "enter the user namespace")
    _check(_libc.setns(process, _NAMESPACES), "enter the container")
    program = os.fork()
    if program == 0:  # only it is in the PID namespace
        try:
            _keep_capabilities()
            os.execv(argv[0], argv)
        except OSError as error:
            print(f"cannot start {argv[0]}: {error.strerror}", flush=True)
        os._exit(127)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    return status if status >= 0 else 128 - status


def _children() -> list[int]:
    return [int(word) for word in Path("/proc/thread-self/children").read_text().split()]


def _end_children() -> None:
    """Also those that we have inherited: the keepers, with whom all in their containers ends."""
    while True:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _try(criu: str | None) -> str:
    """Why the CRIU does not work, or a container if there is no CRIU; "" if it does."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cleanup below runs
    try:
        if criu is None:
            Container(time.monotonic() + PATIENCE, first=True)
            return ""
        # Here: whoever started us cleans this directory up if we are killed.
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as work:
            try:
                Trial(criu, Path(work)).run()
            finally:
                _end_children()
    except (Failed, OSError) as error:
        return str(error)
    finally:
        _end_children()
    return ""


def _main(arguments: Sequence[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "--tried":
        try:
            _tried(int(arguments[1]))
        except OSError as error:
            os.write(int(arguments[1]), str(error).encode())
            return 1
    if len(arguments) > 2 and arguments[0] == "--enter":
        return _enter(int(arguments[1]), list(arguments[2:]))
    if len(arguments) != 1:
        print("usage: criu_trial.py CRIU | --container")
        return 2
    criu = None if arguments[0] == "--container" else arguments[0]
    problem = _try(criu)
    works = "processes dumped and restored, with their TCP connection"
    print(problem or (works if criu else "processes started in a container"))
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

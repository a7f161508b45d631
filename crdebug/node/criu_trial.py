"""Does a CRIU work on the running kernel? Make it dump and restore two processes, and see.

    python3 criu_trial.py CRIU      status 0, or 1; one line gives the result

`criu check` is not enough: it says "Looks good" where a dump fails because the kernel has changed
its handling of a kind of socket (CRIU 4.1 on Linux 6.16, CRIU's issue 2705). So the processes here
have all that a job has: namespaces and mounts of their own, a TCP connection, a listening socket,
shared memory; and CRIU gets the same options as for a job.

This file needs only Python's own library: scripts/setup runs it before anything else is installed.
It is always a process of its own, since it adopts the restored processes. It leaves nothing behind;
if it is killed, the processes that it started end on their own.
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

# a network with only loopback, which the action script brings up
OWN_NETWORK = ("--empty-ns", "net")
COMMON = (
    "--tcp-established",  # the launcher's connections to its ranks
    "--ext-unix-sk",
    "--file-locks",
    "--link-remap",  # for unlinked files that have another name
    "--ghost-limit",  # … or none: MPICH's shared memory is 4 MB of that, the default is 1 MB
    "512M",
    "--manage-cgroups=ignore",
    *OWN_NETWORK,
)
# One machine, and all of it frozen: no packet can arrive meanwhile. The default calls iptables.
DUMP = ("--network-lock", "skip", "--leave-running")
RESTORE = ("--root", "/", "--restore-detached")

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

# Some tenths of a second are usual. The tried processes outlive the trial's patience, then end.
PATIENCE = 45
_LIFE = 90

# Exit statuses of the first tried process after its restore.
_NOT_ASKED, _NO_CONNECTION, _NO_LISTENER, _NO_MEMORY = 10, 11, 12, 13
_COMPLAINTS = {
    _NOT_ASKED: "a restored process does not get signals",
    _NO_CONNECTION: "a restored TCP connection is dead",
    _NO_LISTENER: "a restored socket does not listen",
    _NO_MEMORY: "restored memory has changed",
}


# mount(2) fails with EINVAL in a chroot, whose mounts cannot be made private.
NO_MOUNT_POINT = (
    "the root directory is not a mount point, as in a chroot: from outside, 'mount --bind DIR DIR' "
    "before 'chroot DIR'"
)


class Failed(Exception):
    """The CRIU does not work; the text says why."""


# ---- system calls that Python's library lacks ---------------------------------------------------

_CLONE_NEWNET = 0x40000000
# mount, UTS, IPC, PID and network, as for a job (crdebug/native/starter/starter.c)
_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | _CLONE_NEWNET
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x4000, 1 << 18
_MNT_DETACH = 2
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def _mount(kind: bytes, point: bytes, flags: int, options: bytes) -> None:
    # Unmount the old one first: CRIU cannot restore a mount that covers one of the same kind.
    while _libc.umount2(point, _MNT_DETACH) == 0:
        continue
    done = _libc.mount(kind, point, kind, ctypes.c_ulong(flags), options)
    _check(done, f"mount {point.decode()}")


def raise_loopback() -> None:
    """`ip link set lo up` in this network namespace, without a program (netdevice(7))."""
    up_and_running = 0x1 | 0x40
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        fcntl.ioctl(channel, 0x8914, struct.pack("16sh22x", b"lo", up_and_running))


def raise_loopback_of(pid: int) -> None:
    """The same in the network namespace of a process: CRIU restores loopback as down."""
    with open(f"/proc/{pid}/ns/net", "rb") as namespace:
        _check(_libc.setns(namespace.fileno(), _CLONE_NEWNET), "setns")
    raise_loopback()


# ---- the processes that are tried ---------------------------------------------------------------


def _become_tried(report: int) -> NoReturn:
    """PID 1 of new namespaces. It executes this program anew: otherwise its file would be mapped
    from the mount namespace outside, and CRIU could not find it in the one inside."""
    if _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
        error = ctypes.get_errno()
        if error != errno.EINVAL:
            raise OSError(error, f"mount /: {os.strerror(error)}")
        raise OSError(error, NO_MOUNT_POINT)
    _mount(b"proc", b"/proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"")
    _mount(b"tmpfs", b"/dev/shm", _MS_NOSUID | _MS_NODEV, b"mode=1777")
    _mount(b"devpts", b"/dev/pts", _MS_NOSUID | _MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=0620")
    os.setsid()
    os.chdir("/")
    # Nor may a file of the mount namespace outside stay open.
    os.closerange(3, report)
    os.closerange(report + 1, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(report, True)
    os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, "--tried", str(report)])


def _echo(channel: socket.socket) -> NoReturn:
    """The second process: answers over its TCP connection as long as there is one."""
    while data := channel.recv(16):
        channel.sendall(data)
    os._exit(0)


def _tried(report: int) -> NoReturn:
    """Set everything up, close `report` when ready, and wait for the signal to check whether it is
    all still there."""
    raise_loopback()
    for descriptor in range(3):
        os.close(descriptor)
        os.open("/dev/null", os.O_RDWR)
    signals = {signal.SIGUSR1, signal.SIGALRM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.alarm(_LIFE)

    memory = _unlinked_memory()
    memory[:5] = b"crdeb"
    listener = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(listener.getsockname())
    there, _ = listener.accept()
    if os.fork() == 0:
        os.close(report)
        here.close()
        listener.close()
        _echo(there)
    there.close()
    os.close(report)

    if signal.sigwait(signals) != signal.SIGUSR1:
        os._exit(_NOT_ASKED)
    if bytes(memory[:5]) != b"crdeb":
        os._exit(_NO_MEMORY)
    try:
        here.sendall(b"ping")
        if here.recv(16) != b"ping":
            os._exit(_NO_CONNECTION)
    except OSError:
        os._exit(_NO_CONNECTION)
    try:
        socket.create_connection(listener.getsockname(), timeout=10).close()
    except OSError:
        os._exit(_NO_LISTENER)
    os._exit(0)


def _unlinked_memory() -> mmap.mmap:
    """Shared memory as MPI libraries use it: an unlinked file in /dev/shm."""
    descriptor = os.open("/dev/shm/crdebug-trial", os.O_RDWR | os.O_CREAT, 0o600)
    os.unlink("/dev/shm/crdebug-trial")
    os.ftruncate(descriptor, mmap.PAGESIZE)
    mapped = mmap.mmap(descriptor, mmap.PAGESIZE)
    os.close(descriptor)
    return mapped


# ---- the trial ----------------------------------------------------------------------------------


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
        first = self._start()
        mounts = _machine_mounts(first)
        self._ask_criu(
            ["dump", "--tree", str(first), *COMMON, *DUMP],
            [f"mnt[{point}]:{point}" for point in mounts],
        )
        # Next to the first ones, as in a restart.
        pid_file = self._work / "pid"
        self._ask_criu(
            ["restore", *COMMON, *RESTORE, "--pidfile", str(pid_file)],
            [f"mnt[{point}]:{point}" for point in mounts],
        )
        restored = int(pid_file.read_text()) if pid_file.exists() else 0
        if restored not in _children():
            raise Failed("restore: there is no restored process")
        for pid, what in ((restored, "restore"), (first, "dump")):
            self._question(pid, what)

    @property
    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _start(self) -> int:
        """Returns the PID, outside, of the first process, once both are ready."""
        reader, writer = os.pipe()
        if os.fork() == 0:
            # unshare(2) puts only the children of this process into the new PID namespace.
            os.close(reader)
            try:
                _check(_libc.unshare(_NAMESPACES), "namespaces")
                first = os.fork()
                if first == 0:
                    _become_tried(writer)
                os.write(writer, f"{first} ".encode())
                os._exit(0)
            except BaseException as error:
                os.write(writer, f"failed {getattr(error, 'strerror', error)}\0".encode())
                os._exit(1)
        os.close(writer)
        said = b""
        with open(reader, "rb", buffering=0) as report:
            # It ends when both of them have closed it, and are in their loops.
            while select.select([report], [], [], self._left)[0]:
                data = report.read(4096)
                if not data:
                    break
                said += data
            else:
                raise Failed("the processes to be dumped did not start in time")
        words = said.decode(errors="replace").partition("failed ")
        if words[2]:  # after the first message another process's may follow
            why = words[2].partition("\0")[0]
            raise Failed(f"cannot start processes to be dumped: {why}")
        return int(words[0])

    def _ask_criu(self, arguments: Sequence[str], external: Sequence[str]) -> None:
        log = self._work / f"{arguments[0]}.log"
        script = self._work / "action"
        script.write_text(
            '#!/bin/sh\n[ "$CRTOOLS_SCRIPT_ACTION" = setup-namespaces ] || exit 0\n'
            f'exec "{sys.executable}" -I -S "{__file__}" --loopback "$CRTOOLS_INIT_PID"\n'
        )
        script.chmod(0o700)
        command = [self._criu, *arguments]
        command += [word for each in external for word in ("--external", each)]
        command += ["--images-dir", str(self._images), "--work-dir", str(self._work)]
        command += ["--log-file", str(log), "-v1", "--action-script", str(script)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self._left,
                check=False,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{arguments[0]}: no end within {PATIENCE} s") from None
        except OSError as error:
            raise Failed(f"cannot start {self._criu}: {error.strerror}") from None
        if done.returncode != 0:
            logged = log.read_text(errors="replace") if log.exists() else ""
            causes = errors_in(logged) or errors_in(done.stdout) or tuple(done.stdout.split("\n"))
            why = causes[0].strip() or f"exit status {done.returncode}"
            raise Failed(f"{arguments[0]}: {why}")

    def _question(self, pid: int, what: str) -> None:
        """Make a first process check whether everything is there, and end."""
        os.kill(pid, signal.SIGUSR1)
        descriptor = os.pidfd_open(pid)
        try:
            if not select.select([descriptor], [], [], self._left)[0]:
                raise Failed(f"{what}: the process hangs afterwards")
        finally:
            os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status != 0:
            raise Failed(f"{what}: {_COMPLAINTS.get(status, f'the process ends with {status}')}")


def _machine_mounts(pid: int) -> list[str]:
    """The machine's mounts; CRIU must leave them alone, as for a job."""
    ours = ("/", "/proc", "/dev/shm", "/dev/pts")
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    points = (re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), line.split()[4]) for line in lines)
    return list(dict.fromkeys(point for point in points if point not in ours))


def _children() -> list[int]:
    return [int(word) for word in Path("/proc/thread-self/children").read_text().split()]


def _end_children() -> None:
    """Also those that we have inherited."""
    while True:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _try(criu: str) -> str:
    """Why the CRIU does not work; "" if it does."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cleanup below runs
    # Here: whoever started us cleans this directory up if we are killed.
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as work:
        try:
            Trial(criu, Path(work)).run()
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
            os.write(int(arguments[1]), f"failed {error}".encode())
            return 1
    if len(arguments) == 2 and arguments[0] == "--loopback":
        raise_loopback_of(int(arguments[1]))
        return 0
    if len(arguments) != 1:
        print("usage: criu_trial.py CRIU")
        return 2
    problem = _try(arguments[0])
    print(problem or "processes dumped and restored, with their TCP connection")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

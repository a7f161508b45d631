"""Leaks of a test: processes, PID namespaces, descriptors, directories, mounts, signals.

Import the fixture in a tier's conftest.py, where it serves every test below:

    from harness.leaks import no_leaks  # noqa: F401

Processes are known by a mark in their environment, because a job's starter is no descendant of
ours, and a restored process is a child of the restorer's. Mounts are those of a mount namespace
that the test run has to itself, directories those of a state directory of its own. So others,
another run of these tests among them, may start, mount and make anything meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.settings import state_home

MARK = "CRDEBUG_TEST_MARK"
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 1 << 18  # <linux/sched.h>, <linux/mount.h>
# For processes whose end is not complete yet, such as a killed job's.
_GRACE = float(os.environ.get("CRDEBUG_TEST_GRACE", "10"))


@dataclass(frozen=True, slots=True)
class Process:
    """A process.

    started: distinguishes it from a later one with its PID.
    namespace: of its PIDs.
    """

    pid: int
    started: float
    namespace: str = field(compare=False)
    what: str = field(compare=False)

    def __str__(self) -> str:
        return f"process {self.pid} ({self.what})"


@dataclass(frozen=True, slots=True)
class Footprint:
    """The present state of everything that a test can leak.

    processes: descendants, and processes that carry the mark.
    namespaces: theirs, of PIDs.
    files: open file descriptors of this process and their targets.
    directories: of the state home.
    mounts: mount points of this process's mount namespace.
    signals: this process's dispositions of the signals that end a run, and its blocked signals.
    """

    processes: frozenset[Process]
    namespaces: frozenset[str]
    files: frozenset[tuple[int, str]]
    directories: frozenset[Path]
    mounts: frozenset[str]
    signals: frozenset[str]

    @classmethod
    def take(cls, mark: str, home: Path) -> Footprint:
        """Look. mark: the value of MARK in the environment of the processes to find."""
        processes = _processes(mark)
        return cls(
            processes=processes,
            namespaces=frozenset(p.namespace for p in processes) - {_namespace(os.getpid())},
            files=_files(),
            directories=_directories(home),
            mounts=_mounts(),
            signals=_signals(),
        )

    def left_since(self, before: Footprint) -> tuple[str, ...]:
        """What is there now and was not before, as lines to read."""
        new_processes = sorted(self.processes - before.processes, key=lambda p: p.pid)
        new_namespaces = self.namespaces - before.namespaces
        return (
            *(str(process) for process in new_processes),
            *(f"PID namespace {name}" for name in sorted(new_namespaces)),
            *(f"descriptor {n}: {what}" for n, what in sorted(self.files - before.files)),
            *(f"directory {path}" for path in sorted(self.directories - before.directories)),
            *(f"mount {point}" for point in sorted(self.mounts - before.mounts)),
            *sorted(self.signals - before.signals),
        )


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""  # neither a zombie nor a vanished process has one


def _processes(mark: str) -> frozenset[Process]:
    parents, mine = dict(_parents()), os.getpid()
    carried = f"{MARK}={mark}".encode()
    found = set()
    for pid in parents.keys() - {mine}:
        if not _descends(pid, mine, parents) and not _carries(pid, carried):
            continue
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                what = f"{process.name()}, ended and not waited for"
            else:
                what = " ".join(process.cmdline()) or process.name()
            started = process.create_time()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        found.add(Process(process.pid, started, _namespace(process.pid), what))
    return frozenset(found)


def _parents() -> Iterator[tuple[int, int]]:
    """All processes of the machine but the kernel's own, each with its parent. (psutil makes an
    object of each, which takes longer than most tests.)"""
    kernel = 2 if _name(2) == "kthreadd" else -1  # in a PID namespace it may be anybody
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
            if parent != kernel:
                yield int(name), parent


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _descends(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while pid not in (0, ancestor):
        pid = parents.get(pid, 0)
    return pid == ancestor


def _carries(pid: int, carried: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return carried in file.read().split(b"\0")
    except OSError:
        return False


def _files() -> frozenset[tuple[int, str]]:
    found = set()
    directory = Path("/proc/self/fd")
    for entry in list(directory.iterdir()):
        try:
            found.add((int(entry.name), str(entry.readlink())))
        except OSError:
            continue  # the one used to list the directory
    return frozenset(found)


def _directories(home: Path) -> frozenset[Path]:
    """Two levels: it is enough to know which jobs and checkpoints exist."""
    return frozenset(
        path for pattern in ("*", "*/*") for path in home.glob(pattern) if path.is_dir()
    )


def own_mounts() -> None:
    """From now on the mounts of this process, and of those that it starts, are private: what others
    mount does not appear here, and what they unmount stays (mount_namespaces(7)).

    Without the privilege this does nothing, and need not: a test cannot mount anything then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        return
    if libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None):
        number = ctypes.get_errno()
        raise OSError(number, f"the mounts cannot be made private: {os.strerror(number)}")


def _mounts() -> frozenset[str]:
    # The fifth field is the mount point: proc(5), /proc/pid/mountinfo.
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return frozenset(line.split()[4] for line in lines)


def _signals() -> frozenset[str]:
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return frozenset(
        {
            *(f"{number.name} goes to {signal.getsignal(number)}" for number in ends),
            *(f"{signal.Signals(number).name} blocked" for number in blocked),
        }
    )


def wait_ended(processes: frozenset[Process], deadline: Deadline) -> None:
    """Wait until all have ended, whatever their parents, or the deadline has passed."""
    poll = select.poll()
    descriptors: set[int] = set()
    try:
        for process in processes:
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue
            descriptors.add(descriptor)
            poll.register(descriptor, select.POLLIN)
        waiting = set(descriptors)
        while waiting and deadline.left:
            for descriptor, _ in poll.poll(deadline.left * 1000):
                poll.unregister(descriptor)
                waiting.discard(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def wait_reaped(processes: frozenset[Process], deadline: Deadline) -> None:
    """Wait until other processes have waited for those of them that are their children, and have
    ended: a server does so when it gets the processor. Nobody tells when."""
    while deadline.left and any(map(_has_another_parent, processes)):
        time.sleep(0.005)


def _has_another_parent(process: Process) -> bool:
    try:
        found = psutil.Process(process.pid)
        mine = found.ppid() == os.getpid()
        return not mine and found.create_time() == process.started
    except psutil.NoSuchProcess:
        return False


def _end(processes: frozenset[Process]) -> None:
    """Kill them, so that the next test does not find them. Only those that are still the same
    processes."""
    for process in processes:
        try:
            now = psutil.Process(process.pid)
            if now.create_time() == process.started:
                now.kill()
        except psutil.NoSuchProcess:
            continue


def end_marked() -> None:
    """End what the running test has started, wherever it is."""
    if MARK in os.environ:
        _end(_processes(os.environ[MARK]))


@pytest.fixture(autouse=True)
def no_leaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that leaks anything; end the processes that it left."""
    mark, home = uuid.uuid4().hex, state_home()
    monkeypatch.setenv(MARK, mark)
    before = Footprint.take(mark, home)
    yield
    after = Footprint.take(mark, home)
    if after.left_since(before):
        # What only a reference cycle keeps open is not a leak yet.
        gc.collect()
        after = Footprint.take(mark, home)
    if after.processes - before.processes:
        deadline = Deadline(_GRACE)
        wait_ended(after.processes - before.processes, deadline)
        wait_reaped(after.processes - before.processes, deadline)
        after = Footprint.take(mark, home)
    left = after.left_since(before)
    _end(after.processes - before.processes)
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)

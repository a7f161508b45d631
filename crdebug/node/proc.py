"""A process as /proc shows it (proc(5)). Host PIDs and TIDs throughout, unless named otherwise.

Every function raises ProcessLookupError when the process is gone, and PermissionError when we may
not look at it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crdebug.gdbscripts.wire import FROZEN
from crdebug.node.leaderless import living_thread, shared

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread. inner: its number in its own PID namespace. state: the letter of proc(5).

    blocked, caught, ignored, pending: signal sets, bit n - 1 for signal n; pending combines the
    thread's own queue and the process's.
    """

    tid: int
    inner: int
    name: str
    state: str
    tracer: int
    blocked: int
    caught: int
    ignored: int
    pending: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A line of /proc/PID/maps. inode: of the mapped file, 0 if there is none."""

    start: int
    end: int
    access: str
    offset: int
    path: str
    inode: int = 0


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of /proc/PID/mountinfo. device: major:minor."""

    number: int
    device: str
    point: str
    kind: str


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file that a process has open for writing.

    path: as the process sees it.  mount: the mount's number, see `mounts`.
    append: writes go only to its end.  deleted: it no longer has a name.
    """

    path: str
    mount: int
    append: bool
    size: int
    deleted: bool


# What says that a process is gone, see `_gone`.
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)


def _gone(error: OSError, pid: int) -> OSError:
    """The error to raise. What a process without memory has in /proc is root's (Linux:
    fs/proc/base.c, task_dump_owner): others may not look at one that ends, until it is gone."""
    gone = not isinstance(error, PermissionError) or is_ending(pid)
    return ProcessLookupError(f"process {pid} is gone") if gone else error


def _read(pid: int, name: str) -> str:
    try:
        # Called at every step of every rank: a Path would take longer than the file.
        with open(f"{PROC}/{pid}/{name}", errors="surrogateescape") as file:
            return file.read()
    except _GONE as error:
        raise _gone(error, pid) from None


_SIZES = re.compile(r"^(\w+):\s*(\d+) kB$", re.M)


def status(pid: int, tid: int | None = None) -> dict[str, str]:
    """The fields of /proc/PID/status, or of one of its threads."""
    text = _read(pid, "status" if tid is None else f"task/{tid}/status")
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def unshared_memory(pid: int) -> int:
    """Bytes that would be free without the process, page tables included; 0 if it is gone."""
    try:
        text = f"{_read(pid, 'smaps_rollup')}\n{_read(pid, 'status')}"
    except ProcessLookupError:
        return 0
    size = {name: int(found) for name, found in _SIZES.findall(text)}
    private = size.get("Private_Clean", 0) + size.get("Private_Dirty", 0)
    own = min(size.get("Anonymous", 0), private) + size.get("SwapPss", 0)
    return (own + size.get("VmPTE", 0)) << 10


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; cheaper than `status`."""
    return _read(pid, "stat").rpartition(")")[2].split()


def queued(pid: int, tid: int) -> int:
    """The signals in a thread's own queue, bit n - 1 for signal n."""
    return int(status(pid, tid)["SigPnd"], 16)


def tids(pid: int) -> tuple[int, ...]:
    try:
        # In the kernel's order, by age: thread numbers start again from below at some time.
        return tuple(int(name) for name in os.listdir(PROC / str(pid) / "task"))
    except _GONE as error:
        raise _gone(error, pid) from None


def threads(pid: int) -> tuple[Thread, ...]:
    """All threads, the oldest first, without those that end meanwhile."""
    found = []
    for tid in tids(pid):
        try:
            fields = status(pid, tid)
        except ProcessLookupError:
            continue
        found.append(
            Thread(
                tid=tid,
                inner=int(fields["NSpid"].split()[-1]),
                name=fields["Name"],
                state=fields["State"][:1],
                tracer=int(fields["TracerPid"]),
                blocked=int(fields["SigBlk"], 16),
                caught=int(fields["SigCgt"], 16),
                ignored=int(fields["SigIgn"], 16),
                pending=int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16),
            )
        )
    return tuple(found)


def processor_time(pid: int) -> int:
    """The processor time of all its threads, in clock ticks (proc(5): utime, stime)."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12])


def ticks_a_second() -> int:
    """How many of these clock ticks there are in a second."""
    return os.sysconf("SC_CLK_TCK")


def started(pid: int) -> int:
    """The start of the process, in clock ticks after the machine's start: with the PID it
    identifies a process uniquely."""
    return int(_stat(pid)[19])


def started_now() -> int:
    """The start of a process that starts now, as `started` has it."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def parent(pid: int) -> int:
    """The PID of the process's parent."""
    return int(_stat(pid)[1])


def is_alive(pid: int, start: int | None = None) -> bool:
    """Is there such a process (no zombie, and no frozen copy), with this start if given?"""
    try:
        name, _, rest = _read(pid, "stat").rpartition(")")
        fields = rest.split()
        if start is not None and int(fields[19]) != start:
            return False
        if fields[0] not in "ZX":
            return True
        # The memory of a snapshot looks like a zombie; see gdbscripts/snapshot/frozen.py.
        is_frozen = name.partition("(")[2] == FROZEN
        return not (is_frozen or is_zombie(pid))
    except (ProcessLookupError, PermissionError):
        return False


def is_zombie(pid: int) -> bool:
    """Have all its threads ended, without a wait(2) by its parent? False if it is gone.

    The first thread alone may end before the others (pthread_exit(3)).
    """
    try:
        if _stat(pid)[0] not in "ZX":
            return False  # the first thread lives
        found = threads(pid)
    except ProcessLookupError:
        return False
    return bool(found) and all(thread.state in "ZX" for thread in found)


def is_stopped(pid: int) -> bool:
    """Has SIGSTOP stopped it, without a tracer? False if it is gone."""
    try:
        return _stat(pid)[0] == "T"
    except ProcessLookupError:
        return False


_KILL = 1 << (signal.SIGKILL - 1)
_EXITING = 0x4  # PF_EXITING of the kernel's include/linux/sched.h


def reads_input(pid: int) -> bool:
    """Does a process wait in read(2) for its standard input? False if the kernel does not say."""
    try:
        return _read(pid, "syscall").split()[:2] == ["0", "0x0"]
    except OSError:
        return False


def is_ending(pid: int) -> bool:
    """Is the process exiting? PID 1 of a namespace is, until all its other processes are gone."""
    try:
        exiting = int(_stat(pid)[6]) & _EXITING
    except ProcessLookupError:
        return True
    return bool(exiting) and living_thread(pid) == pid


def is_killed(pid: int) -> bool:
    """Has it got a SIGKILL? The signal stays in the process's queue while its threads end, and
    after that (kernel/signal.c, complete_signal). False if it is gone."""
    try:
        return bool(int(status(pid)["ShdPnd"], 16) & _KILL)
    except (ProcessLookupError, KeyError):
        return False


def namespace(pid: int, kind: str) -> str:
    """The identity of a namespace: kind is "pid", "net", "mnt", …"""
    try:
        return os.readlink(f"{PROC}/{pid}/ns/{kind}")  # asked of every process of the machine
    except _GONE as error:
        raise _gone(error, pid) from None


def pids() -> Iterator[int]:
    """Every process of this PID namespace."""
    return (int(name) for name in os.listdir(PROC) if name.isdigit())


def processes_in_namespace_of(pid: int) -> tuple[int, ...]:
    """Every live process of the PID namespace of `pid`: the whole job container."""
    wanted = namespace(pid, "pid")
    found = []
    for other in pids():
        try:
            if namespace(other, "pid") == wanted and is_alive(other):
                found.append(other)
        except OSError:
            continue
    return tuple(sorted(found))


def inner_pid(pid: int) -> int:
    """The process's PID in its own PID namespace."""
    return int(status(pid)["NSpid"].split()[-1])


_MAPS = re.compile(r"(\w+)-(\w+) (\S{4}) (\w+) \S+ (\d+) *(.*)")


@shared
def maps_text(pid: int) -> str:
    """/proc/PID/maps as it is."""
    return _read(pid, "maps")


def maps(pid: int) -> tuple[Mapping, ...]:
    return parse_maps(maps_text(pid))


def parse_maps(text: str) -> tuple[Mapping, ...]:
    """text: of /proc/PID/maps, or some lines of it."""
    found = map(_mapping, text.splitlines())
    return tuple(mapping for mapping in found if mapping is not None)


@functools.lru_cache(maxsize=4096)  # ranks have many lines in common, and most stay as they are
def _mapping(line: str) -> Mapping | None:
    match = _MAPS.match(line)
    if match is None:
        return None
    start, end, access, offset, inode, path = match.groups()
    return Mapping(int(start, 16), int(end, 16), access, int(offset, 16), path, int(inode))


def _unescape(path: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), path)


@shared
def mounts(pid: int) -> tuple[Mount, ...]:
    found = []
    for line in _read(pid, "mountinfo").splitlines():
        fields = line.split()
        kind = fields[fields.index("-") + 1]
        found.append(Mount(int(fields[0]), fields[2], _unescape(fields[4]), kind))
    return tuple(found)


@shared
def descriptors(pid: int) -> tuple[int, ...]:
    """The numbers of a process's open files; none if it has ended."""
    try:
        return tuple(sorted(map(int, os.listdir(PROC / str(pid) / "fd"))))
    except PermissionError:
        if not is_ending(pid):
            raise
        return ()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise _gone(error, pid) from None


@shared
def sockets(pid: int) -> tuple[int, ...]:
    """The descriptors of a process that are sockets."""
    directory = PROC / str(pid) / "fd"
    found = []
    for number in descriptors(pid):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(directory / str(number)).startswith("socket:"):
                found.append(number)
    return tuple(found)


@shared
def files_open_for_writing(pid: int) -> tuple[OpenFile, ...]:
    """The regular files that a process may write through a descriptor."""
    directory = PROC / str(pid) / "fd"
    found = []
    for number in descriptors(pid):
        try:
            link = f"{directory}/{number}"
            details = os.stat(link)
            if not stat.S_ISREG(details.st_mode):
                continue
            fields = _read(pid, f"fdinfo/{number}")
            path = os.readlink(link)
        except OSError:
            continue  # closed meanwhile
        flags = int(re.search(r"^flags:\s*(\d+)", fields, re.M)[1], 8)  # type: ignore[index]
        mount = int(re.search(r"^mnt_id:\s*(\d+)", fields, re.M)[1])  # type: ignore[index]
        if flags & os.O_ACCMODE == os.O_RDONLY:
            continue
        found.append(
            OpenFile(
                path=path.removesuffix(" (deleted)"),
                mount=mount,
                append=bool(flags & os.O_APPEND),
                size=details.st_size,
                deleted=details.st_nlink == 0,
            )
        )
    return tuple(found)


@shared
def files_in_use(pid: int) -> tuple[str, ...]:
    """The regular files and directories, with a name, that a process has open or mapped; and its
    working directory."""
    directory = PROC / str(pid)
    links = [directory / "cwd", *(directory / "fd" / str(each) for each in descriptors(pid))]
    found = {each.path for each in maps(pid) if each.path.startswith("/")}
    for link in links:
        with contextlib.suppress(FileNotFoundError):
            if link.stat().st_mode & 0o170000 in (0o100000, 0o040000):
                found.add(os.readlink(link))
    return tuple(sorted(path for path in found if not path.endswith(" (deleted)")))


def has_lost_program(pid: int) -> bool:
    """Has its program's file been removed or replaced since it started, as by a new compilation?"""
    try:
        return executable(pid).endswith(" (deleted)")
    except OSError:
        return False


def access_mode(pid: int, descriptor: int) -> int:
    """O_RDONLY, O_WRONLY or O_RDWR."""
    fields = _read(pid, f"fdinfo/{descriptor}")
    match = re.search(r"^flags:\s*(\d+)", fields, re.M)
    return int(match[1], 8) & os.O_ACCMODE if match else os.O_RDWR


def files_mapped_for_writing(pid: int) -> tuple[OpenFile, ...]:
    """The regular files that a process may write through its memory (mmap(2), MAP_SHARED)."""
    found: dict[str, OpenFile] = {}
    for each in maps(pid):
        if each.access[1] != "w" or each.access[3] != "s" or not each.path.startswith("/"):
            continue
        try:
            details = os.stat(each.path)
        except OSError:
            continue  # it has no name, or none outside the process's own mounts
        if details.st_mode & 0o170000 == 0o100000:
            found[each.path] = OpenFile(
                path=each.path, mount=0, append=False, size=details.st_size, deleted=False
            )
    return tuple(found.values())


@shared
def memory(pid: int) -> int:
    """Roughly the bytes of memory in an image of the process; shared memory is divided among its
    users (proc(5), smaps_rollup: the "proportional set size")."""
    fields = dict(line.split(":") for line in _read(pid, "smaps_rollup").splitlines()[1:])
    return sum(int(fields.get(each, "0").split()[0]) << 10 for each in ("Pss_Anon", "Pss_Shmem"))


def private_memory(pid: int) -> int:
    """Bytes of private memory that it has, in memory or swapped out; what it shares with a process
    that was forked from it counts (proc(5), RssAnon, VmSwap)."""
    fields = status(pid)
    return sum(int(fields.get(each, "0").split()[0]) << 10 for each in ("RssAnon", "VmSwap"))


@shared
def command_line(pid: int) -> tuple[str, ...]:
    """Its arguments, the program's name first; empty for a zombie."""
    return tuple(_read(pid, "cmdline").split("\0")[:-1])


@shared
def executable(pid: int) -> str:
    """The path of the program that the process runs."""
    try:
        return os.readlink(PROC / str(pid) / "exe")
    except _GONE as error:
        raise _gone(error, pid) from None


def why_unreadable(pid: int) -> str:
    """A clause that says why a process's program cannot be read; "" if it can, or has ended."""
    try:
        os.close(os.open(PROC / str(pid) / "exe", os.O_RDONLY | os.O_CLOEXEC))
    except (FileNotFoundError, ProcessLookupError):
        return ""
    except OSError as error:
        return f"{executable(pid)} cannot be read ({error.strerror})"
    return ""


@shared
def working_directory(pid: int) -> str:
    try:
        return os.readlink(PROC / str(pid) / "cwd")
    except _GONE as error:
        raise _gone(error, pid) from None


@shared
def environment(pid: int) -> dict[str, str]:
    pairs = (item.partition("=") for item in _read(pid, "environ").split("\0") if item)
    return {name: value for name, _, value in pairs}


@shared
def read_memory(pid: int, address: int, size: int) -> bytes:
    """Raises OSError (EIO) where nothing is mapped."""
    try:
        with open(f"{PROC}/{pid}/mem", "rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), size, address)
    except _GONE as error:
        raise _gone(error, pid) from None
    if len(data) < size and not is_alive(pid):
        raise ProcessLookupError(f"process {pid} is gone")
    return data


@shared
def write_memory(pid: int, address: int, data: bytes) -> int:
    """Write; also to read-only pages (which become private copies, as for a debugger)."""
    try:
        with open(f"{PROC}/{pid}/mem", "r+b", buffering=0) as memory:
            return os.pwrite(memory.fileno(), data, address)
    except _GONE as error:
        raise _gone(error, pid) from None


def root(pid: int) -> Path:
    """The root directory as the process sees it: for files in its mount namespace."""
    return PROC / str(living_thread(pid)) / "root"


def boot_id() -> str:
    """Identifies this boot of the machine: PIDs and start times are valid only within it."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Another path of the same file, which fits into a Unix socket's address (108 bytes,
    unix(7))."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)

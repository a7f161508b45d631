"""What /proc says of a process: of ourselves, of children in known states, and of nobody."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, NotAvailable
from crdebug.node import files_used, in_flight, proc, programs, rest
from harness import nobody

pytestmark = pytest.mark.unit

NOBODY = 1 << 22  # above what the kernel gives
ME = os.getpid()


class Child:
    """A Python program that runs until we are done with it; it has run `code` by then."""

    def __init__(self, code: str = "", env: dict[str, str] | None = None) -> None:
        self._code, self._env = f"{code}\nprint(flush=True)\ninput()", env

    def __enter__(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", self._code]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._env
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"\n"
        return self._process

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.communicate()


def test_ourselves() -> None:
    assert proc.is_alive(ME)
    assert proc.is_alive(ME, proc.started(ME))
    assert not proc.is_alive(ME, proc.started(ME) + 1)
    assert not proc.is_ending(ME) and not proc.is_zombie(ME)
    assert int(proc.status(ME)["Pid"]) == ME
    assert proc.inner_pid(ME) == int(proc.status(ME)["NSpid"].split()[-1])
    assert ME in proc.processes_in_namespace_of(ME)
    assert proc.namespace(ME, "pid") == os.readlink("/proc/self/ns/pid")
    assert os.path.samestat(os.stat(proc.root(ME)), os.stat("/"))


def test_started_agrees_with_others() -> None:
    seconds = proc.started(ME) / os.sysconf("SC_CLK_TCK")
    assert abs(psutil.boot_time() + seconds - psutil.Process().create_time()) < 2


def test_environment_is_that_of_the_start() -> None:
    environment = {"PATH": os.environ["PATH"], "A": "1=2", "EMPTY": "", "ODD": "\udcff"}
    with Child(env=environment) as process:
        found = proc.environment(process.pid)
    assert {name: found[name] for name in environment} == environment


def test_the_boot_id_names_this_run_of_the_machine() -> None:
    assert proc.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


GONE: dict[str, Callable[[], object]] = {
    "status": lambda: proc.status(NOBODY),
    "status of a thread": lambda: proc.status(ME, NOBODY),
    "tids": lambda: proc.tids(NOBODY),
    "threads": lambda: proc.threads(NOBODY),
    "started": lambda: proc.started(NOBODY),
    "namespace": lambda: proc.namespace(NOBODY, "pid"),
    "processes_in_namespace_of": lambda: proc.processes_in_namespace_of(NOBODY),
    "inner_pid": lambda: proc.inner_pid(NOBODY),
    "maps": lambda: proc.maps(NOBODY),
    "mounts": lambda: proc.mounts(NOBODY),
    "files_open_for_writing": lambda: proc.files_open_for_writing(NOBODY),
    "memory": lambda: proc.memory(NOBODY),
    "environment": lambda: proc.environment(NOBODY),
    "read_memory": lambda: proc.read_memory(NOBODY, 0, 1),
    "write_memory": lambda: proc.write_memory(NOBODY, 0, b"x"),
}


@pytest.mark.parametrize("question", GONE)
def test_a_vanished_process_is_reported_as_one(question: str) -> None:
    with pytest.raises(ProcessLookupError):
        GONE[question]()
    assert not proc.is_alive(NOBODY) and proc.is_ending(NOBODY)
    assert not proc.is_zombie(NOBODY)


def test_a_zombie_is_not_alive() -> None:
    with Child() as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not proc.is_alive(process.pid)
        assert proc.is_ending(process.pid) and proc.is_zombie(process.pid)
        assert process.pid not in proc.processes_in_namespace_of(ME)
        assert proc.status(process.pid)["State"].startswith("Z")


def test_a_process_lives_on_without_its_first_thread() -> None:
    code = (
        "import ctypes, threading\n"
        "threading.Thread(target=input).start()\n"
        "print(flush=True)\n"
        "ctypes.CDLL(None).syscall(60, 0)  # exit(2) of this thread only\n"
    )
    with Child(code) as process:
        state = proc.status(process.pid)
        while not state["State"].startswith("Z"):  # until the kernel has taken note
            state = proc.status(process.pid)
        assert proc.is_alive(process.pid) and not proc.is_zombie(process.pid)


# ---- threads -----------------------------------------------------------------------------------


@pytest.fixture
def thread() -> Iterator[int]:
    """A second thread of ours, which blocks SIGUSR1 and SIGRTMAX: its TID."""
    let, known = threading.Event(), threading.Event()

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGRTMAX})
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("a) name")
        known.set()
        let.wait()

    worker = threading.Thread(target=run)
    worker.start()
    known.wait(30)
    yield worker.native_id or 0
    let.set()
    worker.join()


def bit(number: int) -> int:
    return 1 << (number - 1)


def test_threads_with_their_names_and_signal_sets(
    thread: int, request: pytest.FixtureRequest
) -> None:
    # Not SIGINT: a shell that starts the tests in the background may ignore it.
    before = signal.signal(signal.SIGUSR2, lambda number, frame: None)
    request.addfinalizer(lambda: signal.signal(signal.SIGUSR2, before))
    found = {each.tid: each for each in proc.threads(ME)}
    assert next(iter(found)) == ME and thread in found
    other = found[thread]
    assert other.name == "a) name"
    assert other.tracer == 0
    assert other.inner == int(proc.status(ME, thread)["NSpid"].split()[-1])
    assert other.blocked & bit(signal.SIGUSR1) and other.blocked & bit(signal.SIGRTMAX)
    assert not found[ME].blocked & bit(signal.SIGUSR1)
    assert other.caught & bit(signal.SIGUSR2) and other.ignored & bit(signal.SIGPIPE)
    assert not other.pending & bit(signal.SIGUSR1)


def test_signals_that_wait_in_a_threads_queue_and_in_the_processes(thread: int) -> None:
    worker = next(each for each in threading.enumerate() if each.native_id == thread)
    signal.pthread_kill(worker.ident or 0, signal.SIGUSR1)
    found = {each.tid: each for each in proc.threads(ME)}
    assert found[thread].pending & bit(signal.SIGUSR1)
    assert not found[ME].pending & bit(signal.SIGUSR1)


def test_threads_that_end_meanwhile_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "tids", lambda pid: (ME, NOBODY))
    assert [each.tid for each in proc.threads(ME)] == [ME]


def test_a_stopped_process_is_seen_as_such() -> None:
    with Child() as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert [each.state for each in proc.threads(process.pid)] == ["T"]


# ---- memory ------------------------------------------------------------------------------------


def test_between_two_equal_looks_there_was_a_moment_when_all_slept() -> None:
    """One may hand its work to the other while we look, as a launcher does to the starter."""
    with (
        subprocess.Popen("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat,
        Child() as idle,
    ):
        assert cat.stdin is not None and cat.stdout is not None
        both = (idle.pid, cat.pid)
        while (slept := rest.asleep(both)) is None or slept != rest.asleep(both):
            pass
        assert set(slept) == set(both)
        cat.stdin.write(b"work\n")
        cat.stdin.flush()
        assert cat.stdout.readline() == b"work\n"
        assert rest.asleep(both) != slept
        cat.stdin.close()
    with Child(
        "import os, threading; threading.Thread(target=lambda: [None for _ in iter(int, 1)],"
        " daemon=True).start()"
    ) as busy:
        assert rest.asleep([busy.pid]) is None


def test_memory_is_read_and_written() -> None:
    buffer = ctypes.create_string_buffer(b"before")
    address = ctypes.addressof(buffer)
    assert proc.read_memory(ME, address, 6) == b"before"
    proc.write_memory(ME, address, b"after!")
    assert buffer.raw[:6] == b"after!"


def test_memory_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="Input/output error"):
        proc.read_memory(ME, 16, 4)


def test_read_only_memory_is_written_as_by_a_debugger() -> None:
    with Child() as process:
        first = next(m for m in proc.maps(process.pid) if m.access.startswith("r--p"))
        proc.write_memory(process.pid, first.start + 8, b"crdebug!")
        assert proc.read_memory(process.pid, first.start + 8, 8) == b"crdebug!"


def test_maps_agree_with_psutil() -> None:
    with Child() as process:
        mine = {
            (m.start, m.end, m.access, m.path)
            for m in proc.maps(process.pid)
            if m.path.startswith("/")
        }
        wanted = set()
        for line in psutil.Process(process.pid).memory_maps(grouped=False):
            start, end = (int(text, 16) for text in line.addr.split("-"))
            if line.path.startswith("/"):
                wanted.add((start, end, line.perms, line.path))
    assert mine == wanted and len(mine) > 5


def test_a_mapped_file_with_a_space_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a b  c"
    path.write_bytes(bytes(4096))
    code = f"import mmap; f = open({str(path)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0)"
    with Child(code) as process:
        assert str(path) in {m.path for m in proc.maps(process.pid)}


# ---- mounts and files --------------------------------------------------------------------------


def test_mounts_have_a_root_and_names_without_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "/" in {mount.point for mount in proc.mounts(ME)}
    assert {mount.kind for mount in proc.mounts(ME)} >= {"proc"}
    (tmp_path / "7").mkdir()
    line = r"36 35 98:0 /mnt1 /my\040disk\134x rw,noatime master:1 shared:2 - ext3 /dev/root rw"
    (tmp_path / "7" / "mountinfo").write_text(line + "\n")
    monkeypatch.setattr(proc, "PROC", tmp_path)
    assert proc.mounts(7) == (proc.Mount(36, "98:0", "/my disk\\x", "ext3"),)


def test_files_open_for_writing(tmp_path: Path) -> None:
    wanted = {
        "appended": ("a", True),
        "written": ("w", False),
        "updated": ("r+", False),
        "gone": ("w", False),
    }
    for name in (*wanted, "read"):
        (tmp_path / name).write_text("123")
    opened = "; ".join(f"{n} = open({str(tmp_path / n)!r}, {m!r})" for n, (m, _) in wanted.items())
    code = (
        f"{opened}; r = open({str(tmp_path / 'read')!r}); import os, sys; "
        f"os.unlink({str(tmp_path / 'gone')!r}); n = open('/dev/null', 'w'); p = os.pipe()"
    )
    with Child(code) as process:
        # pytest's own files, which the child inherits, are elsewhere
        found = {
            Path(each.path).name: each
            for each in proc.files_open_for_writing(process.pid)
            if each.path.startswith(str(tmp_path))
        }
        mounts = {mount.number for mount in proc.mounts(process.pid)}
    assert {name: each.append for name, each in found.items()} == {
        name: append for name, (_, append) in wanted.items()
    }
    assert {name for name, each in found.items() if each.deleted} == {"gone"}
    assert found["appended"].size == 3 and found["written"].size == 0
    assert found["appended"].path == str(tmp_path / "appended")
    assert {each.mount for each in found.values()} <= mounts


# ---- programs ----------------------------------------------------------------------------------


async def test_a_program_to_its_end(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), os.environ['A']); print('e', file=sys.stderr); "
    done = await programs.run(
        [sys.executable, "-c", code + "print(sys.stdin.read()); sys.exit(3)"],
        Deadline(60.0),
        "it",
        environment={"A": "b"},
        directory=tmp_path,
    )
    assert done == programs.Finished(3, f"{tmp_path} b\n\n", "e\n")


async def test_a_program_that_a_signal_ends() -> None:
    code = "import os; os.kill(os.getpid(), 9)"
    done = await programs.run([sys.executable, "-c", code], Deadline(60.0), "it")
    assert done.status == -9


async def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    argv = ["sh", "-c", 'echo $$ > "$0"; exec < "$1"', str(noted), str(fifo)]
    with pytest.raises(DeadlineExpired, match=r"waited 1 s for the test"):
        await programs.run(argv, Deadline(1.0), "the test")
    assert not proc.is_alive(int(noted.read_text()))


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(NotAvailable, match="cannot start /nowhere/x: No such file or directory"):
        await programs.run(["/nowhere/x"], Deadline(60.0), "it")


@nobody.needs_root
@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda pid: proc.read_memory(pid, 4096, 8), ProcessLookupError),
        (lambda pid: proc.write_memory(pid, 4096, b"!"), ProcessLookupError),
        (proc.environment, ProcessLookupError),
        (proc.descriptors, ()),
        (proc.sockets, ()),
        (proc.files_open_for_writing, ()),
        (in_flight.channels, {}),
        (files_used.opened, set()),
    ],
)
def test_an_ordinary_users_process_that_has_ended(
    ask: Callable[[int], object], answer: object
) -> None:
    """Until it is waited for, what it has in /proc is root's."""

    def outcome(pid: int) -> object:
        try:
            return ask(pid)
        except OSError as error:
            return type(error)

    user = os.fork()
    if user == 0:
        nobody.become()
        ended = os.fork()
        if ended == 0:
            os._exit(0)
        os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
        os._exit(0 if outcome(ended) == answer else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(user, 0)[1]) == 0


SHARING = """
import mmap, os, signal, sys
size, ready = 64 << 20, os.pipe()
shared = mmap.mmap(-1, size)  # MAP_SHARED | MAP_ANONYMOUS
shared.write(bytes(1) * size)
pids = []
for _ in range(3):
    pids.append(os.fork())
    if pids[-1] == 0:
        sum(shared[at] for at in range(0, size, 4096))
        os.write(ready[1], b".")
        signal.pause()
for _ in pids:
    os.read(ready[0], 1)
print(*pids, flush=True)
sys.stdin.read()
for pid in pids:
    os.kill(pid, signal.SIGKILL)
"""


def test_what_processes_share_is_counted_once() -> None:
    """As with MPI_Win_allocate_shared: each rank has all of it mapped."""
    with subprocess.Popen(
        [sys.executable, "-IS", "-c", SHARING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdin is not None and first.stdout is not None
        pids = [first.pid, *map(int, first.stdout.readline().split())]
        each = [proc.memory(pid) for pid in pids]
        first.stdin.close()
    assert 64 << 20 <= sum(each) < 2 * 64 << 20
    assert max(each) < 32 << 20

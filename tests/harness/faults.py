"""Faults: a CRIU that fails on demand, processes that die at a given phase, and full disks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.events import Event, Progress
from crdebug.base.settings import cache_home
from crdebug.job.directory import JobDirectory
from crdebug.node import proc
from crdebug.node.criu_program import find_criu
from crdebug.session import Session
from harness import looks
from harness.jobs import JOB
from harness.scripts import BY_PATH
from harness.victim import publish_when

_SECONDS = 60.0

# ---- a CRIU that fails --------------------------------------------------------------------------

_PLAN, _REAL = "CRDEBUG_TEST_CRIU_PLAN", "CRDEBUG_TEST_CRIU"

# Without a plan it is the real one. With a plan it follows the real one's log, which is the only
# way to know how far it is, by way of a FIFO in the log's place. It reads no more of that from the
# line on, and the FIFO holds little: so the real one stops right after the line, while
# it writes another one. (To kill it just anywhere would be a game of chance: for some microseconds
# it has code of its own in the place of a process's, see crdebug.checkpoint.criu.)
_WRAPPER = f"""{BY_PATH}import fcntl, json, os, re, signal, socket, subprocess, sys, time
real, argv = os.environ["{_REAL}"], sys.argv[1:]
plan = json.loads(os.environ.get("{_PLAN}") or "null")
wanted = [plan["verb"], "--log-file", plan.get("option", "--log-file")] if plan else [""]
done = plan and "once" in plan and os.path.exists(plan["reached"])
if done or any(word not in argv for word in wanted):
    os.execv(real, [real, *argv])
place = argv.index("--log-file") + 1
log = argv[place]
if plan["do"] == "fail":
    with open(log, "w") as file:
        file.write("(00.000001) Error (criu/test.c:1): this was asked for\\n")
    open(plan["reached"], "w").close()
    sys.exit(1)
if plan["do"] == "fill":
    with open(plan["file"], "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            pass
    open(plan["reached"], "w").close()
    os.execv(real, [real, *argv])
fifo = argv[place] = log + ".fifo"
os.mkfifo(fifo)
verbose = [word if word != "-v1" else "-v4" for word in argv]
process = subprocess.Popen([real, *verbose])
lines = os.open(fifo, os.O_RDONLY)
fcntl.fcntl(lines, fcntl.F_SETPIPE_SZ, 4096)


def ask_for_death():
    # of crdebug, which nobody sees from inside the container
    channel = socket.socket(socket.AF_UNIX)
    os.chdir(plan["killer"])
    channel.connect("killer")
    channel.recv(1)


def stands():
    with open(f"/proc/{{process.pid}}/syscall") as file:
        call = file.read().split()
    if len(call) < 2 or call[0] != "1":  # write(2)
        return False
    return os.readlink(f"/proc/{{process.pid}}/fd/{{int(call[1], 16)}}") == fifo


def come_to_a_stand():
    limit = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < limit and not stands():
        time.sleep(0.001)


text, left = b"", plan["nth"]
while data := os.read(lines, 256):
    text += data
    *whole, text = text.split(b"\\n")
    if left:
        left -= min(left, sum(bool(re.search(plan["at"].encode(), line)) for line in whole))
        if left:
            continue
        if argv[0] == "dump" and plan["do"] in ("kill", "hang", "kill job"):
            come_to_a_stand()
        open(plan["reached"], "w").close()
        if plan["do"] in ("kill both", "kill crdebug"):
            ask_for_death()
        if plan["do"] in ("kill", "kill both"):
            process.kill()
            os.kill(os.getpid(), signal.SIGKILL)
        if plan["do"] == "hang":
            process.send_signal(signal.SIGSTOP)
            signal.pause()
        if plan["do"] == "kill job":
            os.kill(int(argv[argv.index("--tree") + 1]), signal.SIGKILL)
status = process.wait()
sys.exit(status if status >= 0 else 128 - status)
"""
# Who kills crdebug on behalf of the CRIU that it has started by way of `starter --enter`.
_KILLER = """import os, signal, socket, struct, sys
server = socket.socket(fileno=int(sys.argv[1]))
channel, _ = server.accept()
pid, _, _ = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
def enters(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"--enter" in file.read().split(b"\\0")
while not enters(pid):
    pid = parent(pid)
while enters(pid):
    pid = parent(pid)
os.kill(pid, signal.SIGKILL)
"""
_WRAPPER_DIGEST = hashlib.sha256(_WRAPPER.encode()).hexdigest()[:16]


class FaultyCriu:
    """$CRDEBUG_CRIU for a test: the real one, until the test makes it fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
        self._monkeypatch = monkeypatch
        self._reached = work / "criu-reached"
        self._killer: subprocess.Popen[bytes] | None = None
        found = find_criu()
        assert found is not None
        # Always the same file: a CRIU that is not known is tried first.
        self.path = cache_home() / "programs" / f"faulty-criu-{_WRAPPER_DIGEST}"
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self.path.with_name(f".faulty-criu-{os.getpid()}")
            unfinished.write_text(_WRAPPER)
            unfinished.chmod(0o755)
            unfinished.replace(self.path)
        monkeypatch.setenv(_REAL, found.path)
        monkeypatch.setenv("CRDEBUG_CRIU", str(self.path))
        assert find_criu() is not None

    def will(self, do: str, verb: str, nth: int = 1, **more: str) -> None:
        """From now on: at "dump" or "restore", "fail" at once; "fill" a `file` until the disk is
        full, then go on; or, where the log says `at` (a regular expression) the `nth` time, "kill"
        (be killed), "hang", "kill crdebug", "kill both", "kill job" (PID 1 of its container).
        option: only if that is among its arguments.  once: if it is given, not a second time."""
        self._reached.unlink(missing_ok=True)
        plan = {"do": do, "verb": verb, "nth": nth, "reached": str(self._reached), **more}
        if do in ("kill both", "kill crdebug"):
            plan["killer"] = self._start_killer()
        self._monkeypatch.setenv(_PLAN, json.dumps(plan))

    def _start_killer(self) -> str:
        """Returns the directory of the socket at which it is asked."""
        place = self._reached.with_name("killer")
        place.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as server, proc.short_path(place) as path:
            server.bind(path)
            server.listen()
            words = [sys.executable, "-c", _KILLER, str(server.fileno())]
            self._killer = subprocess.Popen(words, pass_fds=(server.fileno(),))
        return str(place.parent)

    @property
    def reached(self) -> bool:
        """Did it do so?"""
        self._await_killer()
        return self._reached.exists()

    def _await_killer(self) -> None:
        if self._killer is not None:
            self._killer.wait(_SECONDS)

    def work_again(self) -> None:
        self._await_killer()
        self._monkeypatch.delenv(_PLAN)


@contextlib.contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of its own at `path`, of so many MiB. Skips the test for an ordinary user."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    path.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=700", "tmpfs", str(path)],
        check=True,
    )
    try:
        yield path
    finally:
        gc.collect()  # logs that were read are mapped as long as they are there
        subprocess.run(["umount", str(path)], check=True)


# ---- deaths by phase ---------------------------------------------------------------------------

# The phases that a user sees, in this order.
CHECKPOINT = ("record", "herd", "detach", "hold", "dump", "attach", "walk out", "publish")
RESTART = ("restore", "retire", "hold", "attach", "walk out")


class At:
    """A subscriber that does something once, when an operation reaches a phase."""

    def __init__(self, operation: str, phase: str, do: Callable[[], None]) -> None:
        self._where = (operation, phase)
        self._do = do
        self.reached = False

    def __call__(self, event: Event) -> None:
        here = isinstance(event, Progress) and (event.operation, event.phase) == self._where
        if here and not self.reached:
            self.reached = True
            self._do()


@contextlib.contextmanager
def at_phase(job: Session, operation: str, phase: str, do: Callable[[], None]) -> Iterator[None]:
    """Do something when an operation of the block reaches a phase, which it must."""
    at, last = At(operation, phase, do), asyncio.Event()

    def hear(event: Event) -> None:
        at(event)
        if isinstance(event, Progress) and event.phase == "publish":
            last.set()

    with contextlib.ExitStack() as stack:
        stack.callback(job.subscribe(hear))
        if phase == "publish":
            stack.callback(publish_when(last))
        yield
    assert at.reached, phase


def kill(pid: int | None) -> None:
    """SIGKILL."""
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def has_ended(pid: int) -> bool:
    return not proc.is_alive(pid)


async def gone(pids: Sequence[int]) -> None:
    """Wait until these processes have ended, whatever their parent is."""
    limit = Deadline(_SECONDS)
    for pid in pids:
        await limit.until(partial(has_ended, pid), f"process {pid} to end")


# ---- a crdebug that dies ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Victim:
    """A crdebug in a process of its own that kills itself, as harness.victim describes.

    gdbs: the PIDs of its GDBs.
    told: all its output.
    """

    gdbs: tuple[int, ...]
    told: Mapping[str, object] = field(default_factory=dict)


async def victim(module: str = "harness.victim", **plan: object) -> Victim:
    """Run one; returns when it is dead. Raises AssertionError when it did not come to its end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, json.dumps(plan)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        out, err = await Deadline(_SECONDS).wait(process.communicate(), f"the victim {plan}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = f"{plan}\n--- stdout\n{out.decode()}--- stderr\n{err.decode()}"
    assert process.returncode == -signal.SIGKILL, f"it did not die: {process.returncode}, {said}"
    told = [json.loads(line) for line in out.decode().splitlines()]
    assert told, said
    return Victim(tuple(told[-1].pop("gdbs")), told[-1])


async def moves_on(job: str = JOB) -> None:
    """Wait until every rank of a job has done a step more."""
    ranks = looks.shims(job)
    before = {rank.rank: looks.number(rank, "step") for rank in ranks}
    await Deadline(_SECONDS).until(
        lambda: all(looks.number(rank, "step") > before[rank.rank] for rank in ranks),
        "every rank to move on",
    )


@contextlib.asynccontextmanager
async def dead_slow(pid: int) -> AsyncIterator[None]:
    """A process that answers nobody (SIGSTOP) while the block runs; it may be gone afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def half_checkpoints(job: str = JOB) -> list[str]:
    """What is among a job's checkpoints and is none."""
    store = JobDirectory(job).store
    whole = {str(number) for number in store.numbers()}
    there = {entry.name for entry in store.root.iterdir()} if store.root.exists() else set()
    needed = {str(base) for each in store.list() for base in each.bases}
    return sorted(there - whole - needed - {"last"})

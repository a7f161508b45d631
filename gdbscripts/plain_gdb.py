"""crdebug's commands inside a GDB that is not crdebug's: `source` this file there.

For a GDB that the user attached to one rank of a crdebug job, to several as its inferiors, or to
the starter. While its ranks run, others can request checkpoints too. This file finds the job by the
MPIR symbols of its starter, and does what Hursey et al. (EuroMPI 2010) require of a
checkpoint-aware debugger: it leads the threads that it holds into their waitpoints, detaches, runs
the command in the symbols, attaches to the ranks again, and leads the threads back to where they
were.
GDB 12 or later, x86-64 Linux.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import struct
import subprocess
import time

import gdb

HERE = os.path.dirname(os.path.abspath(os.path.expanduser(__file__)))
gdb.execute(f"source {os.path.join(HERE, 'load.py')}", to_string=True)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from . import checkpoint, ptrace, rank_state, wire
else:
    import crdebug_gdb  # noqa: F401 - load.py has made it; for commands that name it
    from crdebug_gdb import checkpoint, ptrace, rank_state, wire

SECONDS = 60.0
COMMANDS = "MPIR_checkpoint_command", "MPIR_restart_command", "MPIR_checkpoint_listing_command"


def complain(text: str) -> NoReturn:
    raise gdb.GdbError(f"crdebug: {text}")


# ---- files ---------------------------------------------------------------------------------------


def find_files_from_here() -> None:
    """GDB looks for a process's files in its mount namespace. Only root may enter that of a job
    (setns(2)), so users' GDBs find none; but the files have the same names here."""
    if os.geteuid() == 0 or gdb.parameter("sysroot") != "target:":
        return
    gdb.execute("set sysroot /", to_string=True)
    for inferior in gdb.inferiors():
        if inferior.pid and not inferior.progspace.filename:
            with selected(inferior.num):
                path = os.readlink(f"/proc/{inferior.pid}/exe")
                gdb.execute(f"file {shlex.quote(path)}", to_string=True)


# ---- the starter ---------------------------------------------------------------------------------


def status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def inner(tid: int) -> int:
    """The thread's number in the job."""
    return int(status(tid)["NSpid"].split()[-1])


def starter_of(pid: int) -> int:
    """The process itself or its nearest ancestor that is the first process of a job: a child of
    PID 1 of the PID namespace."""
    wanted = os.readlink(f"/proc/{pid}/ns/pid")
    while pid > 1:
        above = int(status(pid)["PPid"])
        if above and inner(above) == 1 and os.readlink(f"/proc/{above}/ns/pid") == wanted:
            return pid
        pid = above
    return complain("this process does not belong to a job of crdebug: no ancestor is a starter")


def place(name: str) -> int | None:
    """A symbol's address in the selected inferior, or None."""
    try:
        return rank_state.symbol_address(name)
    except gdb.error:
        return None


@contextlib.contextmanager
def selected(number: int) -> Iterator[None]:
    before = gdb.selected_inferior().num
    gdb.execute(f"inferior {number}", to_string=True)
    try:
        yield
    finally:
        gdb.execute(f"inferior {before}", to_string=True)


def symbols_of(pid: int) -> list[str]:
    """The three commands of a starter; GDB reads its symbols without attaching."""
    path = os.readlink(f"/proc/{pid}/exe")
    with open(f"/proc/{pid}/maps") as file:
        base = int(next(line for line in file if line.rstrip().endswith(path)).split("-")[0], 16)
    gdb.execute(f"add-inferior -exec {path}", to_string=True)
    number = max(each.num for each in gdb.inferiors())
    try:
        with selected(number):
            at = [place(name) for name in COMMANDS]
    finally:
        gdb.execute(f"remove-inferiors {number}", to_string=True)
    found = [each for each in at if each is not None]
    if len(found) < len(at):
        complain(f"process {pid} has no MPIR symbols for checkpoints")
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        texts = [os.pread(memory.fileno(), 256, base + each) for each in found]
    return [text.partition(b"\0")[0].decode() for text in texts]


def printable(text: str) -> str:
    """Harmless for a terminal, as crdebug/ui/printable.py has it: names come from the program."""
    return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text)


class Job:
    """The job of the selected inferior: its commands, and those of its ranks that this GDB
    holds."""

    last_handle: str | None = None

    def __init__(self) -> None:
        pid = gdb.selected_inferior().pid
        if pid == 0:
            complain("attach to a rank first, or to the starter")
        self.starter = starter_of(pid)
        # Its commands are run: anybody can have a process that looks like a starter.
        if set(status(self.starter)["Uid"].split()) != {str(os.geteuid())}:
            complain(f"process {self.starter}, the starter of this job, is another user's")
        self.checkpoint, self.restart, self.listing = symbols_of(self.starter)
        self.ranks = []
        for each in gdb.inferiors():
            if each.pid and each.pid != self.starter:
                with selected(each.num):
                    shim = place("crdebug_shim")
                    if shim is not None:
                        self.ranks.append(Held(each, shim))
        self.lends_starter = pid == self.starter

    @property
    def name(self) -> str:
        return shlex.split(self.listing)[-1]

    def run(self, command: str) -> str:
        """Run one of its commands; returns the output. GDB must not hold the starter meanwhile."""
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
        if done.returncode:
            complain(printable(done.stderr or done.stdout).strip().removeprefix("crdebug: "))
        return printable(done.stdout + done.stderr)


def pass_silently(number: int) -> None:
    name = wire.gdb_signal_name(number)
    gdb.execute(f"handle {name} nostop noprint pass", to_string=True)


# ---- a rank --------------------------------------------------------------------------------------


class Held:
    """A rank that an inferior of this GDB holds."""

    def __init__(self, inferior: gdb.Inferior, shim: int) -> None:
        self.inferior = inferior
        self.number = inferior.num
        self.pid = inferior.pid
        self.shim = shim
        self.gate = rank_state.symbol_address("MPIR_checkpoint_debug_gate")
        self.with_checkpoint = rank_state.symbol_address("MPIR_debug_with_checkpoint")
        self.rank, self.signal, self.waiting = self.header()
        self.before: dict[int, wire.Thread] = {}
        self.stops: list[int] = []

    def header(self) -> tuple[int, int, int]:
        """rank, signal, threads that wait."""
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), wire.SHIM_HEADER.size, self.shim)
        return wire.SHIM_HEADER.unpack(data)[2:5]

    def asker(self) -> int:
        """The PID of the process that wants us to detach from this rank, while it lives; else 0."""
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), 4, self.shim + wire.ASKER_OFFSET)
        pid = int.from_bytes(data, "little")
        return pid if os.path.exists(f"/proc/{pid}") else 0

    def write(self, address: int, value: int) -> None:
        self.inferior.write_memory(address, struct.pack("<i", value))

    def note(self) -> None:
        """Record the state of each thread, to lead it back there."""
        self.selected = gdb.selected_thread().ptid[1]
        if rank_state.signalled:
            complain(f"rank {self.rank} has stopped at a signal: let it go on past that first")
        with rank_state.Selection():
            for thread in ptrace.threads():
                thread.switch()
                tid = thread.ptid[1]
                self.before[tid] = rank_state.selected_state(tid)

    def herd(self) -> None:
        """Queue the waitpoint signal to every thread; it gets it before its next instruction."""
        pass_silently(self.signal)
        self.write(self.with_checkpoint, 1)
        self.write(self.gate, 0)
        rows = []
        for tid, before in self.before.items():
            call = before.orig_rax if before.was_interrupted else wire.NO_CALL
            blocks = ptrace.signal_set(tid, "SigBlk") >> (self.signal - 1) & 1
            if blocks:
                rank_state.unblock(self.signal, [tid])
            ends = ptrace.ends_call(tid)
            flags = wire.BLOCKED * blocks | (ends & -ends).bit_length() << wire.HELD_SHIFT
            rows.append(wire.SHIM_THREAD.pack(inner(tid), call, flags, 0))
        self.inferior.write_memory(
            self.shim + wire.SHIM_HEADER.size, b"".join(rows) + bytes(wire.SHIM_THREAD.size)
        )
        for tid in self.before:
            ptrace.libc.syscall(ptrace.TGKILL, self.pid, tid, self.signal)

    def await_waitpoint(self) -> None:
        limit = time.monotonic() + SECONDS
        while self.header()[2] < len(os.listdir(f"/proc/{self.pid}/task")):
            if time.monotonic() > limit:
                complain(f"rank {self.rank}: not every thread has reached the waitpoint")
            time.sleep(0.002)

    def lend(self) -> None:
        """Detach behind GDB's back; its symbols stay."""
        with selected(self.number):
            checkpoint.lend(self.signal)
            self.stops = checkpoint.lent.stops

    def take_back(self) -> None:
        with selected(self.number):
            checkpoint.lent.stops = self.stops
            checkpoint.take_back()
            self.walk_out()

    def walk_out(self) -> None:
        problems = checkpoint.walk_out_all(self.before)
        for thread in ptrace.threads():
            if thread.ptid[1] == self.selected:
                thread.switch()
        if problems:
            told = "; ".join(f"thread {tid} {text}" for tid, text in problems.items())
            complain(f"rank {self.rank}: {told}")


@contextlib.contextmanager
def let_go(job: Job) -> Iterator[None]:
    """Inside the block the ranks wait in their waitpoints, untraced; after it we attach again."""
    herded = []
    try:
        for rank in job.ranks:
            with selected(rank.number):
                rank.note()
        for rank in job.ranks:
            with selected(rank.number):
                rank.herd()
            rank.lend()
            herded.append(rank)
        for rank in herded:
            rank.await_waitpoint()
        if job.lends_starter:
            gdb.execute("detach", to_string=True)
        yield
    finally:
        if job.lends_starter and gdb.selected_inferior().pid == 0:
            gdb.execute(f"attach {job.starter}", to_string=True)
        for rank in herded:
            rank.take_back()


# ---- the commands --------------------------------------------------------------------------------


class Prefix(gdb.Command):
    """Checkpoints of the MPI job that this process is a rank, or the starter, of."""

    def __init__(self) -> None:
        super().__init__("crdebug", gdb.COMMAND_USER, prefix=True)


class Checkpoint(gdb.Command):
    """Take a checkpoint of the whole job; afterwards every thread is where it was.

    crdebug checkpoint [NOTE]"""

    def __init__(self) -> None:
        super().__init__("crdebug checkpoint", gdb.COMMAND_USER)

    def invoke(self, argument: str, from_tty: bool) -> None:
        job = Job()
        note = f" --note {shlex.quote(argument)}" if argument else ""
        with let_go(job):
            said = job.run(job.checkpoint + note)
        found = re.search(r"^MPIR_checkpoint_handle\) (\S+)$", said, re.M)
        if found is None:
            complain(f"the command has printed no handle:\n{said}")
        Job.last_handle = found[1]
        print(f"checkpoint {found[1]}")


class LetGo(gdb.Command):
    """Detach from the ranks while another process takes a checkpoint, at its request."""

    def __init__(self) -> None:
        super().__init__("crdebug let-go", gdb.COMMAND_USER)

    def invoke(self, argument: str, from_tty: bool) -> None:
        job = Job()
        asked = [rank for rank in job.ranks if rank.asker()]
        if not asked:
            return  # the request is gone
        who = asked[0].asker()
        with let_go(job):
            while any(rank.asker() for rank in asked):
                time.sleep(0.002)
        print(f"process {who} had the ranks for a checkpoint")


def break_where_asked() -> None:
    """Stop where a rank reports a request for a checkpoint, detach meanwhile, and go on."""
    signal = wire.DEFAULT_SIGNAL
    shim = place("crdebug_shim") if gdb.selected_inferior().pid else None
    if shim is not None:
        signal = Held(gdb.selected_inferior(), shim).signal
    pass_silently(signal)
    at = gdb.Breakpoint("MPIR_checkpoint_debugger_detach", internal=True)
    at.silent = True
    at.commands = "crdebug let-go\ncontinue"


class Restart(gdb.Command):
    """Take the whole job back to a checkpoint, and attach this GDB to its ranks, which are stopped.

    crdebug restart [HANDLE]     by default the last one that this GDB took"""

    def __init__(self) -> None:
        super().__init__("crdebug restart", gdb.COMMAND_USER)

    def invoke(self, argument: str, from_tty: bool) -> None:
        job = Job()
        handle = argument.strip() or Job.last_handle
        if handle is None:
            complain("which one? 'crdebug checkpoints' lists them")
        held = [(rank.number, rank.rank) for rank in job.ranks]
        # Detach for good, so that GDB forgets the old processes; they end at the restart.
        for rank in job.ranks:
            with selected(rank.number):
                rank.note()
                rank.herd()
                gdb.execute("detach", to_string=True)
        if job.lends_starter:
            gdb.execute("detach", to_string=True)
        try:
            for rank in job.ranks:
                rank.await_waitpoint()
            said = job.run(f"{job.restart} {shlex.quote(handle)}")
        except gdb.GdbError:
            for rank in job.ranks:
                with selected(rank.number):
                    gdb.execute(f"attach {rank.pid}", to_string=True)
                    rank.walk_out()
            raise
        pids = [int(pid) for pid in re.findall(r"^MPIR_debug_info\) .*:(\d+)$", said, re.M)]
        if job.lends_starter and pids:
            gdb.execute(f"attach {starter_of(pids[0])}", to_string=True)
        for inferior, number in held:
            with selected(inferior):
                gdb.execute(f"attach {pids[number]}", to_string=True)
                self.lead_out()
        print(f"restarted from {handle}")

    def lead_out(self) -> None:
        problems = checkpoint.walk_out_all({})
        if problems:
            complain("; ".join(f"thread {tid} {text}" for tid, text in problems.items()))


class Checkpoints(gdb.Command):
    """List the job's checkpoints."""

    def __init__(self) -> None:
        super().__init__("crdebug checkpoints", gdb.COMMAND_USER)

    def invoke(self, argument: str, from_tty: bool) -> None:
        job = Job()
        print(job.run(job.listing).rstrip())


class Release(gdb.Command):
    """Let the whole job run on without a debugger: this GDB's ranks, and those that still wait."""

    def __init__(self) -> None:
        super().__init__("crdebug release", gdb.COMMAND_USER)

    def invoke(self, argument: str, from_tty: bool) -> None:
        job = Job()
        for rank in job.ranks:
            with selected(rank.number):
                rank.write(rank.with_checkpoint, 0)
                rank.write(rank.gate, 1)
                gdb.execute("detach", to_string=True)
        if job.lends_starter:
            gdb.execute("detach", to_string=True)
        print(job.run(f"{shlex.split(job.checkpoint)[0]} release {job.name}").rstrip())


Prefix()
Checkpoint()
LetGo()
Restart()
Checkpoints()
Release()
find_files_from_here()
break_where_asked()

"""crdebug's part inside the GDB of one rank: MI commands for all threads at once.

Runs in GDB's own Python (3.9 or later; `gdb.MICommand` needs GDB 12 or later), so it imports
nothing of crdebug's. x86-64 Linux.

-crdebug-threads
    {selected=TID, threads=[WORD]}: where each thread is; see wire.Thread.
-crdebug-registers
    {threads=[{tid, registers={name=value}, xstate=HEX}]}: every register of every thread, as GDB
    shows it. xstate: the vector and floating-point registers from the kernel, because GDB before 14
    looks for AVX-512's in the wrong place on some processors.
-crdebug-unblock SIGNAL TID...
    Remove a signal from the set that these threads block. GDB may do so, as it is their tracer.
-crdebug-mask TID
    {mask=NUMBER}: the signals that a thread blocks; bit n - 1 for signal n.
-crdebug-only-stops TID
    Make a thread block all signals that can be blocked: all but SIGSTOP.
-crdebug-at-signal-again TID
    Replace the signal at which the thread has stopped: by the one at which it had stopped before
    `-crdebug-only-stops`, with its siginfo.
-crdebug-as-before TID
    Make the thread block the same signals again as before `-crdebug-only-stops`.
-crdebug-settle
    Call this before a thread runs on: see `settle`.
-crdebug-stay-stopped
    Leave a SIGSTOP in the process's queue if GDB ends before the process runs again.
"""

from __future__ import annotations

import os
import signal
import time

import gdb

from .ptrace import (
    PTRACE_CONT,
    SIGSTOP,
    WALL,
    WORD,
    Gone,
    extended_state,
    is_core,
    ptrace,
    registers_of,
    run_into,
    set_registers,
    set_signal_mask,
    set_stop_info,
    signal_mask,
    signal_number,
    signal_set,
    stop_info,
    take_stop,
    threads,
    tids,
)
from .system_calls import RESTART_SYSCALL
from .wire import EINTR, RESTART_CODES, Command, Thread, gdb_signal_name, is_inside_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .ptrace import UserRegisters
    from .wire import Answer

GATE = "MPIR_checkpoint_debug_gate"
PATIENCE, MOMENT = 2.0, 0.001  # seconds
LOOKS = 3  # between a queue and the stop a signal is nowhere for some microseconds

# Processes that a SIGSTOP in their queue is to keep stopped once GDB has detached.
staying: set[int] = set()
# Threads that GDB shows inside a system call that they will repeat: LWP -> number of the call.
unsettled: dict[int, int] = {}
# Those of them that get a signal when they go on: LWP -> registers before the call and inside.
awaiting: dict[int, tuple[UserRegisters, UserRegisters]] = {}
signalled: dict[str, int] = {}  # "tid": the thread to which GDB will pass a signal
hit: dict[int, int] = {}  # the thread whose stop at a breakpoint GDB has reported: LWP -> PC
# Threads that accept only SIGSTOP for a moment: LWP -> their mask, and siginfo_t.
heeding: dict[int, tuple[int, bytes]] = {}
# Called by `settle`; each returns whether it has changed anything in a thread.
preparations: list[Callable[[], bool]] = []
before_runs: list[Callable[[], None]] = []  # called after that, unless GDB only calls a function


def register(name: str) -> int:
    """A register of the selected thread's newest frame, as 64 bits without a sign."""
    return int(gdb.newest_frame().read_register(name)) & WORD


class Selection:
    """Restores the user's thread and frame."""

    def __enter__(self) -> None:
        self.thread = gdb.selected_thread()
        self.level = gdb.selected_frame().level() if self.thread else 0

    def __exit__(self, *problem: object) -> None:
        if self.thread is not None and self.thread.is_valid():
            self.thread.switch()
            frame = gdb.newest_frame()
            for _ in range(self.level):
                frame = frame.older() or frame
            frame.select()


def selected_state(tid: int, told: bool = False, signal: bytes = b"") -> Thread:
    """The state of the selected thread, which has this number."""
    pc, sp, rax, orig_rax = map(register, ("pc", "sp", "rax", "orig_rax"))
    return Thread(tid, pc, sp, rax, orig_rax, told, signal)


def saved_frame() -> gdb.Frame | None:
    """The frame below the signal handler's: the selected thread's place when it was herded."""
    frame: gdb.Frame | None = gdb.newest_frame()
    while frame is not None and frame.type() != gdb.SIGTRAMP_FRAME:
        frame = frame.older()
    return None if frame is None else frame.older()


def symbol_address(name: str) -> int:
    """A symbol's address, in any language: not all have C's `&`."""
    with gdb.with_parameter("language", "c"):
        return int(gdb.parse_and_eval(f"&{name}")) & WORD


def set_gate(value: int) -> None:
    gdb.selected_inferior().write_memory(symbol_address(GATE), value.to_bytes(4, "little"))


def has_signal(tid: int) -> bool:
    """Does the thread have a signal of its own, now or as soon as it runs?"""
    if tid == signalled.get("tid"):
        return True
    pid = gdb.selected_inferior().pid
    with open(f"/proc/{pid}/task/{tid}/status") as file:
        fields = dict(line.split(":", 1) for line in file if line.startswith(("Sig", "Shd")))
    blocked, own, shared = (int(fields[name], 16) for name in ("SigBlk", "SigPnd", "ShdPnd"))
    return bool((own | shared) & ~blocked & ~(1 << (SIGSTOP - 1)))


def passes(number: int) -> bool:
    """Does GDB pass this signal to the program? It does not if it has no name for the signal."""
    try:
        table = gdb.execute(f"info signals {gdb_signal_name(number)}", to_string=True)
    except (gdb.error, ValueError):
        return False
    _stop, _print, given = table.strip().splitlines()[-1].split()[1:4]
    return given == "Yes"


def held_signal(tid: int) -> bytes:
    """The siginfo_t of the signal at which a thread has stopped and which it gets next, or b""."""
    info = stop_info(tid)
    number = signal_number(info)
    ours = number in (0, SIGSTOP, signal.SIGTRAP)
    return b"" if ours or not passes(number) else info


def is_caught(tid: int, number: int) -> bool:
    return bool(signal_set(tid, "SigCgt") >> (number - 1) & 1)


def read_registers(shown: Mapping[int, tuple[UserRegisters, UserRegisters]]) -> None:
    """Read each thread's registers into GDB's cache; for some, by TID, their own and those to show.

    To fill the cache, a thread gets the registers to show for a moment. If GDB is killed just then,
    the thread goes on with them, and the kernel ends its call unless it repeats such calls itself
    (restart_syscall(2)). So we do this for one thread at a time, and only while GDB reads
    registers.
    """
    for thread in threads():
        thread.switch()
        gdb.newest_frame().pc()  # by now it has read everything else that it needs, also from files
    selected = thread
    for thread in (selected, *(each for each in threads() if each.num != selected.num)):
        tid = thread.ptid[1]
        now, other = shown.get(tid, (None, None))
        if other is not None:
            set_registers(tid, other)
        try:
            if thread is selected:  # GDB reads its registers again after each command
                gdb.execute("maint flush register-cache", to_string=True)
            thread.switch()
            gdb.newest_frame().pc()
        finally:
            if now is not None:
                set_registers(tid, now)


def settle_thread(tid: int) -> bool:
    """`settle` for one thread; returns whether it changed anything."""
    now = registers_of(tid)
    if tid in awaiting:
        # The kernel ends or repeats the call, depending on the signal's handler.
        before, shown = awaiting[tid]
        if bytes(now) == bytes(before):
            set_registers(tid, shown)
        return bytes(now) == bytes(before)
    inside = is_inside_call(now.orig_rax) and now.orig_rax != RESTART_SYSCALL
    woken = now.rax == -EINTR & WORD and not has_signal(tid)
    again = unsettled.get(tid) == now.orig_rax and now.rax in RESTART_CODES
    if not inside or not (woken or again):
        return False
    now.rip, now.rax, now.orig_rax = now.rip - 2, now.orig_rax, WORD
    set_registers(tid, now)
    return True


def settle(keep: bool = False) -> None:
    """Make threads repeat a system call that ended because they were stopped.

    There are two kinds. Some calls return -EINTR when a debugger stops their thread, without any
    signal for the application: epoll_wait, a receive with a time limit, ... (signal(7),
    "Interruption of system calls and library functions by stop signals"). And GDB shows threads
    inside a call after a walk out (checkpoint.py); it may have written the shown registers to them.

    keep: GDB is about to call a function, and restores the shown registers afterwards.
    """
    changed = False
    for tid in tids():
        try:
            changed = settle_thread(tid) or changed
        except (Gone, FileNotFoundError, ProcessLookupError):
            continue  # killed while it was stopped: GDB reports that at the next resume
    for prepare in preparations:
        changed = prepare() or changed
    if changed or unsettled:
        gdb.execute("maint flush register-cache", to_string=True)
    if not keep:
        unsettled.clear()
        awaiting.clear()
        for prepared in before_runs:
            prepared()


def note_signal(event: gdb.StopEvent) -> None:
    """Note which thread gets a signal from GDB when it goes on, and which has hit a breakpoint."""
    signalled.clear()
    if not isinstance(event, gdb.SignalEvent) or event.stop_signal != "SIGSTOP":
        hit.clear()
    if isinstance(event, gdb.BreakpointEvent):
        thread = event.inferior_thread or gdb.selected_thread()
        hit[thread.ptid[1]] = registers_of(thread.ptid[1]).rip
    if isinstance(event, gdb.SignalEvent) and event.stop_signal not in ("SIGSTOP", "SIGTRAP", "0"):
        thread = event.inferior_thread or gdb.selected_thread()
        if thread is not None:
            signalled["tid"] = thread.ptid[1]


def before_call(event: object) -> None:
    if isinstance(event, gdb.InferiorCallPreEvent):
        settle(keep=True)


def block_as_before() -> None:
    """Undo each -crdebug-only-stops. Its thread may run, if only as far as to its SIGSTOP."""
    limit = time.monotonic() + PATIENCE
    while heeding:
        tid, (mask, _) = heeding.popitem()
        while True:
            try:
                set_signal_mask(tid, mask)
            except Gone:  # it runs, or has ended
                if time.monotonic() < limit and os.path.exists(f"/proc/{tid}"):
                    time.sleep(MOMENT)
                    continue
            break


def has_stop(pid: int) -> bool:
    """Is a SIGSTOP in the process's queue?"""
    return bool(signal_set(pid, "ShdPnd") >> (SIGSTOP - 1) & 1)


def take_stops() -> None:
    """Remove each SIGSTOP from the queues of the stopped process: it would stop as soon as GDB has
    detached."""
    stopped = tids()
    for tid in stopped:
        take_stop(tid)
    if stopped and has_stop(gdb.selected_inferior().pid):
        # A thread that stands at a signal would get it without its siginfo.
        free = [tid for tid in stopped if not held_signal(tid)]
        run_into((free or stopped)[0], SIGSTOP, 0)


def drop_stop(pid: int) -> None:
    """Let a thread that has run into a SIGSTOP of crdebug's, or is about to, run on.

    GDB has not seen it yet. As it stops the threads by SIGSTOPs of its own before it detaches, it
    would take this one for its own, and leave its own in the thread's queue.
    """
    looks, limit = LOOKS, time.monotonic() + PATIENCE
    while looks and time.monotonic() < limit:
        for tid in tids():
            try:
                seen = os.waitid(os.P_PID, tid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT | WALL)
            except ChildProcessError:
                continue  # it has ended
            if seen is not None and seen.si_status == SIGSTOP:
                os.waitpid(tid, WALL)
                ptrace(PTRACE_CONT, tid)
                return
        looks -= not has_stop(pid)
        time.sleep(MOMENT)


def before_end(event: object) -> None:
    """GDB detaches from its rank when it exits, as it also does after crdebug was killed."""
    pid = gdb.selected_inferior().pid
    if pid == 0 or is_core():
        return
    block_as_before()
    if all(thread.is_stopped() for thread in gdb.selected_inferior().threads()):
        settle()
        if pid not in staying:
            take_stops()
    else:
        drop_stop(pid)


class Threads(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        found = []
        with Selection():
            for thread in threads():
                thread.switch()
                tid = thread.ptid[1]
                told = tid == signalled.get("tid")
                found.append(selected_state(tid, told, held_signal(tid)).word())
        return {"selected": str(gdb.selected_thread().ptid[1]), "threads": found}


class Registers(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        found = []
        with Selection():
            for thread in threads():
                thread.switch()
                frame = gdb.newest_frame()
                values = {}
                names = [each.name for each in frame.architecture().registers("general")]
                for name in (*names, "orig_rax", "fs_base", "gs_base"):
                    value = frame.read_register(name)
                    values[name] = value.format_string(format="x", repeat_threshold=0)
                tid = thread.ptid[1]
                state = extended_state(tid).hex()
                found.append({"tid": str(tid), "registers": values, "xstate": state})
        return {"threads": found}


def unblock(number: int, tids: Iterable[int]) -> None:
    """Remove a signal from the set that these threads block."""
    for tid in tids:
        set_signal_mask(tid, signal_mask(tid) & ~(1 << (number - 1)))


class Unblock(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        number, *unblocked = (int(text) for text in arguments)
        unblock(number, unblocked)
        return {}


class Mask(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        return {"mask": str(signal_mask(int(arguments[0])))}


class OnlyStops(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        tid = int(arguments[0])
        heeding[tid] = signal_mask(tid), stop_info(tid)
        set_signal_mask(tid, WORD)
        return {}


class AtSignalAgain(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        tid = int(arguments[0])
        set_stop_info(tid, heeding[tid][1])
        return {}


class AsBefore(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        tid = int(arguments[0])
        set_signal_mask(tid, heeding.pop(tid)[0])
        return {}


class Settle(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        settle()
        return {}


class StayStopped(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        staying.add(gdb.selected_inferior().pid)
        return {}


Unblock(Command.UNBLOCK)
Mask(Command.MASK)
OnlyStops(Command.ONLY_STOPS)
AtSignalAgain(Command.AT_SIGNAL_AGAIN)
AsBefore(Command.AS_BEFORE)
Threads(Command.THREADS)
Registers(Command.REGISTERS)
Settle(Command.SETTLE)
StayStopped(Command.STAY_STOPPED)

# Everything that makes threads run, a typed command or a function call, runs `settle` first.
gdb.events.inferior_call.connect(before_call)
gdb.events.cont.connect(lambda event: staying.clear())
gdb.events.stop.connect(note_signal)
gdb.events.gdb_exiting.connect(before_end)
RUN_COMMANDS = "continue step next stepi nexti finish until advance jump signal detach"
for name in RUN_COMMANDS.split():
    gdb.execute(f"define hook-{name}\npython crdebug_gdb.rank_state.settle()\nend", to_string=True)

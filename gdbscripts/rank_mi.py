"""crdebug's part inside the GDB of one rank: MI commands that look at all threads at once.

Sourced after ptrace_x86.py; runs in GDB's own Python (3.9 or later, GDB 12 or later for
`gdb.MICommand`), so it imports nothing of crdebug's. x86-64 Linux.

-crdebug-threads
    {selected=TID, threads=[{tid, pc, sp, rax, orig_rax}]}: each thread's state. All values are
    hexadecimal text of 64 bits but `tid`, the kernel's number in this GDB's PID namespace.
-crdebug-registers
    {threads=[{tid, registers={name=value}, xstate=HEX}]}: every register of every thread, as GDB
    shows it; xstate: those of vectors and of floating point, as the kernel tells them, because GDB
    before 14 looks for AVX-512's in the wrong place on some processors.
-crdebug-unblock SIGNAL TID...
    Take a signal out of the set that these threads block. GDB is their tracer, so it may.
-crdebug-settle
    To be called before a thread runs on: see `settle`.
"""

import ctypes

import gdb
from __main__ import (
    PTRACE_GETSIGMASK,
    PTRACE_SETSIGMASK,
    SIGSTOP,
    WORD,
    extended_state,
    ptrace,
    registers_of,
    set_registers,
    threads,
    tids,
)

GATE = "MPIR_checkpoint_debug_gate"
EINTR = 4
RESTART_SYSCALL = 219
# What the kernel leaves in the result register of an interrupted call, for itself to act on when
# the thread goes on (include/linux/errno.h): restart always, unless a handler ran, ...
RESTART_CODES = {-512 & WORD, -513 & WORD, -514 & WORD, -516 & WORD}

# Threads that GDB shows inside a system call which they are going to make again: LWP -> its number.
unsettled = {}
signalled = {}  # "tid": the thread that GDB is going to give a signal to


def register(name):
    """A register of the selected thread's newest frame, as 64 bits without a sign."""
    return int(gdb.newest_frame().read_register(name)) & WORD


class Selection:
    """Gives the user's thread and frame back."""

    def __enter__(self):
        self.thread = gdb.selected_thread()
        self.level = gdb.selected_frame().level() if self.thread else 0

    def __exit__(self, *problem):
        if self.thread is not None and self.thread.is_valid():
            self.thread.switch()
            frame = gdb.newest_frame()
            for _ in range(self.level):
                if frame.older() is None:
                    break
                frame = frame.older()
            frame.select()


def state():
    return {name: register(name) for name in ("pc", "sp", "rax", "orig_rax")}


def was_interrupted(before):
    """Was the thread stopped inside a system call that has to be made again?

    -EINTR counts too: some calls (epoll_wait, semop, ...) return it when a debugger stops them,
    without any handler (signal(7), "Interruption of system calls ... by stop signals").
    """
    inside = before["orig_rax"] < 1 << 32  # -1: not in a system call
    return inside and (before["rax"] in RESTART_CODES or before["rax"] == -EINTR & WORD)


def saved_frame():
    """The frame below the signal handler's: where the selected thread was when it was herded."""
    frame = gdb.newest_frame()
    while frame is not None and frame.type() != gdb.SIGTRAMP_FRAME:
        frame = frame.older()
    return None if frame is None else frame.older()


def set_gate(value):
    symbol = gdb.parse_and_eval(f"(long)&{GATE}")
    gdb.selected_inferior().write_memory(int(symbol), value.to_bytes(4, "little"))


def has_signal(tid):
    """Has the thread a signal of its own, now or as soon as it runs?"""
    if tid == signalled.get("tid"):
        return True
    pid = gdb.selected_inferior().pid
    with open(f"/proc/{pid}/task/{tid}/status") as file:
        fields = dict(line.split(":", 1) for line in file if line.startswith(("Sig", "Shd")))
    blocked, own, shared = (int(fields[name], 16) for name in ("SigBlk", "SigPnd", "ShdPnd"))
    return bool((own | shared) & ~blocked & ~(1 << (SIGSTOP - 1)))


def settle(keep=False):
    """Threads whose system call ended because they were stopped make it again.

    Two kinds. Some calls return -EINTR when a debugger stops their thread, with no signal of the
    application's about: epoll_wait, a receive with a time limit, ... (signal(7), "Interruption of
    system calls and library functions by stop signals"); and threads that GDB shows inside a call
    after a walk out (lend_mi.py), if GDB has written into them what it showed.

    keep: a function is about to be called; GDB gives the thread back what it showed after that.
    """
    changed = False
    for tid in tids():
        now = registers_of(tid)
        inside = now.orig_rax < RESTART_SYSCALL or RESTART_SYSCALL < now.orig_rax < 1 << 32
        woken = now.rax == -EINTR & WORD and not has_signal(tid)
        shown = unsettled.get(tid) == now.orig_rax and now.rax in RESTART_CODES
        if inside and (woken or shown):
            now.rip, now.rax, now.orig_rax = now.rip - 2, now.orig_rax, WORD
            set_registers(tid, now)
            changed = True
    if changed or unsettled:
        gdb.execute("maint flush register-cache", to_string=True)
    if not keep:
        unsettled.clear()


def note_signal(event):
    """Which thread gets a signal from GDB when it goes on?"""
    signalled.clear()
    if isinstance(event, gdb.SignalEvent) and event.stop_signal not in ("SIGSTOP", "SIGTRAP", "0"):
        thread = event.inferior_thread or gdb.selected_thread()
        if thread is not None:
            signalled["tid"] = thread.ptid[1]


def before_call(event):
    if isinstance(event, gdb.InferiorCallPreEvent):
        settle(keep=True)


class Threads(gdb.MICommand):
    def invoke(self, arguments):
        found = []
        with Selection():
            for thread in threads():
                thread.switch()
                row = {name: f"{value:#x}" for name, value in state().items()}
                found.append({"tid": str(thread.ptid[1]), **row})
        return {"selected": str(gdb.selected_thread().ptid[1]), "threads": found}


class Registers(gdb.MICommand):
    def invoke(self, arguments):
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


class Unblock(gdb.MICommand):
    def invoke(self, arguments):
        number, *unblocked = (int(text) for text in arguments)
        mask = ctypes.c_uint64()
        for tid in unblocked:
            for request in (PTRACE_GETSIGMASK, PTRACE_SETSIGMASK):
                ptrace(request, tid, ctypes.byref(mask), ctypes.sizeof(mask))
                mask.value &= ~(1 << (number - 1))
        return {}


class Settle(gdb.MICommand):
    def invoke(self, arguments):
        settle()
        return {}


Unblock("-crdebug-unblock")
Threads("-crdebug-threads")
Registers("-crdebug-registers")
Settle("-crdebug-settle")

# Whoever lets threads run, by a typed command or by calling a function, meets `settle` first.
gdb.events.inferior_call.connect(before_call)
gdb.events.stop.connect(note_signal)
RUN_COMMANDS = "continue step next stepi nexti finish until advance jump signal detach"
for name in RUN_COMMANDS.split():
    gdb.execute(f"define hook-{name}\npython settle()\nend", to_string=True)

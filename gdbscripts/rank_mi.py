"""crdebug's part inside the GDB of one rank: MI commands that look at all threads at once.

Loaded by `crdebug.target` with `-x`; runs in GDB's own Python (3.9 or later, GDB 12 or later for
`gdb.MICommand`), so it imports nothing of crdebug's. x86-64 Linux.

-crdebug-threads
    {selected=TID, threads=[{tid, pc, sp, rax, orig_rax}]}: each thread's state. All values are
    hexadecimal text of 64 bits but `tid`, the kernel's number in this GDB's PID namespace.
-crdebug-registers
    {threads=[{tid, registers={name=value}}]}: every register of every thread, vectors too.
-crdebug-unblock SIGNAL TID...
    Take a signal out of the set that these threads block. GDB is their tracer, so it may.
-crdebug-walk-out SELECT TID:PC:SP:RAX:ORIG_RAX...
    Lead each thread from the waitpoint to where its own signal frame says it was; the arguments are
    what `-crdebug-threads` said before. A thread without one may be elsewhere, and then stays.
    SELECT is the TID of the thread to select in the end, or 0. GDB answers as soon as the first
    thread runs; what became of it is told by
-crdebug-walked-out
    An error names the threads that did not arrive.
-crdebug-settle
    To be called before a thread runs on: see `settle`.
"""

import ctypes
import os

import gdb

GATE = "MPIR_checkpoint_debug_gate"
WORD = (1 << 64) - 1
EINTR = 4
SYSCALL = b"\x0f\x05"
# What the kernel leaves in the result register of an interrupted call, for itself to act on when
# the thread goes on (include/linux/errno.h): restart always, unless a handler ran, ...
RESTART_CODES = {-512 & WORD, -513 & WORD, -514 & WORD, -516 & WORD}

# Threads that show the inside of a system call which the kernel knows nothing about any more:
# LWP -> number of the call.
unsettled = {}
walking = []  # not empty while threads are led out


def register(name):
    """A register of the selected thread's newest frame, as 64 bits without a sign."""
    return int(gdb.newest_frame().read_register(name)) & WORD


def threads():
    return sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num)


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


class Alone:
    """Only the selected thread runs, and no breakpoint of the user's counts a hit."""

    def __enter__(self):
        walking.append(self)
        self.locking = gdb.parameter("scheduler-locking")
        gdb.execute("set scheduler-locking on", to_string=True)
        self.disabled = [point for point in gdb.breakpoints() or () if point.enabled]
        for point in self.disabled:
            point.enabled = False

    def __exit__(self, *problem):
        for point in self.disabled:
            point.enabled = True
        gdb.execute(f"set scheduler-locking {self.locking}", to_string=True)
        walking.remove(self)


def run_to(thread, addresses):
    """Run one thread until it is at one of the addresses."""
    points = []
    try:
        for address in addresses:
            point = gdb.Breakpoint(f"*{address:#x}", internal=True)
            points.append(point)
            point.silent = True
            point.thread = thread.num
        gdb.execute("continue", to_string=True)
    finally:
        for point in points:
            if point.is_valid():
                point.delete()


def ways_out(frame):
    """Where a thread may come out: where its frame says, or on the `syscall` instruction before.

    The shim's handler takes it back there if the kernel broke its system call off with EINTR.
    """
    pc = int(frame.pc())
    code = bytes(gdb.selected_inferior().read_memory(pc - 2, 2))
    broken_off = int(frame.read_register("rax")) & WORD == -EINTR & WORD
    return [pc, pc - 2] if broken_off and code == SYSCALL else [pc]


def walk_out(thread, before):
    """Lead one thread out; returns what went wrong as text, or ""."""
    thread.switch()
    frame = saved_frame()
    if frame is None:
        return "is not in a waitpoint" if before else ""
    addresses, sp = ways_out(frame), int(frame.read_register("sp")) & WORD
    run_to(thread, addresses)
    if not thread.is_valid():
        return "ended on its way out"
    thread.switch()
    pc = register("pc")
    if pc not in addresses or register("sp") != sp:
        return f"is at {pc:#x} instead of {addresses[0]:#x}"
    if before is None:
        return ""
    if was_interrupted(before) and pc in (before["pc"], before["pc"] - 2):
        # It is about to make its call again. Show it inside of it, as it was.
        gdb.execute(f"set var $pc = {before['pc']:#x}", to_string=True)
        gdb.execute(f"set var $rax = {before['rax']:#x}", to_string=True)
        gdb.execute(f"set var $orig_rax = {before['orig_rax']:#x}", to_string=True)
        unsettled[thread.ptid[1]] = before["orig_rax"]
    if register("pc") != before["pc"] or register("sp") != before["sp"]:
        return f"was at {before['pc']:#x} before and is at {pc:#x}"
    return ""


def settle(keep=False):
    """Threads shown inside a call by `walk_out` are put before it, so that they make it again.

    The kernel would do that itself for a thread that it interrupted; but its memory of the call
    (the restart block, see restart_syscall(2)) did not survive the way through the waitpoint.
    keep: a function is called in the rank; GDB gives the thread its old registers back after that.
    """
    if not unsettled or walking:
        return
    with Selection():
        for thread in threads():
            number = unsettled.get(thread.ptid[1])
            if number is None:
                continue
            thread.switch()
            now = state()
            if now["orig_rax"] == number and was_interrupted(now):
                gdb.execute("set var $pc = $pc - 2", to_string=True)
                gdb.execute(f"set var $rax = {number:#x}", to_string=True)
                gdb.execute("set var $orig_rax = -1", to_string=True)
    if not keep:
        unsettled.clear()


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
                for name in frame.architecture().registers():
                    value = frame.read_register(name.name)
                    if not value.is_optimized_out:
                        values[name.name] = value.format_string(format="x", repeat_threshold=0)
                found.append({"tid": str(thread.ptid[1]), "registers": values})
        return {"threads": found}


PTRACE_GETSIGMASK, PTRACE_SETSIGMASK = 0x420A, 0x420B  # ptrace(2), since Linux 3.11


class Unblock(gdb.MICommand):
    def invoke(self, arguments):
        number, *tids = (int(text) for text in arguments)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        mask = ctypes.c_uint64()
        for tid in tids:
            for request in (PTRACE_GETSIGMASK, PTRACE_SETSIGMASK):
                if libc.ptrace(request, tid, ctypes.sizeof(mask), ctypes.byref(mask)) != 0:
                    error = os.strerror(ctypes.get_errno())
                    raise gdb.GdbError(f"thread {tid} keeps signal {number} blocked: {error}")
                mask.value &= ~(1 << (number - 1))
        return {}


class WalkOut(gdb.MICommand):
    problems = ()  # of the last one

    def invoke(self, arguments):
        WalkOut.problems = ("the walk out did not end",)
        before = {}
        selected = int(arguments[0])
        for text in arguments[1:]:
            tid, *values = text.split(":")
            names = ("pc", "sp", "rax", "orig_rax")
            before[int(tid)] = {
                name: int(value, 16) for name, value in zip(names, values, strict=True)
            }
        problems = []
        unsettled.clear()
        with Selection(), Alone():
            set_gate(1)
            for thread in threads():
                try:
                    problem = walk_out(thread, before.get(thread.ptid[1]))
                except (gdb.error, RuntimeError) as error:
                    problem = f"cannot be led out: {error}"
                if problem:
                    number = thread.num if thread.is_valid() else "?"
                    problems.append(f"thread {number} {problem}")
            set_gate(0)
        for thread in threads():
            if thread.ptid[1] == selected:
                thread.switch()
        WalkOut.problems = tuple(problems)


class WalkedOut(gdb.MICommand):
    def invoke(self, arguments):
        if walking:
            return {"state": "walking"}
        if WalkOut.problems:
            raise gdb.GdbError("; ".join(WalkOut.problems))
        return {"state": "out"}


class Settle(gdb.MICommand):
    def invoke(self, arguments):
        settle()
        return {}


Unblock("-crdebug-unblock")
Threads("-crdebug-threads")
Registers("-crdebug-registers")
WalkOut("-crdebug-walk-out")
WalkedOut("-crdebug-walked-out")
Settle("-crdebug-settle")

# Whoever lets threads run, by a typed command or by calling a function, meets `settle` first.
gdb.events.inferior_call.connect(before_call)
RUN_COMMANDS = "continue step next stepi nexti finish until advance jump signal detach"
for name in RUN_COMMANDS.split():
    gdb.execute(f"define hook-{name}\npython settle()\nend", to_string=True)

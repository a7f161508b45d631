"""crdebug's part inside the GDB of one rank: MI commands that look at all threads at once.

Loaded by `crdebug.target` with `-x`; runs in GDB's own Python (3.9 or later, GDB 12 or later for
`gdb.MICommand`), so it imports nothing of crdebug's. x86-64 Linux.

-crdebug-threads
    {threads=[{tid, pc, sp, rax, orig_rax}]}: each thread's state. All values are hexadecimal text of
    64 bits but `tid`, which is the kernel's number in this GDB's PID namespace.
-crdebug-registers
    {threads=[{tid, registers={name=value}}]}: every register of every thread, vectors too.
-crdebug-walk-out TID:PC:SP:RAX:ORIG_RAX...
    Lead each thread from the waitpoint to where its own signal frame says it was; the arguments are
    what `-crdebug-threads` said before (an absent thread is believed to be where its frame says).
    {threads=[{tid, pc, sp}]}, or an error that names the threads that did not arrive.
-crdebug-settle
    To be called before a thread runs on: see `settle`.
"""

import gdb

GATE = "MPIR_checkpoint_debug_gate"
WORD = (1 << 64) - 1
EINTR = 4
# What the kernel leaves in the result register of an interrupted call, for itself to act on when
# the thread goes on (include/linux/errno.h): restart always, unless a handler ran, ...
RESTART_CODES = {-512 & WORD, -513 & WORD, -514 & WORD, -516 & WORD}

# Threads that show the inside of a system call which the kernel knows nothing about any more:
# LWP -> number of the call.
unsettled = {}


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
        self.locking = gdb.parameter("scheduler-locking")
        gdb.execute("set scheduler-locking on", to_string=True)
        self.disabled = [point for point in gdb.breakpoints() or () if point.enabled]
        for point in self.disabled:
            point.enabled = False

    def __exit__(self, *problem):
        for point in self.disabled:
            point.enabled = True
        gdb.execute(f"set scheduler-locking {self.locking}", to_string=True)


def run_to(thread, address):
    point = gdb.Breakpoint(f"*{address:#x}", internal=True)
    try:
        point.silent = True
        point.thread = thread.num
        gdb.execute("continue", to_string=True)
    finally:
        if point.is_valid():
            point.delete()


def walk_out(thread, before):
    """Lead one thread out; returns what went wrong as text, or ""."""
    thread.switch()
    frame = saved_frame()
    if frame is None:
        return "is not in a waitpoint"
    pc, sp = int(frame.pc()), int(frame.read_register("sp")) & WORD
    run_to(thread, pc)
    if not thread.is_valid():
        return "ended on its way out"
    thread.switch()
    if register("pc") != pc or register("sp") != sp:
        return f"is at {register('pc'):#x} instead of {pc:#x}"
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


def settle():
    """Threads shown inside a call by `walk_out` are put before it, so that they make it again.

    The kernel would do that itself for a thread that it interrupted; but its memory of the call
    (the restart block, `Documentation/admin-guide` "restart_syscall(2)") did not survive the way
    through the waitpoint.
    """
    if not unsettled:
        return
    with Selection():
        for thread in threads():
            number = unsettled.get(thread.ptid[1])
            if number is None:
                continue
            thread.switch()
            if register("orig_rax") == number:
                gdb.execute("set var $pc = $pc - 2", to_string=True)
                gdb.execute(f"set var $rax = {number:#x}", to_string=True)
                gdb.execute("set var $orig_rax = -1", to_string=True)
    unsettled.clear()


class Threads(gdb.MICommand):
    def invoke(self, arguments):
        found = []
        with Selection():
            for thread in threads():
                thread.switch()
                row = {name: f"{value:#x}" for name, value in state().items()}
                found.append({"tid": str(thread.ptid[1]), **row})
        return {"threads": found}


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


class WalkOut(gdb.MICommand):
    def invoke(self, arguments):
        before = {}
        for text in arguments:
            tid, *values = text.split(":")
            names = ("pc", "sp", "rax", "orig_rax")
            before[int(tid)] = {name: int(value, 16) for name, value in zip(names, values)}
        problems = []
        unsettled.clear()
        with Selection(), Alone():
            set_gate(1)
            for thread in threads():
                problem = walk_out(thread, before.get(thread.ptid[1]))
                if problem:
                    problems.append(f"thread {thread.num} (tid {thread.ptid[1]}) {problem}")
            set_gate(0)
        if problems:
            raise gdb.GdbError("; ".join(problems))
        return {}


class Settle(gdb.MICommand):
    def invoke(self, arguments):
        settle()
        return {}


Threads("-crdebug-threads")
Registers("-crdebug-registers")
WalkOut("-crdebug-walk-out")
Settle("-crdebug-settle")

"""Letting a rank go and taking it back without GDB's noticing; and leading it out of the waitpoint.

A real detach and attach cost what GDB does besides: it forgets the shared libraries and reads
them again, some 0.1 s of processor time a rank. And they lose what GDB knows about the stop:
a signal that it holds back, another thread's breakpoint hit that it has not told yet. For a
checkpoint none of this is needed: every thread is the same one afterwards, and stands where it
stood. No breakpoint is in the process's memory meanwhile: GDB takes them out at each stop
("breakpoint always-inserted off").

-crdebug-lend SIGNAL
    Detach from every thread of the selected inferior. GDB goes on believing that it holds them.
    SIGNAL is the waitpoint's, which is in their queues; each gets it before any other.
-crdebug-take-back
    Attach to the same threads again and stop them.
-crdebug-walk-out SELECT WORD...
    Lead each thread from the waitpoint to where its own signal frame says it was; the words are
    what `-crdebug-threads` said before. A thread without one may be elsewhere, and then stays.
    SELECT is the TID of the thread to select in the end, or 0.
    An error names the threads that did not arrive.

The walk out. With the gate open a thread leaves the handler by rt_sigreturn(2). It is run from
system call to system call (PTRACE_SYSCALL) and stopped at the exit of that one: its registers are
the interrupted ones then, and not one instruction of its own has run.

A thread that was inside a system call comes out in front of it and is going to make it again (the
kernel's doing for calls that it restarts after a handler, the shim's for the others). Its real
registers stay so, whatever becomes of GDB. What GDB shows are those from inside the call, as they
were: they stay in its register cache until the thread runs.

A thread that stood at a signal has it in its queue while it waits. It is stopped there again, with
all that the kernel told of the signal; a GDB that did not see that stop is told to deliver it. If
no GDB had told of it yet, the new one will, when it finds it. What else is in its queue, and known
to the kernel only, stays there.
"""

from __future__ import annotations

import gdb

from .ptrace import (
    OPTIONS,
    PTRACE_ATTACH,
    PTRACE_DETACH,
    PTRACE_SETOPTIONS,
    PTRACE_SYSCALL,
    SIGSTOP,
    SYSCALL_STOP,
    WORD,
    Gone,
    UserRegisters,
    comes_next,
    ends_call,
    ptrace,
    registers_of,
    run_into,
    send_stop,
    set_registers,
    signal_number,
    stop_at_signal,
    take_stop,
    threads,
    tids,
    wait,
)
from .rank_state import (
    Selection,
    awaiting,
    is_caught,
    read_registers,
    saved_frame,
    set_gate,
    signalled,
    unsettled,
)
from .wire import Command, Thread, gdb_signal_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .wire import Answer

SIGRETURN = 15


class Lent:
    """taken: this GDB had the process before, and knows what it knew. stops: the threads of which
    it knows that they have a SIGSTOP yet to take."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.taken = False
        self.stops: list[int] = []


lent = Lent()


def lend(number: int) -> None:
    """See -crdebug-lend. number: of the waitpoint's signal."""
    # GDB stops threads by SIGSTOP. One that stopped by itself has it in its queue still, and
    # GDB counts on that; let go, the process would stop.
    lent.stops = [tid for tid in tids() if take_stop(tid)]
    for tid in tids():
        give = 0
        if comes_next(tid) & ~(1 << (number - 1)):
            # The kernel gives the lowest number first, and its handler would run, if only on
            # the way out: a thread comes out of all handlers that were called over its frame.
            run_into(tid, number, 0)
            give = number
        ptrace(PTRACE_DETACH, tid, give)


def take_back() -> None:
    """See -crdebug-take-back."""
    taken = []
    try:
        for tid in tids():
            ptrace(PTRACE_ATTACH, tid)
            taken.append(tid)
        for tid in taken:
            while wait(tid) != SIGSTOP:
                # In the waitpoint only our own signal gets through: let it do its work.
                ptrace(PTRACE_SYSCALL, tid)
            ptrace(PTRACE_SETOPTIONS, tid, OPTIONS)
    except Gone:
        raise gdb.GdbError("a thread has ended while it was held") from None
    lent.taken = True


class Lend(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        (number,) = (int(text) for text in arguments)
        lend(number)
        return {}


class TakeBack(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        take_back()
        return {}


def run_to_sigreturn(tid: int) -> UserRegisters:
    """Run a thread out of a signal handler; returns its registers right after rt_sigreturn."""
    ptrace(PTRACE_SETOPTIONS, tid, OPTIONS)
    entered = False
    while True:
        ptrace(PTRACE_SYSCALL, tid)
        if wait(tid) != SYSCALL_STOP:
            continue  # a SIGSTOP that was on its way: it is of no use to the rank
        now = registers_of(tid)
        if entered:
            return now
        entered = now.orig_rax == SIGRETURN


def lead_out(tid: int, sp: int) -> UserRegisters:
    """Lead a thread out of its waitpoint, up to where its stack pointer is `sp` again."""
    while True:
        now = registers_of(tid)
        if now.rsp >= sp:
            return now
        # More than once if it got the signal again while it waited.
        now = run_to_sigreturn(tid)


def shown_inside(tid: int, before: Thread, now: UserRegisters) -> UserRegisters:
    """What GDB is to show of a thread inside the call that it is going to make again; see above."""
    shown = UserRegisters.from_buffer_copy(now)
    shown.rip, shown.rax, shown.orig_rax = before.pc, before.rax, before.orig_rax
    unsettled[tid] = before.orig_rax
    held = before.signal and is_caught(tid, signal_number(before.signal))
    if held or ends_call(tid):
        awaiting[tid] = now, shown
    return shown


def have_signal_back(tid: int, before: Thread) -> None:
    """The thread, out of its waitpoint, stands at the signal that it stood at."""
    if before.signal and (before.told or lent.taken):
        stop_at_signal(tid, before.signal)
        if not lent.taken:
            signalled["tid"] = tid


def queue_signals(before: Mapping[int, Thread]) -> None:
    """Have a GDB that has not told of a signal deliver it all the same."""
    for thread in threads():
        was = before.get(thread.ptid[1])
        if was and was.signal and was.told and not lent.taken:
            thread.switch()
            name = gdb_signal_name(signal_number(was.signal))
            gdb.execute(f"queue-signal {name}", to_string=True)


def stack_pointers(before: Mapping[int, Thread]) -> dict[int, int]:
    """Where each thread in a waitpoint will be out of it, by TID."""
    found = {}
    for thread in threads():
        tid = thread.ptid[1]
        if tid in before:
            found[tid] = before[tid].sp
        else:
            thread.switch()
            frame = saved_frame()
            if frame is not None:
                found[tid] = int(frame.read_register("sp")) & WORD
    return found


def walk_out_all(before: Mapping[int, Thread]) -> dict[int, str]:
    """Returns what went wrong, by TID."""
    problems: dict[int, str] = {}
    shown: dict[int, tuple[UserRegisters, UserRegisters]] = {}
    with Selection():
        goals = stack_pointers(before)
    set_gate(1)
    for tid, sp in goals.items():
        try:
            now = lead_out(tid, sp)
        except Gone:
            problems[tid] = "ended on its way out"
            continue
        was = before.get(tid)
        if was is None:
            continue
        have_signal_back(tid, was)
        again = was.was_interrupted and now.rip in (was.pc, was.pc - 2)
        if now.rsp != was.sp or not (again or now.rip == was.pc):
            problems[tid] = f"was at {was.pc:#x} before and is at {now.rip:#x}"
        elif again:
            shown[tid] = now, shown_inside(tid, was, now)
        elif now.orig_rax != was.orig_rax:
            # It had come out of a call by itself; the number stays until the next one.
            now.orig_rax = was.orig_rax
            set_registers(tid, now)
    set_gate(0)
    gdb.execute("maint flush register-cache", to_string=True)
    with Selection():
        read_registers(shown)
        queue_signals(before)
    if lent.taken:
        for tid in lent.stops:
            send_stop(tid)
    lent.clear()
    return problems


class WalkOut(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        selected = int(arguments[0])
        before = {each.tid: each for each in map(Thread.of, arguments[1:])}
        unsettled.clear()
        awaiting.clear()
        problems = walk_out_all(before)
        for thread in threads():
            if thread.ptid[1] == selected:
                thread.switch()
        if problems:
            names = {thread.ptid[1]: thread.num for thread in threads()}
            raise gdb.GdbError(
                "; ".join(f"thread {names.get(t, t)} {text}" for t, text in problems.items())
            )
        return {}


Lend(Command.LEND)
TakeBack(Command.TAKE_BACK)
WalkOut(Command.WALK_OUT)

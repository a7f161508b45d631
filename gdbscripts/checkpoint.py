"""Detach from a rank and attach again behind GDB's back; and lead its threads out of the waitpoint.

A real detach and attach makes GDB forget the shared libraries and read them again, which takes some
0.1 s of processor time per rank. And GDB loses its knowledge of the stop: a signal that it holds
back, another thread's breakpoint hit that it has not reported yet. A checkpoint does not need this:
afterwards every thread is the same one, in the same place. Meanwhile the process's memory has no
breakpoints: GDB removes them at each stop ("breakpoint always-inserted off").

-crdebug-lend SIGNAL
    Detach from every thread of the selected inferior. GDB goes on believing that it holds them.
    SIGNAL is the waitpoint's, which is in their queues; each thread gets it before any other.
-crdebug-take-back
    Attach to the same threads again and stop them.
-crdebug-walk-out SELECT WORD...
    Lead each thread from the waitpoint back to the place in its own signal frame; the words are
    those that `-crdebug-threads` returned before. A thread without a word may be elsewhere, and
    then stays there. SELECT is the TID of the thread to select in the end, or 0.
    An error names the threads that did not arrive.

The walk out. With the gate open a thread leaves the handler by rt_sigreturn(2). We run it from
system call to system call (PTRACE_SYSCALL) and stop it at the exit of that one: its registers are
then the interrupted ones, and it has executed no instruction of its own.

A thread that was inside a system call comes out in front of it and will repeat it (the kernel does
that for calls that it restarts after a handler, the shim for the others). Its real registers stay
like that, even if GDB dies. GDB shows the old registers from inside the call: they stay in its
register cache until the thread runs.

A thread that had stopped at a signal has the signal in its queue while it waits. We stop it there
again, with the original siginfo; if this GDB did not see that stop, we make it deliver the signal.
If no GDB had reported the signal yet, this one does when it finds it. Other signals in the queue,
which only the kernel knows, stay there.
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
    before_lending,
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
    """taken: this GDB had the process before, and still knows its state. stops: the threads that
    GDB knows to have a pending SIGSTOP."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.taken = False
        self.stops: list[int] = []


lent = Lent()


def lend(number: int) -> None:
    """See -crdebug-lend. number: the waitpoint's signal."""
    # GDB stops threads by SIGSTOP. A thread that stopped on its own still has it queued, and
    # GDB counts on that; when detached, the process would stop.
    lent.stops = [tid for tid in tids() if take_stop(tid)]
    for tid in tids():
        give = 0
        if comes_next(tid) & ~(1 << (number - 1)):
            # The kernel delivers the lowest number first, and its handler would run, if only on
            # the way out: a thread leaves all handlers that were called over its frame.
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
                # In the waitpoint only our own signal is not blocked: let its handler run.
                ptrace(PTRACE_SYSCALL, tid)
            ptrace(PTRACE_SETOPTIONS, tid, OPTIONS)
    except Gone:
        raise gdb.GdbError("a thread has ended while it was held") from None
    lent.taken = True


class Lend(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        (number,) = (int(text) for text in arguments)
        answer: Answer = {}
        for each in before_lending:
            answer.update(each())
        lend(number)
        return answer


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
            continue  # a SIGSTOP that was pending: the rank does not need it
        now = registers_of(tid)
        if entered:
            return now
        entered = now.orig_rax == SIGRETURN


def lead_out(tid: int, sp: int) -> UserRegisters:
    """Lead a thread out of its waitpoint, until its stack pointer is `sp` again."""
    while True:
        now = registers_of(tid)
        if now.rsp >= sp:
            return now
        # More than once if it got the signal again while it waited.
        now = run_to_sigreturn(tid)


def shown_inside(tid: int, before: Thread, now: UserRegisters, at_signal: bool) -> UserRegisters:
    """The registers that GDB shows for a thread inside a call that it will repeat; see above.

    at_signal: it stands at its signal again. One that is only queued may be let in by the call
    alone (ppoll), and only the call's repetition gets it.
    """
    shown = UserRegisters.from_buffer_copy(now)
    shown.rip, shown.rax, shown.orig_rax = before.pc, before.rax, before.orig_rax
    unsettled[tid] = before.orig_rax
    held = at_signal and is_caught(tid, signal_number(before.signal))
    if held or ends_call(tid):
        awaiting[tid] = now, shown
    return shown


def have_signal_back(tid: int, before: Thread) -> bool:
    """Stop the thread, which has left its waitpoint, at its signal again; returns whether it is
    there: a signal that this GDB has yet to report stays in the queue."""
    if not before.signal or not (before.told or lent.taken):
        return False
    stop_at_signal(tid, before.signal)
    if not lent.taken:
        signalled["tid"] = tid
    return True


def queue_signals(before: Mapping[int, Thread]) -> None:
    """Make GDB deliver signals that it has not reported itself."""
    for thread in threads():
        was = before.get(thread.ptid[1])
        if was and was.signal and was.told and not lent.taken:
            thread.switch()
            name = gdb_signal_name(signal_number(was.signal))
            gdb.execute(f"queue-signal {name}", to_string=True)


def stack_pointers(before: Mapping[int, Thread]) -> dict[int, int]:
    """The stack pointer of each thread once it has left the waitpoint, by TID."""
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
    """Returns problems by TID."""
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
        at_signal = have_signal_back(tid, was)
        again = was.was_interrupted and now.rip in (was.pc, was.pc - 2)
        if now.rsp != was.sp or not (again or now.rip == was.pc):
            problems[tid] = f"was at {was.pc:#x} before and is at {now.rip:#x}"
        elif again:
            shown[tid] = now, shown_inside(tid, was, now, at_signal)
        elif now.orig_rax != was.orig_rax:
            # It had left a call on its own; the number stays until the next one.
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

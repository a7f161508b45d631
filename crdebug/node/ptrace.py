"""Hold processes, to change their memory or to keep them from changing anything (ptrace(2)).

Every thread is stopped between two of its own instructions, and executes none until it is released;
signals that are queued meanwhile come first. If we die, the kernel releases all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import AsyncIterator

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, Refused
from crdebug.node import proc, process_tree

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long
_GETREGS, _SETREGS, _DETACH, _SEIZE, _INTERRUPT = 12, 13, 17, 0x4206, 0x4207
_CONT, _ATTACH, _GETSIGMASK, _SETSIGMASK, _SETSIGINFO = 7, 16, 0x420A, 0x420B, 0x4203
_EVENT_STOP = 128
_WALL = 0x40000000
_EINTR = (1 << 64) - 4
_NO_CALL = (1 << 64) - 1
_REGISTERS = """r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags
    rsp ss fs_base gs_base ds es fs gs"""


class _Registers(ctypes.Structure):
    """struct user_regs_struct of <sys/user.h>, x86-64."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in _REGISTERS.split())


def _ptrace(request: int, tid: int, data: object = None, address: int | None = None) -> None:
    if _libc.ptrace(request, tid, address, data) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _make_call_again(tid: int) -> None:
    """Some system calls end with EINTR when their thread is merely stopped: epoll_wait, a receive
    with a time limit, ... (signal(7), "by stop signals"). Repeat them, so that the program does not
    notice the stop."""
    now = _Registers()
    _ptrace(_GETREGS, tid, ctypes.byref(now))
    if now.rax != _EINTR or now.orig_rax >= 1 << 32:
        return
    fields = proc.status(tid)
    pending = int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)
    if pending & ~int(fields["SigBlk"], 16):
        return  # a signal is due for the application, which may see the EINTR as well
    now.rip, now.rax, now.orig_rax = now.rip - 2, now.orig_rax, _NO_CALL
    _ptrace(_SETREGS, tid, ctypes.byref(now))


class Traced(PermissionError):
    """Another process traces this one. tracer: its PID."""

    def __init__(self, pid: int, tracer: int) -> None:
        super().__init__(f"process {tracer} traces process {pid}")
        self.tracer = tracer


class Held:
    """Threads that we hold. Use it in only one thread of ours: that thread is the tracer."""

    def __init__(self) -> None:
        self._leaders: set[int] = set()  # processes with a seized thread
        self._killed = False
        self._moving: set[int] = set()  # seized, and not known to have stopped
        self._stopped: dict[int, int] = {}  # TID -> its stop, as from waitpid(2)

    def seize(self, pid: int) -> bool:
        """Seize all threads of a process, so that they stop; returns whether any of them were new.

        Raises Traced, ProcessLookupError.
        """
        new = [tid for tid in proc.tids(pid) if tid not in self._moving | self._stopped.keys()]
        found = False
        for tid in new:
            with contextlib.suppress(ProcessLookupError):
                try:
                    _ptrace(_SEIZE, tid)
                except PermissionError:
                    fields = proc.status(pid, tid)
                    if fields["State"][:1] in "ZX":
                        continue  # a main thread that has ended before the others
                    raise Traced(pid, int(fields["TracerPid"])) from None
                self._moving.add(tid)
                self._leaders.add(pid)
                _ptrace(_INTERRUPT, tid)
                found = True
        return found

    def wait(self, options: int = 0) -> bool:
        """Wait until all have stopped, or ended; with WNOHANG, check whether they have."""
        for tid in tuple(self._moving):
            try:
                changed, status = os.waitpid(tid, _WALL | options)
            except ChildProcessError:
                self._moving.discard(tid)
                continue
            if changed:
                self._moving.discard(tid)
                if os.WIFSTOPPED(status):
                    self._stopped[tid] = status
        return not self._moving

    def late(self) -> str:
        """The threads that have not stopped, with their states of proc(5)."""
        states = {tid: proc.status(tid)["State"] for tid in sorted(self._moving)}
        return ", ".join(f"thread {tid} is in state {state}" for tid, state in states.items())

    def release(self) -> None:
        """Let the stopped threads go on where they were."""
        if self._killed:
            return
        for tid, status in tuple(self._stopped.items()):
            with contextlib.suppress(ProcessLookupError):  # killed
                told = status >> 16  # 0: a signal was about to be delivered, and now is
                if told == _EVENT_STOP:
                    _make_call_again(tid)
                _ptrace(_DETACH, tid, 0 if told else os.WSTOPSIG(status))
                del self._stopped[tid]

    def kill(self) -> None:
        """Kill all held threads instead of releasing them: they execute no further instruction."""
        for pid in self._leaders:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._killed = True

    def gone(self, options: int = 0) -> bool:
        """Wait until the killed ones have ended: the kernel notifies their tracer first.

        With WNOHANG, check whether they have.
        """
        # The main thread's end is reported after the others' (ptrace(2), "Death under ptrace").
        for tid in sorted(self._stopped, key=lambda tid: tid in self._leaders):
            with contextlib.suppress(ChildProcessError):
                changed, status = os.waitpid(tid, _WALL | options)
                if not changed or os.WIFSTOPPED(status):
                    continue
            del self._stopped[tid]
        return not self._stopped


def drop_signal(tid: int, number: int) -> None:
    """Remove a signal from a thread's own queue, where it must be, whether it is blocked or not.

    The thread executes no instruction meanwhile. Raises OSError.
    """
    mask = ctypes.c_uint64()
    size = ctypes.sizeof(mask)
    _ptrace(_SEIZE, tid)
    try:
        _ptrace(_INTERRUPT, tid)
        os.waitpid(tid, _WALL)
        if not int(proc.status(tid)["SigPnd"], 16) & 1 << (number - 1):
            _ptrace(_DETACH, tid)  # it has taken the signal meanwhile
            return
        _ptrace(_GETSIGMASK, tid, ctypes.byref(mask), size)
        only = ctypes.c_uint64(~(1 << (number - 1)))
        _ptrace(_SETSIGMASK, tid, ctypes.byref(only), size)
        # The kernel reports the signal to us before the thread is back in its program (ptrace(2),
        # "Signal-delivery-stop"); if we do not pass it on, it is gone.
        _ptrace(_CONT, tid)
        _, status = os.waitpid(tid, _WALL)
        _ptrace(_SETSIGMASK, tid, ctypes.byref(mask), size)
        told = os.WSTOPSIG(status)
        _ptrace(_DETACH, tid, 0 if told == number else told)
    except ChildProcessError:
        raise ProcessLookupError(f"thread {tid} has ended") from None


def block_signals(tid: int, mask: int) -> None:
    """Make a thread that we hold block exactly these signals; bit n - 1 for signal n."""
    signals = ctypes.c_uint64(mask)
    _ptrace(_SETSIGMASK, tid, ctypes.byref(signals), ctypes.sizeof(signals))


def queue_signal(tid: int, info: bytes) -> None:
    """Queue a signal, which the thread must block, with its original siginfo.

    info: a siginfo_t. rt_tgsigqueueinfo(2) accepts those of the kernel's own signals, and of
    kill(2), only from the thread itself. But a tracer may turn a signal that is about to be
    delivered into any other; if that is blocked, the thread queues it as soon as it runs
    (kernel/signal.c, ptrace_signal). Raises OSError.
    """
    number = int.from_bytes(info[:4], "little")
    _ptrace(_ATTACH, tid)
    try:
        _, status = os.waitpid(tid, _WALL)
        while os.WIFSTOPPED(status) and os.WSTOPSIG(status) != signal.SIGSTOP:
            _ptrace(_CONT, tid, os.WSTOPSIG(status))
            _, status = os.waitpid(tid, _WALL)
        _ptrace(_SETSIGINFO, tid, ctypes.create_string_buffer(info, len(info)))
        _ptrace(_DETACH, tid, number)
    except ChildProcessError:
        raise ProcessLookupError(f"thread {tid} has ended") from None


@contextlib.asynccontextmanager
async def held(pid: int, deadline: Deadline) -> AsyncIterator[None]:
    """Hold all threads of a process while the block runs, which should be short.

    Raises ProcessLookupError if it is gone, PermissionError if another process traces it, and
    DeadlineExpired, with the threads, if some do not stop: they are in the kernel, and wait for a
    file server that does not answer, say. Those go on at the latest when we end.
    """
    threads = Held()
    try:
        # A thread not yet stopped may start another: repeat until there is no new one.
        while threads.seize(pid):
            try:
                await deadline.until(lambda: threads.wait(os.WNOHANG), "")
            except DeadlineExpired:
                raise deadline.expired(f"process {pid} to stop: {threads.late()}") from None
        yield
    finally:
        threads.release()
        what = f"process {pid}, which was killed, to end"
        await Deadline(deadline.seconds).until(lambda: threads.gone(os.WNOHANG), what)


@contextlib.asynccontextmanager
async def held_container(pid: int, deadline: Deadline) -> AsyncIterator[Held]:
    """Hold every process of a job container except its starter, which passes on the others' output.

    Processes that a debugger of ours already holds are left to it. Raises Refused if somebody else
    traces one of them, DeadlineExpired if one does not stop.
    """
    threads = Held()
    try:
        while True:
            new, dying = _seize_all(threads, pid)
            if not new and not dying:
                break
            await deadline.until(
                lambda: threads.wait(os.WNOHANG), "every process of the job to stop"
            )
            for tracer in dying:
                await deadline.until(
                    lambda tracer=tracer: not proc.is_alive(tracer),  # type: ignore[misc]
                    f"process {tracer}, which ends, to let go of the job",
                )
        yield threads
    finally:
        threads.release()
        # A process that has not stopped cannot be released, and a killed one is not gone at once.
        left = Deadline(deadline.seconds)
        await left.until(lambda: threads.wait(os.WNOHANG), "every process of the job to run on")
        threads.release()
        await left.until(lambda: threads.gone(os.WNOHANG), "every process of the job to end")


def _seize_all(threads: Held, init: int) -> tuple[bool, set[int]]:
    """Returns whether there were new threads, and the tracers that are about to end: their
    processes must be seized later."""
    new, dying = False, set()
    for pid in process_tree.of_job(init):
        if pid == init:
            continue
        try:
            new |= threads.seize(pid)
        except ProcessLookupError:
            continue
        except Traced as error:
            if proc.is_ending(error.tracer) or not proc.is_alive(error.tracer):
                dying.add(error.tracer)
            elif not _is_ours(error.tracer):
                raise Refused(str(error), hint="detach that debugger first") from None
    return new, dying


def _is_ours(tracer: int) -> bool:
    try:
        return proc.parent(tracer) == os.getpid()
    except ProcessLookupError:
        return False

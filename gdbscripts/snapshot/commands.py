"""Take snapshots of the stopped process, and put them back into the same process.

-crdebug-keep NAME [most=BYTES] [RANGE...]
    Keep registers, signal masks and all private memory under a name; this replaces a snapshot of
    that name. RANGE, START-END in hexadecimal: keep the content of this shared mapping too.
    =START-END: a shared mapping whose content must be the same when the snapshot is put back.
    most: copy at most this many bytes into the memory of this GDB, see picture.py.
    Answers {bytes, changed, way, process}.
    bytes: the size of the snapshot.
    changed: how much memory it takes that earlier ones do not.
    way: "frozen" or "copied".
    process: the frozen copy's thread.
-crdebug-put-back NAME [check]
    Make the process what it was. {problems=[...], written}: if there are problems, nothing was
    done. `check` only looks for problems.
-crdebug-forget NAME|all
    Lending the process for a checkpoint forgets all frozen snapshots too, except the latest if it
    is small enough to be copied then.

A snapshot cannot be put back if something has changed that only the kernel has: threads, file
descriptors, pending signals, timers, child processes. The kernel does not show all of it (not
alternate signal stacks and interval timers; addresses of signal handlers only where there is a
frozen copy to ask, see actions.py); we assume that the rest has not changed. crdebug itself checks
the contents of pipes and sockets.

A thread that was in a system call is put in front of it, to repeat it, wherever the thread is now;
GDB shows it inside (checkpoint.py does the same after a walk out). A time limit starts again.

We then run the selected thread into a pending SIGSTOP, which it takes before its next instruction:
so GDB learns where the thread has stopped. Only from a stop that GDB has seen does it go on without
stopping at once for a breakpoint there (infrun.c, proceed). If another thread had hit the
breakpoint, we step that one over it when threads run again.
"""

from __future__ import annotations

import contextlib
import os
import signal

import gdb

from ..ptrace import (
    SIGSTOP,
    WORD,
    Gone,
    UserRegisters,
    before_lending,
    ptrace,
    raw_xstate,
    registers_of,
    set_raw_xstate,
    set_registers,
    set_signal_mask,
    signal_mask,
    threads,
    tids,
    wait,
)
from ..rank_state import (
    Selection,
    hit,
    preparations,
    read_registers,
    register,
    signalled,
    unsettled,
)
from ..system_calls import RESTART_SYSCALL, original_call
from ..wire import MOST, Command, NamedTuple, was_interrupted
from .actions import of_interest
from .files import put_back_files
from .frozen import end_all
from .kernel import (
    PTRACE_SINGLESTEP,
    Injector,
    difference,
    enters_call,
    inner_number,
    kernel_view,
    leave_call,
    rseq_ranges,
    stop_signal,
    syscall_instruction,
)
from .memory import (
    Memory,
    areas,
    heap_end,
    layout_calls,
    layout_problem,
    read_content,
)
from .picture import SHARE_TO_COPY, Picture, free_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..wire import Answer
    from .memory import Area

OWN_STOPS = {0, SIGSTOP, int(signal.SIGTRAP), int(signal.SIGINT)}
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
THAWED = 256 << 20  # bytes, read in half a second: a snapshot that may outlast a checkpoint
LOG = "/dev/shm/crdebug/time/"  # shared memory that stays as it is when everything else goes back


class Arrival(NamedTuple):
    """Where a snapshot was shown last.

    known: the thread whose stop GDB has seen.
    hit: threads at a breakpoint, and its address.
    """

    known: int
    hit: dict[int, int]


kept: dict[str, Snapshot] = {}  # by name, the oldest first
arrived: list[Arrival] = []  # one, until threads run again
# "chunks": the memory's chunks when it was last kept or put back
latest: dict[str, dict[int, bytes]] = {}


class ThreadState:
    """A thread as GDB shows it."""

    def __init__(self, thread: gdb.InferiorThread) -> None:
        tid = thread.ptid[1]
        self.registers = registers_of(tid)
        self.xstate = raw_xstate(tid)
        self.mask = signal_mask(tid)
        if tid in unsettled:
            thread.switch()
            self.registers.rip, self.registers.rax = register("pc"), register("rax")
            self.registers.orig_rax = register("orig_rax")

    @property
    def was_inside(self) -> bool:
        """Was it in a system call that it has to repeat?"""
        return was_interrupted(self.registers.rax, self.registers.orig_rax)

    def settled(self, memory: Memory) -> UserRegisters:
        """Its registers in front of the call that it was in."""
        found = UserRegisters.from_buffer_copy(self.registers)
        if self.was_inside:
            number = found.orig_rax
            if number == RESTART_SYSCALL:
                number = original_call(memory, found)
            found.rip, found.rax, found.orig_rax = found.rip - 2, number, WORD
        return found

    def put_back(self, tid: int, memory: Memory) -> None:
        if signal_mask(tid) != self.mask:
            set_signal_mask(tid, self.mask)
        if raw_xstate(tid) != self.xstate:
            set_raw_xstate(tid, self.xstate)
        set_registers(tid, self.settled(memory))


def process() -> tuple[int, int]:
    """The process's PID and start, which together identify it for ever."""
    inferior = gdb.selected_inferior()
    if inferior.pid == 0:
        raise gdb.GdbError("there is no process")
    if not all(thread.is_stopped() for thread in inferior.threads()):
        raise gdb.GdbError("the process is running")
    with open(f"/proc/{inferior.pid}/stat") as file:
        return inferior.pid, int(file.read().rpartition(")")[2].split()[19])


def about_to_get(tid: int) -> str | None:
    """The name of the signal that a thread gets when it goes on, or None."""
    number = stop_signal(tid).number
    return None if number in OWN_STOPS else signal.Signals(number).name


class Snapshot:
    def __init__(self, ranges: Sequence[str], most: int | None = None) -> None:
        self.process = pid, _ = process()
        self.most = free_memory() // SHARE_TO_COPY if most is None else most
        for thread in threads():
            name = about_to_get(thread.ptid[1])
            if name is not None:
                raise gdb.GdbError(f"cannot be kept: thread {thread.num} is about to get {name}")
            if enters_call(thread.ptid[1]):
                raise gdb.GdbError(f"cannot be kept: thread {thread.num} enters a system call")
        self.level = gdb.selected_frame().level()
        self.thread = gdb.selected_thread()
        self.threads = {thread.ptid[1]: ThreadState(thread) for thread in threads()}
        self.thread.switch()
        self.hit = {tid: pc for tid, pc in hit.items() if self.threads[tid].registers.rip == pc}
        self.areas = areas(pid)
        self.view = kernel_view(pid, self.threads)
        wanted = {text.lstrip("=") for text in ranges}
        equal = {text[1:] for text in ranges if text.startswith("=")}
        shared: list[Area] = []
        same: list[Area] = []
        for area in self.areas:
            text = f"{area.start:x}-{area.end:x}"
            if text in wanted and not area.name.startswith(LOG):
                wanted.discard(text)
                (same if text in equal else shared).append(area)
        if wanted:
            raise gdb.GdbError(f"cannot be kept: no mapping at {' '.join(sorted(wanted))}")
        with Memory(pid) as memory:
            tid, state = next(iter(self.threads.items()))
            base, settled = latest.get("chunks", {}), state.settled(memory)
            self.picture = Picture(memory, tid, settled, self.areas, shared, same, base, self.most)
        latest["chunks"] = self.picture.chunks

    def end(self) -> None:
        """Give its memory back."""
        self.picture.end()

    def problems(self) -> tuple[list[str], list[Area]]:
        """Why it cannot be put back, as lines; and the mappings as they are now."""
        if self.process != process():
            return ["this is another process"], []
        pid = self.process[0]
        now = areas(pid)
        self.present = kernel_view(pid, tids())
        actions = self.picture.frozen is not None
        found = list(difference(pid, self.view, self.present, actions))
        gone = self.picture.problem()
        if gone is not None:
            found.append(gone)
        layout = layout_problem(self.areas, now)
        if layout is not None:
            found.append(layout)
        inner = inner_number(pid)
        for thread in threads():
            told = stop_signal(thread.ptid[1])
            if told.number in OWN_STOPS or (told.number in FAULTS and told.code > 0):
                continue
            if told.code > 0 or str(told.sender) != inner:
                name = signal.Signals(told.number).name
                found.append(f"thread {thread.num} was sent {name} meanwhile")
        same = self.picture.same
        if not found and same.areas:
            with Memory(pid) as memory:
                again, _ = read_content(memory, same.areas, same.chunks)
            if again.chunks != same.chunks:
                found.append("memory shared with a process outside the job has changed")
        return found, now

    def put_back(self, now: list[Area]) -> int:
        """Returns how many bytes were written. Call it after `problems` has found none."""
        pid, tid = self.process[0], next(iter(self.threads))
        interrupted = [thread for thread in threads() if about_to_get(thread.ptid[1])]
        for each in self.threads:
            leave_call(each)
        with Memory(pid) as memory:
            calls = list(layout_calls(self.areas, now))
            files = self.view.files, self.present.files
            if calls or files[0] != files[1]:
                with Injector(tid, syscall_instruction(memory, now)) as injector:
                    for number, arguments in calls:
                        injector.call(number, *arguments)
                    put_back_files(pid, *files, injector.call)
                if heap_end(areas(pid)) != heap_end(self.areas):
                    raise gdb.GdbError("could not move the end of the heap back")
            signals = of_interest(self.present.signals[tid], self.view.signals[tid])
            self.picture.put_back_actions(signals, memory, tid, now)
            written = self.picture.put_back(memory, tid, list(rseq_ranges(self.threads)))
            for tid, state in self.threads.items():
                state.put_back(tid, memory)
            latest["chunks"] = self.picture.chunks
            unsettled.clear()
            signalled.clear()
            for thread in interrupted:
                thread.switch()
                gdb.execute("queue-signal 0", to_string=True)
            flush()
        self.thread.switch()
        return written

    def show(self) -> None:
        """Make GDB show threads inside the calls that they will repeat."""
        inside = {tid: state for tid, state in self.threads.items() if state.was_inside}
        with Memory(self.process[0]) as memory:
            shown = {tid: (each.settled(memory), each.registers) for tid, each in inside.items()}
        unsettled.update({tid: each.registers.orig_rax for tid, each in inside.items()})
        flush()
        read_registers(shown)
        self.thread.switch()
        frame = gdb.newest_frame()
        for _ in range(self.level):
            frame = frame.older() or frame
        frame.select()
        hit.clear()
        hit.update(self.hit)
        arrived.clear()
        arrived.append(Arrival(self.thread.ptid[1], self.hit))


def lead_over() -> bool:
    """Step threads over a breakpoint that they had hit, which GDB has forgotten.

    GDB does the same before it resumes all threads; if it resumes only one, we must not.
    """
    if not arrived or gdb.parameter("scheduler-locking") == "on":
        return False
    (known, found), changed = arrived.pop(), False
    selected = gdb.selected_thread().ptid[1]
    for tid, pc in found.items():
        if (tid == known == selected) or tid not in tids() or registers_of(tid).rip != pc:
            continue
        ptrace(PTRACE_SINGLESTEP, tid)
        wait(tid)
        changed = True
    return changed


def flush() -> None:
    gdb.execute("maint flush register-cache", to_string=True)
    gdb.execute("maint flush dcache", to_string=True)


def arrive(pid: int) -> None:
    """Run the selected thread into a SIGSTOP; see the module's docstring."""
    locking = gdb.parameter("scheduler-locking")
    gdb.execute("handle SIGSTOP stop print nopass", to_string=True)
    gdb.execute("set scheduler-locking on")
    try:
        os.kill(pid, SIGSTOP)
        gdb.execute("continue")  # not to_string: GDB 18 would put its records there, too
    finally:
        gdb.execute(f"set scheduler-locking {locking}")
        gdb.execute("handle SIGSTOP nostop noprint nopass", to_string=True)


WATCHPOINTS = (
    gdb.BP_WATCHPOINT,
    gdb.BP_HARDWARE_WATCHPOINT,
    gdb.BP_READ_WATCHPOINT,
    gdb.BP_ACCESS_WATCHPOINT,
)


def languages() -> list[str]:
    """C, in which GDB itself writes the expression of 'watch -location', and those of the stack."""
    found = ["c"]
    frame: gdb.Frame | None = gdb.newest_frame()
    while frame is not None:
        language: str = frame.language()  # type: ignore[no-untyped-call]
        if language not in found:
            found.append(language)
        frame = frame.older()
    return found


def enable_again(each: gdb.Breakpoint) -> None:
    """Enable a breakpoint. For a watchpoint GDB parses the expression again, in the language of the
    code where the rank is now, which may be another one."""
    if each.type not in WATCHPOINTS:
        each.enabled = True
        return
    command = f"enable {each.number}"
    gdb.execute(command, to_string=True)
    for language in languages() if not each.enabled else ():
        with gdb.with_parameter("language", language):
            gdb.execute(command, to_string=True)
        if each.enabled:
            return


def refresh_watchpoints() -> None:
    """Make watchpoints forget the value that they saw last, which now lies in the future."""
    for each in gdb.breakpoints():
        if each.type in WATCHPOINTS and each.enabled:
            each.enabled = False
            enable_again(each)


class Arrive(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        arrive(process()[0])
        return {}


class Show(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        (name,) = arguments
        refresh_watchpoints()
        find(name).show()
        return {}


def find(name: str) -> Snapshot:
    try:
        return kept[name]
    except KeyError:
        raise gdb.GdbError(f"there is no snapshot '{name}'") from None


class Keep(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        name, *ranges = arguments
        most = [int(each[len(MOST) :]) for each in ranges if each.startswith(MOST)]
        ranges = [each for each in ranges if not each.startswith(MOST)]
        with Selection():  # the user may look at the place that is kept
            found = Snapshot(ranges, *most)
        forget(name)
        kept[name] = found
        picture = found.picture
        return {
            "bytes": str(picture.size),
            "changed": str(picture.changed),
            "way": picture.way,
            "process": str(picture.frozen.tid if picture.frozen else 0),
        }


def forget(name: str) -> None:
    found = kept.pop(name, None)
    if found is not None:
        found.end()


class PutBack(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        name, *options = arguments
        found = find(name)
        problems, now = found.problems()
        written = 0
        if not problems and "check" not in options:
            try:
                written = found.put_back(now)
            except (Gone, OSError) as error:
                raise gdb.GdbError(f"the process is half put back: {error or 'it ended'}") from None
        return {"problems": problems, "written": str(written)}


class Forget(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        (name,) = arguments
        for each in list(kept) if name == "all" else [name]:
            find(each).end()
            del kept[each]
        if not kept:
            latest.clear()
        if name == "all":
            end_all()
        return {}


def end_frozen() -> Answer:
    """End the frozen copies, which CRIU cannot dump while this GDB holds them. Copies the latest
    snapshot if it is small. Answers {snapshots=[{name, bytes}]}, those that are left, with the
    memory that each took."""
    for name, each in reversed(list(kept.items())):
        if each.picture.frozen is None:
            continue
        if name == next(reversed(kept)) and each.picture.held_bytes <= min(each.most, THAWED):
            with contextlib.suppress(OSError):
                each.picture.thaw()
                continue
        del kept[name]
    end_all()
    latest.clear()
    left = [{"name": name, "bytes": str(each.picture.changed)} for name, each in kept.items()]
    return {"snapshots": left}


preparations.append(lead_over)
before_lending.append(end_frozen)
gdb.events.exited.connect(lambda _: end_all())

Keep(Command.KEEP)
PutBack(Command.PUT_BACK)
Arrive(Command.ARRIVE)
Show(Command.SHOW)
Forget(Command.FORGET)

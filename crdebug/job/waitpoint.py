"""A rank that its shim can hold in a waitpoint, accessed from outside.

See crdebug/native/shim/crdebug.h.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from crdebug.acquire.mpir import ProcDesc
from crdebug.acquire.symbols import find_symbols
from crdebug.base import signal_names
from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable, Refused
from crdebug.base.ranks import RankSet
from crdebug.native.shim import layout
from crdebug.native.shim.layout import Shim, ThreadEntry
from crdebug.node import proc, ptrace, signals
from crdebug.node.stack_room import threads_without_room

_STRUCT = "crdebug_shim"
_GATE = "MPIR_checkpoint_debug_gate"
_WITH = "MPIR_debug_with_checkpoint"
_DISTURBED = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class WaitpointHold:
    """`Hold` by the shim's signal handler, with the addresses of the shim's exports.

    blocked: by TID inside the job, the signals that a thread will block once it runs; until then it
    blocks all of them, under the CRS.
    """

    entry: ProcDesc
    struct: int
    gate_address: int
    with_address: int
    blocked: Mapping[int, int] = field(default_factory=dict)
    has_shim: ClassVar[bool] = True

    @classmethod
    def find(cls, entry: ProcDesc, shim: str) -> WaitpointHold:
        """Raises NotAvailable if the rank has no shim, ProcessLookupError if it is gone."""
        found = find_symbols(entry.pid, (_STRUCT, _GATE, _WITH), in_file=lambda path: path == shim)
        if len(found) < 3:
            raise NotAvailable(
                "the rank has no shim: it was not preloaded",
                ranks=RankSet.of([entry.rank]),
                hint="start the job with 'crdebug run'",
            )
        rank = cls(entry, found[_STRUCT], found[_GATE], found[_WITH])
        rank.shim()  # its ABI version
        return rank

    def is_elsewhere(self) -> bool:
        """Has the process become another program (execve(2)) since? Not if it is gone."""
        try:
            return self.shim().rank != self.rank
        except ProcessLookupError:
            return False
        except (OSError, NotAvailable):
            return True

    def is_ready(self) -> bool:
        """Is its handler there? A rank registers before it installs it. True as well if the process
        is gone, or has become another program: others notice that."""
        try:
            return self.shim().signal > 0
        except (OSError, NotAvailable):
            return True

    @property
    def rank(self) -> int:
        return self.entry.rank

    @property
    def pid(self) -> int:
        return self.entry.pid

    def threads(self) -> tuple[proc.Thread, ...]:
        """Its threads, with the signals that they block when they run."""
        found = proc.threads(self.pid)
        if not self.blocked:
            return found
        return tuple(replace(each, blocked=self.blocked[each.inner]) for each in found)

    # ---- memory -----------------------------------------------------------------------------

    def _word(self, address: int) -> int:
        return int.from_bytes(proc.read_memory(self.pid, address, 4), "little", signed=True)

    def _set_word(self, address: int, value: int) -> None:
        proc.write_memory(self.pid, address, value.to_bytes(4, "little", signed=True))

    @property
    def gate(self) -> int:
        return self._word(self.gate_address)

    def set_gate(self, value: int) -> None:
        self._set_word(self.gate_address, value)

    @property
    def with_checkpoint(self) -> int:
        return self._word(self.with_address)

    def set_with_checkpoint(self, value: int) -> None:
        self._set_word(self.with_address, value)

    def shim(self) -> Shim:
        return Shim.parse(proc.read_memory(self.pid, self.struct, layout.HEADER_SIZE))

    def table(self) -> tuple[ThreadEntry, ...]:
        size = layout.SIZE - layout.HEADER_SIZE
        return layout.unpack_threads(
            proc.read_memory(self.pid, self.struct + layout.HEADER_SIZE, size)
        )

    def set_table(self, entries: Iterable[ThreadEntry]) -> None:
        data = layout.pack_threads(entries)
        proc.write_memory(self.pid, self.struct + layout.HEADER_SIZE, data)

    def set_crs_state(self, state: int) -> None:
        self._set_word(self.struct + layout.CRS_STATE_OFFSET, state)

    # ---- herding ----------------------------------------------------------------------------

    def refuse_obstacles(self) -> None:
        """Raises Refused if the waitpoint's handler is not in place any more."""
        shim = self.shim()
        bit = 1 << (shim.signal - 1)
        if shim.clash or not all(thread.caught & bit for thread in proc.threads(self.pid)):
            raise Refused(
                f"the application uses {signal_names.name_of(shim.signal)} itself, "
                "but crdebug needs it to lead threads into the waitpoint",
                ranks=RankSet.of([self.rank]),
                hint="choose another signal with 'crdebug run --signal'",
            )

    def refuse_without_stack(self) -> None:
        """Raises Refused, naming the threads whose stack has no room for the handler."""
        lacking = threads_without_room(self.pid)
        if lacking:
            threads = ", ".join(f"{thread.tid} ({thread.name})" for thread in lacking)
            raise Refused(
                f"no room on the stack of thread {threads} for the signal that leads it into the "
                "waitpoint, which would end the rank",
                ranks=RankSet.of([self.rank]),
                hint="go back first, to before its stack overflowed (see 'help goto')",
            )

    def blockers(self) -> tuple[proc.Thread, ...]:
        """The threads that block the waitpoint signal."""
        bit = 1 << (self.shim().signal - 1)
        return tuple(thread for thread in self.threads() if thread.blocked & bit)

    def refuse_blockers(self) -> None:
        """Raises Refused, naming the threads that block the signal."""
        blockers = self.blockers()
        if blockers:
            they = who_blocks(blockers, self.shim().signal)
            raise Refused(
                f"{they}, and only a debugger can unblock it",
                ranks=RankSet.of([self.rank]),
                hint="take the checkpoint under a debugger ('crdebug attach'), "
                "or choose another signal with 'crdebug run --signal'",
            )

    def close(self, calls: Mapping[int, int], held: Mapping[int, int]) -> tuple[proc.Thread, ...]:
        self.set_with_checkpoint(1)
        self.close_gate(calls, held)
        return self.blockers()

    def lead_in(self) -> None:
        self.queue_signal()

    def call_off(self, blockers: Sequence[proc.Thread]) -> None:
        self._forget_calls()
        self.open()  # threads that already have the signal pass
        with contextlib.suppress(ProcessLookupError):
            self._have_blocked_again(blockers)

    def close_gate(self, calls: Mapping[int, int], held: Mapping[int, int] | None = None) -> None:
        """Close the gate and note the system calls that threads must repeat.

        calls: by TID inside the job, the number of the call; -1 if there is none.
        held: by TID, the signal that will be queued to the thread in the waitpoint. If it has a
        handler, it ends the call, and so does one that is already in the thread's queue.
        """
        threads = self.threads()
        blocked = {thread.inner for thread in self.blockers()}
        ends = {each.inner: self._ends(each, (held or {}).get(each.inner, 0)) for each in threads}

        def flags(tid: int) -> int:
            known = layout.BLOCKED if tid in blocked else 0
            return known | ends.get(tid, 0) << layout.HELD_SHIFT

        self.set_gate(0)
        self.set_table(ThreadEntry(tid, call, flags(tid)) for tid, call in calls.items())

    def _ends(self, thread: proc.Thread, held: int) -> int:
        """The signal that will end a thread's system call, 0 if there is none."""
        coming = proc.queued(self.pid, thread.tid) & ~thread.blocked
        coming |= 1 << (held - 1) if held else 0
        handled = coming & thread.caught
        return (handled & -handled).bit_length()

    def _forget_calls(self) -> None:
        """Make the handler find the threads' system calls by itself: they may have run since their
        calls were noted, because their GDB was killed, say."""
        for number, _ in enumerate(self.table()):
            self._set_word(self.struct + layout.call_offset(number), layout.UNKNOWN_CALL)

    def queue_signal(self, inner_tids: Iterable[int] | None = None) -> None:
        """Queue the waitpoint signal to all threads, or to those with these TIDs inside the job."""
        number = self.shim().signal
        wanted = None if inner_tids is None else set(inner_tids)
        for thread in proc.threads(self.pid):
            if wanted is None or thread.inner in wanted:
                signals.tgkill(self.pid, thread.tid, number)

    def _have_blocked_again(self, blockers: Iterable[proc.Thread]) -> None:
        """Make those of these threads that were unblocked, and got no signal, block it again: the
        shim's handler does that in passing, because the gate is open."""
        bit = 1 << (self.shim().signal - 1)
        were = {thread.tid for thread in blockers}
        for thread in proc.threads(self.pid):
            if thread.tid in were and not (thread.blocked | thread.pending) & bit:
                signals.tgkill(self.pid, thread.tid, self.shim().signal)

    def make_calls_again(self, calls: Mapping[int, int]) -> None:
        """Make the threads whose system call the CRS interrupted repeat it, without waiting.

        Call this while no thread of the rank can run. calls: see close_gate. A thread that blocks
        the signal sees EINTR, and so do all threads of a rank that handles the signal itself.
        """
        shim = self.shim()
        bit = 1 << (shim.signal - 1)
        threads = self.threads()
        if shim.clash or not all(thread.caught & bit for thread in threads):
            return
        again = {
            thread.inner: calls[thread.inner]
            for thread in threads
            if thread.inner in calls and not thread.blocked & bit
        }
        if again:
            # All threads: one may not have taken its previous signal yet.
            self.set_table(
                ThreadEntry(thread.inner, again.get(thread.inner, -1), layout.EXEMPT)
                for thread in threads
            )
            self.queue_signal(again)

    def waiting(self) -> int:
        return self.shim().waiting

    def inside(self) -> frozenset[int]:
        return frozenset(entry.tid for entry in self.table() if entry.inside)

    def expected(self) -> tuple[proc.Thread, ...]:
        """The threads that have yet to take the waitpoint signal."""
        bit = 1 << (self.shim().signal - 1)
        return tuple(thread for thread in proc.threads(self.pid) if thread.pending & bit)

    def missing(self) -> tuple[proc.Thread, ...]:
        """The threads that are not in the waitpoint."""
        inside = {
            entry.tid for entry in self.table() if entry.inside or entry.flags & layout.EXEMPT
        }
        return tuple(thread for thread in proc.threads(self.pid) if thread.inner not in inside)

    # ---- another's debugger -----------------------------------------------------------------

    def ask_debugger(self, asker: int) -> None:
        """Make the main thread call MPIR_checkpoint_debugger_detach, where a debugger may break and
        let the rank go. asker: our PID, by which the thread sees whether the request is still
        valid."""
        self.refuse_obstacles()
        self.refuse_without_stack()
        self.refuse_blockers()
        self.set_asker(asker)
        main = proc.inner_pid(self.pid)
        self.set_table([ThreadEntry(main, flags=layout.ASKED)])
        signals.tgkill(self.pid, self.pid, self.shim().signal)

    def set_asker(self, asker: int) -> None:
        self._set_word(self.struct + layout.ASKER_OFFSET, asker)

    # ---- letting go without a debugger ------------------------------------------------------

    def open(self) -> None:
        self.set_gate(1)

    def waits_for_debugger(self) -> bool:
        """Has a debugger led every thread into the waitpoint, and detached?"""
        return self.with_checkpoint == 1 and self.waiting() > 0 and not self.missing()

    def run_hook(self, state: int) -> None:
        """Make every waiting thread run MPIR_checkpoint_debugger_crs_hook(state).

        Call this while no thread of the rank can run. The hook opens the gate unless
        MPIR_debug_with_checkpoint is set.
        """
        self.set_crs_state(state)
        self.queue_signal(self.inside())

    async def let_begin(self) -> None:
        """Let a rank that is held before main go on to its main, even if a debugger traces it.

        Its wait checks the gate again when it is interrupted: by us, if nothing traces the rank; by
        resuming, if a debugger has stopped it; otherwise by a signal that has no other effect.
        """

        def disturbed() -> bool:
            if proc.status(self.pid)["TracerPid"] == "0":
                return True
            self.set_gate(1)
            if self.waiting() and proc.status(self.pid)["State"][0] != "t":
                signals.kill(self.pid, None, signal.SIGURG)
                return False
            return True

        limit = Deadline(_DISTURBED)
        with contextlib.suppress(ProcessLookupError):
            while not self.gate:
                await limit.until(disturbed, "the rank to begin")
                with contextlib.suppress(PermissionError):
                    async with ptrace.held(self.pid, limit):
                        self.set_gate(1)

    async def release(self, deadline: Deadline) -> int:
        async with ptrace.held(self.pid, deadline):
            waiting = self.waiting()
            self.set_with_checkpoint(0)
            if waiting:
                if self.inside():
                    self.run_hook(layout.CRS_CONTINUE)
                else:
                    self.set_gate(1)  # held before main: no signal frame, no hook
        return waiting


def who_blocks(blockers: Sequence[proc.Thread], signal_number: int) -> str:
    """``thread 12 (x) blocks SIGRTMAX-2``."""
    names = ", ".join(f"{thread.tid} ({thread.name})" for thread in blockers)
    one = len(blockers) == 1
    name = signal_names.name_of(signal_number)
    return f"thread{'' if one else 's'} {names} block{'s' if one else ''} {name}"

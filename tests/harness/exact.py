"""The complete state of ranks at the debugger's prompt, which a checkpoint must not change; and
what it did change.

A look is taken from both sides: GDB says what the user sees (registers, the selected thread and
frame), /proc says what really exists (memory, signals).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crdebug.base.deadline import Deadline
from crdebug.base.events import Location
from crdebug.debugger.frames import at_program
from crdebug.job.waitpoint import WaitpointHold
from crdebug.mi.records import MiTuple
from crdebug.native.shim import layout
from crdebug.node import proc
from crdebug.session import Session
from harness.gdbs import numbers_when_attached
from harness.looks import shims
from harness.procstate import Snapshot, snapshot
from harness.registers import Registers, register_differences
from harness.spans import Span

_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ThreadSignals:
    """A thread's signal sets, bit n - 1 for signal n; pending is its own and the process's."""

    blocked: int
    pending: int


@dataclass(frozen=True, slots=True)
class RankLook:
    """One rank. Threads are told apart by their TIDs in the job, which a restart keeps; they are
    in the order of their age.

    numbers: GDB's number of each thread.
    selected: thread and level of the frame.
    where: where it stopped, as the session says.
    """

    registers: Registers
    signals: Mapping[int, ThreadSignals]
    numbers: Mapping[int, int]
    selected: tuple[int, int]
    where: Location | None
    memory: Snapshot = field(repr=False)

    def differences(self, after: RankLook) -> tuple[str, ...]:
        """What differs in a later look, as lines to read."""
        told = list(register_differences(self.registers, after.registers))
        for what, old, new in (
            ("the place of the stop", self.where, after.where),
            ("the selected thread and frame", self.selected, after.selected),
            ("the threads' numbers", self.numbers, after.numbers),
        ):
            if old != new:
                told.append(f"{what} was {old}, is {new}")
        for thread, signals in self.signals.items():
            now = after.signals.get(thread)
            if now != signals:
                told.append(f"thread {thread}: signals were {signals}, are {now}")
        return (*told, *self.memory.differences(after.memory))


@dataclass(frozen=True, slots=True)
class Look:
    """All ranks of a job."""

    ranks: Mapping[int, RankLook]

    def differences(self, after: Look) -> tuple[str, ...]:
        """What differs in a later look, as lines to read; empty if nothing does."""
        return tuple(
            f"rank {rank}: {line}"
            for rank, before in self.ranks.items()
            for line in before.differences(after.ranks[rank])
        )

    def differences_after_restart(self, after: Look) -> list[str]:
        """GDB has attached anew, and where a function is inlined it names the inner one for the
        same address, while at a stop of its own it names the outer one: no difference. And it
        numbers the threads as when it attaches (docs/limits.md)."""
        attached = {
            rank: replace(each, numbers=numbers_when_attached([*each.signals]))
            for rank, each in self.ranks.items()
        }
        lines = Look(attached).differences(after)
        return [line for line in lines if "the place of the stop was" not in line]

    def with_signals(self, *, blocked: int = 0, pending: int = 0) -> Look:
        """As if every thread blocked these too, and had these in its queue; sets as in /proc."""
        return Look(
            {
                rank: replace(
                    each,
                    signals={
                        tid: ThreadSignals(seen.blocked | blocked, seen.pending | pending)
                        for tid, seen in each.signals.items()
                    },
                )
                for rank, each in self.ranks.items()
            }
        )

    def expect_same(self, after: Look, what: str) -> None:
        """Raises AssertionError with the differences after `what`."""
        told = self.differences(after)
        assert not told, f"after {what}:\n  " + "\n  ".join(told)


def own_memory(shim: WaitpointHold) -> tuple[Span, ...]:
    """What a checkpoint writes in a rank: the shim's struct and its two variables."""
    return (
        Span(shim.struct, shim.struct + layout.SIZE),
        Span(shim.gate_address, shim.gate_address + 4),
        Span(shim.with_address, shim.with_address + 4),
    )


async def look(job: Session) -> Look:
    """All ranks of a job that is stopped."""
    ranks = shims(job.job)
    return Look({each.rank: await _rank(job, each.rank, own_memory(each)) for each in ranks})


async def look_at_strangers(job: Session) -> Look:
    """All ranks of a session with a job that crdebug has put nothing into."""
    return Look({rank: await _rank(job, rank, ()) for rank in job.ranks})


async def _rank(job: Session, rank: int, own: tuple[Span, ...]) -> RankLook:
    deadline = Deadline(_SECONDS)
    target = job.group[rank]
    assert target.pid is not None
    told = (await target.mi("-crdebug-registers", deadline)).payload
    listing = (await target.mi("-thread-info", deadline)).payload
    await at_program(target, deadline)  # whichever the user's next question would be about
    frame = (await target.mi("-stack-info-frame", deadline)).payload.tuple("frame")
    threads = proc.threads(target.pid)
    inner = {thread.tid: thread.inner for thread in threads}
    registers = {inner[row.number("tid")]: _registers(row) for row in told.list("threads").tuples()}
    numbers = {inner[each.tid]: each.number for each in await target.threads(deadline)}
    by_number = {number: tid for tid, number in numbers.items()}
    return RankLook(
        registers=registers,
        signals={each.inner: ThreadSignals(each.blocked, each.pending) for each in threads},
        numbers=numbers,
        selected=(by_number[listing.number("current-thread-id")], frame.number("level")),
        where=target.last_stop.location if target.last_stop else None,
        memory=snapshot(
            target.pid,
            stack_pointers=[int(each["rsp"], 0) for each in registers.values()],
            thread_pointers=[int(each["fs_base"], 0) for each in registers.values()],
            own=own,
        ),
    )


def _registers(row: MiTuple) -> dict[str, str]:
    values = row.tuple("registers")
    state = row.text("xstate")
    # In pieces, so that a difference fits on a line.
    pieces = {f"xstate+{at // 2}": state[at : at + 32] for at in range(0, len(state), 32)}
    return {name: values.text(name) for name, _ in values.fields} | pieces


_TOO_SOON = re.compile(r"rank \d+: syscalls (ok|FAILED: ([^;]+ returned too soon(; |$))+)")


def expect_at_most_too_soon(lines: Sequence[str], status: int) -> None:
    """How `syscalls` may end after it was taken back: a wait until a point in time may be over too
    soon then, which it says, and ends with 3; nothing else may be wrong. Raises AssertionError."""
    assert lines
    for line in lines:
        assert _TOO_SOON.fullmatch(line), line
    assert status == (0 if all(line.endswith("syscalls ok") for line in lines) else 3)

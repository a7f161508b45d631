"""Jobs of crdebug seen from outside: their ranks' variables, progress and output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from crdebug.acquire.discovery import find_job
from crdebug.acquire.mpir import acquire
from crdebug.acquire.symbols import find_symbols
from crdebug.base.deadline import Deadline
from crdebug.job import clocks
from crdebug.job.directory import JobDirectory
from crdebug.job.holds import find_holds, with_shims
from crdebug.job.ranks_there import await_ranks
from crdebug.job.waitpoint import WaitpointHold
from crdebug.node import proc
from crdebug.node.ptrace import Held, Traced
from harness.jobs import JOB
from harness.matcher import library


@dataclass(frozen=True, slots=True)
class Row:
    """A cell of the protocol's table (design/protocol.md), for all ranks alike.

    waiting: every thread is in the waitpoint; False: none is.
    """

    with_checkpoint: int
    gate: int
    waiting: bool


def look(shims: Sequence[WaitpointHold]) -> Row:
    """The variables of a job whose ranks agree on all of them. Raises AssertionError."""
    rows = set()
    for shim in shims:
        waiting = shim.waiting()
        threads = len(proc.threads(shim.pid))
        assert waiting in (0, threads), f"rank {shim.rank}: {waiting} of {threads} threads wait"
        assert (waiting == 0) or not shim.missing()
        rows.add(Row(shim.with_checkpoint, shim.gate, waiting > 0))
    assert len(rows) == 1, rows
    return rows.pop()


def shims(job: str = JOB) -> tuple[WaitpointHold, ...]:
    """The ranks of the present incarnation."""
    record = JobDirectory(job).read()
    entries = find_job(record.pid).entries if record.adopted else acquire(record.pid)
    return with_shims(find_holds(entries, record.shim))


def address(rank: WaitpointHold, name: str) -> int:
    """Of a global of the program that a rank runs."""
    executable = rank.entry.executable
    return find_symbols(rank.pid, [name], in_file=lambda path: path == executable)[name]


def number(rank: WaitpointHold, name: str) -> int:
    """A global `long` of the program that a rank runs."""
    data = proc.read_memory(rank.pid, address(rank, name), 8)
    return int.from_bytes(data, "little", signed=True)


def end_soon(job: str = JOB, more: int = 50) -> int:
    """Let a running program of ours end in some steps; returns the number of its last step.

    Running ranks are stopped meanwhile: the others would wait for ever for a rank that passed the
    last step before it learned of it. Records beyond the present place are dropped: a job that
    repeats them after a restart would find that it ends elsewhere, and stop.
    """
    record, ranks = JobDirectory(job).read(), shims(job)
    ends = [(rank.pid, address(rank, "steps")) for rank in ranks]
    with standing(ranks) as all_stand:
        last = max(number(rank, "step") for rank in ranks) + more
        for pid, where in ends:
            proc.write_memory(pid, where, last.to_bytes(8, "little"))
        for clock in clocks.find(ranks, record.layer) if all_stand else ():
            logs = clocks.logs(JobDirectory(job).run(record.incarnation))
            clocks.cut(clock, logs / str(clock.rank), library())
    return last


@contextmanager
def standing(ranks: Sequence[WaitpointHold]) -> Iterator[bool]:
    """While the block runs no rank does. False: GDBs hold some ranks, which may run."""
    held, all_stand = Held(), True
    try:
        for rank in ranks:
            try:
                while held.seize(rank.pid):
                    held.wait()
            except Traced:
                all_stand = False
        yield all_stand
    finally:
        held.release()


def steps(job: str = JOB) -> tuple[int, ...]:
    """The step that each rank of a program of ours is in (tests/programs/common.h)."""
    return tuple(number(rank, "step") for rank in shims(job))


async def reach(step: int, job: str = JOB, seconds: float = 60.0) -> None:
    """Wait until every rank of a running job is in a step or beyond it."""
    limit = Deadline(seconds)
    directory = JobDirectory(job)
    ranks = with_shims((await await_ranks(directory, directory.read(), limit)).holds)
    await limit.until(lambda: all(number(rank, "step") >= step for rank in ranks), f"step {step}")


def output(job: str = JOB, stream: str = "stdout") -> str:
    """The output of the present or last incarnation."""
    directory = JobDirectory(job)
    return (directory.run(directory.read().incarnation) / stream).read_text()

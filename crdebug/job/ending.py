"""Ending a job."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from signal import SIGTERM

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired
from crdebug.job.directory import JobRecord, is_alive
from crdebug.node import bare, broken_dump, process_tree, signals


async def end(
    record: JobRecord,
    deadline: Deadline,
    note: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """End all processes of a job: by ending PID 1 of its container (pid_namespaces(7)), or each.
    Without a container, the starter's keeper does that.

    note: makes debuggers notice that the processes they trace were killed; these do not end before
    that.
    """
    what = f"job '{record.name}' to end"
    members: tuple[int, ...] = ()
    with contextlib.ExitStack() as stack:
        if is_alive(record) and record.adopted:
            members = process_tree.of_job(record.pid)
            stack.enter_context(broken_dump.forgetting_connections(record.pid))
            for pid in members:
                signals.kill(pid, None)
        elif is_alive(record):
            members = (record.last,)
            if record.hosts:
                await _ask_launcher(record, deadline, note)
            signals.kill(record.last, None if record.keeper else record.start)
        if note is not None:
            await note()
        for pid in members:
            await signals.ended(pid, deadline, what)
        if record.mark:
            await _end_bare(record.mark, deadline, what)


async def _end_bare(mark: str, deadline: Deadline, what: str) -> None:
    """A job without a container: its keeper ends what is left. If that is gone too, we do."""
    with contextlib.suppress(DeadlineExpired):
        await Deadline(deadline.left / 2).until(lambda: not bare.processes_of(mark), what)
        return
    bare.end_remains(mark)
    await deadline.until(lambda: not bare.processes_of(mark), what)


async def _ask_launcher(
    record: JobRecord, deadline: Deadline, note: Callable[[], Awaitable[object]] | None
) -> None:
    """Only the launcher of a job over hosts can end its ranks elsewhere, and it does at SIGTERM,
    which the starter passes on. Slurm's, killed by SIGKILL, would leave them."""
    with contextlib.suppress(ProcessLookupError, DeadlineExpired):
        signals.kill(record.pid, record.start, SIGTERM)
        if note is not None:
            await note()
        await signals.ended(record.pid, Deadline(deadline.left / 2), "the launcher to end")

"""A GDB for every rank: started, attached, brought to main."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from signal import SIGRTMIN

from crdebug.acquire.mpir import ProcDesc
from crdebug.config import Settings
from crdebug.deadline import Deadline
from crdebug.errors import CrdebugError, GdbError
from crdebug.job.ranks import RankShim
from crdebug.node import signals
from crdebug.target.gdb import GdbTarget
from crdebug.target.group import Identity, TargetGroup
from crdebug.target.interface import BreakpointRequest, Target, TargetState


def scripts() -> tuple[Path, ...]:
    """crdebug's part inside each GDB, in the order in which it is sourced."""
    home = resources.files("crdebug.gdbscripts")
    return tuple(Path(str(home / name)) for name in ("ptrace_x86.py", "rank_mi.py", "lend_mi.py"))


async def launch_gdb(rank: int, signal: int, settings: Settings) -> GdbTarget:
    """Start a rank's GDB, which then passes the waitpoint signal on without a word."""
    deadline = Deadline(settings.attach)
    target = await GdbTarget.launch(rank, deadline, gdb=settings.gdb, scripts=scripts())
    if signal:
        # GDB names real-time signals by number, the others as everybody does.
        name = signals.name_of(signal) if signal < SIGRTMIN else f"SIG{signal}"
        try:
            await target.console(f"handle {name} nostop noprint pass", deadline)
        except GdbError:
            await target.close(deadline)
            raise
    return target


async def attach_group(entries: Sequence[ProcDesc], signal: int, settings: Settings) -> TargetGroup:
    """A GDB attached to each process of the table, all at once.

    Raises the first error; what was attached is let go and every GDB ended then.
    """
    names = {entry.rank: Identity(entry.host, entry.executable) for entry in entries}
    launched = await asyncio.gather(
        *(launch_gdb(entry.rank, signal, settings) for entry in entries), return_exceptions=True
    )
    targets = [each for each in launched if isinstance(each, GdbTarget)]
    group = TargetGroup(targets, settings=settings, identities=names)
    try:
        for each in launched:
            if isinstance(each, BaseException):
                raise each
        answers = await group.attach_all({entry.rank: entry.pid for entry in entries})
        for error in answers.errors.values():
            raise error
    except BaseException:
        with contextlib.suppress(CrdebugError):
            await group.close()
        raise
    return group


async def to_main(group: TargetGroup, shims: Sequence[RankShim], settings: Settings) -> None:
    """Let ranks that are held before main run to its first line.

    A program without a symbol main is stopped at its first instruction: __libc_start_main gets
    its address (System V ABI, glibc csu/libc-start.c).
    """
    deadline = Deadline(settings.launch)
    await asyncio.gather(*(_one_to_main(group, shim, deadline) for shim in shims))


async def _one_to_main(group: TargetGroup, shim: RankShim, deadline: Deadline) -> None:
    target = group[shim.rank]
    known = await _has_symbol(target, "main", deadline)
    await _insert(target, "main" if known else "__libc_start_main", deadline)
    shim.set_gate(1)
    await target.resume(deadline)
    await deadline.wait(target.stopped(), "the program to come to main")
    if not known and target.state is TargetState.STOPPED:
        await _insert(target, "*(long)$rdi", deadline)
        await target.resume(deadline)
        await deadline.wait(target.stopped(), "the program to come to main")
    if target.state is TargetState.STOPPED:
        shim.set_gate(0)


async def _has_symbol(target: Target, name: str, deadline: Deadline) -> bool:
    try:
        await target.mi(f'-data-evaluate-expression "(long)&{name}"', deadline)
    except GdbError:
        return False
    return True


async def _insert(target: Target, location: str, deadline: Deadline) -> None:
    """A temporary breakpoint of our own."""
    await target.insert_breakpoint(BreakpointRequest(location, temporary=True), deadline)

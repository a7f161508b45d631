"""Start a GDB for every rank, attach it, and bring the ranks to main."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

from crdebug.acquire.debug_files import unpack
from crdebug.acquire.mpir import ProcDesc
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, GdbDied, GdbError
from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.checkpoint_commands import pass_signal
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.group import Identity, TargetGroup
from crdebug.debugger.in_c import number_in_c
from crdebug.debugger.startup import index_cache, unpacked_debug_files
from crdebug.debugger.target import BreakpointRequest, Target, TargetState
from crdebug.job.directory import JobRecord
from crdebug.job.ended_leaders import refuse_unattachable
from crdebug.job.ending import end
from crdebug.job.waitpoint import WaitpointHold
from crdebug.native.build import build
from crdebug.node import proc
from crdebug.node.ask import gdb_program
from crdebug.node.code import remove_breakpoints

Tell = Callable[[Event], None] | None
SetGate = Callable[[int], Awaitable[None]]  # opens (1) or closes (0) a rank's gate
Process = tuple[int, int | None]  # its PID, and its start if that is known (proc.started)
Launch = Callable[[int], Awaitable[Target]]  # starts a GDB for a rank, attached to nothing


def scripts() -> tuple[Path, ...]:
    """The scripts that a rank's GDB sources: crdebug's part inside GDB."""
    return (Path(str(resources.files("crdebug.gdbscripts") / "rank_gdb.py")),)


async def launch_gdb(rank: int, signal: int, settings: Settings, tell: Tell = None) -> Target:
    """Start a rank's GDB, and make it pass the waitpoint signal silently.

    If a signal kills it, a fault of its own or one from outside, it is replaced once, and `tell` is
    called with that.
    """
    return await _launch_or_replace(rank, signal, settings, await _preload(settings), tell)


async def _preload(settings: Settings) -> Path:
    """The library that lets older GDBs write registers on newer processors; see native/xstate."""
    return (await build(settings.compiler, Deadline(settings.launch))).xstate


async def _launch_or_replace(
    rank: int, signal: int, settings: Settings, preload: Path, tell: Tell
) -> Target:
    try:
        return await _launch_gdb(rank, signal, settings, preload)
    except GdbDied as death:
        if death.status is None or death.status >= 0:  # the next one would fail in the same way
            raise
        _tell_of(death, tell)
    return await _launch_gdb(rank, signal, settings, preload)


async def _launch_gdb(rank: int, signal: int, settings: Settings, preload: Path) -> Target:
    deadline = Deadline(settings.attach)
    gdb = gdb_program(settings.gdb)
    target = await GdbTarget.launch(
        rank,
        deadline,
        gdb=gdb,
        scripts=scripts(),
        auto_load=settings.auto_load,
        preload=preload,
    )
    if signal:
        try:
            await pass_signal(target, signal, deadline)
        except CrdebugError:
            await target.close(deadline)
            raise
    return target


def _tell_of(death: GdbDied, tell: Tell) -> None:
    if tell is not None:
        tell(JobSays(f"{death}; another one takes its place"))


async def launch_group(
    ranks: Iterable[int],
    signal: int,
    settings: Settings,
    identities: Mapping[int, Identity] | None = None,
    tell: Tell = None,
) -> TargetGroup:
    """Start a GDB for each rank, all at once, attached to nothing yet.

    Raises the first error, after ending all that were started.
    """
    await unpack(index_cache(), unpacked_debug_files(), Deadline(settings.attach))
    preload = await _preload(settings)
    launching = [
        asyncio.create_task(_launch_or_replace(rank, signal, settings, preload, tell))
        for rank in ranks
    ]
    try:
        targets = await asyncio.gather(*launching)
    except BaseException:
        for task in launching:
            task.cancel()
        done = await asyncio.gather(*launching, return_exceptions=True)
        left = [each for each in done if not isinstance(each, BaseException)]
        with contextlib.suppress(CrdebugError):
            await TargetGroup(left, settings=settings).close()
        raise
    group = TargetGroup(targets, settings=settings, identities=identities)
    group.on_death = clear_code
    return group


async def attach_group(
    entries: Sequence[ProcDesc],
    signal: int,
    settings: Settings,
    tell: Tell = None,
    ended: Iterable[int] = (),
) -> TargetGroup:
    """Attach a GDB to each process of the table, all at once.

    ended: the ranks that have ended; they get a GDB too, because a restart may bring them back.
    Ranks that end meanwhile are added to them.

    Raises the first error, after detaching and ending every GDB.
    """
    for entry in entries:
        refuse_unattachable(entry.pid, entry.rank)
    names = {entry.rank: Identity(entry.host, entry.executable) for entry in entries}
    pids = {entry.rank: entry.pid for entry in entries}
    group = await launch_group([*pids, *ended], signal, settings, names, tell)

    async def launch(rank: int) -> Target:
        return await launch_gdb(rank, signal, settings, tell)

    async def attach(target: Target) -> None:
        await attach_gdb(group, target.rank, pids[target.rank], launch, tell)

    try:
        answers = await group.ask(RankSet.of(pids), attach)
        gone = [rank for rank in answers.errors if not proc.is_alive(pids[rank])]
        for rank, error in answers.errors.items():
            if rank not in gone or len(gone) == len(pids):
                raise error
        mark_gone(group, [*ended, *gone], tell)
    except BaseException:
        with contextlib.suppress(CrdebugError):
            await group.close()
        raise
    return group


async def attach_gdb(
    group: TargetGroup,
    rank: int,
    pid: int,
    launch: Launch,
    tell: Tell,
) -> None:
    """Attach a rank's GDB to a process. If the GDB dies of that, or has died before, it is replaced
    once.

    launch: starts another GDB, attached to nothing.
    tell: called if the GDB was replaced.
    """
    try:
        await group[rank].attach(pid, Deadline(group.settings.attach))
    except GdbDied as death:
        if not proc.is_alive(pid):
            # Some GDBs die when their process ends (16.3, linux-nat.c: mark_lwp_dead, an internal
            # error).
            said = f"process {pid} has ended"
            raise GdbError(said, "attach", ranks=RankSet.of([rank])) from death
        _tell_of(death, tell)
        target = await replace_gdb(group, rank, launch)
        await target.attach(pid, Deadline(group.settings.attach))


def processes_of(group: TargetGroup) -> dict[int, Process]:
    """Those of the group's ranks on this host, by rank."""
    found: dict[int, Process] = {}
    for target in map(group.__getitem__, group.ranks):
        with contextlib.suppress(ProcessLookupError):
            if target.node is None and target.pid is not None:
                found[target.rank] = target.pid, proc.started(target.pid)
    return found


async def renew_gdb(
    group: TargetGroup, rank: int, process: Process | None, launch: Launch, tell: Tell
) -> None:
    """Replace a rank's GDB that has died: another one stops the rank at its present place; or the
    rank has ended. process: None if it had ended before. For launch and tell see attach_gdb."""
    if process is None or not proc.is_alive(*process):
        group[rank].mark_ended("")
        return
    await replace_gdb(group, rank, launch)
    await attach_gdb(group, rank, process[0], launch, tell)


def mark_gone(group: TargetGroup, ended: Iterable[int], tell: Tell) -> None:
    """Mark ranks that have ended, or that a restart has not brought back: their GDBs have no
    process."""
    ranks = RankSet.of(ended)
    for rank in ranks:
        group[rank].mark_ended(None)
    if ranks and tell is not None:
        tell(JobSays(f"{ranks.words} {'has' if len(ranks) == 1 else 'have'} ended"))


def clear_code(rank: int, pid: int) -> None:
    """Remove the breakpoints from the code of a rank whose GDB died while the rank ran."""
    with contextlib.suppress(OSError):
        remove_breakpoints(pid)


def raise_first(outcomes: Iterable[object]) -> None:
    """Raise the first error among the results of `asyncio.gather`. By then no task is running."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def replace_gdb(group: TargetGroup, rank: int, launch: Launch) -> Target:
    """Replace a rank's GDB by a new one with the rank's breakpoints, attached to nothing yet."""
    await group[rank].close(Deadline(group.settings.stop))
    target = await launch(rank)
    await group.replace(target)
    return target


async def end_job(group: TargetGroup, record: JobRecord) -> None:
    """End every process of a job whose ranks these GDBs hold. Raises DeadlineExpired.

    A rank that its GDB traces ends only once the GDB has noticed, and PID 1 not before its ranks
    (pid_namespaces(7)). A GDB that notices nothing is itself ended.
    """
    stop = group.settings.stop
    patience = Deadline(stop / 3)

    def note() -> Awaitable[object]:
        return group.ask(
            group.in_state(TargetState.STOPPED),
            lambda each: patience.wait(each.kill(patience), "gdb to let the rank end"),
        )

    try:
        await end(record, patience, note)
    except DeadlineExpired:
        stuck = [each for each in (group[rank] for rank in group.ranks) if each.pid is not None]
        closing = (each.close(Deadline(stop / 3)) for each in stuck)
        await asyncio.gather(*closing, return_exceptions=True)
        await end(record, Deadline(stop))


def gates_of(shims: Iterable[WaitpointHold]) -> dict[int, SetGate]:
    """By rank."""

    def gate(shim: WaitpointHold) -> SetGate:
        async def set_gate(value: int) -> None:
            shim.set_gate(value)

        return set_gate

    return {shim.rank: gate(shim) for shim in shims}


async def to_main(group: TargetGroup, gates: Mapping[int, SetGate], settings: Settings) -> None:
    """Let ranks that are held before main run to its first line; in Fortran, to the first line of
    the program. gates: of these, by rank.

    If there is no symbol main, the rank stops at the first instruction of main, whose address
    __libc_start_main gets (System V ABI, glibc csu/libc-start.c).
    """
    deadline = Deadline(settings.launch)
    coming = (_one_to_main(group[rank], gate, deadline) for rank, gate in gates.items())
    await asyncio.gather(*coming)


_MAIN = ("MAIN__", "main")  # gfortran's main calls MAIN__, so that comes first here


async def _one_to_main(target: Target, set_gate: SetGate, deadline: Deadline) -> None:
    names = [each for each in _MAIN if await _has_symbol(target, each, deadline)]
    known = bool(names)
    await _insert(target, names[0] if known else "__libc_start_main", deadline)
    await set_gate(1)
    await target.resume(deadline)
    await deadline.wait(target.stopped(), "the program to come to main")
    if not known and target.state is TargetState.STOPPED:
        await _insert(target, "*$rdi", deadline)
        await target.resume(deadline)
        await deadline.wait(target.stopped(), "the program to come to main")
    if target.state is TargetState.STOPPED:
        await set_gate(0)


async def _has_symbol(target: Target, name: str, deadline: Deadline) -> bool:
    try:
        await number_in_c(target, f"&{name}", deadline)
    except GdbError:
        return False
    return True


async def _insert(target: Target, location: str, deadline: Deadline) -> None:
    """Insert a temporary breakpoint of our own."""
    await target.insert_breakpoint(BreakpointRequest(location, temporary=True), deadline)

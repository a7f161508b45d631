"""The agent: crdebug's process on another host, which has the debuggers of the ranks there.

It serves one crdebug, over one stream. When that ends it lets its ranks go, as a GDB does whose
crdebug has ended, and ends. It does so too when it has heard nothing for a long time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from crdebug.acquire.discovery import rank_in, ranks_of_daemon
from crdebug.acquire.mpir import ProcDesc
from crdebug.attached.far_record import ThisHostRecord
from crdebug.attached.gdbs import (
    Process,
    attach_group,
    clear_code,
    launch_gdb,
    processes_of,
    renew_gdb,
)
from crdebug.base.answers import Answers
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, DeadlineExpired, NotAvailable, Refused
from crdebug.base.events import Event, JobSays, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.base.version import VERSION
from crdebug.debugger import questions, rank_host
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.group_run import GroupRun, why_not
from crdebug.debugger.question import Question
from crdebug.debugger.run import Ran, Run
from crdebug.debugger.target import DebuggerDied, Notice, Target, TargetState
from crdebug.hosts import every_question, greeting, merged
from crdebug.hosts.merged import Mirror, Mirrors
from crdebug.hosts.messages import (
    Ask,
    AskHost,
    Attach,
    Classes,
    CutRecord,
    Diverges,
    Do,
    Find,
    FindLines,
    Gather,
    Go,
    Gone,
    Greeting,
    Halt,
    Hello,
    LetGo,
    Ping,
    Prepare,
    Prepared,
    Probe,
    ReadAt,
    ReadRecord,
    Renew,
    Request,
    Says,
    SetGate,
    WriteClock,
    as_classes,
)
from crdebug.hosts.telling import Telling
from crdebug.hosts.wire import IsLost, Stream, Wire
from crdebug.job import clocks, gathering, over_hosts
from crdebug.job.far_clocks import ClockLook, ClockWrite
from crdebug.job.holds import refuse_traced
from crdebug.job.record_here import ClocksHere
from crdebug.native.build import build
from crdebug.native.recorder.build import build_layer
from crdebug.node import owners, probes, proc

_LETTING_GO = 5.0  # seconds
# The verbs of a target that may be asked for; all of Target's that do something.
VERBS = frozenset(
    (
        *("attach", "detach", "lend", "take_back", "walk_out", "kill", "mark_ended", "close"),
        *("resume", "step", "next", "finish", "run", "stopped", "interrupt", "arrive", "settle"),
        *("stands", "evaluate", "backtrace", "threads", "select_thread", "location", "console"),
        *("mi", "break_in", "insert_breakpoint", "delete_breakpoint", "keep", "kept_sizes"),
        *("put_back_obstacles", "hold", "put_memory_back", "show_put_back", "forget", "walk"),
    )
)

assert every_question.__all__  # they are registered now


class Agent:
    """Serves one wire."""

    def __init__(self, stream: Stream) -> None:
        self._wire = Wire(stream, self._serve, before_answers=lambda: self._telling.news())
        self._telling = Telling(self._mirrors, self._wire.send)
        self._group: TargetGroup | None = None
        self._greeted = False
        self._holding = ""  # the mark of a job whose new ranks wait here
        self._starter = ""  # with which its files here are removed, once it has ended
        self._processes: dict[int, Process] = {}  # of the ranks, by rank
        self._record = ThisHostRecord()
        self._clocks = ClocksHere()
        self._written = self._looks = 0  # the last write to a clock, and look at one
        self._patience = Settings().host_patience
        self._other_patience = asyncio.Event()

    async def run(self) -> None:
        """Until crdebug ends; then end the GDBs, which lets their ranks go."""
        watching = asyncio.create_task(self._watch())
        try:
            await self._wire.run()
        finally:
            watching.cancel()
            await self._end_holding()
            if self._group is not None:
                clocks.let_all_go(self._clocks.all())
                with contextlib.suppress(CrdebugError):
                    await self._group.close()

    async def _watch(self) -> None:
        """crdebug asks every few seconds whether we are there. sshd does not tell an agent that its
        connection is cut, unless it was configured to find that out (sshd_config(5),
        ClientAliveInterval)."""
        while (left := self._wire.heard + self._patience - time.monotonic()) > 0:
            self._other_patience.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._other_patience.wait(), left)
        self._wire.end(IsLost("crdebug is silent"))

    def _be_patient(self, seconds: float) -> None:
        self._patience = seconds
        self._other_patience.set()

    async def _serve(self, request: Request) -> object:
        if isinstance(request, Hello):
            greeting.require_same(request, "crdebug's own host")
            self._greeted = True
            return Greeting(VERSION, greeting.build(), os.uname().nodename)
        if not self._greeted:
            raise BadInput("an agent must be greeted first")
        match request:
            case Ping():
                return None
            case Probe(gdb=gdb, compiler=compiler):
                return await asyncio.to_thread(probes.probe_machine, gdb=gdb, compiler=compiler)
            case Find():
                return ranks_of_daemon(request.daemon, request.users)
            case Prepare():
                return await self._prepare(request)
            case Gather(mark=mark, shim=shim, host=host):
                return await asyncio.to_thread(gathering.gather, mark, shim, host)
            case SetGate(entry=entry, shim=shim, value=value):
                gathering.set_gate(entry, shim, value)
                return None
            case Diverges(mark=mark, shim=shim, layer=layer):
                return gathering.diverges(mark, shim, layer)
            case LetGo(mark=mark, shim=shim, layer=layer, another=another):
                return await gathering.let_go(mark, shim, layer, another=another)
            case ReadRecord(wanted=wanted):
                look = self._look()
                return ReadAt(look, await self._record.record_now(wanted))
            case CutRecord(wanted=wanted, compiler=compiler):
                await self._record.cut(wanted, compiler)
                return None
            case WriteClock(write=write):
                self._write(write)
                return None
            case AskHost():
                return await self._ask_host(request)
            case FindLines(sites=sites):
                return await self._record.lines(sites)
            case _:
                return await self._serve_ranks(request)

    async def _serve_ranks(self, request: Request) -> object:
        match request:
            case Attach():
                return await self._attach(request)
            case Renew(rank=rank):
                await self._renew(rank)
                return None
            case Ask():
                return await self._ask(request)
            case Do():
                return await self._do(request)
            case Go(number=number, run=run, ranks=ranks):
                return await self._go(number, run, ranks)
            case Halt(number=number, reason=reason, seconds=seconds):
                self._telling.stop(number, reason, seconds)
                return None
        raise BadInput("an agent cannot do this")

    async def _prepare(self, request: Prepare) -> Prepared:
        self._be_patient(request.patience)
        limit = Deadline(Settings().launch)
        native = await build(request.compiler, limit)
        layer = request.layer
        if layer and not Path(layer).exists():
            layer = str(await build_layer(request.mpicc, limit))
        over_hosts.begin(request.mark, hold=request.hold, records=bool(layer))
        self._holding, self._starter = request.mark, str(native.starter)
        return Prepared(str(native.shim), layer)

    async def _end_holding(self) -> None:
        """Ranks do not wait here any more; the job's files here end with its last rank here."""
        if self._holding:
            mark, self._holding = self._holding, ""
            with contextlib.suppress(CrdebugError):
                await over_hosts.sweep_after(self._starter, mark)

    # ---- attaching ----------------------------------------------------------------------------

    async def _attach(self, request: Attach) -> tuple[Mirrors, ...]:
        if self._group is not None:
            raise Refused("this agent has its ranks already")
        await self._end_holding()
        self._clocks = ClocksHere(request.layer)
        self._be_patient(request.settings.host_patience)
        self._group = group = await self._acquire(request)
        if group is None:
            return ()
        for rank in group.ranks:
            group[rank].subscriber = self._notices_of(rank)
        now = self._mirrors([*group.ranks])
        self._telling.show(now)
        return merged.mirrors(now)

    async def _acquire(self, request: Attach) -> TargetGroup | None:
        """Attach a GDB to each of these ranks; None if all have ended."""
        entries = request.entries
        if request.again:
            entries = await _left_behind(entries, request.users)
            if not entries:
                return None
        for entry in entries:
            _require_rank(entry, request.users)
            refuse_traced(entry.pid, entry.rank)
        group = await attach_group(entries, 0, request.settings, self._says)
        self._processes = processes_of(group)
        return group

    async def _renew(self, rank: int) -> None:
        group = self._group
        if group is None or not self._target(rank).dead:
            raise Refused("this agent has no such GDB to replace", ranks=RankSet.of([rank]))
        process = self._processes.get(rank)

        async def launch(rank: int) -> Target:
            return await launch_gdb(rank, 0, group.settings, self._says)

        try:
            await renew_gdb(group, rank, process, launch, self._says)
        finally:
            group[rank].subscriber = self._notices_of(rank)
            self._telling.has_changed(RankSet.of([rank]))

    def _says(self, event: Event) -> None:
        if isinstance(event, JobSays):
            self._wire.send(Says(event.text))

    def _notices_of(self, rank: int) -> Callable[[Notice], None]:
        def take(notice: Notice) -> None:
            if isinstance(notice, DebuggerDied):
                clear_code(notice.rank, notice.pid)
            self._telling.happened(rank, notice)

        return take

    # ---- running ------------------------------------------------------------------------------

    async def _go(self, number: int, run: Run, ranks: RankSet) -> Gone:
        if not isinstance(run, Run) or not run.known:
            raise BadInput("an agent does not know this run")
        stops: dict[int, RankStopped] = {}
        errors: dict[int, CrdebugError] = {}
        targets = []  # crdebug may not know yet that others cannot run
        for target in map(self._target, ranks):
            if target.state is TargetState.EXITED and target.last_stop is not None:
                stops[target.rank] = target.last_stop
            elif (error := why_not(run.verb, [target])) is not None:
                errors[target.rank] = error
            else:
                targets.append(target)
        completed = RankSet()
        try:
            if targets:
                ran = await self._run(number, run, targets, ends=bool(stops or errors))
                stops, errors = {**stops, **ran.stops}, {**errors, **ran.errors}
                completed = ran.completed
        finally:
            self._telling.has_changed(ranks)
        told = as_classes(Answers({}, errors))
        return Gone(merged.stops(stop for _, stop in sorted(stops.items())), told, completed)

    async def _run(self, number: int, run: Run, targets: list[Target], *, ends: bool) -> Ran:
        """ends: it ends as soon as they run."""
        completes = run.completes
        under_way = GroupRun(
            targets,
            run.verb,
            run.start,
            None if completes is None else lambda _: completes,
            run.stop_seconds,
        )
        if ends:
            under_way.ask_to_stop(reason=StopReason.FOLLOWED)
        with self._telling.running(number, under_way):
            return await under_way.until_over()

    # ---- asking -------------------------------------------------------------------------------

    async def _ask(self, request: Ask) -> Classes:
        question = request.question
        if not isinstance(question, Question) or not question.known:
            raise BadInput("an agent does not know this question")
        targets = [self._target(rank) for rank in request.ranks]
        if (how := request.looking) is None:
            answers = await questions.ask(targets, question)
        else:
            answers = await questions.look(
                targets, question, how.deadline, also_ended=how.also_ended
            )
        self._telling.has_changed(request.ranks)
        return as_classes(answers)

    async def _do(self, request: Do) -> object:
        target = self._target(request.rank)
        try:
            if request.verb == "detach_or_hold":
                (deadline,) = request.arguments
                assert isinstance(deadline, Deadline)
                await target.detach(deadline, hold=True)
                return None
            if request.verb not in VERBS:
                raise BadInput(f"a rank has no verb '{request.verb}'")
            answer = getattr(target, request.verb)(*request.arguments)
            return await answer if isinstance(answer, Awaitable) else answer
        finally:
            self._telling.has_changed(RankSet.of([request.rank]))

    async def _ask_host(self, request: AskHost) -> object:
        if request.verb not in rank_host.VERBS:
            raise BadInput(f"a host has no verb '{request.verb}'")
        verb = getattr(rank_host.ThisHost(), request.verb)
        return await verb(*request.arguments)

    def _target(self, rank: int) -> Target:
        if self._group is None:
            raise Refused("this agent has no ranks yet")
        return self._group[rank]

    # ---- what crdebug knows without asking ----------------------------------------------------

    def _mirrors(self, ranks: list[int]) -> list[Mirror]:
        look = self._look()
        return [
            Mirror(
                target.rank,
                target.state,
                target.pid,
                target.gdb_pid,
                target.dead,
                target.lent,
                target.last_stop,
                target.kept,
                self._clock_of(target),
                look,
            )
            for target in map(self._target, ranks)
        ]

    def _look(self) -> ClockLook:
        self._looks += 1
        return ClockLook(self._looks, self._written)

    def _clock_of(self, target: Target) -> bytes:
        if target.state is not TargetState.STOPPED or target.pid is None:
            return b""
        return self._clocks.data(target.rank, target.pid)

    def _write(self, write: ClockWrite) -> None:
        """Nobody waits for that: if the rank has ended, others say so."""
        self._written = write.number
        target = self._target(write.rank)
        if target.pid is not None:
            with contextlib.suppress(OSError, NotAvailable):
                clock = self._clocks.of(target.rank, target.pid)
                if clock is not None and write.look_at is not None:
                    clock.look_at(*write.look_at)
                elif clock is not None:
                    clock.write(write.offset, write.data)


async def _left_behind(
    entries: tuple[ProcDesc, ...], users: tuple[int, ...]
) -> tuple[ProcDesc, ...]:
    """Those of the ranks of an agent that has ended which are there, once its GDBs have let them
    go; without the breakpoints that these may have left. users: see Attach. Raises Refused,
    NotAvailable."""
    limit = Deadline(_LETTING_GO)
    found = []
    for entry in entries:
        with contextlib.suppress(ProcessLookupError, DeadlineExpired):
            await limit.until(partial(_is_free, entry.pid), "another GDB to let it go")
        if proc.is_alive(entry.pid):
            _require_rank(entry, users)
            refuse_traced(entry.pid, entry.rank)
            clear_code(entry.rank, entry.pid)
            found.append(entry)
    return tuple(found)


def _is_free(pid: int) -> bool:
    return not any(thread.tracer for thread in proc.threads(pid))


def _require_rank(entry: ProcDesc, users: tuple[int, ...]) -> None:
    """The table of a launcher may name any process, to make root stop processes of others: a
    process must say itself that it is this rank, and belong to the launcher's user. Raises
    NotAvailable, Refused."""
    ranks = RankSet.of([entry.rank])
    hint = "name one of the ranks on that host instead"
    try:
        told = rank_in(proc.environment(entry.pid))
        whose = owners.users_of(entry.pid)
    except ProcessLookupError:
        raise NotAvailable(f"process {entry.pid} has ended", ranks=ranks) from None
    except PermissionError:
        raise NotAvailable(
            f"process {entry.pid} is somebody else's",
            ranks=ranks,
            hint="attach as its owner, or as root",
        ) from None
    if 0 not in users and whose != frozenset(users):
        raise Refused(f"process {entry.pid} belongs to another user", ranks=ranks, hint=hint)
    if told is None or told[1] != entry.rank:
        problem = f"process {entry.pid} does not say that it is this rank"
        raise Refused(problem, ranks=ranks, hint=hint)

"""Operations of a session on a whole job in its container, with debuggers on its ranks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from crdebug.attached import gdbs
from crdebug.attached.checkpoint import (
    Operation,
    Whereabouts,
    lead_out,
    load_herd,
    refused_operation,
)
from crdebug.attached.far_record import FarRecord
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, GdbDied, Interrupted, Refused
from crdebug.base.events import Event, JobOutput, JobSays, Progress
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.checkpoint.driver import drive
from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.protocol import Phase, Protocol
from crdebug.checkpoint.store import Checkpoint, CheckpointStore
from crdebug.debugger.group import Identity, TargetGroup
from crdebug.debugger.target import Target, TargetState
from crdebug.job import app_requests, clocks, half_back, hooks, standard_input
from crdebug.job.control_socket import ControlServer, Request
from crdebug.job.directory import JobDirectory, JobRecord
from crdebug.job.holds import Hold, with_shims
from crdebug.job.imaging import Imaging
from crdebug.job.incarnation import Incarnation
from crdebug.job.output import OutputRelay, shown_of
from crdebug.job.output_again import Again
from crdebug.job.output_cuts import MOST, Cuts, Written
from crdebug.job.output_places import length_of_same, start_of_line
from crdebug.job.restoring import OUTPUT
from crdebug.job.starter_events import starter_events
from crdebug.job.without_container import require_container
from crdebug.node import proc, signals


class AttendedJob:
    """The incarnation of a job that a group of debuggers is attached to. far: the record of a job
    over hosts, if there is one.

    Until `close`, it owns the relay of the job's output and the socket for requests of other
    crdebugs.
    """

    def __init__(
        self,
        group: TargetGroup,
        incarnation: Incarnation,
        settings: Settings,
        tell: Callable[[Event], None],
        far: FarRecord | None = None,
    ) -> None:
        self.group = group
        self.far = far
        self.incarnation = incarnation
        self.settings = settings
        self._tell = tell
        self._processes = gdbs.processes_of(group)
        self._relay: OutputRelay | None = None
        self.output_told: Mapping[Path, int] = {}  # once it is closed
        self.end_told = False  # by then
        self._cuts = {name: Cuts() for name in OUTPUT}
        self._again = {name: Again(self._as_shown) for name in OUTPUT[:2]}
        self._control: ControlServer | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()  # the user has cancelled the operation under way

    async def open(
        self,
        answer: Callable[[Request], Awaitable[int]],
        answer_ranks: Callable[[tuple[app_requests.Asked, ...]], Awaitable[None]],
    ) -> None:
        """From now on, relay the job's output, and answer other crdebugs and the program."""
        self._control = ControlServer(self.directory.session_socket, answer)
        await self._control.start()
        for shim in with_shims(self.holds):
            shim.set_with_checkpoint(1)
        self._relay = self._output(from_now=False)
        self._hearing = asyncio.create_task(self._hear(answer_ranks))

    def _output(self, *, from_now: bool) -> OutputRelay:
        return OutputRelay(
            self.run_directory,
            self._tell,
            from_now=from_now,
            labelled=self.record.labelled,
            again=self._again,
        )

    def _as_shown(self, text: bytes) -> str:
        return shown_of(text, labelled=self.record.labelled)

    async def _hear(
        self, answer_ranks: Callable[[tuple[app_requests.Asked, ...]], Awaitable[None]]
    ) -> None:
        async with app_requests.Bell(self.directory) as bell:
            while True:
                await bell.rung.wait()
                bell.rung.clear()
                with contextlib.suppress(CrdebugError, OSError):  # ranks may end meanwhile
                    asks = app_requests.asked(self.apps())
                    if asks:
                        await answer_ranks(asks)

    def apps(self) -> tuple[app_requests.RankApp, ...]:
        """The part of each rank through which its program makes requests."""
        return app_requests.find_apps(self.holds, self.record.shim)

    async def close(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)
        if self._control is not None:
            await self._control.close()
        if self._relay is not None:
            self._relay.catch_up()
            await self._relay.stop()
            self.output_told = self._relay.told
            self.end_told = self._relay.ended is not None
            self._relay = None
        if self.far is not None:
            self.far.close()
        self.directory.forget_if_over()

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def directory(self) -> JobDirectory:
        return self.incarnation.directory

    @property
    def record(self) -> JobRecord:
        return self.incarnation.record

    @property
    def holds(self) -> tuple[Hold, ...]:
        return self.incarnation.holds

    @property
    def run_directory(self) -> Path:
        return self.incarnation.run

    @property
    def logs(self) -> Path:
        """The directory of its record: of copies, if it runs over hosts."""
        return self.far.directory if self.far is not None else clocks.logs(self.run_directory)

    @property
    def alive(self) -> bool:
        return self.incarnation.alive

    @property
    def has_no_checkpoints(self) -> bool:
        """Is it a job of which no checkpoint can ever be taken?"""
        return self.record.container == "none"

    @property
    def status(self) -> int | None:
        """The launcher's exit status once it has ended; 137 if it was killed."""
        status = starter_events(self.run_directory / "events").status
        if status is None and not (self.alive and not proc.is_ending(self.record.pid)):
            return 128 + 9
        return status

    def catch_up(self) -> None:
        """Pass on the output that has been written so far."""
        if self._relay is not None:
            self._relay.catch_up()

    @property
    def is_half_back(self) -> bool:
        """Are its ranks at different moments of their history, because going back in memory was
        interrupted?"""
        return half_back.is_half_back(self.directory, self.record)

    def require_whole(self) -> None:
        """Raises Refused if it is half back: nothing may go on from there."""
        if self.is_half_back:
            hint = "'restart', or 'goto tick N', brings back a checkpoint"
            raise half_back.refused(self.name, hint)

    def written(self) -> Written:
        """How much the job has written so far."""
        sizes = ((self.run_directory / name).stat().st_size for name in OUTPUT)
        return Written(tuple(sizes), self._cuts[OUTPUT[0]].count)

    def input_size(self) -> int:
        """The size of the input sent so far, only good for comparing."""
        return standard_input.size(self.run_directory)

    @property
    def has_later_input(self) -> bool:
        """Was input sent after the checkpoint that the job was restored from?"""
        return standard_input.has_later(self.run_directory)

    def drop_later_input(self) -> None:
        """Drop that input: other input replaces it."""
        standard_input.drop_later(self.run_directory)

    def require_input(self) -> None:
        """Raises Refused when nothing can be sent to the job's standard input."""
        if not self.has_later_input:
            standard_input.require(self.record, self.run_directory)

    async def send(self, data: bytes) -> None:
        """Append to the job's input; no data means the end. Raises Refused."""
        await standard_input.send(self.directory, data, Deadline(self.settings.stop))

    async def give_input_again(self) -> None:
        """Before ranks run: repeat the input that the job was sent after the checkpoint from which
        it was restored."""
        if self.has_later_input:
            limit = Deadline(self.settings.stop)
            async with self.directory.lock_within("give its input again", limit):
                standard_input.give_again(self.run_directory, self.record.pid)

    async def rewind_output(self, written: Written) -> None:
        """Make the job's output what it was then. Its writers append (O_APPEND)."""
        self.catch_up()
        if self._relay is not None:
            await self._relay.stop()
        for name, size in zip(OUTPUT, written.sizes, strict=True):
            place = self.run_directory / name
            length, read = place.stat().st_size, partial(self._written_since, name)
            low, tail = self._cuts[name].back_to(size, written.cuts, length, read)
            self._repeats_from(name, low)
            with open(place, "r+b") as file:
                file.truncate(low)
                file.seek(low)
                file.write(tail)
        if self._relay is not None:
            self._relay = self._output(from_now=True)

    def repeats_from(self, run: Path) -> None:
        """The job is about to be where it had written what is in this directory: what follows comes
        again. Its lines may be in another order there."""
        self.catch_up()
        for name in self._again:
            self._repeats_from(name, length_of_same(self.run_directory / name, run / name))

    def _repeats_from(self, name: str, length: int) -> None:
        """The same, of what is behind this length of a file."""
        if again := self._again.get(name):
            begun = start_of_line(self.run_directory / name, length)
            again.cut(begun, self._written_since(name, begun))

    def _written_since(self, name: str, size: int) -> bytes:
        with open(self.run_directory / name, "rb") as file:
            file.seek(size)
            return file.read(MOST + 1)

    @contextlib.contextmanager
    def repeating(self) -> Iterator[None]:
        """While it is brought to another place of its history, its output is none that is new."""
        self.catch_up()
        for name, again in self._again.items():
            again.begin((self.run_directory / name).stat().st_size)
        try:
            yield
        finally:
            self.catch_up()
            for name, again in self._again.items():
                if new := again.end(self._written_since(name, again.low)):
                    self._tell(JobOutput(name, new))

    def output_is_new(self) -> None:
        """What the job writes from now on is nothing that the user has seen."""
        self.catch_up()
        for name, again in self._again.items():
            if begun := again.is_over():
                self._tell(JobOutput(name, begun))

    def leave(self) -> None:
        """Set the ranks' variables for the time without a debugger."""
        now = [hold for hold in map(self.incarnation.hold_now, self.holds) if hold is not None]
        alive = [hold for hold in now if proc.is_alive(hold.pid)]
        for shim in with_shims(alive):
            shim.set_with_checkpoint(0)
        if self.far is None:
            clocks.let_go(alive, self.record.layer)
        else:
            self.far.leave()

    def _follow_programs(self) -> None:
        """Ranks may have become other programs while they ran."""
        if any(hold.is_elsewhere() for hold in self.holds):
            now = self.incarnation
            holds = tuple(now.hold_now(hold) or hold for hold in now.holds)
            self.incarnation = replace(now, holds=holds)
            self._identify()

    def _identify(self) -> None:
        self.group.identities |= {
            hold.rank: Identity(hold.entry.host, hold.entry.executable) for hold in self.holds
        }

    async def let_out(self) -> None:
        """Let threads go on that could not be led out of the waitpoint, once no GDB is left."""
        for hold in self.holds:
            with contextlib.suppress(ProcessLookupError):
                if hold.waiting():
                    await hold.release(Deadline(self.settings.herd))

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Around a time in which ranks run and their clocks are waited for: those on other hosts
        are up to date within some ms then. (Of a rank that stands they always are.)"""
        if self.far is None:
            yield
            return
        async with self.far.watched():
            yield

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Wraps a block that lets ranks run: replaces GDBs that have died, before and after."""
        await self.revive()
        try:
            yield
        except GdbDied as error:
            # All ranks are stopped by now, except those that a GDB let go when it died.
            with contextlib.suppress(CrdebugError):
                await self.revive()
                if error.ranks and not error.ranks & self.group.in_state(TargetState.DEAD):
                    error.hint = "another gdb stopped the rank where it is now"
            raise
        finally:
            self._follow_programs()
            self.catch_up()

    async def revive(self, ranks: RankSet | None = None) -> None:
        """Start another GDB for each rank (of `ranks`) whose GDB died, unless its host is lost. It
        stops the rank at its present place."""
        held: dict[int, gdbs.Process] = {hold.rank: (hold.pid, None) for hold in self.holds}
        processes = self._processes | held

        async def one(rank: int) -> None:
            target = self.group[rank]
            if target.node is None:
                process = processes.get(rank)
                await gdbs.renew_gdb(self.group, rank, process, self._launch, self._tell)
            elif not target.node.lost:
                await target.node.renew(rank)
                if target.state is TargetState.STOPPED:
                    await self.group.replace(target)  # with its breakpoints

        dead = self.group.in_state(TargetState.DEAD)
        if ranks is not None:
            dead &= ranks
        if self.alive and dead:
            done = await asyncio.gather(*map(one, dead), return_exceptions=True)
            gdbs.raise_first(done)

    async def wait_ended(self, deadline: Deadline) -> None:
        what = f"job '{self.name}' to end"
        await deadline.until(lambda: self.status is not None, what)
        await self._let_ranks_end(deadline)
        await signals.ended(self.record.last, deadline, what)
        self.catch_up()

    async def end(self) -> None:
        """End every process of the job."""
        if self.far is not None:
            self.far.let_go()
        await gdbs.end_job(self.group, self.record)
        self.catch_up()

    async def _let_ranks_end(self, deadline: Deadline) -> None:
        """Make the GDBs notice that ranks were killed: a rank that its GDB traces ends only then,
        and PID 1 not before its ranks (pid_namespaces(7))."""
        stopped = self.group.in_state(TargetState.STOPPED)
        await self.group.ask(stopped, lambda each: each.kill(deadline))

    async def lead_out_all(self) -> None:
        """After another crdebug's death: lead all threads out of their waitpoints."""
        herd = load_herd(self.directory)

        async def one(hold: Hold) -> None:
            target = self.group[hold.rank]
            if hold.inside():
                where = herd.get(hold.rank, Whereabouts(()))
                await lead_out(target, hold, where, None, Deadline(self.settings.command))
            elif hold.waiting():
                hold.open()  # held before main

        done = await asyncio.gather(*map(one, self.holds), return_exceptions=True)
        gdbs.raise_first(done)

    async def checkpoint(self, note: str, store: CheckpointStore | None = None) -> Checkpoint:
        """See Session.checkpoint. store: for the checkpoint, if not the store of the user's."""
        if not self.alive:
            raise Refused("the job has ended", hint="'restart' brings it back")
        require_container(self.record, "take a checkpoint")
        self.require_whole()
        ended = self.group.in_state(TargetState.EXITED)
        gone = self.group.ranks - self.group.in_state(TargetState.STOPPED, TargetState.DEAD) - ended
        if gone:
            raise Refused("cannot checkpoint: not every rank is stopped", ranks=gone)
        if ended == self.group.ranks:
            raise Refused("all ranks have ended", hint="'restart' brings them back")
        self._refuse_doomed(ended)
        with self.directory.lock("checkpoint"):
            self.incarnation = self.incarnation.with_holds_now()
            app_requests.refuse_quiet(self.apps())
            if store is not None:  # one of crdebug's own, to go back to in this session
                return await self._take(note, store)
            left = app_requests.left_out(self.apps())
            if left:
                why = "the job is stopped, so its callbacks before a checkpoint are not called"
                self._tell(JobSays(f"{left.words}: {why}"))
            living = self._living()
            async with hooks.around_checkpoint(living, self.settings, self._tell) as taken:
                taken.append(await self._take(note, None))
            return taken[0]

    def _refuse_doomed(self, ended: RankSet) -> None:
        """Raises Refused if a rank has ended badly: launchers then end all others, and would do so
        after a restart, too."""
        stops = {rank: self.group[rank].last_stop for rank in ended}
        badly = RankSet.of(r for r, stop in stops.items() if stop is None or not stop.ended_well)
        if badly:
            raise Refused(
                "cannot checkpoint: it has ended badly, and the launcher will end the others",
                ranks=badly,
                hint="'restart' goes back to before",
            )

    @property
    def _alive(self) -> RankSet:
        return self.group.ranks - self.group.in_state(TargetState.EXITED)

    def _living(self) -> Incarnation:
        """The incarnation without the ranks that have ended meanwhile."""
        living = tuple(hold for hold in self.holds if hold.rank in self._alive)
        return replace(self.incarnation, holds=living)

    async def _take(self, note: str, store: CheckpointStore | None) -> Checkpoint:
        operation = self._operation(note, store=store)
        machine = Protocol(self._alive, restart=False, debugger=True)
        with contextlib.closing(operation):
            await self._drive(machine, operation, "checkpoint")
        if operation.checkpoint is None or machine.problems:
            raise refused_operation(machine.problems, machine.held, self.name, operation.checkpoint)
        return operation.checkpoint

    def begin(self) -> None:
        """An operation begins: nobody has cancelled it yet."""
        self._asked.clear()

    def break_off(self) -> None:
        """Cancel the operation that is under way, for the user. A checkpoint or restart then fails,
        and the job is as before, unless the restart is past that point."""
        self._asked.set()

    @property
    def broken_off(self) -> bool:
        """Has the user cancelled the operation that is under way?"""
        return self._asked.is_set()

    def go_on(self) -> None:
        """Call this between two parts of a long operation. Raises Interrupted if the user has
        cancelled it."""
        if self.broken_off:
            raise Interrupted.on_the_way()

    def goes_on(self, branch: str) -> None:
        """From now on the job is on this branch of its history."""
        record = replace(self.record, branch=branch)
        self.directory.write(record)
        self.incarnation = replace(self.incarnation, record=record)

    async def restart(self, manifest: Manifest, store: CheckpointStore | None = None) -> None:
        """See Session.restart. store: of the checkpoint, if not the store of the user's."""
        before = self._points()
        if store is None:
            self.output_is_new()
        with self.directory.lock("restart"):
            record = self.directory.read()  # others may have changed it before we attended the job
            self.incarnation = replace(self.incarnation, record=record)
            operation = self._operation(manifest=manifest, store=store)
            machine = Protocol(manifest.alive, restart=True, debugger=True, replaces=self.alive)
            try:
                await self._drive(machine, operation, "restart")
            finally:
                if operation.job.record is not record:
                    await self._follow(operation.job)
        if machine.problems:
            raise refused_operation(machine.problems, machine.held, self.name)
        dropped = [each for each in before if each not in self._points()]
        if dropped:
            self._tell(JobSays(f"dropped by the restart: {', '.join(dropped)}"))
        if store is None:
            handle = f"{self.name}:{manifest.number}"
            when, now = hooks.When.RESTART, self.incarnation
            await hooks.after(when, now, self.settings, self._tell, checkpoint=handle)

    def _points(self) -> list[str]:
        points = self.group.table.all()
        return [f"{each.kind.word} {each.number} ({each.location})" for each in points]

    def _operation(
        self,
        note: str = "",
        manifest: Manifest | None = None,
        store: CheckpointStore | None = None,
    ) -> Operation:
        return Operation(
            self.group,
            Imaging(self.directory, self.settings, store),
            self._living(),
            launch=self._launch,
            tell=self._tell,
            note=note,
            manifest=manifest,
        )

    async def _launch(self, rank: int) -> Target:
        return await gdbs.launch_gdb(rank, self.record.signal, self.settings, self._tell)

    async def _drive(self, machine: Protocol, operation: Operation, what: str) -> None:
        def progress(phase: Phase, ranks: RankSet) -> None:
            self._tell(Progress(what, phase.value, ranks))

        await drive(machine, operation, operation, progress, self._asked)

    async def _follow(self, incarnation: Incarnation) -> None:
        """Go on with another incarnation of the job."""
        self.incarnation = incarnation
        self._cuts = {name: Cuts() for name in OUTPUT}  # a snapshot is of one incarnation
        self._identify()
        if self._relay is not None:  # else nobody should get output yet, see `open`
            await self._relay.stop()
            self._relay = self._output(from_now=True)

"""The one object that commands, scripts and the Python API talk to.

This module has a session's beginning and end, and its checkpoints; the other modules of
crdebug.session have its other verbs.

A session is one debugger on one job. Its verbs return values; subscribers get events
(crdebug.base.events) about everything that happens meanwhile. Not thread-safe; one operation at a
time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from crdebug.acquire.core_ranks import find_cores
from crdebug.attached.adopt import adopt
from crdebug.attached.by_pid import choose
from crdebug.attached.cores import open_cores
from crdebug.attached.far_record import FarRecord
from crdebug.attached.gdbs import attach_group, gates_of, launch_group, to_main
from crdebug.attached.job import AttendedJob
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, Refused, StoreError
from crdebug.base.events import Event, JobSays
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.checkpoint.store import Checkpoint, describe
from crdebug.debugger.group import TargetGroup
from crdebug.hosts import ssh
from crdebug.hosts.attach import attach_everywhere
from crdebug.hosts.launch import spread_of
from crdebug.job import app_requests, half_back
from crdebug.job.control_socket import Request, is_attended
from crdebug.job.directory import (
    JobDirectory,
    attended_already,
    has_ended,
    is_alive,
    parse_handle,
)
from crdebug.job.ending import end
from crdebug.job.given import Given
from crdebug.job.holds import with_shims
from crdebug.job.incarnation import Incarnation
from crdebug.job.launch import launch
from crdebug.job.output import tell_phase
from crdebug.job.over_hosts import Named
from crdebug.job.ranks_there import await_ranks
from crdebug.job.recovery import recover, take_over
from crdebug.job.without_container import at_the_start, require_container
from crdebug.native.matcher.library import Library
from crdebug.native.matcher.loading import load
from crdebug.native.shim.app_layout import Status, Wish
from crdebug.session import over_hosts
from crdebug.session.arrays import Arrays
from crdebug.session.checking import Checking
from crdebug.session.points import Points
from crdebug.session.python import Python
from crdebug.session.running import Running
from crdebug.session.selecting import Selecting
from crdebug.session.the_past import past
from crdebug.travel.history import History


class Session(Running, Selecting, Checking, Python, Arrays, Points):
    """A job under the debugger. Made by `run`, `attach`, `restart_from` or `of_core_files`; owns
    its GDBs until `close` or `detach`."""

    # ---- beginning and end --------------------------------------------------------------------

    @classmethod
    async def run(
        cls,
        argv: Sequence[str],
        *,
        name: str | None = None,
        stop_at_main: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: Path | int | None = None,
        hosts: Named | None = None,
        settings: Settings | None = None,
        subscriber: Callable[[Event], None] | None = None,
    ) -> Session:
        """Start a launcher command (``mpirun …``) in a job container and attach to all its ranks.

        stop_at_main: stop every rank at the first line of main; otherwise before it.
        env: variables for the launcher, besides those of this process.
        cwd: the directory in which it runs.
        stdin: a file or descriptor whose content it reads; without one it reads the input that
        `send` sends.
        hosts: those that the launcher is to use; by default those that it knows itself, by its
        options or the allocation. If some are other machines, the job has no container.
        Raises NotAvailable, Refused, and the launcher's last words if it ends early.
        """
        settings = settings or Settings()
        tell_phase(subscriber, "run", "launch")
        given = Given(env or {}, cwd, stdin, more=stdin is None)
        known = {**os.environ, **given.environment}
        place, limit = (cwd or Path.cwd()).resolve(), Deadline(settings.launch)
        argv, spread = await spread_of(argv, hosts or Named(), known, place, limit)
        if spread is not None:
            start = partial(
                launch, argv, name=name, hold=True, settings=settings, given=given, spread=spread
            )
            library = await load(settings.compiler)
            group, now, far, gates = await over_hosts.run(
                start, argv, place, spread, settings, subscriber
            )
            try:
                session = await cls._of_hosts(group, now, far, library, settings, subscriber)
            except BaseException:
                await end(now.record, Deadline(settings.stop))
                now.directory.forget_if_over()
                raise
            session._tell(JobSays(at_the_start(now.record)))
            try:
                await over_hosts.let_begin(
                    group, gates, settings, subscriber, stop_at_main=stop_at_main
                )
            except BaseException:
                await session.close()
                raise
            return session
        directory, record = await launch(argv, name=name, hold=True, settings=settings, given=given)
        try:
            job = await await_ranks(directory, record, Deadline(settings.launch))
            tell_phase(subscriber, "run", "attach")
            session = await cls._begin(job, settings, subscriber)
            if sentence := at_the_start(record):
                session._tell(JobSays(sentence))
        except BaseException:
            await end(record, Deadline(settings.stop))
            directory.forget_if_over()
            raise
        try:
            if stop_at_main:
                tell_phase(subscriber, "run", "main")
                await to_main(session._group, gates_of(with_shims(job.holds)), settings)
            else:
                for hold in job.holds:
                    hold.open()
        except BaseException:
            await session.close()
            raise
        return session

    @classmethod
    async def attach(
        cls,
        job: str,
        ranks: str = "",
        *,
        settings: Settings | None = None,
        subscriber: Callable[[Event], None] | None = None,
    ) -> Session:
        """Attach to a running job, by name, or by the PID of one of its processes.

        ranks: attach only to these, as in ``0,3-5``; to all if empty. For a job that crdebug did
        not start see crdebug.acquire.discovery.
        Leads threads out of their waitpoints if an earlier crdebug left them there.
        """
        settings = settings or Settings()
        tell_phase(subscriber, "attach", "attach")
        job, found = await choose(job, ranks, settings)
        if found is not None:
            start = ssh.starter(settings)
            found, group = await attach_everywhere(found, ranks, settings, subscriber, start)
            session = cls(group, job, settings, subscriber)
            session._found = found
            return session
        directory = JobDirectory(job)
        record = directory.read()
        if not is_alive(record):
            raise has_ended(directory)
        if await is_attended(directory.session_socket):
            raise attended_already(directory)
        if record.hosts:
            library = await load(settings.compiler)
            async with directory.lock_within("attach", Deadline(settings.stop)):
                group, now, far = await over_hosts.attach(directory, record, settings, subscriber)
                session = await cls._of_hosts(group, now, far, library, settings, subscriber)
                try:
                    await session._bring_points_back()
                except BaseException:
                    await session.detach()
                    raise
            return session
        async with directory.lock_within("attach", Deadline(settings.stop)):
            now = await take_over(directory, settings)
            session = await cls._begin(now, settings, subscriber)
            try:
                if not half_back.was_on_its_way(directory, now.record):
                    await session._job("attach").lead_out_all()
                await session._bring_points_back()
            except BaseException:
                await session.detach()
                raise
        try:
            await session._make_whole()
        except BaseException:
            await session.detach()
            raise
        return session

    @classmethod
    async def of_core_files(
        cls,
        paths: Sequence[Path],
        *,
        programs: Sequence[Path] = (),
        settings: Settings | None = None,
        subscriber: Callable[[Event], None] | None = None,
    ) -> Session:
        """Open core files of a job as its ranks, each with a GDB of its own. The verbs that look at
        ranks work; those that need a process raise Refused.

        See crdebug.acquire.core_ranks.find_cores for the arguments, and for what is raised. An
        event (GroupStopped) says how the ranks ended.
        """
        settings = settings or Settings()
        tell_phase(subscriber, "core", "attach")
        found = find_cores(paths, programs)
        group, stop = await open_cores(found, settings, subscriber)
        session = cls(group, str(paths[0]), settings, subscriber)
        session._tell(stop)
        return session

    @classmethod
    async def _of_hosts(
        cls,
        group: TargetGroup,
        now: Incarnation,
        far: FarRecord | None,
        library: Library,
        settings: Settings,
        subscriber: Callable[[Event], None] | None,
    ) -> Session:
        """Of a job over hosts. far: its record, if there is one."""
        session = cls(group, now.directory.name, settings, subscriber)
        attended = AttendedJob(group, now, settings, session._tell, far)
        job = session._attend(attended, library)
        try:
            await past(session.history).refresh()
            await job.open(session._requested, session._asked)
        except BaseException:
            session._over = True
            await session.close()
            raise
        return session

    async def _make_whole(self) -> None:
        """Bring a checkpoint back if an earlier crdebug died while it took the job back in
        memory."""
        job = self._job("attach")
        if half_back.was_on_its_way(job.directory, job.record):
            async with self._control.busy:
                brought = await past(self.history).branching.make_whole()
            self._tell(
                JobSays(
                    f"crdebug died while it took the job back in memory: {brought} is brought back "
                    "instead; what was recorded since then is repeated, and 'goto' leads there"
                )
            )

    @classmethod
    async def restart_from(
        cls,
        handle: str,
        *,
        settings: Settings | None = None,
        subscriber: Callable[[Event], None] | None = None,
    ) -> Session:
        """Bring a job back from a checkpoint (``JOB:N``), attached and stopped.

        If a job of that name still runs without a debugger, it is ended once the new one exists.
        """
        settings = settings or Settings()
        directory, number = parse_handle(handle)
        directory.read()
        manifest = directory.store.load(number)
        if await is_attended(directory.session_socket):
            raise Refused(
                f"job '{directory.name}' is under a debugger", hint="use 'restart' at its prompt"
            )
        async with directory.lock_within("restart", Deadline(settings.stop)):
            record = await recover(directory, settings)
        library = await load(settings.compiler)
        ranks = RankSet.of(each.rank for each in manifest.ranks)
        group = await launch_group(ranks, manifest.signal, settings, tell=subscriber)
        session = cls(group, directory.name, settings, subscriber)
        before = Incarnation(directory, record)
        job = session._attend(AttendedJob(group, before, settings, session._tell), library)
        try:
            await past(session.history).branching.restart(manifest)
            await job.open(session._requested, session._asked)
            await session._bring_points_back()
        except CrdebugError:
            session._over = True  # the job is as before, or the error names the held ranks
            await session.close()
            raise
        except BaseException:
            session._over = job.record.incarnation == record.incarnation  # not ours to end
            await session.close()
            raise
        return session

    @classmethod
    async def _begin(
        cls,
        now: Incarnation,
        settings: Settings,
        subscriber: Callable[[Event], None] | None,
    ) -> Session:
        library = await load(settings.compiler)
        entries = [hold.entry for hold in now.holds]
        group = await attach_group(entries, now.record.signal, settings, subscriber, now.ended)
        session = cls(group, now.directory.name, settings, subscriber)
        job = session._attend(AttendedJob(group, now, settings, session._tell), library)
        try:
            await job.open(session._requested, session._asked)
        except BaseException:
            session._over = True  # the job is not ours: our caller decides about it
            await session.close()
            raise
        return session

    def _attend(self, job: AttendedJob, library: Library) -> AttendedJob:
        self._attended = job
        self.history = History(job, library, self._tell, self._control.busy)
        self._control.attend(job, self.history)
        return job

    async def _adopt(self) -> None:
        """Make a job that crdebug did not start one of ours."""
        if self._attended is not None or self._found is None:
            return
        self._found.require_here("checkpoint")
        library = await load(self.settings.compiler)
        job = await adopt(self._found, self._group, self.settings, self._tell)
        await self._attend(job, library).open(self._requested, self._asked)
        self._name = job.name

    async def detach(self, *, hold: bool = False) -> None:
        """Let the job run on without a debugger, and end the session.

        hold: leave the ranks stopped by SIGSTOP where they are, until somebody attaches to the job
        or releases it.
        """
        await self._group.stop_all()
        await self._control.close()
        self._keep_points()
        if self._attended is not None and self.ended is None and self._attended.is_half_back:
            self._tell(JobSays(str(half_back.refused(self._name))))
            hold = True
        if self._attended is not None:
            if self.ended is None:
                await self._attended.give_input_again()
            self._attended.leave()
        answers = await self._group.detach_all(hold=hold)
        self._over = True
        await self.close()
        if self._attended is not None and not hold:
            await self._attended.let_out()
        for rank, error in answers.errors.items():
            node = self._group[rank].node
            if node is None or not node.lost:  # which was told, and what becomes of its ranks
                raise error

    async def kill(self) -> None:
        """End the job; its checkpoints stay. The session can still restart it."""
        await self._job("kill it").end()

    async def close(self) -> None:
        """End every GDB and everything else that the session owns. Kills a job that is still
        attached."""
        job = self._attended
        try:
            await self._control.close()
            if job is not None and not self._over:
                self._keep_points()
                await job.end()
        finally:
            self._over = True
            if job is not None:
                await job.close()
            await self._group.close()

    # ---- checkpoints --------------------------------------------------------------------------

    async def checkpoint(self, note: str = "") -> Checkpoint:
        """Take a checkpoint of the stopped job; afterwards every thread is where it was.

        Raises Refused, naming ranks and threads, if it cannot be taken now; CrsFailed or StoreError
        if it failed. Then the job is as before.
        """
        async with self._control.busy:
            await self._adopt()
            job = self._job("checkpoint")
            job.begin()
            require_container(job.record, "take a checkpoint")
            past(self.history).warn_of_open_epochs()
            await past(self.history).branching.before_running()
            return await job.checkpoint(note)

    async def restart(self, number: int | None = None) -> Checkpoint:
        """Bring the job back to a checkpoint (the newest if None), attached and stopped.

        If it fails before the checkpoint is back, the job is as before.
        """
        async with self._control.busy:
            if self.running:
                raise Refused("cannot restart: the job runs", ranks=self.running)
            self._job("restart").begin()
            require_container(self._job("restart").record, "restart")
            manifest = self._job("restart").directory.store.load(number)
            await past(self.history).branching.restart(manifest)
            return describe(manifest)

    async def rest(self) -> None:
        """The user is shown the prompt: make use of the time. Nothing that is visible changes."""
        if self.history is not None and not self._over:
            await self.history.rest()

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """This job's complete checkpoints, oldest first."""
        return self._attended.directory.store.list() if self._attended is not None else ()

    def checkpoint_sizes(self) -> Mapping[int, int]:
        """By number, the size of each in bytes. Reads only the manifests that are new since the
        last call."""
        store = self._attended.directory.store if self._attended is not None else None
        numbers = store.numbers() if store is not None else ()
        for number in numbers:
            if store is not None and number not in self._sizes:
                with contextlib.suppress(StoreError):
                    self._sizes[number] = describe(store.load(number)).size
        return {number: self._sizes[number] for number in numbers if number in self._sizes}

    async def _requested(self, request: Request) -> int:
        """Answer another crdebug that requests a checkpoint, for which a running job is stopped and
        resumed, or the job's end."""
        if request.kill:
            await self.kill()
            return 0

        async def take() -> int:
            return (await self.checkpoint(request.note)).number

        control = self._control
        await control.settled()
        if not control.all_run():
            return await control.while_it_stands(take)
        job = self._job("checkpoint").incarnation
        async with app_requests.around_checkpoint(
            job, self.settings, self._tell, runs=control.all_run
        ):
            return await control.while_it_stands(take)

    # ---- the program's requests ---------------------------------------------------------------

    async def _asked(self, asks: tuple[app_requests.Asked, ...]) -> None:
        """Answer the ranks that wait for an answer. A rank that has stopped meanwhile repeats its
        request when it runs."""
        if not self.running:
            return
        if self.history is not None and self.history.in_the_past:
            for each in asks:  # with the same answer as the first time
                known = self._answered.get(_key(each), _IN_THE_PAST)
                app_requests.answer([each], *known)
            return
        back, wanted = (
            app_requests.of_wish(asks, Wish.RESTART),
            app_requests.of_wish(asks, Wish.CHECKPOINT),
        )
        if back:
            await self._stop_to_go_back(back)
        elif wanted:
            try:
                number = await self._requested(Request(wanted[0][1].note))
            except CrdebugError as error:
                self._answer(wanted, app_requests.failure(error))
            else:
                self._answer(wanted, app_requests.Answer(Status.DONE, number))

    def _answer(self, asks: tuple[app_requests.Asked, ...], answer: app_requests.Answer) -> None:
        self._answered.update((_key(each), answer) for each in asks)
        app_requests.answer(asks, *answer)

    async def _stop_to_go_back(self, asks: tuple[app_requests.Asked, ...]) -> None:
        """The program asks to go back to a checkpoint: stop it, and leave that to the user."""
        number = asks[0][1].wanted
        restart = f"restart {number}" if number else "restart"
        self._tell(JobSays(f"rank {asks[0][0].rank} asks to go back: '{restart}' does that"))
        await self.interrupt()
        what = "the job to stop, because it asks to go back"
        with contextlib.suppress(CrdebugError):
            await Deadline(self.settings.stop).until(lambda: not self.running, what)
        why = "a debugger is attached, and its user decides"
        self._answer(asks, app_requests.Answer(Status.REFUSED, reason=why))

    @property
    def directory(self) -> Path:
        """The directory of the job's files."""
        return self._job("name its directory").directory.path


async def checkpoint_once(
    pid: str, note: str, kill: bool, progress: Callable[[Event], None], settings: Settings
) -> Checkpoint:
    """Take a checkpoint of a job that crdebug did not start. This needs a debugger, to put the shim
    into the ranks."""
    session = await Session.attach(pid, settings=settings, subscriber=progress)
    try:
        taken = await session.checkpoint(note)
        if kill:
            await session.kill()
    finally:
        if session.ended is None:
            await session.detach()
        await session.close()
    return taken


_IN_THE_PAST = app_requests.Answer(Status.REFUSED, reason="the debugger is repeating the past")


def _key(each: app_requests.Asked) -> tuple[int, int]:
    """(rank, request number). The counter lives in the rank's memory, so a request repeated after
    going back has the same key."""
    return each[0].rank, each[1].asked

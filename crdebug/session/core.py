"""What every verb of a session works with: its ranks, its job, who listens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from weakref import WeakKeyDictionary

from crdebug.acquire.discovery import FoundJob
from crdebug.attached.job import AttendedJob
from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.events import Event, GroupStopped, RankStopped
from crdebug.base.rank_expressions import NamedSets
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import RankInfo, TargetGroup
from crdebug.debugger.rank_commands import heed_endings
from crdebug.debugger.target import Target, TargetState
from crdebug.job.app_requests import Answer
from crdebug.job.control_socket import Request
from crdebug.job.directory import JobRecord
from crdebug.job.launch import why_added
from crdebug.native.recorder.clock import INITIALIZED_OFFSET
from crdebug.session.requests import Interludes
from crdebug.travel.history import History, past

_PATIENCE = 10
ALIVE = (TargetState.STOPPED, TargetState.RUNNING, TargetState.DEAD)


class Core:
    """The state of a session. One operation at a time."""

    def __init__(
        self,
        group: TargetGroup,
        name: str,
        settings: Settings,
        subscriber: Callable[[Event], None] | None,
    ) -> None:
        self.settings = settings
        self._name = name
        self._group = group
        self._subscribers: list[Callable[[Event], None]] = [subscriber] if subscriber else []
        self._attended: AttendedJob | None = None  # None: not started by crdebug
        self._found: FoundJob | None = None  # a job that somebody else started
        self._over = False  # detached, or the job was killed
        self._interludes = Interludes(self._stop_a_while, self._serve)
        self.history: History | None = None  # None: not started by crdebug
        self.sets = NamedSets()
        self._sizes: dict[int, int] = {}  # of checkpoints
        # What the program was answered, by rank and which of its questions it was.
        self._answered: dict[tuple[int, int], Answer] = {}
        self._busy = asyncio.Lock()
        # Does a rank that calls MPI_Abort, or exits with a status that is not 0 or without
        # MPI_Finalize, stop before it ends?
        self.stop_at_failure = True
        self._heeds: WeakKeyDictionary[Target, bool] = WeakKeyDictionary()  # as the GDBs have it
        # Ranks that were let run each for itself: who looks after them, those that run or whose
        # stop is yet to be told, those for which nobody has waited since, and those for which
        # somebody waits now.
        self._following: set[asyncio.Task[None]] = set()
        self._alone = RankSet()
        self._paused = RankSet()
        self._resumed = asyncio.Event()
        self._unmet = RankSet()
        self._awaited = RankSet()
        group.subscriber = self._tell

    @property
    def job(self) -> str:
        """The job's name."""
        return self._name

    @property
    def ranks(self) -> RankSet:
        """All ranks of the job."""
        return self._group.ranks

    @property
    def group(self) -> TargetGroup:
        """The ranks' debuggers, for what has no verb here."""
        return self._group

    @property
    def ended(self) -> int | None:
        """The launcher's exit status once the job has ended, else None. All that it wrote has been
        told to subscribers by then."""
        if self._attended is not None:
            status = self._attended.status
            if status is not None:
                self._attended.catch_up()
            return status
        return None if self._group.in_state(*ALIVE) else 0

    @property
    def output_told(self) -> Mapping[Path, int]:
        """Up to where the files that the job writes its output to have been told to subscribers,
        once the session is closed."""
        return self._attended.output_told if self._attended is not None else {}

    @property
    def attached(self) -> bool:
        """Is there a job that the session has yet to leave?"""
        return not self._over and self.ended is None

    @property
    def running(self) -> RankSet:
        """The ranks that run now."""
        return self._group.running

    @property
    def incarnation(self) -> int:
        """Grows by one with each restart."""
        return self._attended.record.incarnation if self._attended else 1

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call `subscriber` with every event from now on; returns what ends that."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def _tell(self, event: Event) -> None:
        if isinstance(event, RankStopped) and event.rank in self._alone:
            return  # it is told by who follows the rank
        for subscriber in tuple(self._subscribers):
            subscriber(event)

    def info_ranks(self) -> tuple[RankInfo, ...]:
        """One entry for each rank: state, pid, host, executable, location. Works while running."""
        return self._group.info()

    def info_launch(self) -> tuple[JobRecord, dict[str, str]]:
        """How the job was started, and why each variable was added to its environment. Raises
        Refused for one that crdebug did not start."""
        record = self._job("tell how it was started").record
        return record, {name: why_added(name) for name in record.added}

    def _job(self, what: str) -> AttendedJob:
        if self._attended is None:
            raise Refused(
                f"cannot {what}: the job was not started by crdebug, or not all ranks are attached",
                hint="start it with 'crdebug run', attach to all",
            )
        return self._attended

    async def _run(self, run: Callable[[], Awaitable[GroupStopped]]) -> GroupStopped:
        async with self._busy:
            if self._over:
                raise Refused(f"job '{self._name}' is not attached any more")
            ranks = self._group.ranks - self.running
            await self._before_running(ranks)

            async def on_from_here() -> GroupStopped:
                await self._arrive(ranks)
                return await run()

            if self._attended is None:
                return await on_from_here()
            with past(self.history).forward() as stopped:
                return stopped(await self._attended.run(on_from_here))

    async def _before_running(self, ranks: RankSet) -> None:
        if self._attended is not None:
            self._attended.begin()
            self._attended.require_whole()
            await past(self.history).branching.before_running()
            await self._attended.give_input_again()
            await self._heed_endings(ranks)

    async def _arrive(self, ranks: RankSet) -> None:
        """Have the GDBs of ranks that were put at a breakpoint know that they stand there."""
        limit = Deadline(self.settings.command)
        await asyncio.gather(
            *(
                target.arrive(limit)
                for target in map(self._group.__getitem__, ranks)
                if self._at_breakpoint(target)
            )
        )

    def _at_breakpoint(self, target: Target) -> bool:
        stop = target.last_stop
        at = stop.location.address if stop is not None and stop.location is not None else None
        points = self._group.table.all()
        return any(at == place.address for p in points for place in p.places.get(target.rank, ()))

    async def _heed_endings(self, ranks: RankSet) -> None:
        """Have the ranks' GDBs do about ranks that are about to end what is wanted."""
        wanted = self.stop_at_failure
        for rank in ranks:
            target = self._group[rank]
            if self._heeds.get(target) is not wanted:
                limit = Deadline(self.settings.command)
                await heed_endings(target, wanted, INITIALIZED_OFFSET, limit)
                self._heeds[target] = wanted

    async def _stop_a_while(self) -> None:
        """Stop the ranks for something after which they go on. Nobody waits for that, so they may
        take long, on a machine that has too much to do."""
        await self._group.interrupt(patience=_PATIENCE)

    async def _serve(self, request: Request) -> int:
        """What another crdebug asks for while the user's `continue` is interrupted for it."""
        raise NotImplementedError

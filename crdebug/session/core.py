"""The state that all verbs of a session share: its ranks, its job, its subscribers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from crdebug.acquire.discovery import FoundJob
from crdebug.attached.job import AttendedJob
from crdebug.base.errors import Refused
from crdebug.base.events import Event, RankStopped
from crdebug.base.rank_expressions import NamedSets
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import HostInfo, RankInfo, TargetGroup
from crdebug.debugger.target import TargetState
from crdebug.job.app_requests import Answer
from crdebug.job.directory import JobRecord
from crdebug.job.launch_environment import why_added
from crdebug.session.run_control import RunControl
from crdebug.travel.history import History

ALIVE = (TargetState.STOPPED, TargetState.RUNNING, TargetState.DEAD, TargetState.CORE)


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
        self._found: FoundJob | None = None  # a job that crdebug did not start
        self._over = False  # detached, or the job was killed
        self.history: History | None = None  # None: not started by crdebug
        self.sets = NamedSets()
        self._sizes: dict[int, int] = {}  # of checkpoints
        # The answers to the program's requests, by rank and number of the request.
        self._answered: dict[tuple[int, int], Answer] = {}
        self._control = RunControl(group, settings, self._tell)
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
        """The ranks' debuggers, for operations that have no verb here."""
        return self._group

    @property
    def ended(self) -> int | None:
        """The launcher's exit status once the job has ended, else None. By then subscribers have
        received all of its output."""
        if self._attended is not None:
            status = self._attended.status
            if status is not None:
                self._attended.catch_up()
            return status
        return None if self._group.in_state(*ALIVE) else 0

    @property
    def output_told(self) -> Mapping[Path, int]:
        """How much of each of the job's output files subscribers have received, once the session is
        closed."""
        return self._attended.output_told if self._attended is not None else {}

    @property
    def end_told(self) -> bool:
        """Once the session is closed: had the job ended by then, and do subscribers know it?"""
        return self._attended is None or self._attended.end_told

    @property
    def attached(self) -> bool:
        """Is there a job that the session has not left yet?"""
        return not self._over and self.ended is None

    @property
    def living(self) -> RankSet:
        """The ranks that have not ended."""
        return self._group.in_state(*ALIVE)

    @property
    def of_cores(self) -> bool:
        """Are the ranks core files, which can be looked at, but not run?"""
        return bool(self._group.in_state(TargetState.CORE))

    @property
    def running(self) -> RankSet:
        """The ranks that run now."""
        return self._group.running

    @property
    def stop_at_failure(self) -> bool:
        """Does a rank that calls MPI_Abort, or exits with a status other than 0 or without
        MPI_Finalize, stop before it ends? Applies to ranks that are resumed after it is set."""
        return self._control.stop_at_failure

    @stop_at_failure.setter
    def stop_at_failure(self, wanted: bool) -> None:
        self._control.stop_at_failure = wanted

    @property
    def incarnation(self) -> int:
        """Grows by one with each restart."""
        return self._attended.record.incarnation if self._attended else 1

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call `subscriber` with every event from now on; returns a function that ends that."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def _tell(self, event: Event) -> None:
        if isinstance(event, RankStopped) and self._control.follows(event.rank):
            return  # the task that follows the rank reports it
        for subscriber in tuple(self._subscribers):
            subscriber(event)

    def info_ranks(self) -> tuple[RankInfo, ...]:
        """One entry for each rank: state, pid, host, executable, location. Works while running."""
        return self._group.info()

    def info_hosts(self) -> tuple[HostInfo, ...]:
        """The hosts that have ranks. Works while running."""
        return self._group.hosts()

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

    def _require_attached(self) -> None:
        """Raises Refused when the session is over."""
        if self._over:
            raise Refused(f"job '{self._name}' is not attached any more")

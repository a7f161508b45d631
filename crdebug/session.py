"""The one object that commands, scripts and the Python API talk to.

A session is one debugger (or none) on one job. Its verbs return values; what happens meanwhile
arrives as events (crdebug.events) at the subscribers. Not thread-safe; one operation at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from crdebug.checkpoint.store import Checkpoint
from crdebug.config import Settings
from crdebug.events import Event, GroupStopped
from crdebug.ranks import RankSet
from crdebug.target.answers import Answers
from crdebug.target.breakpoints import Breakpoint
from crdebug.target.gdb import Frame, ThreadInfo
from crdebug.target.group import RankInfo


class Session:
    """A job under the debugger."""

    settings: Settings

    # ---- how a session begins and ends ------------------------------------------------------

    @classmethod
    async def run(
        cls,
        argv: Sequence[str],
        *,
        name: str | None = None,
        stop_at_main: bool = True,
        settings: Settings | None = None,
        subscriber: Callable[[Event], None] | None = None,
    ) -> Session:
        """Start a launcher command (``mpirun …``) in a job container and attach to all its ranks.

        With stop_at_main every rank is stopped at the first line of main, else before it.
        """
        raise NotImplementedError

    @classmethod
    async def attach(
        cls,
        job: str,
        *,
        settings: Settings | None = None,
        subscriber: Callable[[Event], None] | None = None,
    ) -> Session:
        """Attach to a running job, by name, or by the PID of an MPIR starter."""
        raise NotImplementedError

    async def detach(self) -> None:
        """Let the job run on without a debugger; the session is over."""
        raise NotImplementedError

    async def kill(self) -> None:
        """End the job; its checkpoints stay."""
        raise NotImplementedError

    async def close(self) -> None:
        """End every GDB and all else that the session owns. Kills the job if it is still attached."""
        raise NotImplementedError

    # ---- state --------------------------------------------------------------------------------

    @property
    def job(self) -> str:
        """The job's name."""
        raise NotImplementedError

    @property
    def ranks(self) -> RankSet:
        """All ranks of the job."""
        raise NotImplementedError

    @property
    def ended(self) -> int | None:
        """The launcher's exit status once the job has ended, else None."""
        raise NotImplementedError

    @property
    def running(self) -> RankSet:
        """The ranks that run now."""
        raise NotImplementedError

    @property
    def incarnation(self) -> int:
        """Grows by one with each restart."""
        raise NotImplementedError

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call `subscriber` with every event from now on; returns what ends that."""
        raise NotImplementedError

    def info_ranks(self) -> tuple[RankInfo, ...]:
        """One entry for each rank: state, pid, host, executable, location. Works while running."""
        raise NotImplementedError

    async def info_threads(self, ranks: RankSet) -> Answers[tuple[ThreadInfo, ...]]:
        raise NotImplementedError

    # ---- running ------------------------------------------------------------------------------

    async def resume(self, ranks: RankSet) -> GroupStopped:
        """continue: run these ranks until one of them stops; then stop the others.

        Raises Refused when a rank is not stopped, or when none of them is alive.
        """
        raise NotImplementedError

    async def step(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        raise NotImplementedError

    async def next(self, ranks: RankSet, count: int = 1) -> GroupStopped:
        raise NotImplementedError

    async def finish(self, ranks: RankSet) -> GroupStopped:
        raise NotImplementedError

    async def interrupt(self) -> None:
        """Ask all running ranks to stop; the pending resume/step returns then. May be called
        while another verb runs (the one exception to one operation at a time)."""
        raise NotImplementedError

    # ---- looking ------------------------------------------------------------------------------

    async def evaluate(self, ranks: RankSet, expression: str) -> Answers[str]:
        """print: the value as GDB prints it."""
        raise NotImplementedError

    async def backtrace(self, ranks: RankSet, limit: int = 0) -> Answers[tuple[Frame, ...]]:
        """Innermost frame first; at most `limit` frames unless it is 0."""
        raise NotImplementedError

    async def gdb(self, ranks: RankSet, command: str) -> Answers[str]:
        """A command for the ranks' GDBs as typed; the answer is what GDB printed."""
        raise NotImplementedError

    # ---- breakpoints --------------------------------------------------------------------------

    async def add_breakpoint(
        self, ranks: RankSet, location: str, *, condition: str = "", temporary: bool = False
    ) -> Breakpoint:
        raise NotImplementedError

    async def delete_breakpoint(self, number: int) -> None:
        """Raises BadInput for a number that is not there."""
        raise NotImplementedError

    def breakpoints(self) -> tuple[Breakpoint, ...]:
        raise NotImplementedError

    # ---- checkpoints --------------------------------------------------------------------------

    async def checkpoint(self, note: str = "") -> Checkpoint:
        """Take a checkpoint of the stopped job; every thread is then where it was."""
        raise NotImplementedError

    async def restart(self, number: int | None = None) -> Checkpoint:
        """Bring the job back to a checkpoint (the newest if None), attached and stopped."""
        raise NotImplementedError

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """This job's whole checkpoints, oldest first."""
        raise NotImplementedError

    @property
    def directory(self) -> Path:
        """Where the job's files are."""
        raise NotImplementedError

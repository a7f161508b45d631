"""Another host with ranks, as crdebug sees it: a wire to its agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, cast

from crdebug.acquire.daemons import Daemon
from crdebug.acquire.mpir import ProcDesc
from crdebug.base.answers import Answers, T
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, GdbDied
from crdebug.base.events import Event, JobSays, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.node import MARGIN
from crdebug.debugger.question import Question
from crdebug.debugger.run import Ran, Run
from crdebug.hosts import greeting
from crdebug.hosts.codec import BadMessage
from crdebug.hosts.merged import Mirror, Mirrors, mirrors_apart, stops_apart, told_apart
from crdebug.hosts.messages import (
    Ask,
    Attach,
    Classes,
    CutRecord,
    Diverges,
    Find,
    FindLines,
    Gather,
    Go,
    Gone,
    Greeting,
    Halt,
    Happened,
    LetGo,
    Looking,
    Message,
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
    Stand,
    WriteClock,
    by_rank,
)
from crdebug.hosts.remote_host import RemoteHost
from crdebug.hosts.wire import MARK, HasEnded, IsLost, Wire
from crdebug.job.call_lines import SECONDS
from crdebug.job.far_clocks import ClockLook, ClockWrite
from crdebug.job.gathering import Gathered
from crdebug.job.record_here import RecordNow, Wanted
from crdebug.node.probes import Machine

if TYPE_CHECKING:
    from crdebug.hosts.remote import RemoteTarget
    from crdebug.hosts.starting import Started


class RemoteNode:
    """The agent on another host. See debugger.node.Node.

    started: its connection.  settings: how long it may be silent: host_interval x host_misses.
    tell: gets what happens to it.
    """

    def __init__(
        self, host: str, started: Started, settings: Settings, tell: Callable[[Event], None]
    ) -> None:
        self._host = host
        self._started = started
        self._settings = settings
        self._tell = tell
        self._targets: dict[int, RemoteTarget] = {}
        self.on_end: Callable[[], None] = lambda: None  # of an agent that nobody has closed
        # gets a rank's clock while it stands, and when it was seen
        self.on_clock: Callable[[int, bytes, ClockLook], None] = lambda rank, clock, look: None
        self._runs: dict[int, Callable[[RankSet, bool], None]] = {}  # see debugger.node.Node.run
        self._lost = ""
        self._closing = False
        self.rank_host = RemoteHost(self, settings.command)
        self._wire = Wire(started.stream, self._serve, self._take, MARK)
        self._reading = asyncio.create_task(self._read())
        self._watching: asyncio.Task[None] | None = None

    @property
    def host(self) -> str:
        return self._host

    @property
    def lost(self) -> str:
        return self._lost

    @property
    def reachable(self) -> bool:
        """It is neither lost nor closed."""
        return not self._lost and not self._closing

    @property
    def ranks(self) -> RankSet:
        return RankSet.of(self._targets)

    def add(self, target: RemoteTarget) -> None:
        self._targets[target.rank] = target

    async def greet(self, deadline: Deadline) -> None:
        """The first messages: both sides must be the same crdebug. Raises NotAvailable."""
        try:
            answer = await deadline.wait(self._wire.call(greeting.hello()), "its first answer")
        except CrdebugError as error:
            raise await self._started.why_not(error, deadline) from None
        greeting.require_same(answer if isinstance(answer, Greeting) else None, self._host)
        self._watching = asyncio.create_task(self._watch())

    async def find(self, daemon: Daemon, users: Collection[int]) -> tuple[ProcDesc, ...]:
        """The ranks that a launcher's daemon there has started. users: see messages.Attach."""
        answer = await self.call(Find(daemon, tuple(users)), self._settings.command)
        return cast(tuple[ProcDesc, ...], answer)

    async def probe(self) -> Machine:
        """What that host has. Raises CrdebugError."""
        request = Probe(self._settings.gdb, self._settings.compiler)
        return cast(Machine, await self.call(request, self._settings.attach))

    async def prepare(self, mark: str, layer: str, mpicc: str, *, hold: bool) -> Prepared:
        """New ranks of a job over hosts are to begin there. See messages.Prepare."""
        own = self._settings
        request = Prepare(mark, own.compiler, layer, mpicc, hold, own.host_patience)
        return cast(Prepared, await self.call(request, self._settings.launch))

    async def record(self, wanted: Wanted) -> tuple[ClockLook, RecordNow]:
        """The clocks and logs of ranks there."""
        read = cast(ReadAt, await self.call(ReadRecord(wanted), self._settings.command))
        return read.look, read.record

    def write(self, write: ClockWrite) -> None:
        """Set something in the clock of a rank there. It comes before all that follows."""
        self.post(WriteClock(write))

    async def cut(self, wanted: Wanted, compiler: str) -> None:
        """See HostRecord."""
        await self.call(CutRecord(wanted, compiler), self._settings.command)

    async def lines(self, sites: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], str]:
        """The lines of calls of MPI there, each a PID and a return address."""
        return cast(dict[tuple[int, int], str], await self.call(FindLines(sites), SECONDS))

    async def gather(self, mark: str, shim: str) -> Gathered:
        """The ranks of a job over hosts that have begun there."""
        return cast(
            Gathered, await self.call(Gather(mark, shim, self._host), self._settings.command)
        )

    async def set_gate(self, entry: ProcDesc, shim: str, value: int) -> None:
        """Open or close the gate of a rank there that waits before its main."""
        await self.call(SetGate(entry, shim, value), self._settings.command)

    async def diverges(self, mark: str, shim: str, layer: str) -> bool:
        """See gathering.diverges, of the ranks there."""
        return bool(await self.call(Diverges(mark, shim, layer), self._settings.command))

    async def let_go(self, mark: str, shim: str, layer: str, *, another: bool) -> RankSet:
        """See gathering.let_go, of the ranks there."""
        request = LetGo(mark, shim, layer, another)
        return cast(RankSet, await self.call(request, self._settings.command))

    async def attach(
        self,
        entries: Sequence[ProcDesc],
        users: Collection[int],
        layer: str,
        *,
        again: bool = False,
    ) -> tuple[Mirror, ...]:
        """Have the agent attach a GDB to each of these ranks. For the arguments see
        messages.Attach."""
        request = Attach(tuple(entries), self._settings, tuple(users), again, layer)
        answer = cast(tuple[Mirrors, ...], await self.call(request, self._settings.attach))
        mirrors = sorted(mirrors_apart(answer), key=lambda mirror: mirror.rank)
        if not {mirror.rank for mirror in mirrors} <= {entry.rank for entry in entries}:
            raise BadMessage(f"{self._host} speaks of ranks that are not there")
        for mirror in mirrors:
            self._hear_clock(mirror)
        return tuple(mirrors)

    async def renew(self, rank: int) -> None:
        await self.call(Renew(rank), self._settings.attach)

    def _hear_clock(self, mirror: Mirror) -> None:
        if not isinstance(mirror.clock, bytes) or not isinstance(mirror.look, ClockLook):
            raise BadMessage("what it says of a clock cannot be right")
        if mirror.clock:
            self.on_clock(mirror.rank, mirror.clock, mirror.look)

    async def ask(self, question: Question[T], ranks: RankSet) -> Answers[T]:
        return await self._classes(Ask(cast(Question[object], question), ranks), question.seconds)

    async def look(
        self, question: Question[T], ranks: RankSet, deadline: Deadline, also_ended: bool
    ) -> Answers[T]:
        how = Looking(deadline, also_ended)
        seconds = max(min(question.seconds, deadline.left), deadline.left)
        return await self._classes(Ask(cast(Question[object], question), ranks, how), seconds)

    async def run(
        self, number: int, run: Run, ranks: RankSet, stand: Callable[[RankSet, bool], None]
    ) -> Ran:
        self._runs[number] = stand
        try:
            answer = await self.call(Go(number, run, ranks), None)
        except CrdebugError as error:
            if not self._lost:
                raise
            said = f"the agent on {self._host} {self._lost}"
            raise GdbDied(said, run.verb, None, ranks=ranks) from error
        finally:
            del self._runs[number]
        if not isinstance(answer, Gone):
            raise BadMessage(f"{self._host} does not say how a run has ended")
        stops = {stop.rank: stop for stop in stops_apart(answer.stops)}
        errors = by_rank(answer.errors).errors
        if RankSet.of((*stops, *errors)) != ranks:
            raise BadMessage(f"{self._host} does not answer for the ranks that ran there")
        return Ran(stops, errors, answer.completed & RankSet.of(stops))

    def stop(self, number: int, reason: StopReason, seconds: float) -> None:
        self.post(Halt(number, reason, seconds))

    async def _classes(self, request: Ask, seconds: float) -> Answers[T]:
        try:
            answer = await self.call(request, seconds)
            assert isinstance(answer, Classes)
            told = by_rank(answer)
            if not (told.values.keys() | told.errors.keys()) <= {*request.ranks}:
                raise BadMessage(f"{self._host} answers for ranks that are not there")
            return cast(Answers[T], told)
        except CrdebugError as error:
            return Answers({}, dict.fromkeys(request.ranks, error))

    async def call(self, request: Request, seconds: float | None) -> object:
        """The agent's answer. seconds: how long the agent may take for it; None: for ever, but it
        has to be alive. Raises what it raises; CrdebugError if it is lost."""
        if self._lost:
            raise self._error()
        try:
            if seconds is None:
                return await self._wire.call(request)
            limit = Deadline(seconds + MARGIN)
            return await limit.wait(self._wire.call(request), f"the agent on {self._host}")
        except CrdebugError as error:
            raise (self._error() if self._lost and error is self._wire.ended else error) from None

    def post(self, request: Request) -> None:
        """Send a request whose answer does not matter. It comes before all that follow."""
        if not self._lost:
            self._wire.post(request)

    def _error(self) -> CrdebugError:
        hint = "'detach', and attach again when it can be reached"
        return CrdebugError(f"the agent on {self._host} {self._lost}", hint=hint)

    # ---- what it says -------------------------------------------------------------------------

    async def _serve(self, request: Request) -> object:
        raise CrdebugError("an agent asks nothing")

    def _take(self, message: Message) -> None:
        if self._lost:  # what it said before is of no use any more
            return
        match message:
            case Happened(mirrors=mirrors, told=told):
                for mirror in mirrors_apart(mirrors):
                    if (target := self._targets.get(mirror.rank)) is not None:
                        target.reflect(mirror)
                        self._hear_clock(mirror)
                for rank, notice in told_apart(told):
                    if (target := self._targets.get(rank)) is not None:
                        target.subscriber(notice)
            case Stand(number=number, ranks=ranks, over=over):
                if (stand := self._runs.get(number)) is not None:
                    stand(ranks, over)
            case Says(text=text):
                self._tell(JobSays(f"{self._host}: {text}"))
            case _:
                pass

    async def _read(self) -> None:
        match await self._wire.run():
            case HasEnded():
                self._is_lost("has ended", "run on without a debugger")
                if not self._closing:
                    self.on_end()
            case IsLost(problem=problem):
                self._is_lost(f"cannot be reached: {problem}", self._until_it_knows)
            case ended:
                self._is_lost(f"is lost: {ended.problem}", self._until_it_knows)

    async def _watch(self) -> None:
        """An agent that is silent for too long counts as dead. It answers whatever its GDBs do, so
        that no long operation delays that."""
        while not self._lost:
            await asyncio.sleep(self._settings.host_interval)
            patience = self._settings.host_interval * self._settings.host_misses
            try:
                await Deadline(patience).wait(self._wire.call(Ping()), "an answer")
            except DeadlineExpired:
                self._is_lost(f"has not answered for {patience:g} s", self._until_it_knows)
            except CrdebugError:
                return

    @property
    def _until_it_knows(self) -> str:
        """What happens to the ranks of an agent that may be there, cut off."""
        patience = self._settings.host_patience
        return f"are let go by it within {patience:g} s if it is still there"

    def _is_lost(self, how: str, ranks: str) -> None:
        if self._lost or self._closing:
            return
        self._lost = how
        self._wire.end(self._error())
        if self.ranks:
            self._tell(JobSays(f"the agent on {self._host} {how}: {self.ranks.words} {ranks}"))
        for target in self._targets.values():
            target.agent_lost()

    async def close(self, deadline: Deadline) -> None:
        self._closing = True
        if self._watching is not None:
            self._watching.cancel()
        self._wire.end(CrdebugError("crdebug has ended the conversation"))
        alive = self._watching is not None and not self._lost
        await self._started.close(deadline if alive else Deadline(MARGIN))
        self._reading.cancel()
        tasks = [self._reading, *([self._watching] if self._watching else [])]
        await asyncio.gather(*tasks, return_exceptions=True)

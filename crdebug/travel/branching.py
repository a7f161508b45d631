"""Branches of a session's history: leaving one when the past is changed, and changing over.

A branch begins at a cut with a checkpoint of its own, or in a job that has none with a snapshot: no
log has the user's change, so no state from before leads beyond it. The logs of the branch that the
job is on are in the run directory of its incarnation; those of the others are kept in the job's
directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from crdebug.attached.job import AttendedJob
from crdebug.base.answers import Answers
from crdebug.base.errors import BadInput, CrdebugError, Refused, StoreError
from crdebug.base.events import Event, JobSays, Progress
from crdebug.base.instant import Cut, Instant
from crdebug.base.ranks import RankSet
from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.store import CheckpointStore
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import TargetState
from crdebug.job import branch_files, clocks, half_back
from crdebug.node import owners
from crdebug.timeline.branches import MAIN, Branches
from crdebug.timeline.edits import changes_state, is_of_array, parenthesised
from crdebug.timeline.log import read_log
from crdebug.travel.arrival import Arrival
from crdebug.travel.restore_points import Base, StartOfHistory, below
from crdebug.travel.second_job import beside
from crdebug.travel.seek import Traveller

_TREE = "tree.json"


@dataclass(frozen=True, slots=True)
class Compared:
    """An expression's values at the end of a branch. cut: where the branch ends."""

    branch: str
    cut: Cut
    answers: Answers[str]


class Branching:
    """The branches of one job. take: makes a way back to where a branch begins. Verbs need the job
    stopped."""

    def __init__(
        self,
        job: AttendedJob,
        traveller: Traveller,
        tell: Callable[[Event], None],
        take: Callable[[], Awaitable[None]],
    ) -> None:
        self._job = job
        self._traveller = traveller
        self._tell = tell
        self._take = take
        self.branches = self._load()
        self._came_to()

    @property
    def current(self) -> str:
        return self._job.record.branch

    # ---- noticing ---------------------------------------------------------------------------

    async def typed(self, line: str, answers: Answers[str]) -> None:
        """The user typed a line for ranks' GDBs, and they answered."""
        missing = all("No symbol" in str(error) for error in answers.errors.values())
        if not changes_state(line) or (missing and not answers.values):
            return
        arrays = await self._arrays(parenthesised(line), RankSet.of(answers.values))
        if changes_state(line, arrays):
            self._traveller.position.changed_by_user(line)

    async def _arrays(self, names: Iterable[str], ranks: RankSet) -> set[str]:
        """The names that are arrays of Fortran on all of these ranks."""
        found = set()
        for name in names if ranks else ():
            told = await self._job.group.console(ranks, f"whatis {name}")
            if not told.errors and all(is_of_array(type_) for type_ in told.values.values()):
                found.add(name)
        return found

    async def before_running(self) -> None:
        """Ranks are about to run, or a checkpoint is about to be taken: if the user has changed the
        state, the future that follows is not the recorded one."""
        group, position = self._job.group, self._traveller.position
        change = position.change
        if not change:
            return
        if group.running:
            raise Refused(
                f"'{change}' begins a branch of history, for which all ranks must be stopped",
                ranks=group.running,
                hint="'[all] interrupt' stops them",
            )
        position.change_is_over()
        if not (self._recorded and self._job.alive and group.in_state(TargetState.STOPPED)):
            return
        if self._traveller.bases():
            try:
                await self.begin(note=change)
            except BaseException:
                position.changed_by_user(change)
                raise

    def arrived(self, cut: Cut) -> None:
        """The user's own run of a recorded job has ended."""
        self._update(self.branches.reached(cut))

    @property
    def _recorded(self) -> bool:
        return bool(self._job.record.layer)

    # ---- beginning --------------------------------------------------------------------------

    async def begin(self, name: str = "", note: str = "") -> str:
        """Begin a new branch here; the recorded future stays with the old one. Returns the branch's
        name. Raises BadInput if the name is taken, StoreError."""
        traveller, recorded, old = self._traveller, self._traveller.recorded, self.current
        cut, tails = recorded.cut(), recorded.tails()
        self._job.output_is_new()
        branches = self.branches.reached(cut).add(cut, datetime.now(), name=name, note=note)
        name = branches.current
        if not _is_name(name):
            raise BadInput(f"'{name}' is not a name for a branch", hint="begin with a letter")
        far = self._job.far
        if far is not None:
            await far.cut()
            await traveller.near.forget_branch(old)
        else:
            await self._keep_and_cut(old)
        self._job.goes_on(name)
        self._update(branches)
        self._came_to()
        traveller.position.begin_branch(cut)
        ahead = any(tail > now for now, tail in zip(cut, tails, strict=True))
        why = f", after '{note}'" if note else ""
        kept = f"; the recorded history is kept as branch {old}" if ahead else ""
        if far is not None:
            kept = "; history begins here now: over several hosts one branch is kept"
        self._tell(JobSays(f"started branch {name} here{why}{kept}"))
        try:
            await self._take()
        except CrdebugError as error:
            self._tell(JobSays(f"there is no way back to here: {error}"))
        return name

    async def _keep_and_cut(self, old: str) -> None:
        """Keep the logs for the branch that is left, and forget what they have after here."""
        recorded, run = self._traveller.recorded, self._traveller.job.run_directory
        try:
            shutil.rmtree(self._logs(old), ignore_errors=True)
            owners.make_private(self._logs(old))
            await asyncio.to_thread(branch_files.copy, run, self._logs(old))
            for clock in recorded.clocks_here():
                with contextlib.suppress(ProcessLookupError):
                    clocks.cut(clock, clocks.logs(run) / str(clock.rank), recorded.library)
        except OSError as error:
            raise StoreError(f"the recorded future cannot be kept: {error.strerror}") from None

    # ---- changing over ----------------------------------------------------------------------

    async def switch(self, name: str) -> Arrival:
        """Go to the end of another branch. Raises BadInput if there is none of that name."""
        self.branches.get(name)
        if name == self.current:
            raise BadInput(f"the job is on branch '{name}' already", hint="'info branches'")
        if self._job.far is not None:
            raise Refused(f"nothing is kept of branch {name}: the job runs over several hosts")
        return await self.to(name, self._end(name))

    async def to(self, name: str, cut: Cut) -> Arrival:
        """Go to a cut of a branch."""
        if name != self.current:
            await self._change_over(name, cut)
        arrival = await self._traveller.to_cut(cut)
        self._traveller.position.return_to(self._traveller.recorded.cut())
        return arrival

    async def to_start(self, focus: int, tick: int) -> bool:
        """If the branch begins after this MPI call of a rank, in the rank's own code: go there."""
        traveller, start = self._traveller, self._traveller.position.branch_start
        if not tick or start[focus] != Instant.after(tick):
            return False
        near = traveller.near
        fit = [
            base
            for base in traveller.bases()
            if base.cut == start and (base.number or near.begins_with(base))
        ]
        if not fit:
            return False
        await traveller.bring_back(min(fit, key=lambda base: (not base.history, base.number)))
        return True

    async def make_way(self, cut: Cut) -> None:
        """Before the job goes to a cut that is before the branch begins: change to the branch that
        it left."""
        while not self._traveller.position.is_on_branch(cut):
            parent = self.branches.get(self.current).parent
            assert parent is not None
            branch, left = self.current, self.branches.get(self.current).cut
            await self._change_over(parent, cut)
            self._tell(JobSays(f"that is before branch {branch} begins: on branch {parent} again"))
            self._traveller.position.return_to(left)

    async def _change_over(self, name: str, cut: Cut) -> None:
        problem: CrdebugError = StartOfHistory(
            f"nothing is kept of branch {name} to go to that place from"
        )
        for base in below(self._bases(name), cut):
            self._job.go_on()
            try:
                if base.kept:
                    await self._put_back(base)
                    return
                store = self._traveller.store(base)
                await self.restart(store.load(base.number), store)
                return
            except (StoreError, Refused) as error:
                problem = error
        raise problem

    def _bases(self, name: str) -> list[Base]:
        found = self._traveller.checkpoints()
        if self._job.has_no_checkpoints:
            found = self._traveller.near.bases()
        return [base for base in found if base.branch == name]

    async def _put_back(self, base: Base) -> None:
        """Go to a snapshot of another branch, with its logs; the ranks go on with the files that
        they have mapped. Raises Refused, StoreError; then the job is as before."""
        old, run = self.current, self._traveller.job.run_directory
        try:
            shutil.rmtree(self._logs(old), ignore_errors=True)
            owners.make_private(self._logs(old))
            await asyncio.to_thread(branch_files.copy, run, self._logs(old))
            await asyncio.to_thread(clocks.overwrite, run, self._logs(base.branch))
        except OSError as error:
            raise StoreError(f"the branch cannot be left: {error.strerror}") from None
        try:
            await self._traveller.near.put_back(base)
        except CrdebugError:
            await asyncio.to_thread(clocks.overwrite, run, self._logs(old))
            raise
        self._job.goes_on(base.branch)
        self._traveller.position.change_is_over()
        self._update(self.branches.switch(self.current))
        self._came_to()

    async def restart(self, manifest: Manifest, store: CheckpointStore | None = None) -> None:
        """See AttendedJob.restart; the logs of the checkpoint's branch are put in place."""
        old = self.current
        async with self._logs_of(manifest):
            await self._job.restart(manifest, store)
        self._traveller.position.change_is_over()
        self._update(self.branches.switch(self.current))
        if self.current != old:  # else the record that was read is still the job's
            self._came_to()

    async def make_whole(self) -> str:
        """Bring back the latest checkpoint of the present branch; returns its name. Raises Refused,
        StoreError."""
        problem: CrdebugError = half_back.none_left(self._job.name)
        bases = [base for base in self._bases(self.current) if base.number]
        for base in sorted(bases, key=lambda base: sum(base.cut), reverse=True):
            store = self._traveller.store(base)
            try:
                await self.restart(store.load(base.number), store)
                return base.text
            except (StoreError, Refused) as error:
                problem = error
        raise problem

    @contextlib.asynccontextmanager
    async def _logs_of(self, manifest: Manifest) -> AsyncIterator[None]:
        name, old = manifest.branch, self.current
        if not manifest.layer or name == old:
            yield
            return
        self.branches.get(name)
        run, kept = self._traveller.job.run_directory, self._logs(old)
        branch_files.replace(run, self._logs(name), kept)
        try:
            yield
        finally:
            if self.current == old:  # the restart has failed
                branch_files.replace(run, kept, self._logs(name))

    # ---- comparing --------------------------------------------------------------------------

    async def compare(self, expression: str, names: tuple[str, ...]) -> tuple[Compared, ...]:
        """An expression's values on all ranks at the ends of branches. The job stays where it is.

        Raises Refused when there is no memory for another job beside it.
        """
        for name in names:
            self.branches.get(name)
        found = []
        for name in names:
            cut = self._end(name)
            async with self._at_end(name, cut) as group:
                found.append(Compared(name, cut, await group.evaluate(group.ranks, expression)))
        return tuple(found)

    @contextlib.asynccontextmanager
    async def _at_end(self, name: str, cut: Cut) -> AsyncIterator[TargetGroup]:
        group, here = self._job.group, self._traveller.recorded.cut()
        stand = group.in_state(TargetState.STOPPED) == group.ranks
        if name == self.current and here == cut and stand and not self._traveller.position.change:
            yield group
            return
        fit = below(self._bases(name), cut)
        if not fit:
            raise StartOfHistory(f"there is no checkpoint on branch {name} to bring it back from")
        self._tell(Progress("compare", f"branch {name}"))
        store = self._traveller.store(fit[0])
        logs = self._traveller.job.run_directory if name == self.current else self._logs(name)
        manifest, library = store.load(fit[0].number), self._traveller.recorded.library
        async with beside(self._job, library, manifest, store, logs, cut) as second:
            yield second

    def _end(self, name: str) -> Cut:
        """How far a branch has come; for ranks that have left MPI for good, before they did."""
        current, recorded = name == self.current, self._traveller.recorded
        branches = self.branches.reached(recorded.cut()) if current else self.branches
        logs = self._job.logs if current else clocks.logs(self._logs(name))
        places = list(branches.get(name).end)
        for path in clocks.in_directory(logs):
            rank = int(path.name)
            calls = read_log(path, recorded.library).calls
            if calls and calls[-1].name == "MPI_Finalize" and places[rank] >= calls[-1].returned:
                places[rank] = calls[-1].returned.in_last_call
        return tuple(places)

    # ---- the tree ---------------------------------------------------------------------------

    def _logs(self, name: str) -> Path:
        """Where the logs of a branch are kept while the job is on another one, as in a run
        directory."""
        return self._job.directory.branches / name

    def _load(self) -> Branches:
        known = Branches()
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            data = (self._job.directory.branches / _TREE).read_bytes()
            known = msgspec.json.decode(
                data, type=Branches, dec_hook=lambda kind, number: kind(number)
            )
        current = self.current if self.current in known.known else MAIN
        return known.switch(current)

    def _update(self, branches: Branches) -> None:
        if branches == self.branches:
            return
        self.branches = branches
        if len(branches.known) > 1:  # else there is nothing to remember
            home = self._job.directory.branches
            home.mkdir(mode=0o700, exist_ok=True)
            unfinished = home / f".{_TREE}"
            unfinished.write_bytes(msgspec.json.encode(branches, enc_hook=int))
            unfinished.rename(home / _TREE)

    def _came_to(self) -> None:
        """Another branch is the job's now."""
        self._traveller.on_branch(self.branches.get(self.branches.current).cut)


def _is_name(name: str) -> bool:
    return name.replace("-", "_").isidentifier() and name.isascii()

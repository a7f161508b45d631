"""Who are the ranks of a job that somebody else started?

The MPIR symbols of its starter tell if it has them, else the variables that launchers set for the
ranks. A user may name any process of the job.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from crdebug.acquire.daemons import Daemon, daemons_here, daemons_of
from crdebug.acquire.mpir import ProcDesc, acquire_of, is_here, is_starter
from crdebug.acquire.symbols import find_symbols
from crdebug.base.errors import BadInput, NotAvailable, Refused
from crdebug.base.ranks import RankSet
from crdebug.node import owners, proc, process_tree
from crdebug.node.launchers import LAUNCHERS

# "Which rank am I", and "how many are there": Open MPI (mpirun(1), "Exported environment
# variables"), PMI-1 launchers (MPICH's hydra), any PMIx launcher, Slurm (srun(1)). An Open MPI or
# MPICH under a PMIx launcher or Slurm has both: the MPI's own comes first.
VARIABLES: tuple[tuple[str, str], ...] = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
# How many of them are on this machine; MPICH's hydra has the second.
_LOCAL = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_NUMBER = re.compile("[0-9]{1,8}")


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that somebody else started.

    root: the process at its top: the launcher, or the rank itself if it has none.
    how: for people, by what the ranks were told.  entries: by rank, those on this machine that have
    not ended.  size: the number of ranks as far as it is known.
    ended: those that are known to have ended.
    elsewhere: those on other machines, as far as the launcher's table knows them.
    daemons: on other machines, with ranks that no table has; `ranks_of_daemon` finds them there.
    """

    root: int
    how: str
    entries: tuple[ProcDesc, ...]
    size: int
    ended: RankSet = RankSet()  # noqa: RUF009 - immutable
    elsewhere: tuple[ProcDesc, ...] = ()
    daemons: tuple[Daemon, ...] = ()

    @property
    def everywhere(self) -> tuple[ProcDesc, ...]:
        """The ranks on all machines."""
        return self.entries + self.elsewhere

    @property
    def ranks(self) -> RankSet:
        return RankSet.of(entry.rank for entry in self.everywhere)

    def only(self, ranks: str) -> FoundJob:
        """The part that a user names, as in ``0,3-5``; empty is all that have not ended.

        Raises BadInput for a rank that is not there; NotAvailable when all are wanted and nobody
        knows where some are, or one that is named has ended.
        """
        if not ranks:
            missing = RankSet.span(self.size) - self.ranks - self.ended
            if missing:
                raise NotAvailable(
                    "not on this machine, or ended",
                    ranks=missing,
                    hint=f"attach to the others: --ranks {self.ranks}" if self.entries else None,
                )
            return self
        chosen = RankSet.parse(ranks, self.ranks | self.ended)
        if chosen & self.ended:
            raise NotAvailable("has ended", ranks=chosen & self.ended)
        return replace(
            self,
            entries=tuple(entry for entry in self.entries if entry.rank in chosen),
            elsewhere=tuple(entry for entry in self.elsewhere if entry.rank in chosen),
        )

    def require_here(self, action: str) -> None:
        """Raises Refused if it has ranks on other machines."""
        if self.elsewhere or self.daemons:
            hosts = {each.host for each in self.elsewhere} | {each.host for each in self.daemons}
            raise Refused(
                f"cannot {action}: the job has ranks on other hosts ({', '.join(sorted(hosts))})",
                hint="checkpoints are of jobs on one host",
            )


def find_job(pid: int) -> FoundJob:
    """The job that a process belongs to: its launcher, one of its ranks, or what started it.

    Raises BadInput when there is no such process, or it is of no job, or of several; NotAvailable
    when it may not be looked at, or its ranks are not there yet.
    """
    try:
        proc.environment(pid)  # other users' processes would only look empty to all that follows
        return _by_mpir(pid) or _by_environment(pid)
    except ProcessLookupError:
        raise BadInput(
            f"there is no process {pid}", hint="name the launcher (mpirun), or one of its ranks"
        ) from None
    except PermissionError:
        raise NotAvailable(
            f"process {pid} may not be looked at: it is somebody else's",
            hint="attach as its owner, or as root",
        ) from None


# ---- MPIR ----------------------------------------------------------------------------------------


def _by_mpir(pid: int) -> FoundJob | None:
    """By the table of a starter: the process itself, one above a rank, or the only one below."""
    if rank_of(pid) is not None:
        candidates = [each for each in process_tree.ancestors(pid) if rank_of(each) is None]
    else:
        candidates = [
            pid,
            *(each for each in process_tree.descendants(pid) if rank_of(each) is None),
        ]
    starters = [each for each in candidates if is_starter(each)]
    if not starters:
        return None
    if len(starters) > 1 and pid not in starters and rank_of(pid) is None:
        raise _several(pid, starters)
    starter = starters[0]
    entries, size = acquire_of(starter)
    local = tuple(entry for entry in entries if is_here(entry.host))
    ended = RankSet.span(size) - RankSet.of(entry.rank for entry in entries)
    elsewhere = tuple(entry for entry in entries if not is_here(entry.host))
    below = process_tree.descendants(starter)
    for entry in local:
        _require_rank_of(starter, entry, entry.pid in below)
    how = f"the MPIR process table of {_name(starter)} (process {starter})"
    return FoundJob(starter, how, local, size, ended, elsewhere)


def _require_rank_of(starter: int, entry: ProcDesc, below: bool) -> None:
    """A table may name any process, to make root stop processes of others: a rank belongs to the
    starter's user, and was started by it, or by a daemon that told it which rank it is.

    Raises Refused.
    """
    whose = owners.users_of(starter)
    if whose not in ({0}, owners.users_of(entry.pid)):
        problem = "belongs to another user"
    elif not below and (rank_of(entry.pid) or ("", -1, 0))[1] != entry.rank:
        problem = "was not started by it, and does not say that it is a rank"
    else:
        return
    raise Refused(
        f"{_name(starter)} (process {starter}) names process {entry.pid} as rank {entry.rank}, "
        f"which {problem}",
        hint="name one of the ranks instead",
    )


def _several(pid: int, launchers: Iterable[int]) -> BadInput:
    names = ", ".join(f"{each} ({_name(each)})" for each in launchers)
    return BadInput(f"below process {pid} there are several jobs: {names}", hint="name one of them")


def _name(pid: int) -> str:
    return proc.status(pid)["Name"]


# ---- the environment -----------------------------------------------------------------------------


def rank_in(environment: Mapping[str, str]) -> tuple[str, int, int] | None:
    """The variable, the rank and the number of ranks (0: unknown) of a process; None if it is no
    rank."""
    for name, size in VARIABLES:
        if _NUMBER.fullmatch(environment.get(name, "")):
            told = environment.get(size, "")
            return name, int(environment[name]), int(told) if _NUMBER.fullmatch(told) else 0
    return None


def rank_of(pid: int) -> tuple[str, int, int] | None:
    """`rank_in` for a process; None also for one that has ended, or that is somebody else's."""
    try:
        return rank_in(proc.environment(pid))
    except OSError:
        return None


def _by_environment(pid: int) -> FoundJob:
    root = _whole(_launcher_of(pid) if rank_of(pid) is not None else pid)
    members = [root, *process_tree.descendants(root)]
    told = {each: found for each in members if (found := rank_of(each)) is not None}
    if not told:
        raise BadInput(
            f"process {pid} is of no MPI job: it has no MPIR_proctable, and no process below it "
            "has a rank in its environment",
            hint="name the launcher (mpirun), or one of its ranks",
        )
    # Processes that a rank starts inherit the variables.
    first = [each for each in told if proc.parent(each) not in told]
    by_rank: dict[int, int] = {}
    for each in first:
        rank = told[each][1]
        if rank in by_rank:
            raise _several(pid, {proc.parent(by_rank[rank]), proc.parent(each)})
        by_rank[rank] = _program(each, told)
    host = os.uname().nodename
    entries = tuple(
        ProcDesc(rank, host, proc.executable(by_rank[rank]), by_rank[rank])
        for rank in sorted(by_rank)
    )
    variable = told[first[0]][0]
    size = max((told[each][2] for each in first), default=0) or max(by_rank) + 1
    daemons = daemons_of(root)
    how = f"{variable} in the environment of the processes below {_name(root)} (process {root})"
    ended = RankSet.span(size) - RankSet.of(by_rank) if _are_all_here(first, size) else RankSet()
    return FoundJob(root, how, entries, size, ended, daemons=daemons)


def ranks_of_daemon(daemon: Daemon, users: Collection[int]) -> tuple[ProcDesc, ...]:
    """The ranks that a launcher's daemon on this machine has started; `host` is as in Daemon.

    users: whose it is.  Raises NotAvailable.
    """
    for pid in daemons_here(daemon.owner, users):
        with contextlib.suppress(BadInput):  # it has no ranks yet, or none any more
            return tuple(replace(each, host=daemon.host) for each in _by_environment(pid).entries)
    raise NotAvailable(
        f"the launcher's daemon on {daemon.host} has no ranks",
        hint="they have not been started yet, or have ended",
    )


def _are_all_here(ranks: Iterable[int], size: int) -> bool:
    """Does a rank know that all of the job was started on this machine?"""
    for each in ranks:
        with contextlib.suppress(ProcessLookupError):
            environment = proc.environment(each)
            return any(environment.get(name) == str(size) for name in _LOCAL)
    return False


def _launcher_of(rank: int) -> int:
    """The nearest process above that is no rank; the rank's first process if that is init."""
    top = rank
    for above in process_tree.ancestors(rank):
        if rank_of(above) is None:
            return above if above > 1 else top
        top = above
    return top


def _whole(launcher: int) -> int:
    """MPICH's launcher has a proxy between itself and the ranks; on another machine there is only
    that (hydra: pm/hydra/proxy)."""
    above = proc.parent(launcher)
    proxy = _name(launcher) == "hydra_pmi_proxy"
    return above if proxy and above > 1 and _name(above).startswith(LAUNCHERS) else launcher


def _program(first: int, told: Mapping[int, tuple[str, int, int]]) -> int:
    """The MPI program among a rank's processes: a launcher may have started a shell for it."""
    below = [each for each in process_tree.descendants(first) if told.get(each) == told[first]]
    return next((each for each in (first, *below) if below and _has_mpi(each)), first)


def _has_mpi(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        return bool(find_symbols(pid, ("PMPI_Init",)))
    return False

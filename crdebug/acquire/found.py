"""Who are the ranks of a job that somebody else started?

Said by the MPIR symbols of its starter if it has them, else by what launchers put into the
environment of the ranks. A user may name any process of the job.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crdebug.acquire.mpir import ProcDesc, acquire, is_starter
from crdebug.acquire.symbols import find_symbols
from crdebug.errors import BadInput, NotAvailable
from crdebug.node import family, proc
from crdebug.node.probes import LAUNCHERS
from crdebug.ranks import RankSet

# "Which rank am I", and "how many are there": Open MPI (mpirun(1), "Exported environment
# variables"), PMI-1 launchers (MPICH's hydra), any PMIx launcher, Slurm (srun(1)). An Open MPI or
# MPICH under a PMIx launcher or Slurm has both: the MPI's own comes first.
VARIABLES: tuple[tuple[str, str], ...] = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that somebody else started.

    root: the process that all of it is below: the launcher, or the rank itself if it has none.
    how: for people, by what the ranks were told.  entries: by rank; some may be missing, those
    that are on other machines or have ended.  size: the number of ranks as far as it is known.
    """

    root: int
    how: str
    entries: tuple[ProcDesc, ...]
    size: int

    @property
    def ranks(self) -> RankSet:
        return RankSet.of(entry.rank for entry in self.entries)

    def only(self, ranks: str) -> FoundJob:
        """The part that a user names, as in ``0,3-5``; empty is all.

        Raises BadInput for a rank that is not there; NotAvailable when all are wanted and some
        are not on this machine.
        """
        if not ranks:
            missing = RankSet.span(self.size) - self.ranks
            if missing:
                raise NotAvailable(
                    "not on this machine, or ended",
                    ranks=missing,
                    hint=f"attach to the others: --ranks {self.ranks}",
                )
            return self
        chosen = RankSet.parse(ranks, self.ranks)
        entries = tuple(entry for entry in self.entries if entry.rank in chosen)
        return FoundJob(self.root, self.how, entries, self.size)


def find_job(pid: int) -> FoundJob:
    """The job that a process belongs to: its launcher, one of its ranks, or what started it.

    Raises BadInput when there is no such process, or it is of no job, or of several; NotAvailable
    when it may not be looked at, or its ranks are not there yet.
    """
    try:
        proc.environment(pid)  # of others' processes all that follows would only look empty
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
        candidates = [each for each in family.ancestors(pid) if rank_of(each) is None]
    else:
        candidates = [pid, *(each for each in family.descendants(pid) if rank_of(each) is None)]
    starters = [each for each in candidates if is_starter(each)]
    if not starters:
        return None
    if len(starters) > 1 and pid not in starters and rank_of(pid) is None:
        raise _several(pid, starters)
    starter = starters[0]
    entries = acquire(starter)
    here = os.uname().nodename.partition(".")[0]
    local = tuple(e for e in entries if e.host.partition(".")[0] in (here, "localhost"))
    how = f"the MPIR process table of {_name(starter)} (process {starter})"
    return FoundJob(starter, how, local, len(entries))


def _several(pid: int, launchers: Iterable[int]) -> BadInput:
    names = ", ".join(f"{each} ({_name(each)})" for each in launchers)
    return BadInput(f"below process {pid} there are several jobs: {names}", hint="name one of them")


def _name(pid: int) -> str:
    return proc.status(pid)["Name"]


# ---- the environment -----------------------------------------------------------------------------


def rank_in(environment: Mapping[str, str]) -> tuple[str, int, int] | None:
    """By which variable a process is which rank of how many (0: not said); None if it is none."""
    for name, size in VARIABLES:
        if environment.get(name, "").isdecimal():
            told = environment.get(size, "")
            return name, int(environment[name]), int(told) if told.isdecimal() else 0
    return None


def rank_of(pid: int) -> tuple[str, int, int] | None:
    """`rank_in` for a process; None also for one that has ended, or that is somebody else's."""
    try:
        return rank_in(proc.environment(pid))
    except OSError:
        return None


def _by_environment(pid: int) -> FoundJob:
    root = _whole(_launcher_of(pid) if rank_of(pid) is not None else pid)
    members = [root, *family.descendants(root)]
    told = {each: found for each in members if (found := rank_of(each)) is not None}
    if not told:
        raise BadInput(
            f"process {pid} is of no MPI job: it has no MPIR_proctable, and no process below it "
            "has a rank in its environment",
            hint="name the launcher (mpirun), or one of its ranks",
        )
    # What a rank starts itself has inherited the variables.
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
    how = f"{variable} in the environment of the processes below {_name(root)} (process {root})"
    return FoundJob(root, how, entries, size)


def _launcher_of(rank: int) -> int:
    """The nearest process above that is no rank; the rank's first process if that is init."""
    top = rank
    for above in family.ancestors(rank):
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
    below = [each for each in family.descendants(first) if told.get(each) == told[first]]
    with_mpi = (each for each in (first, *below) if below and find_symbols(each, ("PMPI_Init",)))
    return next(with_mpi, first)

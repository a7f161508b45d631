"""Which core file is which rank of a job."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crdebug.acquire.binaries import build_id
from crdebug.acquire.core_files import Core, how_to_unpack, in_order, is_core, read_core
from crdebug.acquire.discovery import VARIABLES, rank_in
from crdebug.base.errors import BadInput, CrdebugError, in_words
from crdebug.base.ranks import RankSet

_WHY_NONE = "'ulimit -c unlimited' allows them, /proc/sys/kernel/core_pattern says where they go"
_NAMED = 3  # files that a sentence names one by one
_MANY = 1_000_000  # ranks: a damaged file may tell of more


@dataclass(frozen=True, slots=True)
class CoreRanks:
    """The core files of a job.

    program: by rank, the executable that a debugger is to read.
    said: sentences: how the ranks were told, what was left out, what may be wrong.
    """

    cores: Mapping[int, Core]
    program: Mapping[int, str]
    said: tuple[str, ...]


def find_cores(paths: Sequence[Path], programs: Sequence[Path] = ()) -> CoreRanks:
    """The ranks whose core files these are.

    paths: files, and directories, of which all core files are taken, by whatever name.
    programs: their executables, if they are not at the paths that the files have.
    The rank is what the launcher told the process in its environment. If that is in none of the
    files, they are numbered in the order of their names, and `said` says so.

    Raises BadInput if there are none, two are of the same rank, or an executable is missing or
    another one.
    """
    said: list[str] = []
    try:
        files = _distinct(each for path in paths for each in _files(path, said))
    except OSError as error:
        raise in_words(error) from None
    cores: list[Core | None] = []
    for file in files:
        try:
            cores.append(_read(file))
        except CrdebugError as error:
            if len(files) == 1:
                raise
            cores.append(None)
            said.append(f"left out: {error}")
    there = [core for core in cores if core is not None]
    if not there:
        raise BadInput(said[0].removeprefix("left out: ") if said else "no core file is named")
    by_rank, how = _by_environment(there, said)
    if not by_rank:
        by_rank = {rank: core for rank, core in enumerate(cores) if core is not None}
        how = "numbered in the order of their names, for their environment tells no rank"
    chosen = _programs(by_rank, programs, said)
    said += _libraries(by_rank)
    return CoreRanks(by_rank, chosen, (f"core files of {_words(by_rank)}, {how}", *said))


# ---- files ---------------------------------------------------------------------------------------


def _files(path: Path, said: list[str]) -> Iterator[Path]:
    if not path.is_dir():
        yield _file(path)
        return
    entries = sorted(path.iterdir(), key=in_order)
    found = [each for each in entries if is_core(each)]
    locked = [each for each in entries if each.is_file() and not os.access(each, os.R_OK)]
    if not found:
        if locked:
            raise BadInput(
                f"there is no core file in {path} that you may read", hint=f"not {_list(locked)}"
            )
        packed = next((each for each in entries if how_to_unpack(each)), None)
        also = f"unpack {packed.name}, if it is one: {how_to_unpack(packed)}" if packed else ""
        raise BadInput(f"there is no core file in {path}", hint=also or _WHY_NONE)
    if locked:
        said.append(f"left out, because you may not read it: {_list(locked)}")
    yield from found


def _file(path: Path) -> Path:
    if not path.exists():
        raise BadInput(f"there is no file {path}")
    if unpack := how_to_unpack(path):
        raise BadInput(f"{path} is compressed", hint=f"unpack it first: {unpack} {path}")
    return path


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Each file once, under the first of its names: links to the newest core file are common."""
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        details = path.stat()
        found.setdefault((details.st_dev, details.st_ino), path)
    return list(found.values())


def _read(path: Path) -> Core:
    core = read_core(path)
    for name in (str(path.resolve()), core.program):
        if not name.isprintable():  # GDB reads its commands line by line, in UTF-8
            raise BadInput(
                "a core file cannot be opened, because control characters, or bytes that are not "
                f"UTF-8, are in its name or in that of its program: {name!a}",
                hint="give it another name",
            )
    return core


# ---- ranks ---------------------------------------------------------------------------------------


def _by_environment(cores: Sequence[Core], said: list[str]) -> tuple[dict[int, Core], str]:
    """Those that have a rank in their environment, and how it is called there; none if none has.
    Appends to `said` which are left out."""
    told = {
        core.path: found
        for core in cores
        if (found := rank_in(core.environment)) is not None and found[1] < _MANY
    }
    if not told:
        return {}, ""
    # Under Slurm its variable is also in the environment of Open MPI's daemons.
    names = [found[0] for found in told.values()]
    name = next(variable for variable, _ in VARIABLES if variable in names)
    ranks = [core for core in cores if core.path in told and told[core.path][0] == name]
    for core in cores:
        if core not in ranks:
            said.append(f"left out: {core.path} is of {_name(core)}, which is no rank")
    ranks = _of_one_run(ranks, said)
    usual = Counter(core.program for core in ranks)
    by_rank: dict[int, Core] = {}
    for core in ranks:
        rank = told[core.path][1]
        other = by_rank.setdefault(rank, core)
        if other is core:
            continue
        if usual[other.program] == usual[core.program]:
            raise BadInput(
                f"{other.path} and {core.path} are both of rank {rank}",
                hint="name the files of one run, and none of a process that a rank has started",
            )
        kept, left = sorted((core, other), key=lambda each: -usual[each.program])
        by_rank[rank] = kept
        said.append(f"left out: {left.path} is of {_name(left)}, which rank {rank} has started")
    how = f"by {name} in their environment"
    size = max(told[core.path][2] for core in by_rank.values())
    missing = RankSet.span(size) - RankSet.of(by_rank) if size <= _MANY else RankSet()
    if missing:
        how += f"; {missing.words} {'has' if len(missing) == 1 else 'have'} none"
    return dict(sorted(by_rank.items())), how


def _of_one_run(cores: Sequence[Core], said: list[str]) -> list[Core]:
    """Those of the run that wrote the newest one, as far as the environment tells runs apart."""
    newest = max(cores, key=lambda core: core.path.stat().st_mtime_ns)
    kept = [core for core in cores if _run(core) == _run(newest)]
    others = [core.path for core in cores if core not in kept]
    if others:
        said.append(
            "left out, because they are of another run than the newest one, or of ranks that the "
            f"job has spawned: {_list(others)}"
        )
    return kept


def _run(core: Core) -> tuple[str, ...]:
    """The job, as PMIx and Slurm name it."""
    names = ("PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID")
    return tuple(core.environment.get(name, "") for name in names)


# ---- programs ------------------------------------------------------------------------------------


def _programs(
    by_rank: Mapping[int, Core], given: Sequence[Path], said: list[str]
) -> dict[int, str]:
    """The executable of each rank. Appends to `said` whose is not the one that ran."""
    programs: dict[int, str] = {}
    others: dict[str, list[int]] = {}
    for rank, core in by_rank.items():
        path = programs[rank] = _given(core, given) if given else core.program
        if not path:
            raise BadInput(
                f"{core.path} does not say which program it is of", hint="name it: --program FILE"
            )
        if not Path(path).is_file():
            raise BadInput(
                f"{core.path} is of {path}, and that is not here",
                hint="name the program: --program FILE",
            )
        if core.build and build_id(path) != core.build:
            others.setdefault(path, []).append(rank)
    said += [
        f"{_words(ranks)}: {path} has been rebuilt since, so functions, lines and values may be "
        "wrong"
        for path, ranks in others.items()
    ]
    return programs


def _given(core: Core, programs: Sequence[Path]) -> str:
    """Which of these it is: the very one, one of the same name, or, if the file tells neither, the
    only one."""
    name = Path(core.program).name
    same = [each for each in programs if core.build and build_id(str(each)) == core.build]
    alike = [each for each in programs if each.name == name]
    only = programs[:1] if len(programs) == 1 and not (core.build and core.program) else ()
    for each in (*same, *alike, *only):
        return str(each.resolve())
    named = " or ".join(str(each) for each in programs)
    raise BadInput(
        f"{core.path} is of {_name(core)}, not of {named}",
        hint="name its program too: --program may be given several times",
    )


def _libraries(by_rank: Mapping[int, Core]) -> Iterator[str]:
    """Which are not here, or not those that ran."""
    missing: dict[Path, list[int]] = {}
    others: dict[Path, list[int]] = {}
    for rank, core in by_rank.items():
        for name, build in core.libraries.items():
            path = Path(name.removesuffix(" (deleted)"))
            if ".so" not in path.name:
                continue
            if not path.is_file():
                missing.setdefault(path, []).append(rank)
            elif build and build_id(str(path)) != build:
                others.setdefault(path, []).append(rank)
    if missing:
        yield (
            f"{_words(_all(missing))}: not here are the libraries {_list(missing)}, so stacks may "
            "end there ('gdb set sysroot DIR', if they are below DIR)"
        )
    if others:
        yield (
            f"{_words(_all(others))}: not those that ran are the libraries {_list(others)}, so "
            "functions and lines in them may be wrong"
        )


# ---- words ---------------------------------------------------------------------------------------


def _name(core: Core) -> str:
    return core.program or "an unknown program"


def _words(ranks: Iterable[int]) -> str:
    return RankSet.of(ranks).words


def _all(ranks: Mapping[Path, Sequence[int]]) -> set[int]:
    return {rank for each in ranks.values() for rank in each}


def _list(paths: Iterable[Path]) -> str:
    found = [str(path) for path in paths]
    more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {more} more" if more > 0 else "")

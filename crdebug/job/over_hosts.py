"""The hosts that a job is to run on, and how its launcher and its ranks come to know it.

The hosts are those that the user names, else those in the launcher's own options, else those of the
allocation that we run in. Open MPI: mpirun(1), "Specifying host nodes". MPICH: mpiexec -help, and
"Using the Hydra Process Manager". Slurm: srun(1), --nodelist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, NotAvailable
from crdebug.node import bare, programs

_SWEEPER = 10.0  # seconds for it to begin
_HOLD = "hold"  # in the job's scratch directory on each host: new ranks wait while it is there
WHY_NO_CONTAINER = "it runs over several hosts"
# What ranks on other hosts must have in their environment.
_FORWARDED = (
    *("LD_PRELOAD", bare.MARK, bare.OVER_HOSTS, bare.CONNECT, bare.LOGS),
    *("CRDEBUG_SIGNAL", "LSAN_OPTIONS", "PYTHONHASHSEED"),
)
# The launchers' own options, by family.
_HOST_OPTIONS = {
    "Open MPI": ("--host", "-host", "-H"),
    "MPICH": ("-hosts", "--hosts", "-host", "--host"),
    "Slurm": ("-w", "--nodelist"),
}
_FILE_OPTIONS = {
    "Open MPI": (
        *("--hostfile", "-hostfile", "--machinefile", "-machinefile"),
        *("--default-hostfile", "-default-hostfile"),
    ),
    "MPICH": ("-f", "-hostfile", "--hostfile", "-machinefile", "--machinefile", "-machine"),
    "Slurm": ("--nodefile",),
}
# Their values may be the names of programs; and options with two values.
_VALUES = frozenset(
    (
        *(
            each
            for part in (_HOST_OPTIONS, _FILE_OPTIONS)
            for kind in part.values()
            for each in kind
        ),
        *("-launcher", "--launcher", "-bootstrap", "--bootstrap", "-launcher-exec", "-x"),
        *("-wdir", "--wdir", "-wd", "-n", "-np", "-c", "--np", "-N", "-p"),
    )
)
_TWO_VALUES = frozenset(
    ("-mca", "--mca", "-gmca", "--gmca", "--prtemca", "--pmixmca", "-env", "-genv", "--env")
)
_NAME = re.compile(r"[A-Za-z0-9_.@-]+\Z")
_SLURM, _PBS = "SLURM_JOB_NODELIST", "PBS_NODEFILE"


@dataclass(frozen=True, slots=True)
class Named:
    """The hosts that a user names for a job: as ``n1,n2:8``, or the file that lists them; at most
    one of the two."""

    hosts: str = ""
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """A job over hosts.

    hosts: their names, in the order of the launcher.  family: of the launcher, see `family_of`.
    named: the hosts that the launcher does not know yet.
    mark: by it the job's processes are known, see crdebug.node.bare.
    """

    hosts: tuple[str, ...]
    family: str
    named: Named
    mark: str


def family_of(launcher: str, told: tuple[str, str]) -> str:
    """ "Open MPI", "MPICH" or "Slurm". told: of node.probes.mpi_family, from its --version.

    Raises NotAvailable for another launcher: nobody knows how to tell it anything.
    """
    if Path(launcher).name == "srun":
        return "Slurm"
    if told[0] in _HOST_OPTIONS:
        return told[0]
    raise NotAvailable(
        f"'{launcher}' is no launcher that is known to start ranks on other hosts",
        hint="name mpirun, mpiexec or srun itself; or start the job without crdebug, "
        "and 'crdebug attach' to the PID of its launcher",
    )


def may_spread(argv: Sequence[str], named: Named, environment: Mapping[str, str]) -> bool:
    """Might the user, the launcher's options, or the allocation, name hosts? Then it is worth to
    ask which launcher it is."""
    if named.hosts or named.file or environment.get(_SLURM) or environment.get(_PBS):
        return True
    if argv and Path(argv[0]).name == "srun":
        return True
    options = {each for part in (_HOST_OPTIONS, _FILE_OPTIONS) for each in sum(part.values(), ())}
    return any(word.partition("=")[0] in options for word in argv)


def hosts_named(
    argv: Sequence[str],
    family: str,
    named: Named,
    environment: Mapping[str, str],
    expand: Callable[[str], tuple[str, ...]],
    place: Path,
    is_program: Callable[[str], bool],
) -> tuple[str, ...]:
    """The hosts that the job may use; none if nobody names any.

    expand: what Slurm makes of its short form, as in ``n[1-3]``.  place: the directory in which the
    launcher runs.  is_program: may a word be the program that it starts? Raises BadInput.
    """
    if named.hosts or named.file:
        if named.hosts and named.file:
            raise BadInput("--hosts and --hostfile name the same thing", hint="leave one out")
        return _listed(named.hosts) if named.file is None else _in_file(named.file, place)
    own: list[str] = []
    for option, value in _options(argv, is_program):
        if option in _HOST_OPTIONS[family]:
            own += expand(value) if family == "Slurm" else _listed(value)
        elif option in _FILE_OPTIONS[family]:
            own += _in_file(Path(value), place)
    if own:
        return tuple(dict.fromkeys(own))
    if environment.get(_SLURM):
        return expand(environment[_SLURM])
    if environment.get(_PBS):
        return _in_file(Path(environment[_PBS]), place)
    return ()


def with_hosts(argv: Sequence[str], family: str, named: Named) -> list[str]:
    """The launcher's command line with the hosts that the user names."""
    launcher, *rest = argv
    told: list[str] = []
    if named.hosts:
        option = {"Open MPI": "--host", "MPICH": "-hosts"}.get(family)
        told = [option, named.hosts] if option else [f"--nodelist={','.join(_listed(named.hosts))}"]
    elif named.file is not None:
        file = str(named.file.absolute())
        option = {"Open MPI": "--hostfile", "MPICH": "-f"}.get(family)
        told = [option, file] if option else [f"--nodelist={','.join(_in_file(named.file))}"]
    return [launcher, *told, *rest]


def command(argv: Sequence[str], spread: Spread, added: Mapping[str, str]) -> list[str]:
    """The launcher's command line, with the hosts, and such that the ranks on all hosts have
    crdebug's variables. added: those that the launcher gets."""
    argv = with_hosts(argv, spread.family, spread.named)
    if spread.family != "Open MPI":  # the others pass on their whole environment
        return argv
    always = ("LD_PRELOAD", "CRDEBUG_SIGNAL")  # the starter sets them
    names = [name for name in _FORWARDED if name in added or name in always]
    passed = [word for name in names for word in ("-x", name)]
    words = [argv[0], *passed]
    for word in argv[1:]:
        # Behind it is another program, which has options of its own (mpirun(1), MPMD).
        words += [word, *passed] if word == ":" else [word]
    return words


def variables(mark: str, *, hold: bool) -> dict[str, str]:
    """What the processes of such a job have in their environment. hold: do its ranks wait for a
    debugger?"""
    connect = {bare.CONNECT: "1"} if hold else {}
    return connect | {
        bare.MARK: mark,
        bare.OVER_HOSTS: str(bare.scratch_of(mark) / _HOLD),
        bare.LOGS: str(logs_of(mark)),
    }


def _options(argv: Sequence[str], is_program: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The launcher's options with the words behind them; ``--option=value`` as two. Those of its
    programs are not the launcher's."""
    words = iter(argv[1:])
    in_program, before = False, ""
    for word in words:
        if word == ":":
            in_program, before = False, ""
        elif in_program:
            continue
        elif word in _TWO_VALUES:
            next(words, ""), next(words, "")
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            if equals and name.startswith("--"):
                yield name, value
            before = word if not equals else ""
            continue
        elif before.startswith("-") and (before in _VALUES or not is_program(word)):
            yield before, word
        else:
            in_program = True
        before = ""


def _listed(text: str) -> tuple[str, ...]:
    """From ``n1,n2:8``. Raises BadInput."""
    return _names(part for part in text.split(",") if part)


def _in_file(path: Path, place: Path | None = None) -> tuple[str, ...]:
    """The first word of each line, without slots. Raises BadInput."""
    try:
        lines = (place or Path.cwd()).joinpath(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it is no text"
        raise BadInput(f"cannot read the hosts in {path}: {why.lower()}") from None
    words = [line.partition("#")[0].split() for line in lines]
    return _names(each[0] for each in words if each)


def _names(words: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for word in words:
        name = word.partition(":")[0]
        if not _NAME.match(name) or name.startswith("-"):
            raise BadInput(f"'{word}' is not the name of a host", hint="as in n1,n2:8")
        found[name] = None
    if not found:
        raise BadInput("no host is named", hint="as in --hosts n1,n2:8")
    return tuple(found)


# ---- on each host --------------------------------------------------------------------------------


def logs_of(mark: str) -> Path:
    """The directory of the ranks' logs, on each host."""
    return bare.scratch_of(mark) / "time"


def begin(mark: str, *, hold: bool, records: bool) -> Path:
    """From now on, ranks of the job that begin on this host wait for a debugger (hold), and record
    their MPI calls (records). Returns the job's scratch directory here. Raises NotAvailable."""
    place = bare.make_scratch(mark)
    if hold:
        (place / _HOLD).touch(mode=0o600)
    if records:
        logs_of(mark).mkdir(mode=0o700)
    return place


def end_holding(mark: str) -> None:
    """Ranks that begin on this host, spawned ones say, do not wait any more."""
    (bare.scratch_of(mark) / _HOLD).unlink(missing_ok=True)


async def sweep_after(starter: str, mark: str) -> None:
    """The same, and have a process of its own remove what `begin` has made, once no process
    of the job is left on this host. Raises NotAvailable."""
    end_holding(mark)
    words = [starter, "--sweep", mark, str(bare.scratch_of(mark))]
    await programs.run(words, Deadline(_SWEEPER), "the job's files to be watched")

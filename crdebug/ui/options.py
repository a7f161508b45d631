"""Values of the command line's options: signals, times, sizes, and a batch job's upkeep."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from crdebug.base import units

if TYPE_CHECKING:
    from crdebug.detached.values import Keep, Upkeep

F = TypeVar("F", bound=Callable[..., Any])


def job_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The jobs here whose name begins so, for a shell; none if they cannot be listed."""
    from crdebug.base.errors import CrdebugError
    from crdebug.job.directory import all_jobs

    try:
        return [job.name for job in all_jobs() if job.name.startswith(incomplete)]
    except (CrdebugError, OSError):
        return []


class SignalNumber(click.ParamType[int]):
    """A signal by number or name: 34, SIGTSTP, TSTP, SIGRTMIN+3."""

    name = "signal"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        from crdebug.base.signal_names import number_of

        try:
            return number_of(str(value))
        except ValueError as error:
            self.fail(f"{error}; give a number or a name like SIGTSTP")


class Amount(click.ParamType[float]):
    """A positive number with a unit, see crdebug.base.units."""

    def __init__(self, name: str, read: Callable[[str], float], example: str) -> None:
        self.name = name
        self._read = read
        self._example = example

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return self._read(str(value))
        except ValueError:
            self.fail(f"'{value}' is not a {self.name}; write it like {self._example}")


TIME = Amount("time", units.read_seconds, units.TIMES)
SIZE = Amount("size", units.read_bytes, units.SIZES)

_KEEP = (
    click.option(
        "--keep",
        type=click.IntRange(1),
        metavar="N",
        help="Delete all but the N newest checkpoints.",
    ),
    click.option(
        "--keep-for", type=TIME, metavar="TIME", help="Delete checkpoints older than this."
    ),
    click.option(
        "--keep-disk", type=SIZE, metavar="SIZE", help="Delete the oldest until the rest fit."
    ),
)
STAGE = click.option(
    "--stage",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Copy checkpoints there too, while the job runs on.",
)
REPORT = click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="No prompt: run the job to its end, and write what goes wrong into a page.",
)
_BATCH = (
    click.option(
        "--every",
        type=TIME,
        metavar="TIME",
        help="Take checkpoints so often that at most this much work can be lost.",
    ),
    click.option(
        "--on-signal",
        type=SignalNumber(),
        multiple=True,
        metavar="SIGNAL",
        help="Take a last checkpoint at this signal, a batch system's warning.",
    ),
    click.option(
        "--then",
        type=click.Choice(["end", "go-on"]),
        default="end",
        show_default=True,
        help="What the job does after that; `end` is exit status 75.",
    ),
    STAGE,
    click.option("--no-compress", is_flag=True, help="Do not compress the copies in --stage."),
    *_KEEP,
)


_HOSTS = (
    click.option(
        "--hosts",
        default="",
        metavar="N1,N2:8",
        help="The hosts to run on; by default what the launcher is told, or has allocated.",
    ),
    click.option(
        "--hostfile",
        type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
        metavar="FILE",
        help="A file with these hosts, one in a line.",
    ),
)


def hosts_options(function: F) -> F:
    """The options that say where a job's ranks are to run: hosts, hostfile."""
    for option in reversed(_HOSTS):
        function = option(function)
    return function


def _variable(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    found = {}
    for text in values:
        name, given, value = text.partition("=")
        if not name or not given:
            raise click.BadParameter(f"'{text}' is not NAME=VALUE")
        found[name] = value
    return found


def _source(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Path | int | None:
    """Standard input is descriptor 0."""
    return 0 if value == "-" else Path(value) if value is not None else None


_START = (
    click.option(
        "--env",
        multiple=True,
        callback=_variable,
        metavar="NAME=VALUE",
        help="A variable for the job; may be given more than once.",
    ),
    click.option(
        "--cwd",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="DIR",
        help="The job's working directory.",
    ),
    click.option(
        "--stdin",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        callback=_source,
        metavar="FILE",
        help="A file for rank 0 to read; '-': crdebug's own input. By default `send` is its input.",
    ),
    click.option(
        "--label-output/--no-label-output",
        default=None,
        help="Show which rank wrote a line of output: [2] text.",
    ),
)


def start_options(function: F) -> F:
    """The options for a new job besides its command line: env, cwd, stdin, label_output."""
    for option in reversed(_START):
        function = option(function)
    return function


def _gathered(
    options: tuple[Callable[[F], F], ...], gather: Callable[[dict[str, Any]], object]
) -> Callable[[F], F]:
    """Pass the value that the options make together to the function, as its argument `care`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*arguments: Any, **choices: Any) -> Any:
            return function(*arguments, care=gather(choices), **choices)

        decorated: F = call  # type: ignore[assignment]
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def _keep(choices: dict[str, Any]) -> Keep:
    from crdebug.detached.values import Keep

    count, seconds = choices.pop("keep") or 0, choices.pop("keep_for") or 0.0
    return Keep(count, seconds, int(choices.pop("keep_disk") or 0))


def _upkeep(choices: dict[str, Any]) -> Upkeep:
    from crdebug.detached.values import Upkeep

    return Upkeep(
        every=choices.pop("every") or 0.0,
        keep=_keep(choices),
        warnings=tuple(choices.pop("on_signal")),
        go_on=choices.pop("then") == "go-on",
        stage=choices.pop("stage"),
        compress=not choices.pop("no_compress"),
    )


keep_options = _gathered(_KEEP, _keep)
batch_options = _gathered(_BATCH, _upkeep)


def refuse_batch_options(ctx: click.Context, flag: str, *, stage: bool) -> None:
    """Raises UsageError if the user gave any of `batch_options`. stage: that one, too; a restart
    under the debugger may fetch from there."""
    names = ("every", "on_signal", "then", "no_compress", "keep", "keep_for", "keep_disk")
    default = click.core.ParameterSource.DEFAULT
    for name in (*names, *(["stage"] if stage else [])):
        if ctx.get_parameter_source(name) is not default:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {flag}")

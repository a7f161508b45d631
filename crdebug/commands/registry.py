"""Commands, declared once.

A module per help group declares its commands with `@GROUP.command(...)`; a `Registry` is made of
groups. Reading a line, preconditions, help, completion and docs/commands.md derive from the
declarations. (The shape is drgn's and delve's; declared preconditions are gdb.dap's.)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar, assert_never, cast

from crdebug.base.errors import BadInput, Refused
from crdebug.base.gdb_values import closing
from crdebug.base.ranks import RankSet
from crdebug.commands.after_stop import follow, points_with_commands
from crdebug.commands.arguments import Argument, Kind, Values, parse
from crdebug.commands.context import Context
from crdebug.commands.results import Nothing, Result, Text
from crdebug.session.running import StopMode

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_FORMAT = re.compile(r"\s*/(\S+)")


_ALIKE = 0.75  # of difflib: names less alike than this are so by chance
_STARTED = "the job has been started: 'continue' lets it run, 'restart' brings a checkpoint back"
# Commands of GDB and other debuggers that are something else here.
_ELSEWHERE = {
    **dict.fromkeys(("run", "r", "start", "starti"), _STARTED),
    **dict.fromkeys(("tui", "layout"), "'list' shows source lines, and so does each stop"),
    "group": "'define-set' gives ranks a name",
    "gcore": "'checkpoint' saves the job as a whole",
    "save": "breakpoints are kept with the job, for its next sessions",
    "python": "'gdb python ...' is for the ranks' GDBs; 'pybt' shows the Python that ranks run",
    "reverse-watch": "'last EXPR' goes back to where it was changed",
}


class Requires(Enum):
    """What must hold before a command may run."""

    STOPPED = "the addressed ranks are stopped"
    PAUSED = "the addressed ranks are stopped, or run independently and are stopped for it"
    ALIVE = "the job has not ended"
    ANY = "nothing"


@dataclass(frozen=True, slots=True)
class Call:
    """One command on its way: the handler's only parameter.

    ranks: the addressed ones; all of the job's when the command takes no rank set.
    block: the lines that belong to it, see Command.
    """

    context: Context
    registry: Registry
    ranks: RankSet
    values: Values
    block: tuple[str, ...] = ()

    def __getitem__(self, argument: Argument[T]) -> T:
        return cast(T, self.values[argument])


Handler = Callable[[Call], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Command:
    """A declared command.

    name: one word, or two when it belongs to a family (``info ranks``).
    help: the first line is the summary.  takes_ranks: a rank set may stand in front.
    repeats: an empty line runs it again.  echoed: a script shows the line before it runs.
    block: the lines after it, up to one that says ``end``, belong to it.
    changes: it may change what the program does, and does not only look or let it run.
    of_cores: it needs no process, so core files will do.
    """

    name: str
    help: str
    handler: Handler
    aliases: tuple[str, ...] = ()
    arguments: tuple[Argument[object], ...] = ()
    requires: Requires = Requires.STOPPED
    takes_ranks: bool = False
    repeats: bool = False
    echoed: bool = True
    block: bool = False
    changes: bool = False
    of_cores: bool = False

    @property
    def summary(self) -> str:
        return self.help.partition("\n")[0]

    @property
    def details(self) -> str:
        return self.help.partition("\n")[2].strip("\n")

    @property
    def usage(self) -> str:
        formats = "".join(a.usage for a in self.arguments if a.kind is Kind.FORMAT)
        words = [a.usage for a in self.arguments if a.kind is not Kind.FORMAT]
        prefix = ["[RANKS]"] if self.takes_ranks else []
        return " ".join([*prefix, self.name + formats, *words])


@dataclass(frozen=True, slots=True)
class Family:
    """A word that commands of two words begin with."""

    name: str
    summary: str
    aliases: tuple[str, ...] = ()


@dataclass(slots=True)
class Group:
    """Commands that the help shows together. Filled at import, by the decorator.

    requires, of_cores: of those that do not say it themselves.
    """

    name: str
    title: str
    families: tuple[Family, ...] = ()
    requires: Requires = Requires.STOPPED
    of_cores: bool = False
    commands: list[Command] = field(default_factory=list)

    def command(
        self,
        name: str,
        help: str,
        *,
        aliases: tuple[str, ...] = (),
        arguments: tuple[Argument[object], ...] = (),
        requires: Requires | None = None,
        ranks: bool = False,
        repeats: bool = False,
        echoed: bool = True,
        block: bool = False,
        changes: bool = False,
        of_cores: bool | None = None,
    ) -> Callable[[Handler], Handler]:
        """Declare the decorated coroutine function as a command; see Command for the fields."""

        def declare(handler: Handler) -> Handler:
            self.commands.append(
                Command(
                    name=name,
                    help=help.strip(),
                    handler=handler,
                    aliases=aliases,
                    arguments=arguments,
                    requires=requires or self.requires,
                    takes_ranks=ranks,
                    repeats=repeats,
                    echoed=echoed,
                    block=block,
                    changes=changes,
                    of_cores=self.of_cores if of_cores is None else of_cores,
                )
            )
            return handler

        return declare


@dataclass(frozen=True, slots=True)
class Line:
    """A line, taken apart. ranks: the text between the brackets, None if there are none."""

    command: Command
    ranks: str | None
    format: str
    rest: str


class Registry:
    """All commands of a conversation. An object, so that a test can build its own."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(groups)
        self.commands = tuple(c for group in self.groups for c in group.commands)
        self.families = tuple(f for group in self.groups for f in group.families)
        self._validate()

    def _validate(self) -> None:
        owners: tuple[Command | Family, ...] = (*self.commands, *self.families)
        names = [name for owner in owners for name in (owner.name, *owner.aliases)]
        twice = {name for name in names if names.count(name) > 1}
        assert not twice, f"declared twice: {sorted(twice)}"
        families = {family.name for family in self.families} | {c.name for c in self._heads()}
        for command in self.commands:
            first, _, second = command.name.partition(" ")
            assert not second or first in families, f"no family for '{command.name}'"
            assert command.summary, f"'{command.name}' has no help"

    # ---- reading a line -----------------------------------------------------------------------

    def read(self, line: str) -> Line:
        """Take a line apart and find its command. Raises BadInput."""
        text, ranks = line.strip(), None
        if text.startswith("["):
            end = closing(text, 0)
            if end is None:
                raise BadInput(f"']' is missing after '{text}'", hint="write [0,2-3] print x")
            ranks, text = text[1:end], text[end + 1 :].lstrip()
            if not text:
                raise BadInput(
                    f"a command is missing after [{ranks}]", hint=f"write [{ranks}] print x"
                )
        command, text = self._find(text)
        format = ""
        # GDB takes a space before the slash too; only a command with a format has a use for it.
        if text.startswith("/") or any(a.kind is Kind.FORMAT for a in command.arguments):
            letters = _FORMAT.match(text)
            if letters is not None:
                format, text = letters[1], text[letters.end() :]
        return Line(command, ranks, format, text.strip())

    def _find(self, text: str) -> tuple[Command, str]:
        if text.startswith("!"):  # as in GDB
            text = f"shell {text[1:]}"
        word, text = _name(text)
        owner = self._match(word, "", (*self._heads(), *self.families))
        if isinstance(owner, Command):
            return self._below(owner, text)
        members = self.members(owner)
        second, text = _name(text.lstrip())
        if not second:
            raise BadInput(f"'{owner.name}' needs a subject", hint=_subjects(owner, members))
        found = self._match(second, f"{owner.name} ", members)
        assert isinstance(found, Command)
        return found, text

    def _below(self, owner: Command, text: str) -> tuple[Command, str]:
        """The command itself, or one whose name begins with its: ``set var x = 1``."""
        second, behind = _name(text.lstrip())
        for each in self.commands:
            if second and f"{owner.name} {second}" in (each.name, *each.aliases):
                return each, behind
        return owner, text

    def _heads(self) -> tuple[Command, ...]:
        return tuple(c for c in self.commands if " " not in c.name)

    def members(self, family: Family) -> tuple[Command, ...]:
        """The commands that begin with the family's word."""
        return tuple(c for c in self.commands if c.name.startswith(f"{family.name} "))

    def _match(
        self, word: str, before: str, owners: Sequence[Command | Family]
    ) -> Command | Family:
        """By name or alias, else by an unambiguous beginning of a name, as GDB does."""
        name = before + word
        for owner in owners:
            if name == owner.name or name in owner.aliases:
                return owner
        if name in _ELSEWHERE:
            raise BadInput(f"there is no command '{name}'", hint=_ELSEWHERE[name])
        matches = [owner for owner in owners if owner.name.startswith(name)] if word else []
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(sorted(owner.name for owner in matches))
            raise BadInput(f"'{name}' is ambiguous: {names}", hint="type more of it")
        words = [owner.name.removeprefix(before) for owner in owners]
        close = difflib.get_close_matches(word, words, n=1, cutoff=_ALIKE)
        guess = f"did you mean '{before}{close[0]}'? " if close else ""
        raise BadInput(
            f"there is no command '{name}'",
            hint=f"{guess}'help' lists them; 'gdb COMMAND' passes one to the ranks' GDBs",
        )

    # ---- running it ---------------------------------------------------------------------------

    def begins_block(self, line: str) -> bool:
        """Do the lines after this one, up to ``end``, belong to it? Never raises."""
        try:
            return bool(line.strip()) and self.read(line).command.block
        except BadInput:
            return False

    async def run(self, context: Context, line: str, block: Sequence[str] = ()) -> Result:
        """Run one line. An empty one repeats the last command that can be repeated.

        block: the lines that belong to it. After a stop the displays are shown, and the
        breakpoint's commands run. Raises CrdebugError: BadInput for a line that cannot be read,
        Refused when the command's precondition does not hold, or what the command raises.
        """
        points = points_with_commands(context)
        return await follow(self, context, points, await self.run_one(context, line, block))

    def lets_run(self, line: str) -> bool:
        """Is it one of the commands that let ranks run? Raises BadInput."""
        command = self.read(line).command
        return any(group.name == "running" and command in group.commands for group in self.groups)

    async def run_one(self, context: Context, line: str, block: Sequence[str] = ()) -> Result:
        """`run`, without what follows a stop."""
        text = line.strip() or context.repeat
        if not text:
            return Nothing()
        if context.over:
            raise Refused("the session is over", hint="'crdebug attach JOB' begins another one")
        parsed = self.read(text)
        command = parsed.command
        values = parse(command.arguments, command.usage, parsed.format, parsed.rest)
        ranks = await self._addressed(context, parsed)
        self._check(context, command, ranks)
        if command.requires in (Requires.STOPPED, Requires.PAUSED):
            await _replace_dead(context, ranks)
        if command.requires is Requires.STOPPED:
            ranks = _standing(context, ranks)
        context.repeat = text if command.repeats else ""
        context.changed = context.changed or command.changes
        return await command.handler(Call(context, self, ranks, values, tuple(block)))

    async def _addressed(self, context: Context, line: Line) -> RankSet:
        if line.ranks is None:
            return context.addressed if line.command.takes_ranks else context.session.ranks
        if not line.command.takes_ranks:
            raise BadInput(
                f"'{line.command.name}' takes no rank set", hint="it is for the whole job"
            )
        return await context.rank_set(line.ranks)

    def _check(self, context: Context, command: Command, ranks: RankSet) -> None:
        session = context.session
        if session.of_cores and not command.of_cores:
            raise Refused(
                f"'{command.name}' needs a process, and a core file cannot run",
                hint="'backtrace', 'stack', 'print', 'compare' and 'info table' look at it",
            )
        match command.requires:
            case Requires.ANY:
                return
            case Requires.ALIVE | Requires.STOPPED | Requires.PAUSED:
                if session.ended is not None:
                    raise Refused(
                        f"'{command.name}' needs a live job, and {session.job} has ended",
                        hint="'restart' brings it back from a checkpoint, 'quit' leaves",
                    )
            case _:
                assert_never(command.requires)
        running = session.running & ranks
        if command.requires is Requires.PAUSED:
            running -= session.alone
        # where ranks run independently, a command is for the stopped ones, see `_standing`
        some = command.takes_ranks and session.stop_mode is StopMode.RANK and ranks - running
        stands = command.requires in (Requires.STOPPED, Requires.PAUSED)
        if stands and running and not some:
            raise Refused(
                f"'{command.name}' needs stopped ranks",
                ranks=running,
                hint="'interrupt' stops the job",
            )


async def _replace_dead(context: Context, ranks: RankSet) -> None:
    if replaced := await context.session.replace_dead(ranks):
        it = "they are" if len(replaced) > 1 else "it is"
        context.show(Text(f"another gdb stopped {replaced.words} where {it} now"))


def _standing(context: Context, ranks: RankSet) -> RankSet:
    """The ranks of a command that are not running; the user is shown the others."""
    running = context.session.running & ranks
    if running:
        context.show(Text(f"[{running}] running"))
    return ranks - running


def _name(text: str) -> tuple[str, str]:
    match = _NAME.match(text)
    if match is None:
        return text, ""
    return match[0], text[match.end() :]


def _subjects(family: Family, members: Iterable[Command]) -> str:
    return "one of " + ", ".join(c.name.removeprefix(f"{family.name} ") for c in members)

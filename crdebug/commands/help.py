"""help: composed from the declarations."""

from __future__ import annotations

from collections.abc import Iterable

from crdebug.base.errors import BadInput
from crdebug.commands.arguments import Argument, Kind, rest
from crdebug.commands.registry import Call, Command, Family, Group, Registry, Requires
from crdebug.commands.results import Result, Text

HELP = Group("help", "Help", of_cores=True)

TOPIC = rest("TOPIC", "a command, or a group of them", default="")

WORD = rest("WORD", "what to look for")

RANKS_HELP = (
    "RANKS is a rank set in brackets in front of the command: [0,2-3] print x, [all] bt. "
    "Without one, the command is for the focus; 'help focus' tells more."
)


@HELP.command(
    "help",
    "Show the commands, a group of them, or one in full.",
    aliases=("h",),
    arguments=(TOPIC,),
    requires=Requires.ANY,
)
async def help_(call: Call) -> Result:
    topic = call[TOPIC]
    if not topic:
        return Text(overview(call.registry))
    for group in call.registry.groups:
        if topic == group.name:
            return Text(_group(group))
    for family in call.registry.families:
        if topic in (family.name, *family.aliases):
            return Text(_family(family, call.registry.members(family)))
    return Text(_command(call.registry.read(topic).command))


@HELP.command(
    "apropos",
    "Show the commands whose help contains a word, or a part of one.",
    arguments=(WORD,),
    requires=Requires.ANY,
)
async def apropos(call: Call) -> Result:
    word = call[WORD].lower()
    found = [each for each in call.registry.commands if word in _command(each).lower()]
    if not found:
        raise BadInput(f"no command's help has '{call[WORD]}' in it", hint="'help' lists all")
    return Text("\n".join(_lines(found)))


def overview(registry: Registry) -> str:
    """All commands, a line each, by group."""
    tail = (
        "'help COMMAND' shows one in full. Names may be shortened while they are unambiguous.\n"
        + RANKS_HELP
    )
    return "\n\n".join([*(_group(group) for group in registry.groups), tail])


def _group(group: Group) -> str:
    return "\n".join([f"{group.title} ({group.name}):", *_lines(group.commands)])


def _family(family: Family, members: Iterable[Command]) -> str:
    return "\n".join([f"{family.summary}:", *_lines(members)])


def _lines(commands: Iterable[Command]) -> list[str]:
    return [f"  {command.name:<18} {command.summary}" for command in commands]


def _command(command: Command) -> str:
    parts = [command.summary, f"Usage: {command.usage}"]
    if command.aliases:
        parts[-1] += f"\nAlso: {', '.join(command.aliases)}"
    if command.details:
        parts.append(command.details)
    if command.arguments:
        width = max(len(label(argument)) for argument in command.arguments)
        parts.append("\n".join(f"  {label(a):<{width}}  {a.help}" for a in command.arguments))
    if command.takes_ranks:
        parts.append(RANKS_HELP)
    return "\n\n".join(parts)


def label(argument: Argument[object]) -> str:
    """The argument as a list of arguments shows it."""
    if argument.kind is Kind.OPTION:
        return f"{argument.name} {argument.value}"
    return f"/{argument.name}" if argument.kind is Kind.FORMAT else argument.name


def topics(registry: Registry) -> Iterable[str]:
    """What help can be asked about."""
    yield from (group.name for group in registry.groups)
    yield from (command.name for command in registry.commands)

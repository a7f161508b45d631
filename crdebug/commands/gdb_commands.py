"""GDB's own commands that only look: passed to each rank's GDB, equal answers shown as one.

Each is declared once, as data; `select_frame` and its like are here too, because what they say is
about the same frames.
"""

from __future__ import annotations

from dataclasses import dataclass

from crdebug.base.answers import ADDRESS, alike, some
from crdebug.commands.arguments import Argument, integer, letters, rest
from crdebug.commands.registry import Call, Group, Handler
from crdebug.commands.results import Frames, Result, Said

LOOKING = Group("looking", "Looking closer, as GDB does", of_cores=True)


@dataclass(frozen=True, slots=True)
class Look:
    """One command of GDB's. argument: what follows it, "" if nothing; in brackets if it can be left
    out.  format: it takes letters after a slash.

    places: addresses in its answer say where something happens to be loaded; they differ from rank
    to rank, and answers that differ in nothing else are shown as one.
    """

    name: str
    help: str
    argument: str = ""
    aliases: tuple[str, ...] = ()
    format: bool = False
    places: bool = False
    repeats: bool = False


LOOKS = (
    Look(
        "x",
        "Show memory at an address.\n\n    x/4dw values\n    x/s name\n    x/3i $pc",
        "[ADDRESS]",
        format=True,
    ),
    Look("whatis", "Show the type of an expression.", "EXPR"),
    Look("ptype", "Show the definition of a type, or of an expression's.", "TYPE", format=True),
    Look(
        "printf",
        'Show values in a format of your own.\n\n    printf "%d\\n", step',
        "FORMAT, EXPR...",
    ),
    Look(
        "list",
        "Show source lines where the ranks are, then the next ones, or at a location.",
        "[LOCATION]",
        aliases=("l",),
        repeats=True,
    ),
    Look("search", "Show the next source line that a regular expression matches.", "REGEX"),
    Look(
        "disassemble",
        "Show the instructions of a function. /s with source lines, /r with the bytes.",
        "[LOCATION]",
        format=True,
        places=True,
    ),
    Look("info locals", "Show the local variables of the selected frame."),
    Look("info args", "Show the arguments of the selected frame."),
    Look("info frame", "Show details of the selected frame.", aliases=("info f",), places=True),
    Look("info registers", "Show all registers, or the named ones.", "[NAME...]"),
    Look(
        "info all-registers",
        "Show all registers, including vector and floating-point ones.",
        "[NAME]",
    ),
    Look("info line", "Show where the code of a source line is.", "[LOCATION]", places=True),
    Look("info symbol", "Show which symbol is at an address.", "ADDRESS", places=True),
    Look("info address", "Show where a symbol is.", "SYMBOL", places=True),
    Look("info scope", "Show the variables in scope at a location.", "LOCATION", places=True),
    Look("info source", "Show which source file the ranks are in."),
    Look("info sources", "Show the source files of the program.", "[REGEX]"),
    Look("info functions", "Show the functions that match a regular expression.", "[REGEX]"),
    Look("info variables", "Show the global variables that match a regular expression.", "[REGEX]"),
    Look("info types", "Show the types that match a regular expression.", "[REGEX]"),
    Look("info macro", "Show the definition of a macro.", "NAME"),
    Look("info sharedlibrary", "Show the libraries that are loaded.", "[REGEX]", places=True),
    Look("info signals", "Show how each signal is handled; see 'handle'.", "[SIGNAL]"),
    Look("info proc", "Show the process: its command line, or 'mappings'.", "[WHAT]"),
)


def declare(look: Look) -> Handler:
    """Make a command of it."""
    arguments: tuple[Argument[object], ...] = ()
    format = letters("f", "GDB's letters for it") if look.format else None
    name = look.argument.strip("[]")
    required = bool(name) and not look.argument.startswith("[")
    text = rest(name, "as GDB takes it") if required else rest(name, "as GDB takes it", default="")
    if format is not None:
        arguments += (format,)
    if name:
        arguments += (text,)

    async def handler(call: Call) -> Result:
        slash = f"/{call[format]}" if format is not None and call[format] else ""
        line = f"{look.name}{slash} {call[text] if name else ''}".rstrip()
        answers = some(await call.context.session.gdb(call.ranks, line))
        return Said(alike(answers, ADDRESS) if look.places else answers)

    return LOOKING.command(
        look.name,
        look.help,
        aliases=look.aliases,
        arguments=arguments,
        ranks=True,
        repeats=look.repeats,
    )(handler)


for _look in LOOKS:
    declare(_look)


# ---- frames ------------------------------------------------------------------------------------

LEVEL = rest("N", "its number in a backtrace; without it, the selected one", default="")
STEPS = integer("N", "how many", default=1)


async def _select(call: Call, move: str) -> Result:
    return Frames(some(await call.context.session.select_frame(call.ranks, move)))


@LOOKING.command(
    "frame",
    "Show or choose the frame of the stack that print and info locals are about.",
    aliases=("f",),
    arguments=(LEVEL,),
    ranks=True,
)
async def frame(call: Call) -> Result:
    return await _select(call, f"frame {call[LEVEL]}".rstrip())


@LOOKING.command(
    "up", "Choose the frame of the caller.", arguments=(STEPS,), ranks=True, repeats=True
)
async def up(call: Call) -> Result:
    return await _select(call, _steps("up", call[STEPS]))


@LOOKING.command(
    "down", "Choose the frame of the callee.", arguments=(STEPS,), ranks=True, repeats=True
)
async def down(call: Call) -> Result:
    return await _select(call, _steps("down", call[STEPS]))


def _steps(word: str, count: int) -> str:
    """GDB says that there is no further frame only where the number is left out."""
    return word if count == 1 else f"{word} {count}"

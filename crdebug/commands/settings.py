"""set, show: what a user can choose while a session lasts.

A setting is declared once, with how its value is read and where it is kept; `set`, `show`, their
help and completion derive from the declarations.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from textwrap import indent, wrap
from typing import TypeVar

from crdebug.commands.arguments import rest, word
from crdebug.commands.context import Context
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import Result, Text
from crdebug.errors import BadInput, Refused
from crdebug.travel.automatic import EVERY, Bound
from crdebug.travel.history import History

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """Something to choose. values: what can be, as a usage line shows it.  help: a clause.

    assign: read a value and keep it; raises CrdebugError.  show: the present value, for people.
    """

    name: str
    values: str
    help: str
    assign: Callable[[Context, str], None]
    show: Callable[[Context], str]


def setting(
    name: str,
    values: str,
    help: str,
    *,
    read: Callable[[str], T],
    text: Callable[[T], str],
    get: Callable[[Context], T],
    put: Callable[[Context, T], None],
) -> Setting:
    """Declare one. read: raises BadInput, with what is wrong about the text."""

    def assign(context: Context, word: str) -> None:
        put(context, read(word))

    return Setting(name, values, help, assign, lambda context: text(get(context)))


# ---- the settings ------------------------------------------------------------------------------


def _history(context: Context) -> History:
    found = context.session.history
    if found is None or not found.recorded:
        raise Refused(
            "there are no automatic checkpoints: this job's MPI calls are not recorded",
            hint="start it with 'crdebug run'",
        )
    return found


def read_interval(text: str) -> float:
    """on, off (0), or seconds."""
    if text in ("on", "off"):
        return EVERY if text == "on" else 0.0
    if not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or float(text) == 0:
        raise BadInput(f"'{text}' is neither 'on' nor 'off' nor a number of seconds")
    return float(text)


def interval_text(seconds: float) -> str:
    return f"every {seconds:g} s while the job runs" if seconds else "off"


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def read_bound(text: str) -> Bound:
    """A size (``500M``, ``2GiB``), or a part of the free disk (``10%``)."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:(%)|([kmgt]?)(?:i?b)?)", text.lower(), re.ASCII)
    if found is None or float(found[1]) == 0 or (found[2] and float(found[1]) > 100):
        raise BadInput(f"'{text}' is no size", hint="write 500M, 2G, or a part of the disk: 10%")
    number = float(found[1])
    return Bound(part=number / 100) if found[2] else Bound(max(int(number * _UNITS[found[3]]), 1))


def bound_text(bound: Bound) -> str:
    if not bound.size:
        return f"{bound.part * 100:g}% of the disk that is free without them"
    for unit in ("T", "G", "M", "K"):
        if bound.size >= _UNITS[unit.lower()]:
            return f"{bound.size / _UNITS[unit.lower()]:.3g} {unit}iB"
    return f"{bound.size} bytes"


def _put_interval(context: Context, seconds: float) -> None:
    _history(context).every = seconds


def _put_bound(context: Context, bound: Bound) -> None:
    _history(context).automatic.bound = bound


SETTINGS = (
    setting(
        "auto-checkpoint",
        "on|off|SECONDS",
        "how often checkpoints are taken while the job runs, to go back in time from; of the older "
        "ones fewer are kept",
        read=read_interval,
        text=interval_text,
        get=lambda context: _history(context).every,
        put=_put_interval,
    ),
    setting(
        "auto-checkpoint-disk",
        "SIZE|N%",
        "how much of the disk these may take, as a size (500M, 2G) or as a part of what is free",
        read=read_bound,
        text=bound_text,
        get=lambda context: _history(context).automatic.bound,
        put=_put_bound,
    ),
)


# ---- the commands ------------------------------------------------------------------------------


def _names(context: Context) -> Iterable[str]:
    return (each.name for each in SETTINGS)


def find(name: str) -> Setting:
    """By name, or an unambiguous beginning of it. Raises BadInput, saying which there are."""
    for each in SETTINGS:
        if each.name == name:
            return each
    names = [each.name for each in SETTINGS]
    fitting = [each for each in SETTINGS if each.name.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise BadInput(f"'{name}' is ambiguous: {', '.join(each.name for each in fitting)}")
    close = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean '{close[0]}'? " if close else ""
    raise BadInput(
        f"there is no setting '{name}'",
        hint=f"{guess}settings: {', '.join(names)}; 'gdb set ...' is for those of GDB",
    )


GROUP = Group("settings", "Settings")
NAME = word("NAME", "which one", candidates=_names)
VALUE = rest("VALUE", "see above")
ONE = word("NAME", "which one; without it, all are shown", default="", candidates=_names)


def _entry(each: Setting) -> str:
    return indent(f"set {each.name} {each.values}\n" + indent("\n".join(wrap(each.help)), _IN), _IN)


_IN = " " * 4
_LIST = "\n".join(map(_entry, SETTINGS))


@GROUP.command(
    "set",
    f"""
Choose how crdebug does something, while this session lasts.

{_LIST}

GDB's own settings, and the program's variables, are set with 'gdb set ...'.
""",
    arguments=(NAME, VALUE),
    requires=Requires.ANY,
)
async def set_(call: Call) -> Result:
    chosen = find(call[NAME])
    chosen.assign(call.context, call[VALUE].strip())
    return Text(f"{chosen.name}: {chosen.show(call.context)}")


@GROUP.command(
    "show",
    "Show a setting, or all of them.",
    arguments=(ONE,),
    requires=Requires.ANY,
)
async def show(call: Call) -> Result:
    if call[ONE]:
        chosen = find(call[ONE])
        return Text(f"{chosen.name}: {chosen.show(call.context)}")
    return Text("\n".join(_shown(each, call.context) for each in SETTINGS))


def _shown(each: Setting, context: Context) -> str:
    try:
        return f"{each.name}: {each.show(context)}"
    except Refused as reason:
        return f"{each.name}: {reason.problem}"

"""What a setting is: declared once, with how its value is read, where it is kept, and its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from crdebug.commands.context import Context
from crdebug.config import Settings
from crdebug.errors import BadInput, Refused

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Setting:
    """Something to choose. values: what can be, as a usage line shows it.  help: a clause.

    check: read a value, for what is wrong about it.  assign: keep one.  Both raise CrdebugError.
    show: the present value, for people.
    begin: keep it for a session that is about to begin; None for what only a session has.
    """

    name: str
    values: str
    help: str
    check: Callable[[str], object]
    assign: Callable[[Context, str], None]
    show: Callable[[Context], str]
    begin: Callable[[Settings, str], None] | None = None


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

    return Setting(name, values, help, read, assign, lambda context: text(get(context)))


def of_session(
    name: str,
    values: str,
    help: str,
    *,
    read: Callable[[str], T],
    text: Callable[[T], str],
    get: Callable[[Settings], T],
    put: Callable[[Settings, T], None],
    fixed: str = "",
) -> Setting:
    """Declare one that is kept in crdebug.config.Settings. fixed: why it cannot change later."""

    def begin(settings: Settings, word: str) -> None:
        put(settings, read(word))

    def assign(context: Context, word: str) -> None:
        if fixed:
            read(word)
            raise Refused(f"'{name}' is chosen when a job is started", hint=fixed)
        begin(context.session.settings, word)

    def show(context: Context) -> str:
        return text(get(context.session.settings))

    return Setting(name, values, help, read, assign, show, begin)


# ---- how values are read, and shown -------------------------------------------------------------


def read_switch(text: str) -> bool:
    """on, off."""
    if text not in ("on", "off"):
        raise BadInput(f"'{text}' is neither 'on' nor 'off'")
    return text == "on"


def switch_text(value: bool) -> str:
    return "on" if value else "off"


def reader(kinds: type[E]) -> Callable[[str], E]:
    """Reads one of an enumeration's values."""

    def read(text: str) -> E:
        for each in kinds:
            if each.value == text:
                return each
        raise BadInput(f"'{text}' is none of {', '.join(str(each.value) for each in kinds)}")

    return read


def read_seconds(text: str) -> float:
    """A number of seconds, more than 0."""
    if not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or float(text) == 0:
        raise BadInput(f"'{text}' is no number of seconds")
    return float(text)


def seconds_text(seconds: float) -> str:
    return f"{seconds:g} s"


def read_text(text: str) -> str:
    """Anything but nothing."""
    if not text:
        raise BadInput("a value is missing")
    return text

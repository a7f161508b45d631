"""What a setting is: declared once, with how its value is read, where it is kept, and its words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from crdebug.base import units
from crdebug.base.errors import BadInput, Refused
from crdebug.base.settings import Settings
from crdebug.commands.context import Context

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Setting:
    """Something to choose. values: the possible ones, as a usage line shows them.  help: a clause.

    check: reads a value, to find what is wrong with it. assign: keeps one.  Both raise
    CrdebugError.
    show: the present value, for people.
    begin: keeps it for a session that is about to begin; None for a setting that only a session
    has.
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
    """Declare one. read: raises BadInput, with what is wrong with the text."""

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
    """Declare one that is kept in `Settings`. fixed: why it cannot change later."""

    def begin(settings: Settings, word: str) -> None:
        put(settings, read(word))

    def assign(context: Context, word: str) -> None:
        if fixed:
            read(word)
            raise Refused(f"'{name}' can only be set when the job starts", hint=fixed)
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
        *others, last = (str(each.value) for each in kinds)
        raise BadInput(f"it must be {', '.join(others)} or {last}, not '{text}'")

    return read


def read_seconds(text: str) -> float:
    """A time, more than 0: ``5``, ``5s``, ``1.5h``."""
    try:
        return units.read_seconds(text)
    except ValueError:
        raise BadInput(f"'{text}' is not a time", hint=f"write {units.TIMES}") from None


def reader_or(words: Mapping[str, float]) -> Callable[[str], float]:
    """Reads a time, or one of these words."""

    def read(text: str) -> float:
        if text in words:
            return words[text]
        try:
            return read_seconds(text)
        except BadInput as error:
            either = " nor ".join(f"'{word}'" for word in words)
            raise BadInput(f"'{text}' is neither {either} nor a time", hint=error.hint) from None

    return read


def read_text(text: str) -> str:
    """Anything but nothing."""
    if not text:
        raise BadInput("a value is missing")
    return text

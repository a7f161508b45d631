"""Typed arguments of commands, as data.

An argument is declared once. Parsing, usage lines, help, completion and the manual read the
declaration, and a command finds the value with the declared object as the key, so that the
value's type is known (`call[COUNT]` is an int because COUNT is an `Argument[int]`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from crdebug.base.errors import BadInput
from crdebug.commands.context import Context

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Kind(Enum):
    """Which part of a line an argument takes."""

    WORD = "word"
    REST = "rest"  # of the line, as typed
    FLAG = "flag"  # --name, before the others or after them
    OPTION = "option"  # --name VALUE, likewise
    FORMAT = "format"  # /letters, on the command's name


class Completes(Enum):
    """Who else can complete an argument."""

    NOBODY = "nobody"
    EXPRESSION = "GDB, as after its print"
    LOCATION = "GDB, as after its break"
    COMMAND = "GDB, at its own prompt"
    FILE = "the file system"


class _Missing(Enum):
    MISSING = "missing"


MISSING = _Missing.MISSING


def _no_candidates(context: Context) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Argument(Generic[T_co]):
    """One argument of a command.

    name: as the usage line shows it.  read: the text's value; raises BadInput.
    default: the value when it is left out; without one it must be given.
    candidates, completes: what completion offers.
    value: of an OPTION, what the usage line calls its value.
    """

    name: str
    help: str
    kind: Kind
    read: Callable[[str], T_co]
    default: T_co | _Missing = MISSING
    candidates: Callable[[Context], Iterable[str]] = field(default=_no_candidates)
    value: str = ""
    completes: Completes = Completes.NOBODY

    @property
    def usage(self) -> str:
        match self.kind:
            case Kind.FORMAT:
                return f"[/{self.name}]"
            case Kind.FLAG:
                return f"[{self.name}]"
            case Kind.OPTION:
                return f"[{self.name} {self.value}]"
            case Kind.WORD | Kind.REST:
                return self.name if self.default is MISSING else f"[{self.name}]"


def integer(
    name: str,
    help: str,
    *,
    default: int | _Missing = MISSING,
    candidates: Callable[[Context], Iterable[str]] = _no_candidates,
) -> Argument[int]:
    """A whole number from 1."""
    return _whole(name, help, 1, default, candidates)


def natural(name: str, help: str, *, default: int | _Missing = MISSING) -> Argument[int]:
    """A whole number from 0."""
    return _whole(name, help, 0, default, _no_candidates)


def _whole(
    name: str,
    help: str,
    least: int,
    default: int | _Missing,
    candidates: Callable[[Context], Iterable[str]],
) -> Argument[int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise BadInput(f"{name} is a whole number from {least}, not '{text}'")
        return int(text)

    return Argument(name, help, Kind.WORD, read, default, candidates)


def integers(
    name: str, help: str, *, candidates: Callable[[Context], Iterable[str]] = _no_candidates
) -> Argument[tuple[int, ...]]:
    """Numbers and ranges of them, as GDB takes them: ``1 3-5``. None is the empty tuple."""
    item = re.compile(r"(\d+)(?:-(\d+))?\Z")

    def read(text: str) -> tuple[int, ...]:
        numbers: list[int] = []
        for word in text.replace(",", " ").split():
            match = item.match(word)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise BadInput(f"'{word}' is not a number or a range", hint="write 1 or 3-5")
            numbers.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
        return tuple(dict.fromkeys(numbers))

    return Argument(name, help, Kind.REST, read, (), candidates)


def word(
    name: str,
    help: str,
    *,
    default: str | _Missing = MISSING,
    candidates: Callable[[Context], Iterable[str]] = _no_candidates,
    completes: Completes = Completes.NOBODY,
) -> Argument[str]:
    """One word."""
    return Argument(name, help, Kind.WORD, str, default, candidates, completes=completes)


def rest(
    name: str,
    help: str,
    *,
    default: str | _Missing = MISSING,
    candidates: Callable[[Context], Iterable[str]] = _no_candidates,
    completes: Completes = Completes.NOBODY,
) -> Argument[str]:
    """All that follows, as typed."""
    return Argument(name, help, Kind.REST, str, default, candidates, completes=completes)


def flag(name: str, help: str) -> Argument[bool]:
    """``--name``: True when it is there."""
    return Argument(name, help, Kind.FLAG, lambda text: True, False)


def option(
    name: str, value: str, help: str, *, read: Callable[[str], T], default: T
) -> Argument[T]:
    """``--name VALUE``. A value with blanks in it stands in double quotes."""
    return Argument(name, help, Kind.OPTION, read, default, value=value)


def letters(name: str, help: str) -> Argument[str]:
    """GDB's ``/format`` after a command's name; empty when it is left out."""
    return Argument(name, help, Kind.FORMAT, str, "")


Values = Mapping[Argument[object], object]


def parse(arguments: Sequence[Argument[object]], usage: str, format: str, text: str) -> Values:
    """The values of all arguments, from the text after a command's name.

    format: the letters after a slash on the name.  usage: for the error's hint.
    Raises BadInput for one that is missing, unreadable, or not expected.
    """
    values, text = _options(arguments, usage, text.strip())
    for argument in arguments:
        match argument.kind:
            case Kind.FLAG | Kind.OPTION:
                taken = ""
            case Kind.FORMAT:
                taken, format = format, ""
            case Kind.WORD:
                taken, text = _first_word(text)
            case Kind.REST:
                taken, text = text, ""
        if argument in values:
            continue
        if taken:
            values[argument] = argument.read(taken)
        elif argument.default is MISSING:
            raise BadInput(f"{argument.name} is missing", hint=f"usage: {usage}")
        else:
            values[argument] = argument.default
    if format:
        raise BadInput(f"'/{format}' is not expected here", hint=f"usage: {usage}")
    if text:
        raise BadInput(f"'{text}' is not expected here", hint=f"usage: {usage}")
    return values


def _options(
    arguments: Sequence[Argument[object]], usage: str, text: str
) -> tuple[dict[Argument[object], object], str]:
    """Take flags and options off the ends of a text; one in the middle belongs to the program."""
    named = {a.name: a for a in arguments if a.kind in (Kind.FLAG, Kind.OPTION)}
    flags, options = (
        "|".join(re.escape(a.name) for a in named.values() if a.kind is kind) or "(?!)"
        for kind in (Kind.FLAG, Kind.OPTION)
    )
    one = rf"(?:({flags})|({options})(?:\s+(\"[^\"]*\"|(?!--)\S+))?)"
    first, last = re.compile(rf"{one}(?:\s+|\Z)"), re.compile(rf"(?:\A|\s+){one}\Z")
    values: dict[Argument[object], object] = {}
    while match := first.match(text) or last.search(text):
        argument = named[match[1] or match[2]]
        values[argument] = True if match[1] else _given(argument, match[3], usage)
        text = text[match.end() :] if match.start() == 0 else text[: match.start()]
    return values, text.rstrip()


def _given(argument: Argument[object], text: str | None, usage: str) -> object:
    if text is None:
        raise BadInput(f"{argument.value} is missing after {argument.name}", hint=f"usage: {usage}")
    return argument.read(text.strip('"'))


def _first_word(text: str) -> tuple[str, str]:
    parts = text.split(maxsplit=1)
    return (parts[0] if parts else ""), (parts[1] if len(parts) > 1 else "")

"""One line of GDB's machine interface as a typed value.

The syntax is that of the GDB manual, section "GDB/MI Output Syntax". pygdbmi's parser does the
reading; it is the only part of pygdbmi in use, and this is the only module that knows it. The
parser expects well-formed lines (on an unclosed list it never returns), so that each line's
shape is checked first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pygdbmi import gdbmiparser

from crdebug.base.errors import CrdebugError


class BadRecord(CrdebugError):
    """GDB's record lacks an expected field; `problem` names it."""


@dataclass(frozen=True, slots=True)
class MiList:
    """A list of values, or of results whose names are dropped: ``[frame={…},frame={…}]``."""

    items: tuple[str | MiTuple | MiList, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[str | MiTuple | MiList]:
        return iter(self.items)

    def texts(self) -> tuple[str, ...]:
        """All items as strings. Raises BadRecord if one is none."""
        found = tuple(item for item in self.items if isinstance(item, str))
        if len(found) != len(self.items):
            raise BadRecord("a list of gdb's holds something other than strings")
        return found

    def tuples(self) -> tuple[MiTuple, ...]:
        """All items as tuples. Raises BadRecord if one is none."""
        found = tuple(item for item in self.items if isinstance(item, MiTuple))
        if len(found) != len(self.items):
            raise BadRecord("a list of gdb's holds something other than tuples")
        return found


@dataclass(frozen=True, slots=True)
class MiTuple:
    """Named values, in GDB's order. A name that GDB repeats holds an MiList of all its values."""

    fields: tuple[tuple[str, str | MiTuple | MiList], ...] = ()

    def __contains__(self, name: str) -> bool:
        return any(name == key for key, _ in self.fields)

    def get(self, name: str) -> str | MiTuple | MiList | None:
        """The value of any shape, None if there is none."""
        return next((value for key, value in self.fields if key == name), None)

    def text(self, name: str, default: str | None = None) -> str:
        """A string. Raises BadRecord if it is missing without a default, or no string."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise BadRecord(f"gdb's record has no text '{name}' in {self.names()}")
        return value

    def number(self, name: str, default: int | None = None, base: int = 10) -> int:
        """A string that is a number. base 0 reads 0x… too. Raises BadRecord like `text`."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        try:
            return int(self.text(name), base)
        except ValueError:
            raise BadRecord(f"gdb's '{name}' is not a number: '{value}'") from None

    def tuple(self, name: str) -> MiTuple:
        """A tuple. Raises BadRecord if it is missing or of another shape."""
        value = self.get(name)
        if not isinstance(value, MiTuple):
            raise BadRecord(f"gdb's record has no tuple '{name}' in {self.names()}")
        return value

    def list(self, name: str) -> MiList:
        """A list. An empty tuple is taken for an empty list, as GDB mixes them up.

        Raises BadRecord if it is missing or of another shape.
        """
        value = self.get(name)
        if isinstance(value, MiTuple) and not value.fields:
            return MiList()
        if not isinstance(value, MiList):
            raise BadRecord(f"gdb's record has no list '{name}' in {self.names()}")
        return value

    def names(self) -> str:
        """The names that are there, for messages."""
        return "(" + ", ".join(key for key, _ in self.fields) + ")"


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a command. kind: done, running, connected, error or exit."""

    token: int | None
    kind: str
    payload: MiTuple = MiTuple()


@dataclass(frozen=True, slots=True)
class Async:
    """Something happened. kind: exec (``*``), notify (``=``) or status (``+``).

    name: "stopped", "running", "library-loaded", …
    """

    kind: Literal["exec", "notify", "status"]
    name: str
    payload: MiTuple = MiTuple()


@dataclass(frozen=True, slots=True)
class Stream:
    """Text. kind: console (``~``), log (``&``) or target (``@``)."""

    kind: Literal["console", "log", "target"]
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """``(gdb)``: GDB is ready for input; results are matched by token, so this says nothing."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """A line that is not MI. token: of the result it claims to be, if it can be told."""

    text: str
    token: int | None = None


Record = Result | Async | Stream | Prompt | Garbage

_HEAD = re.compile(r"(?P<token>\d*)(?P<mark>[\^*=+~&@])")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_RESULT = r'[^\s"=,{}\[\]]+="'
_INNERMOST = re.compile(
    rf'\{{(?:{_RESULT}(?:,{_RESULT})*)?\}}|\[(?:(?:{_RESULT}|")(?:,(?:{_RESULT}|"))*)?\]'
)
# The commands of a breakpoint are strings in braces before MI 4, against the manual's grammar.
_SCRIPT = re.compile(r'(?<=script=)\{("(?:[^"\\]|\\.)*"(?:,"(?:[^"\\]|\\.)*")*)\}')
_WHOLE = re.compile(rf"\d*[\^*=+][\w-]+(?:,{_RESULT})*\Z")
_STREAMS: Mapping[str, Literal["console", "log", "target"]] = {
    "~": "console",
    "&": "log",
    "@": "target",
}
_ASYNCS: Mapping[str, Literal["exec", "notify", "status"]] = {
    "*": "exec",
    "=": "notify",
    "+": "status",
}


def parse(line: bytes) -> Record:
    """Read one line, with or without its newline. Never raises: what is not MI is Garbage.

    Bytes that are not UTF-8 are shown as escapes.
    """
    text = line.decode("utf-8", "backslashreplace").rstrip("\r\n")
    if text.rstrip() == "(gdb)":
        return Prompt()
    head = _HEAD.match(text)
    if head is None:
        return Garbage(text)
    token = int(head["token"]) if head["token"] else None
    mark = head["mark"]
    try:
        if mark in _STREAMS:
            return _stream(text, _STREAMS[mark])
        # pygdbmi does not know status records; their syntax is that of the others.
        known = _SCRIPT.sub(r"[\1]", text.replace("+", "=", 1) if mark == "+" else text)
        if not _well_formed(known):
            return Garbage(text, token if mark == "^" else None)
        parsed = gdbmiparser.parse_response(known)
        name, payload = str(parsed["message"]), _tuple(parsed["payload"] or {})
    except (ValueError, LookupError, TypeError, AssertionError, RecursionError):
        return Garbage(text, token if mark == "^" else None)
    if mark == "^":
        return Result(token, name, payload)
    return Async(_ASYNCS[mark], name, payload)


def quote(text: str) -> str:
    """A C string for an MI command's argument, with its quotes ("GDB/MI Input Syntax")."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'


def _stream(text: str, kind: Literal["console", "log", "target"]) -> Record:
    if _STRING.fullmatch(text, 1) is None:
        return Garbage(text)
    # Read as a value: for a stream record, pygdbmi takes time that grows with the square of the
    # text after the last escape.
    parsed = gdbmiparser.parse_response(f"=stream,text={text[1:]}")
    return Stream(kind, str(parsed["payload"]["text"]))


def _well_formed(text: str) -> bool:
    """Strings become ``"``, then the innermost brackets do, until nothing is left to reduce."""
    rest, reduced = _STRING.sub('"', text), 1
    while reduced:
        rest, reduced = _INNERMOST.subn('"', rest)
    return _WHOLE.match(rest) is not None


def _tuple(parsed: Mapping[str, object]) -> MiTuple:
    return MiTuple(tuple((str(name), _value(value)) for name, value in parsed.items()))


def _value(parsed: object) -> str | MiTuple | MiList:
    if isinstance(parsed, dict):
        return _tuple(parsed)
    if isinstance(parsed, list):
        return MiList(tuple(_value(item) for item in parsed))
    return str(parsed)

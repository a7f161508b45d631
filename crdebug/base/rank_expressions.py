"""Rank sets by name, state, predicate and algebra, as users write them in front of a command.

    0,3-7       all       edge       @stopped       all - edge       edge & @running | 5
    @n7         where x > 3           edge & where p != 0       (where x > 3) - 0

    set      := both ("|" both)*
    both     := list (("-" | "&") list)*        from the left
    list     := item ("," item)*
    item     := RANK | RANK "-" RANK | "all" | NAME | "@" WORD | "(" set ")" | "where" EXPRESSION

A word after an ``@`` is a state, or the name of a host, whose domain may be left out.

The expression after `where` is in the program's language. It extends to the end of the text, or to
the closing bracket of the pair that contains it. It is evaluated only on the ranks where its value
matters: in ``edge & where x`` on those of edge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol

from crdebug.base.errors import BadInput
from crdebug.base.gdb_values import closing
from crdebug.base.ranks import RankSet

STATES = ("stopped", "running", "exited", "dead")
"""States after an ``@``: the ranks that are in this state now."""

_TOKEN = re.compile(
    r"\s*(?:(?P<span>\d+(?:\s*-\s*\d+)?)(?!\w)|@(?P<at>[\w.-]*)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>[-&|,()]))",
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_RESERVED = ("all", "where")
_DEPTH = 50  # nested brackets: more are a mistake, and would end in a RecursionError


class Scope(Protocol):
    """The meaning of the words in a rank set."""

    sets: NamedSets

    @property
    def ranks(self) -> RankSet:
        """All of them."""
        ...

    @property
    def hosts(self) -> Mapping[str, RankSet]:
        """By the name of each host, the ranks there."""
        ...

    def in_state(self, word: str) -> RankSet:
        """word: one of STATES."""
        ...

    async def where(self, expression: str, ranks: RankSet) -> RankSet:
        """The ranks of `ranks` on which an expression in the program's language is true."""
        ...


async def resolve(text: str, scope: Scope) -> RankSet:
    """The ranks that a set's text stands for, now.

    Raises BadInput for a text that is not a rank set and for unknown ranks and names, before it
    asks any rank; and the errors of `scope.where`.
    """
    return await _value(_Reader(text, scope).whole(), scope, scope.ranks)


class NamedSets:
    """The sets that the user named. They hold ranks, not the text that was evaluated."""

    def __init__(self) -> None:
        self._sets: dict[str, RankSet] = {}

    def define(self, name: str, ranks: RankSet) -> None:
        """Replaces a set of the same name. Raises BadInput if this is not a name."""
        if _NAME.match(name) is None or name in _RESERVED:
            raise BadInput(f"'{name}' is not a name for a set", hint="write define-set edge 0,3")
        self._sets[name] = ranks

    def undefine(self, name: str) -> None:
        """Raises BadInput if no set has that name."""
        self[name]
        del self._sets[name]

    def __getitem__(self, name: str) -> RankSet:
        try:
            return self._sets[name]
        except KeyError:
            raise BadInput(
                f"there is no rank set '{name}'",
                hint="'info sets' lists them; write 0,2-3, all, @stopped or where EXPR",
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._sets))


# ---- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Where:
    expression: str


@dataclass(frozen=True, slots=True)
class _Operation:
    sign: str
    left: _Node
    right: _Node


_Node = RankSet | _Where | _Operation


async def _value(node: _Node, scope: Scope, among: RankSet) -> RankSet:
    """The ranks of `among` that are in a set."""
    match node:
        case RankSet():
            return node & among
        case _Where(expression):
            return await scope.where(expression, among) if among else among
        case _Operation("&", left, right):
            return await _value(right, scope, await _value(left, scope, among))
        case _Operation("-", left, right):
            found = await _value(left, scope, among)
            return found - await _value(right, scope, found)
        case _Operation(_, left, right):
            found = await _value(left, scope, among)
            return found | await _value(right, scope, among - found)


class _Reader:
    """Recursive descent over one text; it looks names and states up as it reads them."""

    def __init__(self, text: str, scope: Scope) -> None:
        self._text = text
        self._scope = scope
        self._at = 0
        self._open: list[int] = []  # columns of the enclosing brackets

    def whole(self) -> _Node:
        node = self._either()
        if self._text[self._at :].strip():
            self._fail()
        return node

    def _either(self) -> _Node:
        node = self._both()
        while self._take("|"):
            node = _Operation("|", node, self._both())
        return node

    def _both(self) -> _Node:
        node = self._list()
        while sign := self._take("-", "&"):
            node = _Operation(sign, node, self._list())
        return node

    def _list(self) -> _Node:
        node = self._item()
        while self._take(","):
            node = _Operation(",", node, self._item())
        return node

    def _item(self) -> _Node:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self._fail()
        self._at = match.end()
        if match["span"]:
            return RankSet.parse(match["span"], self._scope.ranks)
        if match["at"] is not None:
            return self._at_word(match["at"])
        if match["name"] == "all":
            return self._scope.ranks
        if match["name"] == "where":
            return self._where()
        if match["name"]:
            return self._scope.sets[match["name"]]
        if match["sign"] != "(" or len(self._open) == _DEPTH:
            self._fail()
        self._open.append(match.end() - 1)
        node = self._either()
        if not self._take(")"):
            self._fail()
        self._open.pop()
        return node

    def _at_word(self, text: str) -> RankSet:
        """A state or a host. text: what may belong to it: in ``@stopped-0`` the end does not."""
        word = text
        while True:
            ranks = self._scope.in_state(word) if word in STATES else self._on_host(word)
            if ranks is not None:
                self._at -= len(text) - len(word)
                return ranks
            if "-" not in word:
                break
            word = word.rpartition("-")[0]
        states = ", ".join(f"@{each}" for each in STATES)
        raise BadInput(
            f"'@{text}' is not a state of ranks, and not a host",
            hint=f"states: {states}; 'info hosts' lists the hosts",
        )

    def _on_host(self, word: str) -> RankSet | None:
        hosts = self._scope.hosts
        short = [each for each in hosts if each.partition(".")[0] == word]
        name = word if word in hosts else short[0] if len(short) == 1 else None
        return None if name is None else hosts[name]

    def _where(self) -> _Where:
        end = closing(self._text, self._open[-1]) if self._open else len(self._text)
        if end is None:
            self._fail()
        expression = self._text[self._at : end].strip()
        if not expression:
            raise BadInput("an expression is missing after 'where'", hint="write where x > 3")
        self._at = end
        return _Where(expression)

    def _take(self, *signs: str) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match["sign"] not in signs:
            return ""
        self._at = match.end()
        return str(match["sign"])

    def _fail(self) -> NoReturn:
        raise BadInput(
            f"'{self._text.strip()}' is not a rank set",
            hint="write 0,2-3, all, a set's name, @stopped, where EXPR, or a - b, a & b, a | b",
        )

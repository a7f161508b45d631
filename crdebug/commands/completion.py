"""Completion: what could be typed next, for the console's menu.

crdebug and the file system answer at once (`complete`); the program's names come from a rank's GDB
(`Names`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.errors import BadInput, CrdebugError
from crdebug.base.events import Event, RankRunning, RankStopped
from crdebug.base.gdb_values import closing
from crdebug.base.ranks import RankSet
from crdebug.commands.arguments import Argument, Completes, Kind
from crdebug.commands.context import Context
from crdebug.commands.help import TOPIC, topics
from crdebug.commands.registry import Command, Registry
from crdebug.commands.sets import set_words
from crdebug.commands.settings import VALUE, find

_WORD = re.compile(r"@?\w*\Z")


# The beginning of the line that GDB is to complete.
_GDB = {Completes.EXPRESSION: "print ", Completes.LOCATION: "break ", Completes.COMMAND: ""}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to go on. typed: how many characters before the cursor it replaces."""

    text: str
    typed: int
    summary: str = ""


def complete(registry: Registry, context: Context, before: str) -> tuple[Candidate, ...]:
    """The candidates for a line, given the text before the cursor."""
    text = before.lstrip()
    if not text.startswith("["):
        return tuple(_candidates(registry, context, text, ranks=False))
    end = closing(text, 0)
    if end is not None:
        return tuple(_candidates(registry, context, text[end + 1 :].lstrip(), ranks=True))
    typed = _WORD.search(text)
    assert typed is not None
    return tuple(
        Candidate(word, len(typed[0]))
        for word in set_words(context)
        if typed[0] and word.startswith(typed[0])
    )


def _candidates(
    registry: Registry, context: Context, text: str, *, ranks: bool
) -> Iterator[Candidate]:
    words = text.split()
    if not text or text[-1].isspace():
        words.append("")
    if len(words) == 1:
        yield from _heads(registry, words[0], ranks=ranks)
        return
    for family in registry.families:
        if words[0] in (family.name, *family.aliases):
            if len(words) == 2:
                yield from _members(registry.members(family), words[1], ranks=ranks)
            return
    try:
        command = registry.read(text).command
    except BadInput:
        return
    yield from _arguments(registry, context, command, text, words[-1])


def _heads(registry: Registry, typed: str, *, ranks: bool) -> Iterator[Candidate]:
    heads = {family.name: family.summary for family in registry.families}
    heads |= {c.name: c.summary for c in _fitting(registry.commands, ranks) if " " not in c.name}
    for name in sorted(heads):
        if name.startswith(typed):
            yield Candidate(name, len(typed), heads[name])


def _members(members: Iterable[Command], typed: str, *, ranks: bool) -> Iterator[Candidate]:
    for command in _fitting(members, ranks):
        second = command.name.partition(" ")[2]
        if second.startswith(typed):
            yield Candidate(second, len(typed), command.summary)


def _fitting(commands: Iterable[Command], ranks: bool) -> Iterator[Command]:
    return (command for command in commands if command.takes_ranks or not ranks)


def _arguments(
    registry: Registry, context: Context, command: Command, before: str, typed: str
) -> Iterator[Candidate]:
    rest = registry.read(before).rest.removesuffix(typed).split()
    complete_words = len([word for word in rest if not word.startswith("--")])
    for argument in command.arguments:
        if argument.kind is Kind.WORD and complete_words > 0:
            complete_words -= 1
            continue
        if argument is VALUE:
            yield from _setting_values(before, typed)
        elif argument.completes is Completes.FILE:
            yield from _files(typed)
        if argument.kind in (Kind.FLAG, Kind.OPTION):
            texts: Iterable[str] = (argument.name,) if typed else ()
        elif argument is TOPIC:
            texts = topics(registry)
        else:
            texts = argument.candidates(context)
        for text in texts:
            if text.startswith(typed):
                yield Candidate(text, len(typed), argument.help)


def _setting_values(before: str, typed: str) -> Iterator[Candidate]:
    """The values of a setting that takes one of a few words. before: the line, without a rank
    set."""
    try:
        setting = find(before.split()[1])
    except (BadInput, IndexError):
        return
    for word in setting.values.split("|"):
        if word.islower() and word.startswith(typed):
            yield Candidate(word, len(typed), setting.help)


def _files(typed: str) -> Iterator[Candidate]:
    """Files and directories whose path begins so; a leading ~ is the home directory."""
    head, slash, tail = typed.rpartition("/")
    try:
        directory = Path(head + slash).expanduser()
        found = sorted(directory.iterdir()) if directory.is_dir() else []
    except (OSError, RuntimeError):  # one that cannot be read, or nobody's home
        return
    for path in found:
        if path.name.startswith(tail) and (tail or not path.name.startswith(".")):
            yield Candidate(path.name + ("/" if path.is_dir() else ""), len(tail))


class Names:
    """The program's names, as one stopped rank's GDB knows them; kept until a rank runs."""

    def __init__(self, registry: Registry, context: Context) -> None:
        self._registry = registry
        self._context = context
        self._known: dict[tuple[int, str], tuple[str, ...]] = {}
        context.session.subscribe(self._heard)

    def _heard(self, event: Event) -> None:
        if isinstance(event, RankRunning | RankStopped):
            self._known.clear()

    async def complete(self, before: str) -> tuple[Candidate, ...]:
        """The candidates for a line, given the text before the cursor; none if GDB cannot say in
        time, or no rank is stopped."""
        asked = self._question(before)
        if asked is None:
            return ()
        argument, prefix, typed = asked
        rank = self._rank(before)
        if rank is None:
            return ()
        line = prefix + typed
        if (rank, line) not in self._known:
            try:
                self._known[rank, line] = await self._context.session.complete(rank, line)
            except CrdebugError:
                return ()
        return tuple(
            Candidate(text[len(prefix) :], len(typed), argument.help)
            for text in self._known[rank, line]
            if text.startswith(prefix)
        )

    def _question(self, before: str) -> tuple[Argument[object], str, str] | None:
        """The argument being typed, the beginning of the line for GDB, and what is typed of the
        argument."""
        try:
            line = self._registry.read(before)
        except BadInput:
            return None
        asked = [each for each in line.command.arguments if each.completes in _GDB]
        if not asked or not line.rest or before[-1].isspace():
            return None  # nothing to look for is typed yet
        typed = line.rest
        for argument in line.command.arguments:
            if argument in asked:
                return argument, _GDB[argument.completes], typed
            if argument.kind is Kind.WORD:
                typed = typed.partition(" ")[2].lstrip()
        return None

    def _rank(self, before: str) -> int | None:
        """The rank to query: the first stopped one of the line's literal rank set, or of all
        ranks."""
        session = self._context.session
        stopped = RankSet.of(each.rank for each in session.info_ranks() if each.state == "stopped")
        named = self._context.addressed
        text = before.lstrip()
        end = closing(text, 0) if text.startswith("[") else None
        if end is not None:
            try:
                named = RankSet.parse(text[1:end], session.ranks)
            except BadInput:  # a set with a name, or one that ranks would have to evaluate
                named = session.ranks
        chosen = stopped & named or stopped
        return chosen.first if chosen else None

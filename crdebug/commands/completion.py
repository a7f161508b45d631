"""What could be typed next. Pure: the console turns it into a menu."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crdebug.commands.arguments import Kind
from crdebug.commands.context import Context
from crdebug.commands.help import TOPIC, topics
from crdebug.commands.registry import Command, Registry
from crdebug.commands.sets import set_words
from crdebug.errors import BadInput
from crdebug.values import closing

_WORD = re.compile(r"@?\w*\Z")


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
    yield from _arguments(registry, context, command, words[-1])


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
    registry: Registry, context: Context, command: Command, typed: str
) -> Iterator[Candidate]:
    for argument in command.arguments:
        if argument.kind in (Kind.FLAG, Kind.OPTION):
            texts: Iterable[str] = (argument.name,) if typed else ()
        elif argument is TOPIC:
            texts = topics(registry)
        else:
            texts = argument.candidates(context)
        for text in texts:
            if text.startswith(typed):
                yield Candidate(text, len(typed), argument.help)

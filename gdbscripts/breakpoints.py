"""-crdebug-breakpoints off|count|on: breakpoints, watchpoints and catchpoints during a replay.

off: none of the user's stops the rank, or prints.
count: enabled ones stop it each time, and stay; GDB does not run their commands, and dprintfs print
    nothing. {ignored=[{number, left}], temporary=[NUMBER]}: the ignore counts, which are 0
    meanwhile.
on: everything is as before the last off or count. {gone=[NUMBER]}: those of the user that GDB has
    deleted meanwhile: it deletes a watchpoint of a frame with the frame.

Uses may be nested.
"""

from __future__ import annotations

import re

import gdb

from .snapshot.commands import enable_again
from .wire import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .wire import Answer

FOR_EVER = 1_000_000_000
lasting: set[int] = set()  # the numbers of temporary ones that stay for now
# The work of `on`, the newest last; each returns the deleted ones.
undone: list[Callable[[], list[int]]] = []


def dprintfs() -> list[str]:
    """The numbers of the enabled dprintfs, which GDB's Python does not know."""
    listed = gdb.execute("info breakpoints", to_string=True)
    return re.findall(r"^(\d+)\s+dprintf\s+\S+\s+y", listed, re.M)


def switch(word: str, numbers: Iterable[int | str]) -> None:
    if numbers:
        gdb.execute(f"{word} {' '.join(map(str, numbers))}", to_string=True)


def stay(numbers: list[int]) -> None:
    """Keep GDB from deleting any of these at a hit. To be repeated when one is enabled again."""
    switch(f"enable count {FOR_EVER}", numbers)


def off() -> Answer:
    found, printing = [each for each in gdb.breakpoints() if each.enabled], dprintfs()
    for each in found:
        each.enabled = False
    switch("disable", printing)

    def undo() -> list[int]:
        for each in found:
            if each.is_valid():
                enable_again(each)
        stay([each.number for each in found if each.is_valid() and each.number in lasting])
        switch("enable", printing)
        return []

    undone.append(undo)
    return {}


def count() -> Answer:
    found, printing = [each for each in gdb.breakpoints() if each.enabled], dprintfs()
    known = {each.number: each for each in found}
    temporary = [number for number, each in known.items() if each.temporary]
    commands = {number: each.commands for number, each in known.items() if each.commands}
    ignored = {number: each.ignore_count for number, each in known.items() if each.ignore_count}
    for number in commands:
        known[number].commands = ""
    for number in ignored:
        known[number].ignore_count = 0
    switch("disable", printing)
    stay(temporary)
    lasting.update(temporary)

    def undo() -> list[int]:
        there = {number: each for number, each in known.items() if each.is_valid()}
        for number in there.keys() & commands.keys():
            there[number].commands = commands[number]
        for number in there.keys() & ignored.keys():
            there[number].ignore_count = ignored[number]
        lasting.difference_update(temporary)
        switch("enable delete", [number for number in temporary if number in there])
        switch("enable", printing)
        return sorted(number for number in known.keys() - there.keys() if number > 0)

    undone.append(undo)
    rows = [{"number": str(number), "left": str(left)} for number, left in ignored.items()]
    return {"ignored": rows, "temporary": [str(number) for number in temporary]}


def on() -> Answer:
    return {"gone": [str(each) for each in undone.pop()()] if undone else []}


class Breakpoints(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        try:
            (word,) = arguments
            verb = {"off": off, "count": count, "on": on}[word]
        except (KeyError, ValueError):
            raise gdb.GdbError("off, count or on is expected") from None
        return verb()


Breakpoints(Command.BREAKPOINTS)

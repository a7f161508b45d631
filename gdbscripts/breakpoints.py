"""-crdebug-breakpoints off|count|on: breakpoints, watchpoints and catchpoints while history is run
through.

off: nothing that the user has set stops, or prints.
count: what is enabled stops each time, and stays; its commands are not run, dprintfs print nothing.
    {ignored=[{number, left}], temporary=[NUMBER]}: the ignore counts, which are 0 meanwhile.
on: all is as before the last off or count. {gone=[NUMBER]}: what GDB has deleted meanwhile: it
    gives up a watchpoint of a frame with the frame.

Uses may be nested.
"""

import re

import gdb

from .snapshot.commands import enable_again
from .wire import Command

FOR_EVER = 1_000_000_000
lasting = set()  # the numbers of temporary ones that stay for now
undone = []  # what `on` is to do, the newest last; each returns what is gone


def dprintfs():
    """The numbers of those that are enabled; GDB's Python does not know them."""
    listed = gdb.execute("info breakpoints", to_string=True)
    return re.findall(r"^(\d+)\s+dprintf\s+\S+\s+y", listed, re.M)


def switch(word, numbers):
    if numbers:
        gdb.execute(f"{word} {' '.join(map(str, numbers))}", to_string=True)


def stay(numbers):
    """GDB deletes none of these when it is hit. To be said anew when one was enabled again."""
    switch(f"enable count {FOR_EVER}", numbers)


def off():
    found, printing = [each for each in gdb.breakpoints() if each.enabled], dprintfs()
    for each in found:
        each.enabled = False
    switch("disable", printing)

    def undo():
        for each in found:
            if each.is_valid():
                enable_again(each)
        stay([each.number for each in found if each.is_valid() and each.number in lasting])
        switch("enable", printing)
        return []

    undone.append(undo)
    return {}


def count():
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

    def undo():
        there = {number: each for number, each in known.items() if each.is_valid()}
        for number in there.keys() & commands.keys():
            there[number].commands = commands[number]
        for number in there.keys() & ignored.keys():
            there[number].ignore_count = ignored[number]
        lasting.difference_update(temporary)
        switch("enable delete", [number for number in temporary if number in there])
        switch("enable", printing)
        return sorted(known.keys() - there.keys())

    undone.append(undo)
    rows = [{"number": str(number), "left": str(left)} for number, left in ignored.items()]
    return {"ignored": rows, "temporary": [str(number) for number in temporary]}


def on():
    return {"gone": [str(each) for each in undone.pop()()] if undone else []}


class Breakpoints(gdb.MICommand):
    def invoke(self, arguments):
        try:
            (word,) = arguments
            verb = {"off": off, "count": count, "on": on}[word]
        except (KeyError, ValueError):
            raise gdb.GdbError("off, count or on is expected") from None
        return verb()


Breakpoints(Command.BREAKPOINTS)

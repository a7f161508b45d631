"""Reverse execution: back to the last breakpoint.

Sourced after walk_lines.py, into the same namespace.

The user's breakpoints are points of one run from the origin to the end, which counts them; the
last that stops (its condition holds, it is not of another thread) is the answer. Conditions are
evaluated from the end backwards, in runs that look at more and more of the passages.
"""

import re

import gdb
from __main__ import (
    COUNT,
    STOP,
    BeforeOrigin,
    FromEarlier,
    flush,
    point_at,
    reach,
)

FEW = 64  # passages that are looked at first; then as many times more


def locations_of(breakpoint):
    """The addresses at which a breakpoint is, as far as they are enabled."""
    if hasattr(breakpoint, "locations"):  # GDB 13.1
        return [each.address for each in breakpoint.locations if each.enabled]
    text = gdb.execute(f"info breakpoints {breakpoint.number}", to_string=True)
    return [int(each, 16) for each in re.findall(r"^[\d.]+\s.*\by\s+(0x[0-9a-f]+)", text, re.M)]


def user_breakpoints():
    """By address: those that may stop the selected thread."""
    found = {}
    thread = gdb.selected_thread()
    for each in gdb.breakpoints():
        if not each.enabled or not each.visible or each.pending:
            continue
        if each.thread is not None and each.thread != thread.num:
            continue
        if each.type in (gdb.BP_BREAKPOINT, gdb.BP_HARDWARE_BREAKPOINT):
            for address in locations_of(each):
                found.setdefault(address, []).append(each)
    return found


def holds(breakpoint):
    """Does its condition hold where the thread stands? One that cannot be told does, as in GDB."""
    if breakpoint.condition is None:
        return True
    try:
        return bool(gdb.parse_and_eval(breakpoint.condition))
    except gdb.error:
        return True


class Stops:
    """What the user wants to be stopped by, between the origin and the end of a search."""

    def __init__(self, search):
        self.search = search
        self.engine = search.engine
        self.places = user_breakpoints()

    def last(self):
        """The last passage that stops: moves and the breakpoint's number; None if there is none."""
        search = self.search
        if not self.places:
            return None
        stop = search.go(search.start, search.end)
        counters = [point_at(address, COUNT) for address in self.places]
        self.engine.run([*counters, stop])
        totals = {each.address: each.hits for each in counters if each.hits}
        if not totals:
            return None
        plain = {
            address
            for address in totals
            if any(each.condition is None for each in self.places[address])
        }
        newest = max((each for each in counters if each.hits), key=lambda each: each.last)
        if newest.address in plain:
            return self.passage(newest.address, newest.hits), self.number(newest.address)
        everything, few, behind = sum(totals.values()), FEW, 0
        while True:
            first = max(everything - few, 0)
            found = self.last_of(first, everything - behind)
            if found is not None:
                return found
            if first == 0:
                return None
            behind, few = few, few * 16

    def last_or_before(self):
        """`last`; raises BeforeOrigin where it gives None."""
        found = self.last()
        if found is None and self.search.late:
            raise FromEarlier
        if found is None:
            raise BeforeOrigin(self.search.levels[-1])
        return found

    def number(self, address):
        return next(e.number for e in self.places[address] if e.condition is None)

    def passage(self, address, count):
        return (*self.search.start.moves, reach(address, None, count))

    def last_of(self, first, last):
        """The last that stops of the passages number first + 1 to `last` of all of them."""
        search, found = self.search, None
        search.go(search.start)
        seen = dict.fromkeys(self.places, 0)
        total = 0
        if first:
            # At full speed to where it begins to matter.
            total = self.skip(first, seen)
        while total < last:
            points = [point_at(address, STOP, 1) for address in self.places]
            reached = self.engine.run(points)
            seen[reached.address] += 1
            total += 1
            flush()
            for each in self.places[reached.address]:
                if holds(each):
                    found = self.passage(reached.address, seen[reached.address]), each.number
        return found

    def skip(self, count, seen):
        """Run to the count-th passage of all."""
        points = [point_at(address, COUNT) for address in self.places]
        self.engine.run(points, count)
        for each in points:
            seen[each.address] = each.hits
        return count

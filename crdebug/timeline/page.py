"""`timeline --html`: the history as one self-contained page.

Ranks are rows, calls run to the right, in columns that follow causality; messages are arrows,
collectives bars, checkpoints and marks lines through their cut. The page holds its data as JSON,
and draws what is visible on a canvas (page.js); it asks no network for anything, and its content
security policy forbids it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

from crdebug.base.instant import Cut
from crdebug.timeline.branches import Branch
from crdebug.timeline.calls import Call
from crdebug.timeline.columns import columns
from crdebug.timeline.matching import Matching
from crdebug.timeline.messages import message
from crdebug.timeline.text import Place, Site

CALLS = 100_000  # at most on the page; a browser draws these without delay


@dataclass(frozen=True, slots=True)
class Picture:
    """What the page is made of. here: where the ranks stand; ends: where their records end.
    under_way: by rank, a call that has not returned. focus: the rank whose ticks are the scale."""

    title: str
    logs: Mapping[int, Sequence[Call]]
    matching: Matching
    ends: Cut
    here: Cut | None = None
    checkpoints: Sequence[Place] = ()
    marks: Sequence[Place] = ()
    branches: Sequence[Branch] = ()
    under_way: Mapping[int, Call] = field(default_factory=dict)
    focus: int = 0


def page(picture: Picture, site: Site = lambda _rank, _tick: "", *, calls: int = CALLS) -> str:
    """The HTML. calls: how many are shown, those around where the ranks stand; the page says what
    it leaves out."""
    data = page_data(picture, site, calls=calls)
    # "</script>" inside of JSON would end the element (HTML, section 4.12.1.3)
    embedded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    here = files("crdebug.timeline")
    script = here.joinpath("page.js").read_text(encoding="utf-8")
    parts = {"TITLE": escape(picture.title), "SCRIPT": script, "DATA": embedded}
    # at once: what is put in may look like a place for more
    return re.sub(
        r"@(TITLE|SCRIPT|DATA)@",
        lambda place: parts[place[1]],
        here.joinpath("page.html").read_text(encoding="utf-8"),
    )


def page_data(picture: Picture, site: Site, *, calls: int = CALLS) -> dict[str, Any]:
    """What is embedded. Names and lines are numbers into tables, for there are few of them."""
    window, left_out = _window(picture, calls)
    names: dict[str, int] = {}
    rows: list[list[list[Any]]] = []
    shown = _shown(picture, window)
    for rank, own in enumerate(shown):
        now = picture.under_way.get(rank)
        rows.append(
            [
                [
                    call.tick,
                    call.repeats,
                    _number(names, call.told + (" (has not returned)" if call is now else "")),
                    _number(names, site(rank, call.tick)),
                    _number(names, call.kind.value),
                    call.peer if call.source2 is None else [call.peer, call.source2],
                    call.tag,
                    call.bytes,
                    _number(names, call.comm),
                ]
                for call in own
            ]
        )
    arrows, more = _arrows(picture, window)
    if more:
        left_out.append(f"{more} messages that begin or end outside of what is shown")
    bars = _bars(picture, window, names)
    _add_columns(shown, rows, arrows, bars)
    return {
        "ranks": len(picture.ends),
        "focus": picture.focus,
        "ends": list(picture.ends),
        "here": None if picture.here is None else list(picture.here),
        "calls": rows,
        "messages": arrows,
        "collectives": bars,
        "checkpoints": [[place.name, *place.cut] for place in picture.checkpoints],
        "marks": [[place.name, *place.cut] for place in picture.marks],
        "branches": [
            [branch.name, branch.parent or "", branch.note, *branch.cut]
            for branch in picture.branches
        ],
        "names": list(names),
        "leftOut": left_out,
    }


def _number(names: dict[str, int], name: str) -> int:
    return names.setdefault(name, len(names))


def _window(picture: Picture, most: int) -> tuple[dict[int, tuple[int, int]], list[str]]:
    """The range of calls that is shown, by rank, and sentences about the rest."""
    share = max(most // max(len(picture.ends), 1), 1)
    window: dict[int, tuple[int, int]] = {}
    told = []
    for rank in range(len(picture.ends)):
        log = picture.logs.get(rank, ())
        tick = (picture.here or picture.ends)[rank].entered
        middle = bisect_left(log, tick, key=lambda call: call.tick)
        first = max(min(middle - share // 2, len(log) - share), 0)
        last = min(first + share, len(log))
        window[rank] = (first, last)
        if last - first < len(log):
            ticks = f"ticks {log[first].tick} to {log[last - 1].tick}"
            told.append(f"rank {rank}: {len(log) - last + first} calls outside of {ticks}")
    return window, told


def _shown(picture: Picture, window: dict[int, tuple[int, int]]) -> list[list[Call]]:
    """The calls of each rank that are in the window; the one that it is in is the last of all."""
    found = []
    for rank in range(len(picture.ends)):
        log, (first, last) = picture.logs.get(rank, ()), window[rank]
        now = picture.under_way.get(rank)
        found.append([*log[first:last], *([now] if now is not None and last == len(log) else [])])
    return found


def _ticks(picture: Picture, window: dict[int, tuple[int, int]], rank: int) -> tuple[int, int]:
    first, last = window[rank]
    log = picture.logs.get(rank, ())
    return (log[first].tick, log[last - 1].tick) if first < last else (1, 0)


def _arrows(picture: Picture, window: dict[int, tuple[int, int]]) -> tuple[list[list[Any]], int]:
    """Sender, tick, receiver, post tick, receive tick, tag, bytes; and how many are left out."""
    shown: list[list[Any]] = []
    more = 0
    for rank, state in sorted(picture.matching.ranks.items()):
        low, high = _ticks(picture, window, rank)
        rows = range(state.sends.at(low).start, state.sends.at(high).stop)
        more += len(state.sends.tick) - len(rows)
        for index in rows:
            if state.sends.cancelled[index]:
                continue
            m = message(picture.matching, rank, index)
            first, last = _ticks(picture, window, m.receiver)
            if m.received is not None and not first <= m.received <= last:
                more += 1
                continue
            shown.append([rank, m.sent, m.receiver, m.posted, m.received, m.tag, m.bytes])
    return shown, more


def _add_columns(
    shown: Sequence[Sequence[Call]],
    rows: list[list[list[Any]]],
    arrows: list[list[Any]],
    bars: list[list[Any]],
) -> None:
    """Each call's column, as its last entry."""
    received = [(m[0], m[1], m[2], m[4]) for m in arrows if m[4] is not None]
    found = columns(shown, received, [bar[3] for bar in bars])
    for row, own in zip(rows, found, strict=True):
        for call, column in zip(row, own, strict=True):
            call.append(column)


def _bars(
    picture: Picture, window: dict[int, tuple[int, int]], names: dict[str, int]
) -> list[list[Any]]:
    """Name, communicator, root, and rank and tick of each participant that is shown."""
    bars = []
    for succession in picture.matching.successions.values():
        numbers: set[int] = set()
        for rank, ticks in succession.entered.items():
            low, high = _ticks(picture, window, rank)
            numbers |= {*range(ticks.first_at(low), ticks.first_at(high + 1))}
        for number in sorted(numbers):
            instance = succession.instance(number)
            shown = [
                [rank, tick]
                for rank, tick in sorted(instance.entered.items())
                if _ticks(picture, window, rank)[0] <= tick <= _ticks(picture, window, rank)[1]
            ]
            name, comm = _number(names, instance.name), _number(names, instance.comm)
            bars.append([name, comm, instance.root, shown])
    return bars

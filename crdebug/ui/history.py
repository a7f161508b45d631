"""A job's history as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from crdebug.base.instant import Cut
from crdebug.base.ranks import RankSet
from crdebug.base.units import bytes_text
from crdebug.timeline.text import clock_text, timeline_text, when_text
from crdebug.ui.tables import table

if TYPE_CHECKING:
    from crdebug.base.events import Location
    from crdebug.session.values import Communicator, OnTheWay, Overview, Stock


def when(overview: Overview, ranks: RankSet) -> str:
    """Where these ranks are in the history, and the nearest marks and checkpoints."""
    own = "'checkpoint' takes one"
    taken = f"'continue' takes one before it runs, {own} now" if overview.keeps else own
    hint = f"no checkpoint ({taken})"
    if overview.in_memory:
        hint = "'continue' keeps a snapshot" if overview.keeps else "'set auto-checkpoint' is 0"
    return when_text(
        ranks,
        overview.here,
        overview.ends,
        focus=overview.focus,
        before=overview.before,
        earliest=overview.earliest,
        marks=overview.marks,
        hint=hint,
    )


def timeline(overview: Overview, width: int = 0) -> str:
    """The history as a line for each rank, and a legend. width: of a terminal."""
    return timeline_text(
        overview.ends,
        overview.here,
        overview.checkpoints,
        overview.marks,
        overview.automatic,
        logs=overview.logs,
        width=width or 80,
        focus=overview.focus,
    )


def snapshot_table(
    stock: Stock, focus: int, marks: Iterable[tuple[str, Cut]], width: int = 0
) -> str:
    """Snapshots in memory, seen from a rank; below them, what they hold and cost."""
    rows = []
    for each in stock.kept:
        names = ", ".join(name for name, cut in marks if cut == each.cut)
        rows.append(
            (
                clock_text(each.cut[focus]) + (f" ({names})" if names else ""),
                f"{abs(each.age):.1f} s ago" if each.age > -0.05 else f"{-each.age:.1f} s ahead",
                "" if each.alone is None else bytes_text(each.alone),
                "copied" if each.copied else "frozen",
            )
        )
    header = (f"rank {focus} at", "taken", "memory", "way")
    lines = [table(header, rows, width) if rows else "there are no snapshots"]
    if stock.why_not:
        lines.append(f"the last one could not be taken: {stock.why_not}")
    if stock.bound:
        held, bound = bytes_text(stock.held), bytes_text(stock.bound)
        lines.append(f"together they hold {held} at most, and may hold {bound}")
    parts = f"snapshots {_percent(stock.snapshots)}, checkpoints {_percent(stock.checkpoints)}"
    lines.append(f"their share of {stock.run:.1f} s of run: {parts}")
    if not stock.budget:
        lines.append("none are taken while the job runs ('set snapshot-cost')")
    else:
        budget = f"'set snapshot-cost' allows {_percent(stock.budget)}"
        lines.append(f"{budget}: a snapshot every {stock.interval:.1f} s of run now")
    return "\n".join(lines)


def _percent(part: float) -> str:
    return f"{round(part * 100, 1):g}%"


def message_table(on_the_way: OnTheWay, width: int = 0) -> str:
    """Messages in flight, then open receives."""
    rows = [*_sent(on_the_way), *_awaited(on_the_way)]
    if not rows:
        return (
            "no messages are in flight, and no receive waits "
            "('why-blocked' tells which calls the ranks wait in)"
        )
    return table(("what", "from", "to", "tag", "bytes", "communicator", "where"), rows, width)


def communicator_table(found: Iterable[Communicator], width: int = 0) -> str:
    """A line for each: its members, in its own order, and who has freed it."""
    rows = []
    for each in found:
        ordered = tuple(sorted(each.members)) == each.members
        members = f"{RankSet.of(each.members)}" if ordered else ",".join(map(str, each.members))
        freed = f"freed by {each.freed}" if each.freed else ""
        rows.append((each.name, members, str(each.collectives), freed))
    return table(("communicator", "ranks", "collectives", ""), rows, width)


def _sent(on_the_way: OnTheWay) -> Iterator[tuple[str, ...]]:
    for each, where in on_the_way.sent:
        kind = "sent" if each.posted is not None else "sent, unmatched"
        yield (
            kind,
            f"{each.sender} (tick {each.sent})",
            str(each.receiver),
            str(each.tag),
            str(each.bytes),
            each.comm,
            _place(where),
        )


def _awaited(on_the_way: OnTheWay) -> Iterator[tuple[str, ...]]:
    for each, where in on_the_way.awaited:
        sent = "" if each.sent is None else f" (tick {each.sent})"
        source = "any" if each.sender is None else str(each.sender)
        yield (
            "awaited",
            f"{source}{sent}",
            f"{each.receiver} (tick {each.posted})",
            "any" if each.tag is None else str(each.tag),
            "",
            each.comm,
            _place(where),
        )


def _place(where: Location | None) -> str:
    return "" if where is None else str(where)

"""A job's history as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from crdebug.timeline.text import timeline_text, when_text
from crdebug.ui.tables import table

if TYPE_CHECKING:
    from crdebug.base.events import Location
    from crdebug.base.ranks import RankSet
    from crdebug.travel.goto_partner import OnTheWay
    from crdebug.travel.overview import Overview


def when(overview: Overview, ranks: RankSet) -> str:
    """Where these ranks are in the history, and what is near."""
    own = "'checkpoint' takes one"
    return when_text(
        ranks,
        overview.here,
        overview.ends,
        focus=overview.focus,
        before=overview.before,
        earliest=overview.earliest,
        marks=overview.marks,
        hint=f"'continue' takes one before it runs, {own} now" if overview.keeps else own,
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


def message_table(on_the_way: OnTheWay, width: int = 0) -> str:
    """Messages that were sent and not received, then receives that wait."""
    rows = [*_sent(on_the_way), *_awaited(on_the_way)]
    if not rows:
        return "no message is on its way, and no receive waits"
    return table(("what", "from", "to", "tag", "bytes", "communicator", "where"), rows, width)


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

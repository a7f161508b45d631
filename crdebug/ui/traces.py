"""What trace points have noted, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from crdebug.base.answers import Answers, classes
from crdebug.ui.answers import errors
from crdebug.ui.tables import table

if TYPE_CHECKING:
    from crdebug.session.values import Traced


def trace_table(
    names: Sequence[str], found: Answers[Traced], last: int, width: int = 0
) -> Iterator[str]:
    """How often the ranks came there; then the last hits, a line for ranks with equal values."""
    for ranks, hits in classes((rank, each.hits) for rank, each in found.values.items()):
        yield f"[{ranks}] {hits} hit{'' if hits == 1 else 's'}"
    end = max((each.hits for each in found.values.values()), default=0)
    rows = []
    for hit in range(max(end - last, 0) + 1, end + 1):
        there = (
            (rank, each.rows[hit - 1 - each.hits])
            for rank, each in found.values.items()
            if each.hits - len(each.rows) < hit <= each.hits
        )
        rows += [(str(hit), f"{ranks}", *values) for ranks, values in classes(there)]
    if rows:
        yield table(("hit", "ranks", *names), rows, width)
    yield from errors(found)

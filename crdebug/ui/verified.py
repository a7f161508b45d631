"""What `verify` has found, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crdebug.session.values import Verified

_SHOWN = 10


def verified_text(each: Verified) -> Iterator[str]:
    """The verdict, and the variables that differ: the first one in front."""
    last = each.places[-1][each.focus].entered
    piece = f"from {each.start} to call {last} of rank {each.focus}"
    if each.other:
        yield f"{piece}; then the second time went another way: {each.other}"
    elif not each.found:
        yield (
            f"{piece}, both times the same: {each.compared} variables, compared at "
            f"{len(each.places) - 1} places"
        )
    else:
        yield f"{piece}, the second time was not as the first:"
    for one in each.found[:_SHOWN]:
        before, at = (each.places[one.place + n][one.rank].tick for n in (0, 1))
        when = f"at tick {at}" if at <= before + 1 else f"between ticks {before} and {at}"
        values = f": {one.first}, then {one.second}" if one.first else ""
        yield f"  [{one.rank}] {one.name}{values}, {when} of rank {one.rank}"
    if len(each.found) > _SHOWN:
        yield f"  and {len(each.found) - _SHOWN} more"
    if each.partly:
        yield f"({each.partly.words}: there are too many variables to compare all)"

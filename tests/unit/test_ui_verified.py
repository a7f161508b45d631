"""The text of `verify`."""

from __future__ import annotations

from crdebug.base.instant import Instant
from crdebug.base.ranks import RankSet
from crdebug.timeline.differences import Difference
from crdebug.travel.verify import Verified
from crdebug.ui.verified import verified_text

PLACES = tuple((Instant.after(a), Instant.after(b)) for a, b in ((0, 0), (4, 3), (5, 9)))


def told(**more: object) -> list[str]:
    return [*verified_text(Verified("checkpoint 1", 0, PLACES, 7, **more))]  # type: ignore[arg-type]


def test_the_same() -> None:
    assert told(found=()) == [
        "from checkpoint 1 to call 5 of rank 0, both times the same: 7 variables, "
        "compared at 2 places"
    ]


def test_where_not_all_were_compared_it_says_so() -> None:
    (_, note) = told(found=(), partly=RankSet.of([1]))
    assert note == "(rank 1: there are too many variables to compare all)"


def test_what_differs_and_when() -> None:
    found = Difference(0, 1, "x", "2", "3"), Difference(1, 1, "*u in main", "", "")
    assert told(found=found) == [
        "from checkpoint 1 to call 5 of rank 0, the second time was not as the first:",
        "  [0] x: 2, then 3, at tick 5 of rank 0",
        "  [1] *u in main, between ticks 3 and 9 of rank 1",
    ]


def test_another_way_and_many() -> None:
    found = tuple(Difference(0, 0, f"x{n}", "1", "2") for n in range(12))
    title, *lines = told(found=found, other="call 7 is another one")
    assert title.endswith("; then the second time went another way: call 7 is another one")
    assert lines[-1] == "  and 2 more" and len(lines) == 11

"""Where a rank is in its history, by the numbers that the layer counts."""

from __future__ import annotations

import pytest

from crdebug.base.instant import BEGINNING, Instant, beginning, cut_of


@pytest.mark.parametrize("tick", [1, 2, 7, 10**12])
def test_before_a_call_inside_it_and_after_it(tick: int) -> None:
    before, inside, after = Instant.before(tick), Instant.within(tick), Instant.after(tick)
    assert [before, inside, after] == sorted([after, before, inside])
    assert [each.inside for each in (before, inside, after)] == [False, True, False]
    assert [each.tick for each in (before, inside, after)] == [tick - 1, tick - 1, tick]
    assert [each.entered for each in (before, inside, after)] == [tick - 1, tick, tick]
    assert [each.ticks for each in (before, inside, after)] == [tick - 1, tick - 0.5, tick]


def test_the_way_from_there() -> None:
    before, inside, after = cut_of(4, 5, 6)
    assert (before.entry, inside.entry, after.entry) == (before, before, after)
    assert (before.exit, inside.exit, after.exit) == (before, after, after)
    assert (before.before_return, inside.before_return) == (inside, inside)
    assert (after.in_last_call, inside.in_last_call) == (inside, Instant.within(2))
    assert (inside.back(1), after.back(-2), BEGINNING.back(1) < BEGINNING) == (3, 10, True)
    assert all(type(each) is Instant for each in (before.entry, inside.back(1), after.in_last_call))


def test_before_the_first_call_there_is_nothing() -> None:
    assert BEGINNING == Instant.before(1) == BEGINNING.in_last_call == BEGINNING.exit
    assert not BEGINNING.tick and not BEGINNING.entered and not BEGINNING.inside
    assert beginning(3) == cut_of(0, 0, 0) == (BEGINNING,) * 3

"""Thinning of checkpoints, searching for a moment, branches: pure functions, as lists."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import pytest

from crdebug.base.errors import BadInput, Refused
from crdebug.base.instant import cut_of
from crdebug.timeline.branches import Branches
from crdebug.timeline.search import Found, Outcome, Seen, first_moment
from crdebug.timeline.text import branches_text
from crdebug.timeline.thinning import GAP, Dated, Drop, thin

# ---- thinning ----------------------------------------------------------------------------------


def run_for(seconds: int, interval: int = 1, bound: int | None = None) -> list[Dated]:
    """A checkpoint each interval, thinned each time."""
    kept: list[Dated] = []
    for now in range(0, seconds + 1, interval):
        kept.append(Dated(f"auto-{now}", float(now), 10))
        dropped = {drop.name for drop in thin(kept, now, bound)}
        kept = [checkpoint for checkpoint in kept if checkpoint.name not in dropped]
    return kept


def test_the_number_grows_with_the_logarithm() -> None:
    counts = [len(run_for(10**digits)) for digits in (2, 3, 4)]
    growth = [after - before for before, after in itertools.pairwise(counts)]
    assert 0 < growth[1] <= 1.3 * growth[0]
    assert counts[2] < 10 * math.log(10**4)


def test_a_gap_is_never_more_than_a_part_of_its_age() -> None:
    for seconds in range(1, 400):
        kept = run_for(seconds)
        assert (kept[0].at, kept[-1].at) == (0, seconds)
        for before, after in itertools.pairwise(kept):
            assert after.at - before.at <= max(1, GAP * (seconds - after.at))


def test_what_the_user_made_is_never_dropped() -> None:
    mine = [Dated(f"mine-{n}", n / 10, 10**9, automatic=False) for n in range(50)]
    assert thin(mine, 1000, bound=0) == ()
    others = [Dated(f"auto-{n}", n / 10 + 0.05, 10) for n in range(50)]
    dropped = {drop.name for drop in thin([*others, *mine], 1000, bound=0)}
    assert dropped == {other.name for other in others[:-1]}  # the last one is not old yet


def test_the_disk_bound_is_kept_and_the_first_and_the_last_go_last() -> None:
    for bound in range(20, 300, 10):
        kept = run_for(200, bound=bound)
        assert sum(checkpoint.bytes for checkpoint in kept) <= bound
        assert (kept[0].at, kept[-1].at) == (0, 200)
    assert [checkpoint.at for checkpoint in run_for(200, bound=10)] == [200]
    assert [checkpoint.at for checkpoint in run_for(200, bound=1)] == [200]


def test_a_message_says_what_is_dropped_and_why() -> None:
    close = [Dated("a", 0, 5), Dated("b", 1, 6), Dated("c", 2, 7)]
    assert thin(close, 100) == (Drop("b", "its neighbours are 2 s apart, 98 s ago", 6),)
    (drop,) = thin(close[:2], 2, bound=10)
    assert drop == Drop("a", "automatic checkpoints took 11 bytes, more than 10", 5, forced=True)


def test_thinning_twice_is_thinning_once() -> None:
    for seed in range(50):
        chooser = random.Random(seed)
        kept = [
            Dated(str(n), chooser.uniform(0, 100), chooser.randrange(9), chooser.random() < 0.8)
            for n in range(chooser.randrange(1, 40))
        ]
        dropped = {drop.name for drop in thin(kept, 100, 50)}
        left = [checkpoint for checkpoint in kept if checkpoint.name not in dropped]
        assert thin(left, 100, 50) == ()


# ---- searching ---------------------------------------------------------------------------------


def search(
    oracle: Callable[[int], Seen],
    coarse: Sequence[int],
    *finer: Callable[[int, int], Sequence[int]],
) -> tuple[Found, list[int]]:
    steps, looked = first_moment(coarse, *finer), list[int]()
    try:
        place = next(steps)
        while True:
            looked.append(place)
            place = steps.send(oracle(place))
    except StopIteration as end:
        found: Found = end.value
        assert found.probes == len(looked) == len(set(looked))  # nowhere twice
        return found, looked


def ticks(low: int, high: int) -> range:
    return range(low + 1, high)


def test_the_first_moment_is_found_wherever_it_is() -> None:
    coarse = [0, 7, 8, 30, 31, 64]
    for moment in range(1, 65):
        found, looked = search(partial(operator.le, moment), coarse, ticks)
        assert (found.outcome, found.at, found.before) == (Outcome.FOUND, moment, moment - 1)
        assert found.note is None
        first_fine = next((n for n, place in enumerate(looked) if place not in coarse), len(looked))
        assert all(place not in coarse for place in looked[first_fine:])


def test_a_million_ticks_take_some_twenty_looks() -> None:
    found, _ = search(lambda place: place >= 765_432, [0, 500_000, 2_000_000], ticks)
    assert found.at == 765_432
    assert found.probes <= 3 + 21


def test_only_the_checkpoints_where_there_is_nothing_finer() -> None:
    found, _ = search(lambda place: place >= 5, [0, 4, 8])
    assert (found.at, found.before) == (8, 4)


def test_finer_places_outside_of_the_interval_are_left_out() -> None:
    found, looked = search(lambda place: place >= 5, [0, 4, 8], lambda _low, _high: range(100))
    assert found.at == 5
    assert max(looked) == 8


def test_contradictory_ends_are_reported() -> None:
    found, looked = search(lambda _: True, [3, 9], ticks)
    assert (found.outcome, found.at, looked) == (Outcome.AT_START, 3, [3])
    assert found.note == "it is true at the start already"
    found, looked = search(lambda place: place == 5, [3, 9], ticks)
    assert (found.outcome, found.at, looked) == (Outcome.NEVER, None, [3, 9])
    assert found.note == "it is false at the end"
    with pytest.raises(ValueError, match="start"):
        search(lambda _: True, [])


def test_a_condition_that_cannot_be_evaluated_is_false_and_reported() -> None:
    found, _ = search(lambda place: None if place < 4 else place >= 6, [0, 8], ticks)
    assert found.at == 6
    assert 0 in found.unknown
    assert found.note is not None
    assert "could not be evaluated" in found.note


# ---- branches ----------------------------------------------------------------------------------

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def test_a_tree_of_branches() -> None:
    tree = Branches().add(cut_of(10, 12), NOON, name="fixed", note="x = 3")
    tree = tree.add(cut_of(14, 20), NOON).switch("main").add(cut_of(8, 30), NOON)
    assert tree.current == "branch-3"
    assert [(depth, branch.name) for depth, branch in tree] == [
        (0, "main"),
        (1, "fixed"),
        (2, "branch-2"),
        (1, "branch-3"),
    ]
    assert [branch.name for branch in tree.line("branch-2")] == ["main", "fixed", "branch-2"]
    assert branches_text(tree, focus=1).splitlines() == [
        "  main",
        "    fixed  left main at tick 6 of rank 1  12:00:00  x = 3",
        "      branch-2  left fixed at tick 10 of rank 1  12:00:00",
        "*   branch-3  left main at tick 15 of rank 1  12:00:00",
    ]


def test_the_common_history_of_two_branches() -> None:
    tree = Branches().add(cut_of(10, 12), NOON, name="a").add(cut_of(14, 20), NOON, name="b")
    tree = tree.switch("main").add(cut_of(8, 30), NOON, name="c")
    assert tree.common("b", "c") == (8, 12)
    assert tree.common("a", "b") == (14, 20)
    assert tree.common("main", "b") == (10, 12)
    assert tree.common("a", "a") is None


def test_what_branches_refuse() -> None:
    tree = Branches().add(cut_of(1), NOON, name="a").add(cut_of(2), NOON, name="b")
    with pytest.raises(BadInput, match="'a' already"):
        tree.add(cut_of(1), NOON, name="a")
    with pytest.raises(BadInput, match="no branch 'x'"):
        tree.switch("x")
    with pytest.raises(Refused, match="is on branch 'b'"):
        tree.remove("b")
    with pytest.raises(Refused, match="'b' left it"):
        tree.switch("main").remove("a")
    assert [*tree.switch("main").remove("b").known] == ["main", "a"]
    # a name is not reused, whatever was removed
    more = Branches().add(cut_of(1), NOON).switch("main").add(cut_of(1), NOON).remove("branch-1")
    assert [*more.add(cut_of(1), NOON).known] == ["main", "branch-2", "branch-3"]

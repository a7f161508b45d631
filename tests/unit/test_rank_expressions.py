"""Rank sets by name, state, predicate and algebra."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdebug.base.errors import BadInput
from crdebug.base.rank_expressions import STATES, NamedSets, resolve
from crdebug.base.ranks import RankSet

pytestmark = pytest.mark.unit

SIZE = 12


@dataclass
class Job:
    """asked: each `where` with the ranks that it was asked of. x is the rank's number."""

    sets: NamedSets = field(default_factory=NamedSets)
    ranks: RankSet = field(default_factory=lambda: RankSet.span(SIZE))
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sets.define("edge", RankSet.of([0, SIZE - 1]))
        self.sets.define("even", RankSet.of(range(0, SIZE, 2)))

    @property
    def hosts(self) -> dict[str, RankSet]:
        names = ("n1", "n2-b", "n3.site.org", "n4.one.org", "n4.two.org")
        return {name: RankSet.of([2 * at, 2 * at + 1]) for at, name in enumerate(names)}

    def in_state(self, word: str) -> RankSet:
        return RankSet.of([STATES.index(word)])

    async def where(self, expression: str, ranks: RankSet) -> RankSet:
        self.asked.append((expression, str(ranks)))
        return RankSet.of(x for x in ranks if eval(expression, {"x": x, "a": [x]}))


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("all - edge", "1-10"),
        ("all-edge", "1-10"),
        ("edge, 3", "0,3,11"),
        ("edge | 3-4", "0,3-4,11"),
        ("edge & even", "0"),
        ("all - 0,2", "1,3-11"),  # a comma joins first
        ("all - even & 0-4", "1,3"),  # then from the left
        ("edge | all & 3", "0,3,11"),  # and | last
        ("(edge | all) & 3", "3"),
        ("0-7 - 2 - 3", "0-1,4-7"),
        ("0 - 7", "0-7"),  # between two numbers it is a range, whatever surrounds it
        ("@stopped | @exited", "0,2"),
        ("all - (1,2,(3-9))", "0,10-11"),
        ("where x > 9", "10-11"),
        ("where x > 9 or x & 4 - 3", "1,3,5,7,9-11"),  # what follows is the program's
        ("(where x > 9) - 10", "11"),
        ("even & where a[0] in (2, 3)", "2"),
        ("(where a[0] == 2 or ')' == 'x') | 5", "2,5"),
        ("even - (where x > 4) - where x == 2", "0,4"),
        ("edge - all", ""),
        ("@n1", "0-1"),
        ("@n2-b-3", "2"),
        ("@n1-0, 5", "1"),  # as above, a comma joins first
        ("all - @n3.site.org & 3-7", "3,6-7"),
        ("@n3 | @n4.two.org", "4-5,8-9"),
        ("@stopped-0 | @stopped", "0"),
    ],
)
async def test_algebra_as_text(text: str, ranks: str) -> None:
    assert str(await resolve(text, Job())) == ranks


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("edge & where x > 3", "0,11"),
        ("(where x > 3) & edge", "0-11"),
        ("all - edge - where x > 3", "1-10"),
        ("edge | where x > 3", "1-10"),
    ],
)
async def test_only_ranks_that_it_depends_on_are_asked(text: str, asked: str) -> None:
    job = Job()
    await resolve(text, job)
    assert job.asked == [("x > 3", asked)]


async def test_no_rank_is_asked_if_it_depends_on_none() -> None:
    job = Job()
    assert not await resolve("edge & 3 & where x > 3", job)
    assert job.asked == []


BAD = r"""
    -  1,  ,1  all -  (1  1)  ()  1 2  all all  edge where x  !1  3x  where  (where) | 1  no  0,no
    @  @no  @n4  @n1.  @-0  @stopped edge  12  0-12  4-2  (where ')') | 1 x  ²  (where x) | no
"""


@pytest.mark.parametrize("text", ["", "(" * 60 + "1" + ")" * 60, *re.split(r"\s{2,}", BAD.strip())])
async def test_a_syntax_error_is_reported_before_any_rank_is_asked(text: str) -> None:
    job = Job()
    with pytest.raises(BadInput):
        await resolve(text, job)
    assert job.asked == []


SETS = st.sets(st.integers(0, SIZE - 1)).map(RankSet.of)
TREES = st.recursive(
    SETS.filter(bool).map(lambda ranks: (str(ranks), ranks)),
    lambda inner: st.tuples(inner, st.sampled_from("-&|"), inner).map(
        lambda three: (
            f"({three[0][0]}) {three[1]} ({three[2][0]})",
            {
                "-": three[0][1] - three[2][1],
                "&": three[0][1] & three[2][1],
                "|": three[0][1] | three[2][1],
            }[three[1]],
        )
    ),
    max_leaves=12,
)


@given(TREES)
async def test_the_meaning_of_a_text_follows_from_its_parts(tree: tuple[str, RankSet]) -> None:
    text, ranks = tree
    assert await resolve(text, Job()) == ranks


@pytest.mark.parametrize("name", ["", "all", "where", "1a", "a-b", "a b", "@a", "ä"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(BadInput, match="is not a name for a set"):
        NamedSets().define(name, RankSet.span(1))


def test_a_name_may_be_given_again_and_taken_away() -> None:
    sets = Job().sets
    sets.define("edge", RankSet.of([5]))
    assert (list(sets), sets["edge"]) == (["edge", "even"], RankSet.of([5]))
    sets.undefine("edge")
    with pytest.raises(BadInput, match="there is no rank set 'edge'"):
        sets.undefine("edge")

"""Plots and distributed arrays: lines of values, and the place of an element in the picture."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fake_session import FakeSession, as_session
from hypothesis import given
from hypothesis import strategies as st

from crdebug.base.answers import Answers
from crdebug.base.errors import BadInput
from crdebug.base.ranks import RankSet
from crdebug.charts.images import Image, image, save_image
from crdebug.charts.plots import LINES, Plot, plot, save_plot
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.debugger.arrays import Numbers
from crdebug.session.arrays import plot_over
from crdebug.ui.charts import pictured, plotted
from crdebug.ui.render import render

pytestmark = pytest.mark.unit

Layout = tuple[int, int] | None


def row(*values: float) -> Numbers:
    return Numbers((len(values),), values)


def one(value: float) -> Numbers:
    return Numbers((), (value,))


# ---- plot ---------------------------------------------------------------------------------------


def test_a_number_on_each_rank_is_a_point_over_the_ranks() -> None:
    shown = plot("x", {0: one(5), 2: one(math.nan), 3: one(1.5)})
    (line,) = shown.lines
    assert (line.x, line.y, shown.x, shown.joined, shown.apart) == (
        (0, 3),
        (5, 1.5),
        "rank",
        False,
        1,
    )


def test_numbers_over_numbers_are_in_order() -> None:
    shown = plot("x", {0: one(5), 1: one(6)}, ("t", {0: one(2), 1: one(1)}))
    assert (shown.lines[0].x, shown.lines[0].y, shown.x) == ((1, 2), (6, 5), "t")


def test_arrays_are_lines_and_equal_ones_are_one() -> None:
    shown = plot("u", {0: row(1, 2), 1: row(3, 4), 2: row(3, 4)})
    assert [(line.name, line.x, line.y) for line in shown.lines] == [
        ("[1-2]", (0, 1), (3, 4)),
        ("[0]", (0, 1), (1, 2)),
    ]
    over = plot("u", {0: row(1, 2)}, ("t", {0: row(0.5, 0.25)}))
    assert over.lines[0].x == (0.5, 0.25)


def test_many_arrays_are_bounds() -> None:
    many = {rank: row(rank, 10 * rank) for rank in range(LINES + 1)}
    shown = plot("u", many)
    assert {line.name: line.y for line in shown.lines} == {
        "max": (LINES, 10 * LINES),
        "mean": (LINES / 2, 5 * LINES),
        "min": (0, 0),
    }
    many[3] = row(math.nan, 1)
    assert plot("u", many).apart == 3


@pytest.mark.parametrize(
    ("values", "over", "problem"),
    [
        ({}, None, "no value to plot"),
        ({0: one(1), 1: row(1, 2)}, None, "a number on some ranks, and an array on others"),
        ({0: row(1, 2)}, {0: row(1, 2, 3)}, "rank 0: 'u' has 2 values and 't' has 3"),
        ({rank: row(*range(rank + 1)) for rank in range(LINES + 1)}, None, "another length"),
    ],
)
def test_what_does_not_fit(
    values: dict[int, Numbers], over: dict[int, Numbers] | None, problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        plot("u", values, ("t", over) if over else None)


@pytest.mark.parametrize("joined", [True, False])
def test_a_chart_has_room_for_all(joined: bool) -> None:
    values = {r: row(*map(float, range(30))) if joined else one(r * r) for r in range(30)}
    lines = list(plotted(plot("energy", values), 60))
    assert 15 <= len(lines) <= 25
    assert max(map(len, lines)) <= 60
    assert joined or sum(line.count("o") for line in lines[1:]) == 30
    assert lines[0] == f"energy (Y) over {'index' if joined else 'rank'} (X)"


def test_a_chart_without_a_finite_point_says_so() -> None:
    assert list(plotted(plot("x", {0: one(math.inf)})))[-1].startswith("not shown: 1 point")


# ---- image --------------------------------------------------------------------------------------


def numbered(ranks: int, height: int, width: int) -> dict[int, Numbers]:
    """Element (i, j) of rank r is r.iijj as a number."""
    return {
        rank: Numbers(
            (height, width),
            [rank + i / 100 + j / 10_000 for i in range(height) for j in range(width)],
        )
        for rank in range(ranks)
    }


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
def test_every_element_is_where_its_rank_is(
    down: int, across: int, height: int, width: int
) -> None:
    ranks = RankSet.span(down * across)
    shown = image("u", numbered(len(ranks), height, width), ranks, grid=(down, across))
    cells = shown.cells()
    assert (len(cells), len(cells[0])) == (down * height, across * width)
    for y, line in enumerate(cells):
        for x, value in enumerate(line):
            rank = y // height * across + x // width
            assert value == rank + y % height / 100 + x % width / 10_000


def test_blocks_of_other_sizes_and_ranks_without_one() -> None:
    parts = {0: row(1, 2, 3), 5: row(4), 6: row(5, 6)}
    shown = image("u", parts, RankSet.of([0, 4, 5, 6]), grid=(2, 2))
    assert shown.cells() == [[1, 2, 3, None, None], [4, None, None, 5, 6]]
    assert image("u", parts, RankSet.of([0, 5, 6])).columns == (0, 3)


@pytest.mark.parametrize(
    ("grid", "shape", "values", "problem"),
    [
        ((3, 1), None, [1.0] * 6, "a grid of 3x1 is for 3 ranks, not for 2"),
        ((2, 1), (2, 2), [1.0] * 6, "rank 0: 'u' has 6 values, and --shape 2x2 takes 4"),
        (None, None, None, "has no value to show"),
    ],
)
def test_what_does_not_make_a_picture(
    grid: tuple[int, int] | None,
    shape: tuple[int, int] | None,
    values: list[float] | None,
    problem: str,
) -> None:
    parts = {} if values is None else dict.fromkeys(range(2), Numbers((6,), values))
    with pytest.raises(BadInput, match=problem):
        image("u", parts, RankSet.span(2), grid=grid, shape=shape)


def test_three_indices_are_not_a_plane() -> None:
    with pytest.raises(
        BadInput, match=r"rank 0: 'u' has 3 indices.*choose a plane, such as u\[0\]"
    ):
        image("u", {0: Numbers((1, 2, 3), [0.0] * 6)}, RankSet.span(1))


def test_shades_seams_and_values_that_are_no_numbers() -> None:
    parts = {
        0: Numbers((2, 2), [0.0, 1.0, 2.0, math.nan]),
        1: Numbers((2, 2), [8.0, 9.0, math.inf, 4]),
    }
    shown = image("u", parts, RankSet.span(2), grid=(1, 2))
    assert list(pictured(shown)) == [
        "..::│@@@@",
        "--??│!!++",
        "'.' is 0, '@' is 9, '?' is nan (1), '!' is infinite (1)",
    ]
    below = list(pictured(image("u", parts, RankSet.span(2))))
    assert below[2] == "────"


@pytest.mark.parametrize("width", [20, 40, 200])
@pytest.mark.parametrize("where", [0, 777, 64 * 64 - 1])
def test_an_odd_element_is_seen_however_small_the_picture(width: int, where: int) -> None:
    values = [1.0 + 0.001 * at for at in range(64 * 64)]
    values[where] = 1000.0
    shown = image(
        "u", {r: Numbers((64, 64), values) for r in range(4)}, RankSet.span(4), grid=(2, 2)
    )
    lines = list(pictured(shown, width))
    picture = lines[: next(at for at, line in enumerate(lines) if line.startswith("'"))]
    assert max(map(len, picture)) <= width
    assert sum(line.count("@") for line in picture) == 4  # one on each rank


class WithNumbers(FakeSession):
    """Its ranks have a u, a t of two values, and an x."""

    async def numbers(self, ranks: RankSet, expression: str) -> Answers[Numbers]:
        self.asked.append((str(ranks), expression))
        found = {"u": row(1, 2), "t": row(3, 4), "x": one(5)}[expression]
        return Answers(dict.fromkeys((r for r in ranks if r != 3), found), {3: BadInput("gone")})

    async def plot(self, ranks: RankSet, expression: str, over: str = "") -> Plot:
        found = await self.numbers(ranks, expression)
        others = await self.numbers(ranks, over) if over else None
        return plot_over(expression, found, over, others)

    async def image(self, ranks: RankSet, expression: str, **layout: Layout) -> Image:
        found = await self.numbers(ranks, expression)
        return image(expression, found.values, ranks, errors=found.merged_errors(), **layout)


async def test_the_commands(tmp_path: Path) -> None:
    session = WithNumbers()

    async def said(line: str) -> list[str]:
        return render(await standard().run(Context(as_session(session)), line)).splitlines()

    assert (await said("plot u over t"))[0] == "u (Y) over t (X)"
    assert (await said("[0-1] plot x"))[0] == "x (Y) over rank (X)"
    assert [asked[0] for asked in session.asked] == ["0-3", "0-3", "0-1"]
    lines = await said("image u --grid 2x2 --shape 2x1")
    assert lines[:2] == ["..│..", "@@│@@"]
    assert lines[-1] == "[3] error: gone"
    for line in ("plot u", "image u"):
        for kind in ("png", "svg"):
            file = tmp_path / f"{line}.{kind}"
            (told,) = await said(f'{line} --{kind} "{file}"')
            assert told.endswith(str(file))
            assert file.stat().st_size > 1000
        with pytest.raises(BadInput, match=r"'a.svg' does not end with .png"):
            await said(f"{line} --png a.svg")
    for grid in ("2", "0x2", "2x", "2*2"):
        with pytest.raises(BadInput, match="is not two numbers"):
            await said(f"image u --grid {grid}")


def test_files(tmp_path: Path) -> None:
    shown = image("u $x$ _", numbered(4, 3, 3), RankSet.span(4), grid=(2, 2))
    line = plot("u $x", {0: row(1, 2)})
    assert b"u $x$ _" in save_image(shown, tmp_path / "a.svg").read_bytes()
    assert b"u $x" in save_plot(line, tmp_path / "b.svg").read_bytes()
    for path in (save_image(shown, tmp_path / "a.PNG"), save_plot(line, tmp_path / "b.png")):
        assert path.read_bytes().startswith(b"\x89PNG")

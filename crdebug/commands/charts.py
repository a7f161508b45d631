"""Charts: plot, image."""

from __future__ import annotations

import re

from crdebug.base.errors import BadInput
from crdebug.charts.images import save_image
from crdebug.charts.plots import save_plot
from crdebug.commands.arguments import option, rest
from crdebug.commands.looking import DATA
from crdebug.commands.pictures import PNG, SVG, picture_file
from crdebug.commands.registry import Call
from crdebug.commands.results import Charted, Pictured, Result, Text

_OVER = re.compile(r"\s+over\s+")
_BY = re.compile(r"([1-9]\d*)x([1-9]\d*)", re.ASCII)


def _by(text: str) -> tuple[int, int] | None:
    match = _BY.fullmatch(text)
    if match is None:
        raise BadInput(f"'{text}' is not two numbers", hint="write rows, x, and columns: 2x3")
    return int(match[1]), int(match[2])


PLOTTED = rest("EXPR [over EXPR]", "the values to plot, and the other axis")
ARRAY = rest("EXPR", "an array of two dimensions, or one; with --shape also a pointer's *u@N")
GRID = option(
    "--grid",
    "PxQ",
    "rows and columns of ranks; without it, one below the other",
    read=_by,
    default=None,
)
SHAPE = option(
    "--shape",
    "MxN",
    "rows and columns of each rank's array, if its type has others",
    read=_by,
    default=None,
)


@DATA.command(
    "plot",
    """
Show numbers as a chart.

If EXPR is one number on each rank, it is drawn over the ranks, a point for each; if it is an array,
over its index, a line for each rank (equal lines as one; more than eight as their minimum, mean and
maximum). With 'over', the second EXPR is the other axis, with as many numbers as the first.

    plot residual
    [0] plot u[5]
    plot *energy@steps over *time@steps --png energy.png
""",
    arguments=(PNG, SVG, PLOTTED),
    ranks=True,
)
async def plot(call: Call) -> Result:
    expression, *over = _OVER.split(call[PLOTTED], maxsplit=1)
    file = picture_file(call)
    shown = await call.context.session.plot(call.ranks, expression, "".join(over))
    return Text(f"the plot is in {save_plot(shown, file)}") if file else Charted(shown)


@DATA.command(
    "image",
    """
Show an array that is distributed over the ranks as one picture.

Each rank's array is shown whole, with its halo; the ranks are laid out by rows, as MPI_Cart_create
does. Where the picture is broken at the line between two ranks, a halo is wrong.

    image u --grid 2x2
    image *u@60 --shape 6x10 --grid 2x2 --png u.png
""",
    arguments=(GRID, SHAPE, PNG, SVG, ARRAY),
    ranks=True,
)
async def image(call: Call) -> Result:
    file = picture_file(call)
    shown = await call.context.session.image(
        call.ranks, call[ARRAY], grid=call[GRID], shape=call[SHAPE]
    )
    return Text(f"the picture is in {save_image(shown, file)}") if file else Pictured(shown)

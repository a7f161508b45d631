"""A distributed array as one picture. Pure but for `save_image`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.errors import BadInput
from crdebug.base.gdb_values import Number
from crdebug.base.ranks import RankSet
from crdebug.charts.files import figure, save
from crdebug.debugger.arrays import Numbers

_INCHES = 8.0  # of the longer side of a picture


@dataclass(frozen=True, slots=True)
class Block:
    """One rank's part. row, column: where its upper left element is in the whole."""

    rank: int
    row: int
    column: int
    part: Numbers


@dataclass(frozen=True, slots=True)
class Image:
    """Blocks side by side, each with its halo if it has one.

    rows, columns: where blocks of the grid begin, and at last where all ends.
    errors: the ranks that could not answer, and why; the picture is empty there.
    """

    name: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    blocks: tuple[Block, ...]
    errors: tuple[tuple[RankSet, str], ...] = ()

    @property
    def height(self) -> int:
        return self.rows[-1]

    @property
    def width(self) -> int:
        return self.columns[-1]

    def cells(self) -> list[list[Number | None]]:
        """All elements, by row; None where there is none."""
        whole: list[list[Number | None]] = [[None] * self.width for _ in range(self.height)]
        for block in self.blocks:
            height, width = block.part.shape
            for row in range(height):
                values = block.part.values[row * width : (row + 1) * width]
                whole[block.row + row][block.column : block.column + width] = values
        return whole


def image(
    name: str,
    parts: Mapping[int, Numbers],
    ranks: RankSet,
    *,
    grid: tuple[int, int] | None = None,
    shape: tuple[int, int] | None = None,
    errors: tuple[tuple[RankSet, str], ...] = (),
) -> Image:
    """The arrays of `ranks` as one.

    grid: how many rows and columns of ranks; they are laid out by rows, as MPI_Cart_create does
    (MPI 4.0, 8.2). None: one below the other.  shape: of each rank's array, when its type does not
    say (a pointer's does not).  Arrays with one index are a row. Raises BadInput.
    """
    down, across = grid or (len(ranks), 1)
    if down * across != len(ranks):
        raise BadInput(
            f"a grid of {down}x{across} is for {down * across} ranks, not for {len(ranks)}",
            hint="write --grid PxQ with P*Q ranks, or choose as many ranks",
        )
    blocks = {
        at: (rank, _flat(name, rank, parts[rank], shape))
        for at, rank in enumerate(ranks)
        if rank in parts
    }
    if not blocks:
        raise BadInput(f"'{name}' has no value to show")
    sizes = {at: part.shape for at, (_, part) in blocks.items()}
    rows, columns = [0], [0]
    for p in range(down):
        here = (size[0] for at, size in sizes.items() if at // across == p)
        rows.append(rows[-1] + max(here, default=1))
    for q in range(across):
        here = (size[1] for at, size in sizes.items() if at % across == q)
        columns.append(columns[-1] + max(here, default=1))
    placed = tuple(
        Block(rank, rows[at // across], columns[at % across], part)
        for at, (rank, part) in blocks.items()
    )
    return Image(name, tuple(rows), tuple(columns), placed, errors)


def _flat(name: str, rank: int, part: Numbers, shape: tuple[int, int] | None) -> Numbers:
    try:
        if shape is not None:
            return _shaped(name, part, shape)
        if len(part.shape) < 2:
            return part.reshaped((1, len(part.values)))
        if len(part.shape) > 2:
            hint = f"choose a plane, such as {name}[0]"
            raise BadInput(f"'{name}' has {len(part.shape)} indices, not two", hint=hint)
    except BadInput as error:
        error.ranks = RankSet.of([rank])
        raise
    return part


def _shaped(name: str, part: Numbers, shape: tuple[int, int]) -> Numbers:
    """The array in the shape that the user gave, if that fits. Raises BadInput."""
    wanted, has = math.prod(shape), len(part.values)
    if wanted != has:
        own = "x".join(map(str, part.shape))
        raise BadInput(
            f"'{name}' has {has} values{f' ({own})' if len(part.shape) > 1 else ''}, and "
            f"--shape {shape[0]}x{shape[1]} takes {wanted}",
            hint="leave --shape out" if len(part.shape) == 2 else "rows x columns, with the halo",
        )
    return part.reshaped(shape)


def save_image(shown: Image, file: str | Path) -> Path:
    """Write it as PNG or SVG, by the file's name: a colour for each value, red where it is no
    number, and lines between ranks. Raises NotAvailable, BadInput."""
    longer = max(shown.width, shown.height)
    across, down = (max(_INCHES * side / longer, 2.0) for side in (shown.width, shown.height))
    picture = figure(across + 1.5, down + 0.5)
    from matplotlib import colormaps

    cells = [[math.nan if v is None else float(v) for v in row] for row in shown.cells()]
    colours = colormaps["viridis"].with_extremes(bad="red")
    axes = picture.add_subplot()
    drawn = axes.imshow(cells, cmap=colours, interpolation="nearest")
    for row in shown.rows[1:-1]:
        axes.axhline(row - 0.5, color="white", linewidth=1)
    for column in shown.columns[1:-1]:
        axes.axvline(column - 0.5, color="white", linewidth=1)
    axes.set_title(shown.name, parse_math=False)
    picture.colorbar(drawn, ax=axes)
    return save(picture, file)

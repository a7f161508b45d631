"""Columns of text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from crdebug.ui.printable import printable

_UNLIMITED = 10_000


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], width: int = 0) -> str:
    """Aligned columns, without a frame, of printable text. width: of the terminal; 0 never folds a
    line."""
    lines = [[printable(cell) for cell in line] for line in (headers, *rows)]
    if all(cell.isascii() and cell.isprintable() for line in lines for cell in line):
        text = _aligned(lines)
        if not width or all(len(line) <= width for line in text):
            return "\n".join(text)
    return _folded(lines[0], lines[1:], width)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """For cells in which each character takes one column."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def _folded(headers: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> str:
    from rich.console import Console  # takes longer to load than most commands need
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        grid.add_column(Text(header), overflow="fold", justify="left")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    buffer = io.StringIO()
    Console(file=buffer, width=width or _UNLIMITED, color_system=None).print(grid)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())

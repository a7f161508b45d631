"""Columns of text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

_UNLIMITED = 10_000


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], width: int = 0) -> str:
    """Aligned columns, without a frame. width: of the terminal; 0 never folds a line."""
    from rich.console import Console
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

"""Figures of matplotlib's, and the files that they are written to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from crdebug.base.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
_DOTS = 150  # an inch, in a PNG
_LARGEST = 400.0  # inches: PNG's limit in matplotlib is 2**16 dots


def figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches. Raises NotAvailable without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NotAvailable(
            "a picture needs matplotlib, which is not installed",
            hint="pip install 'crdebug[plot]'; without a file the picture is shown as text",
        ) from None
    # Without pyplot: nothing is kept, and no window system is looked for.
    return Figure(figsize=(min(width, _LARGEST), min(height, _LARGEST)))


def save(picture: Figure, file: str | Path) -> Path:
    """Write a figure as PNG or SVG, by the file's name; returns where. Raises BadInput."""
    path = Path(file).expanduser()
    if path.suffix.lower() not in FORMATS:
        raise BadInput(f"'{path.name}' does not show its format", hint="end it with .png or .svg")
    from matplotlib import rc_context

    try:
        with rc_context({"svg.fonttype": "none"}):  # text stays text, and can be searched
            picture.savefig(path, format=path.suffix[1:].lower(), dpi=_DOTS)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    return path

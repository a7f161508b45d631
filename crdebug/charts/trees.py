"""A tree of calls as a picture."""

from __future__ import annotations

from pathlib import Path

from crdebug.charts.files import figure, save
from crdebug.debugger.stacktree import Branch, StackTree

# In inches, for monospaced text of _POINTS.
_POINTS = 9
_CHARACTER, _LINE, _GAP = 0.077, 0.17, 0.4
_LONGEST = 60  # characters of a line


def save_tree(tree: StackTree, file: str | Path) -> Path:
    """Write a tree, from the left to the right, as PNG or SVG.

    A box for each branch, the more filled the more of the stacks go through it. Raises
    NotAvailable, BadInput.
    """
    texts = [_text(branch, tree.threads) for branch in tree.branches]
    left, width = _columns(tree, texts)
    top, height = _rows(tree, texts)
    picture = figure(max(width, 1.0), max(height, 1.0))
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, max(width, 1.0))
    axes.set_ylim(max(height, 1.0), 0)
    most = max((branch.count for branch in tree.branches), default=1)
    for at, branch in enumerate(tree.branches):
        x, y = left[branch.depth], top[at]
        if branch.parent is not None:
            parent = tree.branches[branch.parent]
            begin = left[parent.depth] + _wide(texts[branch.parent])
            line = 0.5 + 4 * branch.count / most
            axes.plot((begin, x), (top[branch.parent], y), color="0.6", linewidth=line, zorder=1)
        shade = f"{1 - 0.25 * branch.count / most:.3f}"
        box = {"boxstyle": "round,pad=0.4", "facecolor": shade, "edgecolor": "0.4"}
        axes.text(
            *(x, y, texts[at]),
            family="monospace",
            fontsize=_POINTS,
            verticalalignment="center",
            bbox=box,
            parse_math=False,
        )
    return save(picture, file)


def _text(branch: Branch, threads: bool) -> str:
    noun = "thread" if threads else "rank"
    head = f"[{branch.ranks}] {branch.count} {noun}{'s' if branch.count > 1 else ''}"
    return "\n".join(_cut(line) for line in (head, *branch.frames))


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]}…{line[-_LONGEST // 2 :]}"


def _wide(text: str) -> float:
    return _CHARACTER * max(map(len, text.split("\n")))


def _columns(tree: StackTree, texts: list[str]) -> tuple[list[float], float]:
    """Where the boxes of each depth begin, and how wide all is."""
    widths: dict[int, float] = {}
    for branch, text in zip(tree.branches, texts, strict=True):
        widths[branch.depth] = max(widths.get(branch.depth, 0.0), _wide(text))
    left, x = [], _GAP
    for depth in range(len(widths)):
        left.append(x)
        x += widths[depth] + 2 * _GAP
    return left, x


def _rows(tree: StackTree, texts: list[str]) -> tuple[list[float], float]:
    """Where the middle of each box is, and how high all is."""
    own = [_LINE * (1 + text.count("\n")) + _GAP for text in texts]
    below = [0.0] * len(texts)  # what the branches that begin here need
    for at in range(len(texts) - 1, -1, -1):
        parent = tree.branches[at].parent
        if parent is not None:
            below[parent] += max(own[at], below[at])
    needed = [max(pair) for pair in zip(own, below, strict=True)]
    begin: dict[int | None, float] = {None: 0.0}  # where the next branch of a parent begins
    middle = []
    for at, branch in enumerate(tree.branches):
        start = begin[branch.parent]
        begin[branch.parent] = start + needed[at]
        middle.append(start + needed[at] / 2)
        begin[at] = start + (needed[at] - below[at]) / 2
    return middle, begin[None]

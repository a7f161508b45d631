"""A tree of calls as text."""

from __future__ import annotations

from collections.abc import Iterator

from crdebug.session.values import Branch, StackTree

_HERE = "(here)"  # for stacks that end where others continue


def tree(merged: StackTree) -> Iterator[str]:
    """A branch begins with its ranks and the number of its stacks; its calls follow, outermost
    first. A chain of calls without a fork is not indented."""
    last = _last(merged.branches)
    bars: list[bool] = []  # for each depth, whether more branches follow below
    for at, branch in enumerate(merged.branches):
        del bars[branch.depth :]
        before = "".join("│ " if goes_on else "  " for goes_on in bars[1:])
        fork = "" if branch.depth == 0 else ("└ " if at in last else "├ ")
        bars.append(at not in last)
        below = before + ("" if branch.depth == 0 else "  " if at in last else "│ ")
        yield f"{before}{fork}{_who(branch, merged.threads)}"
        yield from (f"{below}  {name}" for name in branch.frames or (_HERE,))
    for ranks, text in merged.errors:
        yield f"[{ranks}] error: {text}"


def _last(branches: tuple[Branch, ...]) -> set[int]:
    """The indexes of branches that no sibling follows."""
    return set({branch.parent: at for at, branch in enumerate(branches)}.values())


def _who(branch: Branch, threads: bool) -> str:
    noun = "thread" if threads else "rank"
    return f"[{branch.ranks}] {branch.count} {noun}{'s' if branch.count > 1 else ''}"

"""Stacks of many ranks as one tree: merging, text, and the picture."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from fake_session import FakeSession, as_session
from hypothesis import given
from hypothesis import strategies as st

from crdebug.base.errors import BadInput, NotAvailable
from crdebug.base.events import Location
from crdebug.base.ranks import RankSet
from crdebug.charts.trees import save_tree
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.debugger.stacktree import StackTree, merge
from crdebug.debugger.target import Frame
from crdebug.ui.render import render
from crdebug.ui.stacks import tree

pytestmark = pytest.mark.unit

REGISTRY = standard()


def stack(text: str, address: int = 0) -> tuple[Frame, ...]:
    """Written outermost first, as ``main:80 solve:20``."""
    frames = []
    for level, word in enumerate(reversed(text.split())):
        function, _, line = word.partition(":")
        file = "heat.c" if line else ""
        frames.append(Frame(level, Location(address + level, function, file, int(line or 0))))
    return tuple(frames)


RANKS = {
    0: "main:80 solve:20 exchange:41 PMPI_Sendrecv poll",
    1: "main:80 solve:20 exchange:41 PMPI_Sendrecv poll",
    2: "main:80 solve:20 exchange:41 PMPI_Sendrecv",
    3: "main:80 solve:25 relax:60",
    4: "main:80 solve:20 exchange:41 PMPI_Sendrecv poll",
}
STACKS = {rank: (stack(text, 0x1000 * rank),) for rank, text in RANKS.items()}


def test_a_tree_branches_where_ranks_part() -> None:
    assert list(tree(StackTree(merge(STACKS)))) == [
        "[0-4] 5 ranks",
        "  main at heat.c:80",
        "├ [0-2,4] 4 ranks",
        "│   solve at heat.c:20",
        "│   exchange at heat.c:41",
        "│   PMPI_Sendrecv",
        "│ ├ [0-1,4] 3 ranks",
        "│ │   poll",
        "│ └ [2] 1 rank",
        "│     (here)",
        "└ [3] 1 rank",
        "    solve at heat.c:25",
        "    relax at heat.c:60",
    ]


def test_by_function_only_and_by_depth() -> None:
    merged = merge(STACKS, function_only=True, depth=3)
    assert list(tree(StackTree(merged, errors=((RankSet.of([5]), "gdb ended"),)))) == [
        "[0-4] 5 ranks",
        "  main",
        "  solve",
        "├ [0-2,4] 4 ranks",
        "│   exchange",
        "└ [3] 1 rank",
        "    relax",
        "[5] error: gdb ended",
    ]


def test_threads_are_counted_and_there_may_be_several_trunks() -> None:
    worker = stack("clone worker:7 poll")
    merged = merge({rank: (stack("main:80"), worker, worker) for rank in range(2)})
    assert list(tree(StackTree(merged, threads=True))) == [
        "[0-1] 4 threads",
        "  clone",
        "  worker at heat.c:7",
        "  poll",
        "[0-1] 2 threads",
        "  main at heat.c:80",
    ]


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=6).map(" ".join)
JOBS = st.dictionaries(st.integers(0, 40), st.lists(PATHS, min_size=1, max_size=3), min_size=1)


@given(JOBS)
def test_every_stack_is_in_the_tree_once(job: dict[int, list[str]]) -> None:
    merged = StackTree(merge({r: [stack(t) for t in texts] for r, texts in job.items()}))
    branches = merged.branches
    children: Counter[int | None] = Counter()
    for branch in branches:
        children[branch.parent] += branch.count
    leaves = merged.leaves()
    for at, branch in enumerate(branches):
        assert children[at] == (0 if branch in leaves and at not in children else branch.count)
    found: dict[str, Counter[int]] = {}
    for at, branch in enumerate(branches):
        if at in children:
            continue
        whole, up = list(branch.frames), branch.parent
        while up is not None:
            whole[:0] = branches[up].frames
            up = branches[up].parent
        key = " ".join(whole)
        assert key not in found
        found[key] = Counter(dict.fromkeys(branch.ranks, 1))
        assert sum(texts.count(key) for texts in job.values()) == branch.count
    assert {key: set(ranks) for key, ranks in found.items()} == {
        text: {r for r, texts in job.items() if text in texts}
        for texts in job.values()
        for text in texts
    }


def test_stacks_may_be_deeper_than_python_recurses() -> None:
    deep = sys.getrecursionlimit() + 100
    frames = stack("f " * (deep + 2))
    merged = merge({rank: (frames[: deep + rank],) for rank in range(3)})
    assert [len(branch.frames) for branch in merged] == [deep, 1, 0, 1, 0]
    every = merge({rank: (frames[: rank + 1],) for rank in range(deep)})
    assert max(branch.depth for branch in every) == deep - 1


# ---- commands -----------------------------------------------------------------------------------


@pytest.fixture
def session() -> FakeSession:
    session = FakeSession(size=5)
    session.frames = {rank: frames for rank, (frames,) in STACKS.items()}
    return session


async def said(session: FakeSession, line: str) -> list[str]:
    return render(await REGISTRY.run(Context(as_session(session)), line)).splitlines()


async def test_backtrace_as_a_tree(session: FakeSession) -> None:
    whole = list(tree(StackTree(merge(STACKS))))
    assert await said(session, "stack") == whole
    assert await said(session, "bt --tree") == whole
    assert await said(session, "[3] bt --function-only --depth 2") == [
        "[3] 1 rank",
        "  main",
        "  solve",
    ]
    with pytest.raises(BadInput, match="a tree has the outermost frames"):
        await said(session, "bt --tree 3")
    assert len(await said(session, "bt 1")) == 6  # three places
    assert [line for line in await said(session, "bt --each 1") if line.startswith("[")] == [
        f"[{rank}]" for rank in range(5)
    ]


async def test_the_picture(session: FakeSession, tmp_path: Path) -> None:
    file = tmp_path / "hang tree.svg"
    assert await said(session, f'stack --svg "{file}"') == [f"the tree is in {file}"]
    shown = re.sub(r"<!--.*?-->", "", file.read_text(), flags=re.DOTALL)
    for text in ("[0-2,4] 4 ranks", "exchange at heat.c:41", "relax at heat.c:60"):
        assert shown.count(text) == 1, text
    raster = tmp_path / "tree.png"
    assert await said(session, f"stack --png {raster}") == [f"the tree is in {raster}"]
    assert raster.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadInput, match=r"tree.txt' does not end with .svg"):
        await said(session, f"stack --svg {tmp_path}/tree.txt")
    with pytest.raises(BadInput, match="cannot be written: No such file or directory"):
        await said(session, f"stack --svg {tmp_path}/none/tree.svg")


def test_without_matplotlib_one_sentence_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NotAvailable) as caught:
        save_tree(StackTree(merge(STACKS)), tmp_path / "tree.svg")
    assert str(caught.value) == (
        "a picture needs matplotlib, which is not installed "
        "(pip install 'crdebug[plot]'; without a file the picture is shown as text)"
    )

"""Source lines of return addresses: what is asked of addr2line, and of whom."""

from __future__ import annotations

import os

import pytest

from crdebug.acquire import source_lines
from crdebug.base.deadline import Deadline
from crdebug.node import proc

pytestmark = pytest.mark.unit


async def test_ranks_of_one_program_are_asked_about_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mappings = proc.maps(os.getpid())
    code = next(each for each in mappings if "x" in each.access and each.inode)
    asked: list[list[int]] = []

    async def ask(file: str, offsets: list[int], deadline: Deadline) -> list[str]:
        assert os.path.samefile(file, code.path)
        asked.append(offsets)
        return [f"a.c:{number}" for number, _ in enumerate(offsets, 1)]

    monkeypatch.setattr(source_lines, "_ask", ask)
    here, there = code.start + 16, code.start + 32
    addresses = [(0, here), (1, here), (1, there), (2, 1)]
    maps = dict.fromkeys(range(3), mappings)
    told = await source_lines.lines(addresses, Deadline(10), maps)
    assert told == {(0, here): "a.c:1", (1, here): "a.c:1", (1, there): "a.c:2"}
    (offsets,) = asked
    assert offsets[1] - offsets[0] == 16

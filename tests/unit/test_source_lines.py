"""Source lines of return addresses: what is asked of addr2line, and of whom."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from crdebug.acquire import source_lines
from crdebug.base.deadline import Deadline
from crdebug.node import proc, programs
from crdebug.node.programs import Finished

pytestmark = pytest.mark.unit


async def test_ranks_of_one_program_are_asked_about_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mappings = proc.maps(os.getpid())
    code = next(each for each in mappings if "x" in each.access and each.inode)
    asked: list[list[int]] = []

    async def run(words: list[str], deadline: Deadline, what: str) -> Finished:
        assert os.path.samefile(words[2], code.path)
        asked.append([int(word, 16) for word in words[3:]])
        lines = [f"/src/a.c:{number}\n" for number, _ in enumerate(words[3:], 1)]
        return Finished(0, "".join(lines), "")

    monkeypatch.setattr(programs, "run", run)
    here, there = code.start + 16, code.start + 32
    addresses = [(0, here), (1, here), (1, there), (2, 1)]
    maps = dict.fromkeys(range(3), mappings)
    told = await source_lines.lines(addresses, Deadline(10), maps)
    assert told == {(0, here): "a.c:1", (1, here): "a.c:1", (1, there): "a.c:2"}
    (offsets,) = asked
    assert offsets[1] - offsets[0] == 16


async def test_a_rank_that_ends_meanwhile_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program is named below the root of a process, which may be gone when addr2line opens it."""
    mappings = proc.maps(os.getpid())
    code = next(each for each in mappings if "x" in each.access and each.inode)
    twin = "/.." + code.path
    others = [replace(each, path=twin) if each.path == code.path else each for each in mappings]

    async def run(words: list[str], deadline: Deadline, what: str) -> Finished:
        gone = words[2] == code.path
        return Finished(1, "", "No such file") if gone else Finished(0, "/src/a.c:7\n", "")

    monkeypatch.setattr(programs, "run", run)
    address = code.start + 16
    told = await source_lines.lines(
        [(0, address), (1, address)], Deadline(10), {0: mappings, 1: others}
    )
    assert told == {(0, address): "a.c:7", (1, address): "a.c:7"}

"""Source lines as the user gives them: without their file, or without code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType

from crdebug.base.answers import some
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput
from crdebug.base.ranks import RankSet
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.question import asked
from crdebug.debugger.rank_commands import line_place

_BARE = re.compile(r"(?:-line\s+)?([-+]?\d+)")


async def with_file(group: TargetGroup, ranks: RankSet, location: str) -> str:
    """A location as ``FILE:LINE`` if it is only a line: its meaning would change with the ranks'
    places, or with the file that a GDB has read last. Returns other locations as they are.

    Raises BadInput if ranks are in different files; GdbError for a line that is not in its file.
    """
    bare = _BARE.fullmatch(location.strip())
    if bare is None:
        return location
    deadline = Deadline(group.settings.command)
    told = await group.look(ranks, asked(line_place, bare[1], deadline))
    places = some(told).merged()
    if len(places) > 1:
        known = ", ".join(f"[{ranks}] {file}:{line}" for ranks, (file, line) in places[:4])
        problem = f"line {bare[1]} is not the same place on all ranks: {known}"
        raise BadInput(problem, ranks=ranks, hint="write FILE:LINE, or name ranks")
    file, line = places[0][1]
    return f'"{file}":{line}' if re.search(r"\s", file) else f"{file}:{line}"


def with_code(file: str, line: int, directories: Iterable[Path]) -> int:
    """The first line from this one on where Python has code. Returns the line as it is if the file
    is not in one of these directories, or is for another Python. Raises BadInput if there is none.
    """
    for path in (directory / file for directory in directories):
        try:
            code = compile(path.read_bytes(), path, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            continue
        following = [each for each in _lines(code) if each >= line]
        if not following:
            raise BadInput(f"there is no code at line {line} of {path}, or after it")
        return min(following)
    return line


def _lines(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _lines(each)

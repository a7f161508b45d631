"""Add the file to source lines that the user gives without one."""

from __future__ import annotations

import re

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

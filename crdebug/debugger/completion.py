"""GDB's completions of a line at its own prompt."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.debugger.frames import at_program
from crdebug.debugger.question import question
from crdebug.debugger.target import Target

_OWN = 500  # names of each kind
_OF_CRDEBUG = f"{Path(__file__).resolve().parents[1]}/"  # sources of crdebug's code in ranks
# An expression or a location that ends with the beginning of a name, but not of a member's.
_BEGUN = re.compile(r"((print|break) (?:.*(?<![\w.>:$]))?)([A-Za-z_]\w*)\Z", re.ASCII)


@question
async def complete(target: Target, line: str, deadline: Deadline) -> tuple[str, ...]:
    """Whole lines, the names of the frame and of the program before those of libraries."""
    await at_program(target, deadline)
    # GDB ends its list after some 200 names, in alphabetical order.
    own = [each async for each in _own_names(target, line, deadline)]
    told = await target.console(f"complete {line}", deadline)
    others = (each for each in told.splitlines() if "max-completions" not in each)
    return tuple(dict.fromkeys([*sorted(set(own)), *others]))


async def _own_names(target: Target, line: str, deadline: Deadline) -> AsyncIterator[str]:
    """Completions of a line by names whose source file exists: few libraries have that."""
    found = _BEGUN.match(line)
    if found is None:
        return
    before, begun = found[1], found[3]
    if found[2] == "print":
        listing = await target.mi("-stack-list-variables --no-values", deadline)
        for variable in listing.payload.list("variables").tuples():
            if variable.text("name").startswith(begun):
                yield before + variable.text("name")
    for kind in ("functions",) if found[2] == "break" else ("variables", "functions"):
        command = f"-symbol-info-{kind} --max-results {_OWN} --name ^{begun}"
        listing = await target.mi(command, deadline)
        symbols = listing.payload.tuple("symbols")
        for file in symbols.list("debug").tuples() if "debug" in symbols else ():
            source = file.text("fullname", "")
            if source.startswith(_OF_CRDEBUG) or not (source[:1] == "/" and Path(source).is_file()):
                continue
            for symbol in file.list("symbols").tuples():
                name = symbol.text("name")
                if name.startswith(begun) and name.isidentifier():
                    yield before + name

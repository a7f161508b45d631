"""A rank's variables as places in memory (gdbscripts/variables.py)."""

from __future__ import annotations

from dataclasses import dataclass

from crdebug.base.deadline import Deadline
from crdebug.debugger.question import question
from crdebug.debugger.target import Target
from crdebug.gdbscripts.wire import Command


@dataclass(frozen=True, slots=True)
class Variable:
    """A scalar, or an array of them. name: for people: "total", "*u in main".  format: of an
    element, in the letters of Python's struct module."""

    name: str
    address: int
    size: int
    format: str


@dataclass(frozen=True, slots=True)
class Variables:
    """more: there are more than these."""

    found: tuple[Variable, ...]
    more: bool


@question
async def variables(target: Target, deadline: Deadline) -> Variables:
    """The variables of the program that can be seen where the rank stands. Raises GdbError."""
    told = (await target.mi(Command.VARIABLES, deadline)).payload
    found = tuple(
        Variable(
            each.text("name"), each.number("address"), each.number("size"), each.text("format")
        )
        for each in told.list("objects").tuples()
    )
    return Variables(found, told.text("more") == "1")

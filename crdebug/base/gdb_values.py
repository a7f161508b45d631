"""Values and expressions as text, as a debugger prints and reads them."""

from __future__ import annotations

import math
import re

from crdebug.base.errors import BadInput
from crdebug.base.ranks import RankSet

Number = int | float  # and bool, which is an int

_TRUTH = {"true": 1, "false": 0, ".true.": 1, ".false.": 0}
# A number, and what GDB shows after one: a character, a string, a symbol, nan's bits.
_ANSWER = re.compile(
    r"(-?0x[0-9a-f]+|-?(?:nan|inf(?:inity)?)|[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
    r"(?:\(0x[0-9a-f]+\))?(?:\s+(?:[uUL]?['\"<]).*)?\Z",
    re.IGNORECASE | re.DOTALL,
)
_OPENING, _CLOSING = "([{", ")]}"


def number(answer: str) -> Number | None:
    """The number in a debugger's answer (1.5, 97 'a', (int *) 0x0, true), or None."""
    text = answer.strip()
    # a cast before a pointer may have brackets inside: (void (*)(int)) 0x401136 <main>
    while text.startswith("("):
        end = closing(text, 0)
        if end is None or end + 1 == len(text):
            return None
        text = text[end + 1 :].lstrip()
    if text.startswith("@0x"):  # a reference: @0x7ffc0de4: 5
        text = text.partition(":")[2].strip()
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    match = _ANSWER.match(text)
    if match is None:
        return None
    word = match[1].lower()
    if "0x" in word:
        return int(word, 16)
    if "nan" in word:
        return math.nan
    return float(word) if re.search(r"[.ein]", word) else int(word)


def not_a_number(expression: str, answer: str, rank: int, hint: str | None = None) -> BadInput:
    """The error for an answer of a rank that is not a number."""
    shown = answer if len(answer) <= 60 else answer[:57] + "..."
    problem = f"'{expression}' is {shown}, not a number"
    return BadInput(problem, ranks=RankSet.of([rank]), hint=hint)


def closing(text: str, start: int) -> int | None:
    """Index of the bracket that closes the one at `start`; None if there is none.

    Brackets inside C's quotes do not count.
    """
    open_: list[str] = []
    at = start
    while at < len(text):
        character = text[at]
        if character in "'\"":
            end = re.compile(rf"(?:\\.|[^\\{character}])*{character}", re.DOTALL).match(
                text, at + 1
            )
            if end is None:
                return None
            at = end.end()
            continue
        if character in _OPENING:
            open_.append(_CLOSING[_OPENING.index(character)])
        elif character in _CLOSING:
            if not open_ or open_.pop() != character:
                return None
            if not open_:
                return at
        at += 1
    return None

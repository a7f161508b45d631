"""A list of expressions as a user writes it: with commas between them."""

from __future__ import annotations

from crdebug.base.errors import BadInput

_PAIRS = {"(": ")", "[": "]", "{": "}"}


def expressions(text: str) -> tuple[str, ...]:
    """The expressions between commas; those in brackets, quotes and template arguments that are
    inside brackets separate nothing. Raises BadInput where one is empty or a bracket is open.
    """
    found, closing, start, quote = [], "", 0, ""
    skip = False
    for at, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _PAIRS:
            closing = _PAIRS[char] + closing
        elif closing and char == closing[0]:
            closing = closing[1:]
        elif char == "," and not closing:
            found.append(text[start:at].strip())
            start = at + 1
    found.append(text[start:].strip())
    if closing or quote:
        raise BadInput(f"'{text}' has no closing {(quote or closing)[0]}")
    if not all(found):
        raise BadInput(
            f"an expression in '{text}' is empty", hint="write them with commas: x, y[0]"
        )
    return tuple(found)

"""Text from a job, made harmless for a terminal.

Symbols, file names, arguments and output come from the program: an escape sequence in them could
change the terminal's title, its keys, or earlier output (ECMA-48).
"""

from __future__ import annotations

import re
from typing import TextIO

# C0 and C1 of ECMA-48 except newlines and tabs; and the controls for the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with each control character as Python writes it: \\x1b."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def for_stream(text: str, stream: TextIO) -> str:
    """`printable` at a terminal; unchanged anywhere else."""
    return printable(text) if stream.isatty() else text

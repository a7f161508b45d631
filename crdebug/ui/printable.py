"""Text from a job, made harmless for a terminal.

Symbols, file names, arguments and output come from the program: an escape sequence in them could
change the terminal's title, its keys, or earlier output (ECMA-48).
"""

from __future__ import annotations

import re
import sys
from typing import TextIO

import click

# C0 and C1 of ECMA-48 except newlines and tabs; the controls for the direction of text; and bytes
# that were no text, among which may be C1 of an eight-bit terminal.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with each control character as Python writes it: \\x1b."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def for_stream(text: str, stream: TextIO) -> str:
    """`printable` at a terminal; unchanged anywhere else."""
    return printable(text) if stream.isatty() else text


def echo(text: str, *, err: bool = False) -> None:
    """Write a line of a command's; `printable` at a terminal."""
    click.echo(for_stream(text, sys.stderr if err else sys.stdout), err=err)

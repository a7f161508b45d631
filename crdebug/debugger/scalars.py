"""Numbers as they lie in memory, for bytes that GDB cannot be asked about any more. Pure."""

from __future__ import annotations

import struct
from enum import StrEnum

_FLOATS = {4: ("<f", 9), 8: ("<d", 17)}  # and the digits with which GDB shows them


class Kind(StrEnum):
    """What the bytes of an expression are, as gdbscripts/addresses.py says it."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    POINTER = "pointer"
    OTHER = ""


def scalar(kind: Kind, data: bytes) -> str:
    """The number in these bytes as GDB shows it; empty if they are no number of a kind that is
    known here (a long double, a struct, an array)."""
    if not data or kind is Kind.OTHER:
        return ""
    if kind is Kind.FLOAT:
        if len(data) not in _FLOATS:
            return ""
        form, digits = _FLOATS[len(data)]
        return f"{struct.unpack(form, data)[0]:.{digits}g}"
    value = int.from_bytes(data, "little", signed=kind is Kind.SIGNED)
    return hex(value) if kind is Kind.POINTER else str(value)

"""Numbers as they lie in memory."""

from __future__ import annotations

import struct

import pytest

from crdebug.debugger.scalars import Kind, scalar

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (Kind.SIGNED, b"\xff\xff\xff\xff", "-1"),
        (Kind.UNSIGNED, b"\xff\xff", "65535"),
        (Kind.POINTER, (0x7F12).to_bytes(8, "little"), "0x7f12"),
        (Kind.FLOAT, struct.pack("<d", 0.1), "0.10000000000000001"),  # as GDB does
        (Kind.FLOAT, struct.pack("<f", 0.1), "0.100000001"),
        (Kind.FLOAT, struct.pack("<d", -1.5), "-1.5"),
        (Kind.FLOAT, struct.pack("<d", float("nan")), "nan"),
        (Kind.FLOAT, bytes(16), ""),  # a long double
        (Kind.OTHER, bytes(24), ""),
        (Kind.SIGNED, b"", ""),  # nothing is mapped there
    ],
)
def test_bytes_are_shown_as_gdb_shows_them(kind: Kind, data: bytes, text: str) -> None:
    assert scalar(kind, data) == text

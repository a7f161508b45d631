"""`verify` does not compare addresses, whatever they are left in."""

from __future__ import annotations

import struct

import pytest

from crdebug.travel.verify import without_addresses

HEAP, STACK = (0x55E0_0000_1000, 0x55E0_0002_0000), (0x7FFD_1234_0000, 0x7FFD_1236_0000)
MAPPED = (HEAP, STACK)


def words(*values: int) -> bytes:
    return struct.pack(f"={len(values)}Q", *values)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (0, 0),
        (1, 1),
        (HEAP[0], 0),
        (HEAP[1] - 1, 0),
        (HEAP[1], HEAP[1]),
        (HEAP[0] - 1, HEAP[0] - 1),
        (STACK[0] + 0xFF, 0),
        (0x7FFD_1234, 0x7FFD_1234),
        (1 << 63 | STACK[0], 1 << 63 | STACK[0]),
    ],
)
@pytest.mark.parametrize("at", range(3))
def test_an_address_is_left_out_wherever_it_is(value: int, kept: int, at: int) -> None:
    before, after = [7] * at, [9] * (2 - at)
    data = words(*before, value, *after)
    assert without_addresses(data, 0, len(data), MAPPED) == words(*before, kept, *after)


def test_all_of_them_are() -> None:
    data = words(*(STACK[0] + 8 * n for n in range(1000)))
    assert without_addresses(data, 0, len(data), MAPPED) == bytes(8000)


def test_what_is_not_at_a_word_is_none() -> None:
    data = b"\1\2\3" + words(HEAP[0]) + b"\0" * 5
    assert without_addresses(data, 0, len(data), MAPPED) == data


@pytest.mark.parametrize("size", [1, 2, 4, 8, 12])
@pytest.mark.parametrize("at", range(0, 12, 2))
def test_of_a_variable_only_its_own_bytes_count(at: int, size: int) -> None:
    data = words(1 << 60 | 0x0102030405060708, STACK[0], 0x1112131415161718)
    without = data[:8] + bytes(8) + data[16:]
    assert without_addresses(data, at, size, MAPPED) == without[at : at + size]


def test_where_nothing_is_mapped_nothing_is_an_address() -> None:
    assert without_addresses(words(HEAP[0]), 0, 8, ()) == words(HEAP[0])

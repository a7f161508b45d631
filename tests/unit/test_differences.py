"""What two runs left in variables: the last comparison counts, the first difference is named."""

from __future__ import annotations

import struct

from crdebug.timeline.differences import Content, Difference, differences, value


def long(number: int) -> Content:
    return "=q", struct.pack("=q", number)


def test_nothing_differs() -> None:
    seen = [{0: {"x": long(1)}}, {0: {"x": long(2)}}]
    assert differences(seen, seen) == []


def test_the_first_place_is_named_and_what_differed_first_is_in_front() -> None:
    first = [{0: {"x": long(1)}, 1: {"y": long(1)}}, {0: {"x": long(2)}, 1: {"y": long(1)}}]
    second = [{0: {"x": long(1)}, 1: {"y": long(5)}}, {0: {"x": long(3)}, 1: {"y": long(6)}}]
    assert differences(first, second) == [
        Difference(1, 0, "y", "1", "5"),
        Difference(0, 1, "x", "2", "3"),
    ]


def test_what_is_equal_again_is_none() -> None:
    first = [{0: {"x": long(1)}}, {0: {"x": long(2)}}]
    second = [{0: {"x": long(9)}}, {0: {"x": long(2)}}]
    assert differences(first, second) == []


def test_what_only_one_run_has_is_not_compared() -> None:
    first = [{0: {"x": long(1)}, 1: {"y": long(1)}}]
    second = [{0: {"z": long(9)}}]
    assert differences(first, second) == []
    assert differences([{0: {"x": long(1)}}], [{0: {"x": ("=d", long(1)[1])}}]) == []


def test_values_for_people() -> None:
    assert value(long(-3)) == "-3"
    assert value(("=d", struct.pack("=d", 0.1))) == "0.10000000000000001"
    assert value(("=i", bytes(8))) == ""  # an array
    assert value(("", bytes(16))) == ""  # a hash

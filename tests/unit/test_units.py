"""Times and sizes as people write them."""

from __future__ import annotations

import pytest

from crdebug.base import units

pytestmark = pytest.mark.unit

SECONDS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
BYTES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@pytest.mark.parametrize("unit", SECONDS)
@pytest.mark.parametrize("number", ["1", "90", "0.5", "12.25"])
def test_a_time(unit: str, number: str) -> None:
    for text in (f"{number}{unit}", f"{number} {unit.upper()}".rstrip()):
        seconds = units.read_seconds(text)
        assert seconds == pytest.approx(float(number) * SECONDS[unit])
        assert units.read_seconds(units.seconds_text(seconds)) == pytest.approx(seconds)


@pytest.mark.parametrize("unit", BYTES)
@pytest.mark.parametrize("number", ["1", "500", "0.5", "2.5"])
def test_a_size(unit: str, number: str) -> None:
    for ending in ("", "b", *(("ib",) if unit else ())):
        size = units.read_bytes(f"{number}{unit}{ending}")
        assert size == max(int(float(number) * 1024 ** BYTES[unit]), 1)
    assert units.read_bytes(units.bytes_text(size).removesuffix("ytes")) == size


@pytest.mark.parametrize("text", ["", "0", "0s", "-1", "1x", "s", "1..5", "1 2", "1e3", "nan", "٣"])
def test_what_is_neither(text: str) -> None:
    for read in (units.read_seconds, units.read_bytes):
        with pytest.raises(ValueError):
            read(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *((0.5, "0.5 s"), (59, "59 s"), (60, "1 min"), (77, "77 s"), (90, "1.5 min")),
        *((7200, "2 h"), (129600, "1.5 d"), (86399, "86399 s")),
    ],
)
def test_the_largest_unit_in_which_a_time_is_short(seconds: float, shown: str) -> None:
    assert units.seconds_text(seconds) == shown

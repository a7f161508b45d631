"""Times and sizes as people write them, at the command line, in settings and in the config file."""

from __future__ import annotations

import re

TIMES = "30s, 500ms, 10m, 1.5h or 2d; without a unit it is seconds"
SIZES = "500M or 20G"
_NUMBER = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)\Z", re.ASCII)
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PREFIXES = "kmgt"
_BYTES = {
    f"{prefix}{unit}": 1 << 10 * power
    for power, prefix in enumerate(("", *_PREFIXES))
    for unit in (("", "b", "ib") if prefix else ("", "b"))
}


def read_seconds(text: str) -> float:
    """A time, more than 0, in seconds. Raises ValueError."""
    return _read(text, _SECONDS)


def read_bytes(text: str) -> int:
    """A size, at least a byte: ``500M``, ``2 GiB``. Raises ValueError."""
    return max(int(_read(text, _BYTES)), 1)


def _read(text: str, units: dict[str, float] | dict[str, int]) -> float:
    match = _NUMBER.match(text.lower())
    amount = float(match[1]) * units.get(match[2], 0) if match else 0.0
    if not amount:
        raise ValueError(text)
    return amount


def seconds_text(seconds: float) -> str:
    """The time in the largest unit that gives a short number: ``90 s`` is ``1.5 min``."""
    for unit in ("d", "h", "min"):
        amount = seconds / _SECONDS[unit]
        if amount >= 1 and round(amount, 2) == amount:
            return f"{amount:g} {unit}"
    return f"{seconds:g} s"


def bytes_text(size: int) -> str:
    for power in range(len(_PREFIXES), 0, -1):
        if size >= 1 << 10 * power:
            return f"{size / (1 << 10 * power):.3g} {_PREFIXES[power - 1].upper()}iB"
    return f"{size} bytes"

"""Places in the files of a job's output."""

from __future__ import annotations

from pathlib import Path

_PIECE = 1 << 20  # bytes


def length_of_same(one: Path, other: Path) -> int:
    """How many bytes at the beginnings of two files are the same."""
    length = 0
    with open(one, "rb") as first, open(other, "rb") as second:
        while (data := first.read(_PIECE)) and data == (there := second.read(_PIECE)):
            length += len(data)
    if not data:
        return length
    pairs = enumerate(zip(data, there, strict=False))
    return length + next((at for at, (a, b) in pairs if a != b), min(len(data), len(there)))


def start_of_line(path: Path, place: int) -> int:
    """Where the line begins that is at this place of a file."""
    with open(path, "rb") as file:
        while place:
            start = max(0, place - _PIECE)
            file.seek(start)
            found = file.read(place - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            place = start
    return place

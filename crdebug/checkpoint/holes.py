"""Files with holes: which parts of them are data (lseek(2), SEEK_DATA)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator


def data_ranges(file: int, end: int) -> Iterator[tuple[int, int]]:
    """The start and end of each part, before `end`, that is not a hole. Moves the file's offset."""
    at = 0
    while at < end:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
            hole = min(end, os.lseek(file, at, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # nothing but a hole is left
            raise
        if at < hole:
            yield at, hole
        at = hole

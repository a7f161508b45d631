"""Leave out output that comes a second time, because a job repeats its past. Pure.

A line is left out if one with the same text is expected, and no more often than that: what a job
prints only now is always shown, also if it comes before what is still to be repeated.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable

MOST = 16 << 20  # bytes that are expected at a time; of more, all is shown again


class Again:
    """Of one stream. shown: makes of bytes that the job wrote what the user sees of them.

    What the user has seen is in the file, or is expected. While the job is brought to another place
    (`begin` to `end`) nothing is shown: it may go several ways to find the place. In the end a rank
    may be further than it was, as one that was stopped between two calls, and have written more.
    """

    def __init__(self, shown: Callable[[bytes], str]) -> None:
        self._shown = shown
        self._expected: Counter[str] = Counter()
        self._size = 0
        self._sorted: list[str] | None = None  # those that were expected when it was needed first
        self._begun = ""  # the beginning of a line that may be an expected one
        self._hidden = False
        self.low = 0  # the least length that the file has had since `begin`
        self._before = b""  # what was in the file behind that

    def begin(self, size: int) -> None:
        """The job is about to be brought to another place. size: the length of the file."""
        self._hidden, self.low, self._before = True, size, b""

    def cut(self, size: int, text: bytes) -> None:
        """The file is cut to this length. text: what follows there, or the beginning of it."""
        if size < self.low:
            self.low, self._before = size, text[: self.low - size] + self._before

    def end(self, text: bytes) -> str:
        """The job is there. text: what is in the file behind `low`. Returns what is new of it."""
        self._hidden = False
        self._begun, self._sorted = "", None
        self._size += len(self._before)
        if self._size > MOST:
            self._expected.clear()
            return ""
        *seen, begun = self._shown(self._before).split("\n")
        self._expected.update(seen)
        *lines, rest = self._shown(text).split("\n")
        new = [f"{line}\n" for line in lines if not self._is_expected(line)]
        if rest and self._may_become_one(rest):
            self._begun = rest
        elif rest != begun:
            new.append(rest)
        return "".join(new)

    def feed(self, text: str, *, final: bool = False) -> str:
        """What is new of it. final: no more comes."""
        if self._hidden:
            return ""
        if not self._expected:
            begun, self._begun = self._begun, ""
            return begun + text
        *lines, rest = (self._begun + text).split("\n")
        self._begun = ""
        told = [f"{line}\n" for line in lines if not self._is_expected(line)]
        if rest and not final and self._may_become_one(rest):
            self._begun = rest
        else:
            told.append(rest)
        return "".join(told)

    def is_over(self) -> str:
        """What comes now is new. Returns what was kept back."""
        self._expected.clear()
        self._size, self._sorted = 0, None
        begun, self._begun = self._begun, ""
        return begun

    def _is_expected(self, line: str) -> bool:
        if line not in self._expected:
            return False
        self._expected[line] -= 1
        if not self._expected[line]:
            del self._expected[line]
        return True

    def _may_become_one(self, text: str) -> bool:
        if self._sorted is None:
            self._sorted = sorted(self._expected)
        for at in range(bisect.bisect_left(self._sorted, text), len(self._sorted)):
            if not self._sorted[at].startswith(text):
                break
            if self._sorted[at] in self._expected:
                return True
        return False

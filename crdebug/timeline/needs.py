"""Ordered pairs of ticks with a fast minimum over a range: what a cut is computed from.

Every rule about which calls can complete has one shape: "rank P's call of tick `value` completes
only if rank Q has entered its call of tick `key`". A NeedList holds all that one rule says about
one pair of ranks, ordered by key. Block minima keep a question at a fraction of a millisecond for
millions of entries, and appending at the end free of charge.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

NEVER = 1 << 62  # the tick of what has not completed

_BLOCK = 1024


class NeedList:
    """Entries (key, value), ordered by key; entries of the same key stay in the order they came."""

    __slots__ = ("_minima", "keys", "values")

    def __init__(self) -> None:
        self.keys = array("q")
        self.values = array("q")
        self._minima: list[int] = []  # of the leading blocks; the others are computed when needed

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, key: int, value: int) -> int:
        """Insert an entry, after those of the same key; at the end this costs least."""
        keys = self.keys
        at = len(keys)
        if not at or key >= keys[-1]:
            keys.append(key)
            self.values.append(value)
            block = at // _BLOCK
            if block < len(self._minima) and value < self._minima[block]:
                self._minima[block] = value
            return at
        at = bisect_right(keys, key)
        keys.insert(at, key)
        self.values.insert(at, value)
        del self._minima[at // _BLOCK :]
        return at

    def clear(self) -> None:
        del self.keys[:], self.values[:], self._minima[:]

    def put(self, at: int, value: int) -> None:
        """Change the value of the entry at an index."""
        old = self.values[at]
        self.values[at] = value
        block = at // _BLOCK
        if block >= len(self._minima):
            return
        if value <= self._minima[block]:
            self._minima[block] = value
        elif old == self._minima[block]:
            del self._minima[block:]

    def least(self, first: int, last: int, above: int = -1) -> int:
        """The least value > above of the entries with first <= key <= last, or NEVER."""
        low, high = bisect_left(self.keys, first), bisect_right(self.keys, last)
        least = self._least(low, high)
        if least > above or least == NEVER:
            return least
        # rarely: only rules that the recorded run itself disproves have values below a floor
        return min((value for value in self.values[low:high] if value > above), default=NEVER)

    def summarise(self) -> None:
        """Compute the minima of the blocks that are complete: what is asked next is fast then."""
        for block in range(len(self._minima), len(self.values) // _BLOCK):
            self._minima.append(min(self.values[block * _BLOCK : (block + 1) * _BLOCK]))

    def _least(self, low: int, high: int) -> int:
        if low >= high:
            return NEVER
        values = self.values
        first, last = -(-low // _BLOCK), high // _BLOCK  # the blocks wholly inside
        if first >= last:
            return min(values[low:high])
        self.summarise()
        minima = self._minima
        least = min(minima[first:last])
        if low < first * _BLOCK:
            least = min(least, min(values[low : first * _BLOCK]))
        if high > last * _BLOCK:
            least = min(least, min(values[last * _BLOCK : high]))
        return least

    def needed_by(self, tick: int) -> int:
        """The greatest key of the entries with value <= tick, or 0: what `tick` and before need."""
        values = self.values
        whole = len(values) // _BLOCK
        self.summarise()
        for at in range(len(values) - 1, whole * _BLOCK - 1, -1):
            if values[at] <= tick:
                return self.keys[at]
        for block in range(whole - 1, -1, -1):
            if self._minima[block] <= tick:
                for at in range((block + 1) * _BLOCK - 1, block * _BLOCK - 1, -1):
                    if values[at] <= tick:
                        return self.keys[at]
        return 0

    def open_at(self, key: int, tick: int) -> Iterator[int]:
        """Indices of the entries whose key is not after `key`, and whose value is after `tick`."""
        high = bisect_right(self.keys, key)
        for low in range(0, high, _BLOCK):
            block = self.values[low : min(low + _BLOCK, high)]
            if max(block) > tick:
                yield from (low + n for n, value in enumerate(block) if value > tick)

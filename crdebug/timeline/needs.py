"""Ordered pairs of ticks with a fast minimum over a range: what a cut is computed from.

Every rule about which calls can complete has one shape: "rank P's call of tick `value` completes
only if rank Q has entered its call of tick `key`". A NeedList holds all that one rule says about
one pair of ranks, ordered by key. Block minima keep a question at a fraction of a millisecond for
millions of entries, and appending at the end free of charge (native/matcher/history_needs.c).
"""

from __future__ import annotations

from collections.abc import Sequence

from crdebug.native.matcher.library import (
    Column,
    Found,
    Library,
    Memory,
    NeedsStruct,
    Owner,
    address_of,
)

NEVER = 1 << 62  # the tick of what has not completed


class NeedList:
    """Entries (key, value), ordered by key; entries of the same key stay in the order they came.

    struct: its memory, which the owner keeps alive.
    """

    def __init__(self, struct: NeedsStruct, owner: Owner) -> None:
        self._struct = struct
        self._owner = owner
        self._library = owner.library

    @classmethod
    def alone(cls, library: Library) -> NeedList:
        """An empty list that belongs to no matching."""
        memory = Memory(library, library.needs_new(), library.needs_free)
        return cls(NeedsStruct.from_address(memory.address), memory)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def keys(self) -> Sequence[int]:
        return Column(self._struct.keys, self._owner)

    @property
    def values(self) -> Sequence[int]:
        return Column(self._struct.values, self._owner)

    @property
    def _address(self) -> int:
        return address_of(self._struct)

    def add(self, key: int, value: int) -> int:
        """Insert an entry, after those of the same key; at the end this costs least."""
        return self._library.needs_add(self._address, key, value)  # type: ignore[no-any-return]

    def put(self, at: int, value: int) -> None:
        """Change the value of the entry at an index."""
        self._library.needs_put(self._address, at, value)

    def least(self, first: int, last: int, above: int = -1) -> int:
        """The least value > above of the entries with first <= key <= last, or NEVER."""
        return self._library.needs_least(self._address, first, last, above)  # type: ignore[no-any-return]

    def key_of(self, value: int) -> int | None:
        """The key of the first entry that has a value; None if none has."""
        if self.least(0, NEVER, value - 1) != value:
            return None
        return self.keys[self.values.index(value)]

    def needed_by(self, tick: int) -> int:
        """The greatest key of the entries with value <= tick, or 0: what `tick` and before need."""
        return self._library.needs_needed_by(self._address, tick)  # type: ignore[no-any-return]

    def open_at(self, key: int, tick: int) -> list[int]:
        """Indices of the entries whose key is not after `key`, and whose value is after `tick`."""
        found = Found(self._library)
        self._library.needs_open_at(self._address, key, tick, found.reference)
        return found.numbers()

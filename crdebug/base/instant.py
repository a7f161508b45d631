"""Where a rank is in its history: between two of its MPI calls, or inside one.

The layer inside a rank counts half ticks: its clock is even while the rank runs its own code, and
odd while it is inside a counted MPI call. That number is for the log, the shared clock, manifests
and files; everybody else asks an `Instant` which call it is about.
"""

from __future__ import annotations


class Instant(int):
    """A value of a rank's clock. Instants of one rank are ordered as its history is.

    The tick of a call is its number, from 1 on.
    """

    __slots__ = ()

    # ---- of a call ------------------------------------------------------------------------------

    @classmethod
    def before(cls, tick: int) -> Instant:
        """The rank's own code before this call, to where the rank is about to enter it."""
        return cls(2 * tick - 2)

    @classmethod
    def within(cls, tick: int) -> Instant:
        """Inside this call, to just before it returns."""
        return cls(2 * tick - 1)

    @classmethod
    def after(cls, tick: int) -> Instant:
        """The rank's own code from where this call has returned."""
        return cls(2 * tick)

    # ---- where that is --------------------------------------------------------------------------

    @property
    def tick(self) -> int:
        """The tick of the last call that has returned; 0 before the first."""
        return self // 2

    @property
    def entered(self) -> int:
        """The tick of the last call that was entered; 0 before the first."""
        return (self + 1) // 2

    @property
    def inside(self) -> bool:
        """Is the rank inside a call?"""
        return self % 2 == 1

    @property
    def ticks(self) -> float:
        """For people: 2.5 is inside the third call."""
        return self / 2

    # ---- the way from there ---------------------------------------------------------------------

    @property
    def entry(self) -> Instant:
        """Before the call that the rank is inside; between two calls, the same."""
        return Instant.after(self.tick)

    @property
    def exit(self) -> Instant:
        """After the call that the rank is inside; between two calls, the same."""
        return Instant.after(self.entered)

    @property
    def before_return(self) -> Instant:
        """Inside the call that the rank is inside, or comes to next."""
        return Instant.within(self.tick + 1)

    @property
    def in_last_call(self) -> Instant:
        """Inside the last call that has returned; where none has, the beginning."""
        return Instant.within(self.tick) if self.tick else BEGINNING

    def back(self, calls: int) -> Instant:
        """So many calls before; that may be before the beginning."""
        return Instant(self - 2 * calls)


Cut = tuple[Instant, ...]
"""A place of the whole job: each rank's instant, by rank."""

BEGINNING = Instant(0)


def cut_of(*numbers: int) -> Cut:
    """A cut as it stands in a file: numbers of half ticks, by rank."""
    return tuple(map(Instant, numbers))


def beginning(ranks: int) -> Cut:
    """Where a job of so many ranks begins."""
    return (BEGINNING,) * ranks

"""What a user should know of the way by which the job came to a place."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Arrival:
    """How the job came to where it stands.

    caveats: why the place may differ from the recorded one, as clauses for people.
    start: why the job went no further back, at the start of history; "" if it came where it should.
    """

    caveats: tuple[str, ...] = ()
    start: str = ""

    def then(self, way: Arrival) -> Arrival:
        """The job went on from there by another way. Each caveat counts once."""
        return Arrival(tuple(dict.fromkeys(self.caveats + way.caveats)), way.start or self.start)

    def at_start(self, why: str) -> Arrival:
        """The same arrival, where the job could go no further back."""
        return replace(self, start=why)

    @property
    def text(self) -> str:
        """All of it, for people; "" if there is nothing to say."""
        return joined(self.start, *self.caveats)


def joined(*clauses: str | None) -> str:
    """The clauses that there are, as one note for people."""
    return "; ".join(filter(None, clauses))

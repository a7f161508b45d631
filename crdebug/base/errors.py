"""Everything that can go wrong, as data.

An error carries fields; `CrdebugError.__str__` is the one place that makes a sentence of them:
lower case, which rank, which phase, what went wrong, what to do next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crdebug.base.ranks import RankSet


@dataclass(eq=False, kw_only=True)
class Where:
    """Where an error happened; each part may be unknown."""

    ranks: RankSet | None = None
    phase: str | None = None
    outcome: str | None = None
    hint: str | None = None


@dataclass(eq=False)
class CrdebugError(Where, Exception):
    """Base of all errors that a user is meant to read.

    problem: what went wrong, as a lower-case clause without a full stop.
    ranks, phase: where, if known.  outcome: the result in spite of the error, as another clause.
    hint: what to do next.
    """

    problem: str

    def clause(self) -> str:
        return self.problem

    def __str__(self) -> str:
        parts = []
        if self.ranks:
            parts.append(self.ranks.words)
        if self.phase:
            parts.append(f"during {self.phase}")
        place = " ".join(parts)
        sentence = f"{place}: {self.clause()}" if place else self.clause()
        if self.outcome:
            sentence += f"; {self.outcome}"
        return f"{sentence} ({self.hint})" if self.hint else sentence


class BadInput(CrdebugError):
    """The user asked for something that does not exist or cannot be read."""


class Refused(CrdebugError):
    """The request is valid, but impossible in the present state."""


class Ended(Refused):
    """A rank has no process to ask. `problem` is the rest of a sentence that begins
    with the ranks: "exited with status 0"."""

    def __str__(self) -> str:
        said = super().__str__()
        # "rank 3 exited", and "rank 3 during dump: exited"
        return said.replace(": ", " ", 1) if self.ranks and not self.phase else said


class InQuietRegion(Refused):
    """The program does not want a checkpoint just now; soon it may."""


class OfTheMoment(Refused):
    """What makes it impossible usually lasts for microseconds."""


class Interrupted(CrdebugError):
    """The user ended it early (Ctrl-C)."""

    @classmethod
    def on_the_way(cls, places: str = "") -> Interrupted:
        """The error for an interrupted journey in time. places: where the ranks are now."""
        so_far = f": {places}" if places else ""
        return cls(f"interrupted on the way{so_far}", hint="'when' says where all ranks are")


class NotAvailable(CrdebugError):
    """The machine lacks something that crdebug needs."""


@dataclass(eq=False)
class GdbError(CrdebugError):
    """GDB answered a command with an error; `problem` is GDB's own message.

    kind: a wire.ErrorKind if crdebug's own code inside GDB raised the error; else "".
    """

    command: str
    kind: str = ""


@dataclass(eq=False)
class GdbDied(CrdebugError):
    """A GDB process ended, or closed its pipe, while it was needed.

    command: the last one that was sent to it.  status: its exit status, negative for a signal.
    """

    command: str
    status: int | None

    def clause(self) -> str:
        how = "" if self.status is None else f" (exit status {self.status})"
        return f"{self.problem}{how} during '{self.command}'"


@dataclass(eq=False)
class DeadlineExpired(CrdebugError):
    """A wait took longer than allowed; `problem` names the object of the wait.

    seconds: the time that was allowed.
    """

    seconds: float

    def clause(self) -> str:
        return f"waited {self.seconds:g} s for {self.problem}"


@dataclass(eq=False)
class CrsFailed(CrdebugError):
    """The checkpoint/restart service failed.

    log: the last lines of its log that name an error.
    """

    log: tuple[str, ...] = ()

    def clause(self) -> str:
        return self.problem if not self.log else f"{self.problem}: {' | '.join(self.log)}"


class StoreError(CrdebugError):
    """A checkpoint is missing, incomplete, touched, or cannot be stored."""


@dataclass(eq=False)
class InvalidTransition(CrdebugError):
    """An event that the protocol does not expect in its present state.

    story: every event and state that came before, oldest first (the form is
    dask.distributed's: a refused transition shows how it came about).
    """

    story: tuple[str, ...] = ()

    def clause(self) -> str:
        return "\n  ".join([self.problem, *self.story])


def in_words(error: OSError) -> CrdebugError:
    """An error of the operating system as one of ours."""
    said = (error.strerror or str(error)).lower()
    told = CrdebugError(f"{error.filename}: {said}" if error.filename else said)
    told.__cause__ = error
    return told

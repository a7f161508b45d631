"""The messages of a job's starter: the number of its ranks, its end."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.signal_names import name_of

_EXIT = re.compile(r"^exit (\d+)$", re.M)
_FAILED = re.compile(r"^failed (.*)$", re.M)
_KILLED = re.compile(r"^killed$", re.M)
_SAID = re.compile(
    r"^(?:late (\d+) (.*)|waits (\w+) (.*)|flows (\w+)|spawned (.*)|died (\d+))$", re.M
)
_RANKS = re.compile(r"^ranks (\d+)$", re.M)


@dataclass(frozen=True, slots=True)
class StarterEvents:
    """The contents of a starter's events so far.

    said: sentences for the user.
    killed: a user has ended the job, see `note_killed`.
    """

    ranks: int | None
    status: int | None
    failure: str | None
    said: tuple[str, ...] = ()
    killed: bool = False


def note_killed(events: Path) -> None:
    """Note that the user has ended the job: nothing should restart it automatically."""
    with contextlib.suppress(OSError), open(events, "a") as file:
        file.write("killed\n")


def note_ranks(events: Path, ranks: int) -> None:
    """Note how many ranks a job over hosts has: they make themselves known to no starter."""
    with contextlib.suppress(OSError), open(events, "a") as file:
        file.write(f"ranks {ranks}\n")


def starter_events(events: Path) -> StarterEvents:
    text = events.read_text(errors="replace") if events.exists() else ""
    ranks, status, failed = _RANKS.search(text), _EXIT.search(text), _FAILED.search(text)
    return StarterEvents(
        int(ranks[1]) if ranks else None,
        int(status[1]) if status else None,
        failed[1] if failed else None,
        tuple(_sentence(*said) for said in _SAID.findall(text)),
        _KILLED.search(text) is not None,
    )


def _sentence(
    rank: str, program: str, waiting: str, why: str, flowing: str, spawned: str, signal: str
) -> str:
    """A message of the starter as a sentence for people."""
    if signal:
        name = name_of(int(signal))
        return f"the launcher was killed by {name}: its ranks cannot go on without it, and end"
    if spawned:
        return (
            f"{spawned} was spawned (MPI_Comm_spawn): spawned processes are not ranks of this job; "
            "they are not shown, stopped or recorded, though checkpoints include them"
        )
    if waiting:
        return (
            f"the job's output to standard {waiting} waits: {why[:1].lower()}{why[1:]} "
            "(make room: it goes on by itself, and nothing is lost)"
        )
    if flowing:
        return f"the job's output to standard {flowing} goes on"
    return (
        f"rank {rank}: {program} starts only now, after another process was taken for the rank; "
        "it runs without a debugger (let the launcher start it, or a shell script)"
    )

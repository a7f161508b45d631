"""Reverse execution of one thread by the stepper in its GDB; see gdbscripts/stepper/.

Places are texts, see gdbscripts/wire.py. Every walk raises GdbError: of the kind
ErrorKind.AT_ORIGIN if the thread is at the origin already. The thread may be elsewhere then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.debugger.target import Target
from crdebug.gdbscripts.wire import LOAD_STEPPER, REFRESH_WATCHPOINTS, Command
from crdebug.mi.records import MiTuple

AT_ORIGIN = "-"  # as a place


@dataclass(frozen=True, slots=True)
class WalkOrigin:
    """The state from which walks start.

    snapshot: its name.
    stop_at: the address of `stop` in the rank's clock.
    stop: the value to write there each time the snapshot is put back.
    hold: the address at which the thread is held at its next MPI call.
    dead_end: the thread is known to crash after the origin.
    """

    snapshot: str
    stop_at: int
    stop: int
    hold: int
    dead_end: bool = False

    @property
    def options(self) -> str:
        stop = self.stop.to_bytes(8, "little").hex()
        words = f"--write {self.stop_at:x}={stop} --limit {self.hold:x}"
        return f"{words} --dead-end 1" if self.dead_end else words


@dataclass(frozen=True, slots=True)
class Here:
    """The place of a thread.

    signalled: it was about to get the signal whose handler begins at the place.
    """

    place: str
    signalled: bool


@dataclass(frozen=True, slots=True)
class Met:
    """A place that `meet` found.

    exact: it is certain that this is the place.
    """

    place: str
    exact: bool


@dataclass(frozen=True, slots=True)
class Earlier:
    """The target lies before the origin.

    kind: the kind of target to look for there.
    frame: the frame to look for it in; "" for any.
    """

    kind: str
    frame: str


async def load(target: Target, library: Path, deadline: Deadline) -> None:
    """Load the stepper, before anything else. library: its compiled part."""
    await target.console(LOAD_STEPPER, deadline)
    await target.mi(f"{Command.WALK_LIBRARY} {library}", deadline)


async def here(target: Target, origin: WalkOrigin, deadline: Deadline) -> Here:
    """The thread's place."""
    told = await _walk(target, Command.HERE, origin, "", deadline)
    return Here(told.text("place"), told.text("signalled") == "1")


async def go(target: Target, origin: WalkOrigin, place: str, deadline: Deadline) -> None:
    await _walk(target, Command.GO, origin, place, deadline)


async def reverse(
    target: Target, origin: WalkOrigin, kind: str, frame: str, deadline: Deadline
) -> str | Earlier:
    """Go back by stepi, nexti, step, next or finish, from a frame ("": the newest). Returns the
    place."""
    option = f"--frame {frame} " if frame else ""
    told = await _walk(target, Command.REVERSE, origin, kind, deadline, option)
    if "before" not in told:
        return told.text("place")
    before = told.text("before")
    return Earlier(before, "" if before in ("step", "stepi") else told.text("frame"))


async def meet(target: Target, origin: WalkOrigin, state: str, deadline: Deadline) -> Met:
    """Go to the place where the thread had a state that `recall` returned."""
    told = await _walk(target, Command.MEET, origin, f"{state} {origin.hold:x}", deadline)
    return Met(told.text("place"), told.text("exact") == "1")


async def recall(target: Target, deadline: Deadline) -> str:
    """The state by which `meet` recognises the thread's stop."""
    return (await target.mi(Command.RECALL, deadline)).payload.text("state")


async def call_frame(target: Target, library: str, deadline: Deadline) -> str:
    """The frame of the outermost function on the stack that belongs to a library."""
    return (await target.mi(f"{Command.CALL_FRAME} {library}", deadline)).payload.text("frame")


async def refresh_watchpoints(target: Target, deadline: Deadline) -> None:
    """Make watchpoints take the present values as those that they saw last."""
    await target.console(REFRESH_WATCHPOINTS, deadline)


async def _walk(
    target: Target,
    command: str,
    origin: WalkOrigin,
    rest: str,
    deadline: Deadline,
    option: str = "",
) -> MiTuple:
    # --frame after another option: as the first, it would be MI's own
    words = f"{command} {origin.options} {option}{origin.snapshot} {rest}"
    return await target.walk(words, deadline)

"""GDB's records as values of ours. Pure.

Field names are those of the GDB manual, "GDB/MI Async Records", "GDB/MI Frame Information",
"GDB/MI Breakpoint Information" and "GDB/MI Thread Information".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from crdebug.events import Location, RankStopped, StopReason
from crdebug.mi.records import MiList, MiTuple
from crdebug.target.interface import Frame, Inserted, ThreadInfo

_LWP = re.compile(r"(?:LWP|process) (\d+)")
_HISTORY = re.compile(r"^\$\d+ = ", re.MULTILINE)
_REASONS: Mapping[str, StopReason] = {
    "breakpoint-hit": StopReason.BREAKPOINT,
    "watchpoint-trigger": StopReason.WATCHPOINT,
    "read-watchpoint-trigger": StopReason.WATCHPOINT,
    "access-watchpoint-trigger": StopReason.WATCHPOINT,
    "watchpoint-scope": StopReason.WATCHPOINT,
    "end-stepping-range": StopReason.STEP,
    "location-reached": StopReason.STEP,
    "function-finished": StopReason.FINISH,
    "signal-received": StopReason.SIGNAL,
    "exited": StopReason.EXITED,
    "exited-normally": StopReason.EXITED,
    "exited-signalled": StopReason.KILLED,
}


def stop(rank: int, record: MiTuple) -> RankStopped:
    """A ``*stopped`` record. detail: of a FINISH the returned value, of an OTHER GDB's word."""
    word = _word(record)
    reason = _REASONS.get(word, StopReason.OTHER)
    detail = word
    match reason:
        case StopReason.BREAKPOINT:
            detail = record.text("bkptno", "")
        case StopReason.WATCHPOINT:
            detail = _watchpoint(record)
        case StopReason.SIGNAL | StopReason.KILLED:
            detail = record.text("signal-name", "")
            if detail == "0":
                reason, detail = StopReason.OTHER, ""
        case StopReason.EXITED:
            # GDB prints the status in octal.
            detail = str(record.number("exit-code", 0, 8))
        case StopReason.FINISH:
            detail = record.text("return-value", "")
        case StopReason.STEP:
            detail = ""
    frame = record.get("frame")
    return RankStopped(
        rank,
        reason,
        detail,
        record.number("thread-id", 0),
        location(frame) if isinstance(frame, MiTuple) else None,
    )


def _word(record: MiTuple) -> str:
    """GDB's reason. It gives two when a step is over before it began: "signal-received", with
    signal 0, which is none, and then "end-stepping-range"."""
    given = record.get("reason")
    if isinstance(given, MiList):
        return given.texts()[-1]
    return record.text("reason", "")


def _watchpoint(record: MiTuple) -> str:
    for name in ("wpt", "hw-rwpt", "hw-awpt"):
        found = record.get(name)
        if isinstance(found, MiTuple):
            return found.text("number", "")
    return record.text("wpnum", "")


def location(frame: MiTuple) -> Location:
    """A frame's, or a breakpoint location's, place."""
    return Location(
        frame.number("addr", 0, 0),
        frame.text("func", "").removeprefix("??"),  # GDB's word for a function without a name
        frame.text("file", ""),
        frame.number("line", 0),
        frame.text("fullname", ""),
        frame.text("from", ""),
    )


def frames(listing: MiTuple, arguments: MiTuple | None = None) -> tuple[Frame, ...]:
    """From the answers of -stack-list-frames and, if it was asked, -stack-list-arguments."""
    texts = {
        entry.number("level"): ", ".join(
            f"{argument.text('name', '?')}={argument.text('value', '...')}"
            for argument in entry.list("args").tuples()
        )
        for entry in (arguments.list("stack-args").tuples() if arguments else ())
    }
    return tuple(
        Frame(level, location(entry), texts.get(level, ""))
        for entry in listing.list("stack").tuples()
        for level in [entry.number("level")]
    )


def threads(listing: MiTuple) -> tuple[ThreadInfo, ...]:
    """From the answer of -thread-info."""
    found = []
    for entry in listing.list("threads").tuples():
        lwp = _LWP.search(entry.text("target-id", ""))
        frame = entry.get("frame")
        found.append(
            ThreadInfo(
                entry.number("id"),
                int(lwp[1]) if lwp else 0,
                entry.text("name", ""),
                location(frame) if isinstance(frame, MiTuple) else None,
                entry.text("state", ""),
            )
        )
    return tuple(found)


def breakpoint_(record: MiTuple) -> Inserted:
    """A ``bkpt`` tuple. A breakpoint at several places has a list of locations."""
    places = record.list("locations").tuples() if "locations" in record else (record,)
    return Inserted(
        record.number("number"),
        tuple(location(place) for place in places if place.text("addr", "").startswith("0x")),
        record.number("times", 0),
    )


def printed(text: str) -> str:
    """The value in what print wrote: value history numbers differ from rank to rank."""
    found = _HISTORY.search(text)
    return (text[found.end() :] if found else text).rstrip("\n")


def is_noise(log: str) -> bool:
    """Whether a line of GDB's log says nothing new to a user.

    It announces a stop's source line that it cannot show, and two things that are intended: the
    lack of libthread_db (see startup), and a rank in a PID namespace of its own, whose threads it
    finds in /proc by their numbers out here.
    """
    intended = (
        "Unable to find libthread_db",
        "Target and debugger are in different PID namespaces",
    )
    return log[:1].isdigit() or log.startswith(tuple(f"warning: {text}" for text in intended))


def is_stop_signal(stop: RankStopped) -> bool:
    """Whether it came by SIGSTOP, which is how crdebug interrupts."""
    return stop.reason is StopReason.SIGNAL and stop.detail == "SIGSTOP"

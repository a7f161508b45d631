"""Turn GDB's records into crdebug's values. Pure.

The GDB manual defines the field names: "GDB/MI Async Records", "GDB/MI Frame Information", "GDB/MI
Breakpoint Information" and "GDB/MI Thread Information".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from crdebug.base.events import Location, RankStopped, StopReason
from crdebug.debugger.target import Frame, Inserted, ThreadInfo
from crdebug.gdbscripts.wire import CAUGHT, ENDING, REPORT
from crdebug.mi.records import MiList, MiTuple

_LWP = re.compile(r"(?:LWP|process) (\d+)")
_PENDING = re.compile(
    r"(Function \".*\" not defined.*|No source file named .*"
    r"|No (line|compiled code for line) \S+ in .*"
    r"|No symbol table is loaded\. .*)\.\s*$"  # in a GDB that is attached to nothing yet
)
_OF_CORES = re.compile(
    r"during file-backed mapping note processing|Unexpected size of section `\.reg"
    r"|Section `\.reg-xstate.* too small|core file may not match specified executable file"
)
_HISTORY = re.compile(r"^\$\d+ = ", re.MULTILINE)
_LOCATION = re.compile(r"^-l(?:ocation)? ")
_SYMBOL = re.compile(r"<(.*?)(?:\+\d+)?>")
_REASONS: Mapping[str, StopReason] = {
    "breakpoint-hit": StopReason.BREAKPOINT,
    "watchpoint-trigger": StopReason.WATCHPOINT,
    "read-watchpoint-trigger": StopReason.WATCHPOINT,
    "access-watchpoint-trigger": StopReason.WATCHPOINT,
    "watchpoint-scope": StopReason.WATCHPOINT,
    "fork": StopReason.CATCHPOINT,
    "vfork": StopReason.CATCHPOINT,
    "exec": StopReason.CATCHPOINT,
    "syscall-entry": StopReason.CATCHPOINT,
    "syscall-return": StopReason.CATCHPOINT,
    "solib-event": StopReason.CATCHPOINT,
    "end-stepping-range": StopReason.STEP,
    "location-reached": StopReason.STEP,
    "function-finished": StopReason.FINISH,
    "signal-received": StopReason.SIGNAL,
    "exited": StopReason.EXITED,
    "exited-normally": StopReason.EXITED,
    "exited-signalled": StopReason.KILLED,
}


def stop(rank: int, record: MiTuple) -> RankStopped:
    """A ``*stopped`` record. Its detail is the returned value for FINISH, GDB's word for OTHER."""
    word = _word(record)
    reason = _REASONS.get(word, StopReason.OTHER)
    detail, note = word, ""
    match reason:
        case StopReason.BREAKPOINT:
            detail = record.text("bkptno", "")
        case StopReason.CATCHPOINT:
            # "catch load" gives no number
            detail, note = record.text("bkptno", ""), _caught(word, record)
        case StopReason.WATCHPOINT:
            detail, note = _watchpoint(record)
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
        note,
    )


def _word(record: MiTuple) -> str:
    """GDB's reason. It gives two when a step ends before it begins: "signal-received", with signal
    0, which means no signal, and then "end-stepping-range"."""
    given = record.get("reason")
    if isinstance(given, MiList):
        return given.texts()[-1]
    return record.text("reason", "")


def _watchpoint(record: MiTuple) -> tuple[str, str]:
    """Its number, and the change of the value as text."""
    for name in ("wpt", "hw-rwpt", "hw-awpt"):
        found = record.get(name)
        if isinstance(found, MiTuple):
            return found.text("number", ""), _values(found.text("exp", ""), record)
    return record.text("wpnum", ""), "the block that it was in has ended"


def _values(expression: str, record: MiTuple) -> str:
    value = record.get("value")
    if not isinstance(value, MiTuple):
        return ""
    expression = _LOCATION.sub("", expression)
    old, new, now = (value.text(name, "") for name in ("old", "new", "value"))
    return f"{expression} was {old}, is {new}" if new else f"{expression} is {now}"


def _caught(word: str, record: MiTuple) -> str:
    match word:
        case "syscall-entry" | "syscall-return":
            done = "call of" if word == "syscall-entry" else "return from"
            name = record.text("syscall-name", "") or record.text("syscall-number", "")
            return f"{done} {name}"
        case "fork" | "vfork":
            return f"{word}, process {record.text('newpid', '?')}"
        case "exec":
            return f"exec of {record.text('new-exec', '?')}"
        case _:
            return "a library is loaded or unloaded"


def location(frame: MiTuple) -> Location:
    """The place of a frame, or of a breakpoint's location."""
    return Location(
        frame.number("addr", 0, 0),
        _function(frame),
        frame.text("file", ""),
        frame.number("line", 0),
        frame.text("fullname", ""),
        frame.text("from", ""),
    )


def _function(frame: MiTuple) -> str:
    """The function's name. For a breakpoint without a source line GDB gives only the symbol:
    ``at="<write+4>"``."""
    at = _SYMBOL.fullmatch(frame.text("at", ""))
    name = frame.text("func", "") or (at[1] if at else "")
    return name.removeprefix("??")  # for GDB, a function without a name


def frame(entry: MiTuple, arguments: MiTuple) -> Frame:
    """From the answers of -stack-info-frame and -stack-list-arguments."""
    level = entry.number("level")
    return Frame(level, location(entry), _arguments(arguments).get(level, ""))


def frames(listing: MiTuple, arguments: MiTuple | None = None) -> tuple[Frame, ...]:
    """From the answers of -stack-list-frames and perhaps -stack-list-arguments."""
    texts = _arguments(arguments) if arguments else {}
    return tuple(
        Frame(level, location(entry), texts.get(level, ""))
        for entry in listing.list("stack").tuples()
        for level in [entry.number("level")]
    )


def _arguments(listing: MiTuple) -> dict[int, str]:
    """By level, from the answer of -stack-list-arguments."""
    return {
        entry.number("level"): ", ".join(
            f"{argument.text('name', '?')}={argument.text('value', '...')}"
            for argument in entry.list("args").tuples()
        )
        for entry in listing.list("stack-args").tuples()
    }


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
    """A ``bkpt`` tuple. A breakpoint at several places has a list of locations; we leave out those
    that are disabled individually (gdbscripts/frames.py, keep_out)."""
    places = record.list("locations").tuples() if "locations" in record else (record,)
    places = tuple(each for each in places if each is record or each.text("enabled", "y") == "y")
    return Inserted(
        record.number("number"),
        tuple(location(place) for place in places if place.text("addr", "").startswith("0x")),
        record.number("times", 0),
        record.number("ignore", 0),
    )


def printed(text: str) -> str:
    """The value in the output of print, without its number in the value history, which differs from
    rank to rank."""
    found = _HISTORY.search(text)
    return (text[found.end() :] if found else text).rstrip("\n")


def without_history(text: str) -> str:
    """A command's output without numbers of GDB's value history."""
    return _HISTORY.sub("= ", text)


def ending(console: str) -> str:
    """The message from gdbscripts/endings.py about a rank that is about to end, or ""."""
    # GDB may put the beginning of its own message in front of it, in the same record
    return console.partition(ENDING)[2].partition("\n")[0].strip()


def caught(console: str) -> str:
    """The exception that gdbscripts/python_errors.py names, or ""."""
    return console.partition(CAUGHT)[2].partition("\n")[0].strip()


def report(ending: str) -> str:
    """The summary of a sanitizer's report, if `ending` is one, or ""."""
    return ending.removeprefix(REPORT) if ending.startswith(REPORT) else ""


def is_noise(log: str) -> bool:
    """Is a line of GDB's log of no use to the user?

    Of a core file, GDB warns of each mapped file that is gone (an MPI's shared memory always is),
    of registers that are new to it, and of another program, which crdebug itself has looked for.

    Each rank's GDB would say why a breakpoint is pending. It announces a stop's source line that it
    cannot show (GDB 14 and later: as a warning), and two intended conditions: libthread_db is
    missing (see startup), and the rank is in a PID namespace of its own, where GDB finds the
    threads in /proc by their numbers outside.
    """
    intended = (
        "Unable to find libthread_db",
        "Target and debugger are in different PID namespaces",
    )
    if _PENDING.match(log):
        return True
    text = log.removeprefix("warning: ").removeprefix("BFD: ")
    if _OF_CORES.search(text):
        return True
    return text[:1].isdigit() or (text != log and text.startswith(intended))


def is_stop_signal(stop: RankStopped) -> bool:
    """Is it a stop by SIGSTOP, which crdebug interrupts with?"""
    return stop.reason is StopReason.SIGNAL and stop.detail == "SIGSTOP"

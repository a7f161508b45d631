"""The messages between crdebug and its part inside each GDB.

Both import this file: crdebug as `crdebug.gdbscripts.wire`, GDB's Python as `crdebug_gdb.wire`.
So it is pure, needs only Python 3.9's own library, and imports only quick modules of that.
"""

from __future__ import annotations

import signal
import struct
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple as NamedTuple

    Answer = dict[str, object]  # a command's answer: texts, lists of them, and so on
    StackLevel = tuple[int, int, int, int]
else:

    class FromAnnotations(type):
        """Does the same as typing.NamedTuple to a class with annotations. Importing typing would
        cost a starting GDB 5 ms."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body["__annotations__"]
            defaults = [body.pop(each) for each in fields if each in body]
            parent = namedtuple(name, fields, defaults=defaults)
            return type(name, (parent,), {"__slots__": (), **body})

    class NamedTuple(metaclass=FromAnnotations):
        pass


WORD = (1 << 64) - 1


MOST = "most="  # of Command.KEEP
FROZEN = "crdebug-frozen"  # the name of a process that is a snapshot's memory


class Command:
    """The names of crdebug's MI commands, by the modules that define and describe them."""

    # addresses, arrays, breakpoints, call_sites
    LIES = "-crdebug-lies"
    ARRAY = "-crdebug-array"
    BREAKPOINTS = "-crdebug-breakpoints"
    SITES = "-crdebug-sites"
    # checkpoint
    LEND = "-crdebug-lend"
    TAKE_BACK = "-crdebug-take-back"
    WALK_OUT = "-crdebug-walk-out"
    # endings
    ENDINGS = "-crdebug-endings"
    LEFT_MPI = "-crdebug-left-mpi"
    # frames, inject, jump
    LINE = "-crdebug-line"
    PROGRAM_FRAME = "-crdebug-program-frame"
    INNERMOST_FRAME = "-crdebug-innermost-frame"
    INJECT = "-crdebug-inject"
    BEFORE_CALLS = "-crdebug-before-calls"
    JUMP = "-crdebug-jump"
    # python_errors
    CATCH_PYTHON = "-crdebug-catch-python"
    # python_lines
    PYTHON_LINE = "-crdebug-python-line"
    PYTHON_CONDITION = "-crdebug-python-condition"
    PYTHON_PLACE = "-crdebug-python-place"
    PYTHON_COUNT = "-crdebug-python-count"
    PYTHON_STEP = "-crdebug-python-step"
    # python_leave
    PYTHON_LEAVE = "-crdebug-python-leave"
    # rank_state
    THREADS = "-crdebug-threads"
    REGISTERS = "-crdebug-registers"
    UNBLOCK = "-crdebug-unblock"
    MASK = "-crdebug-mask"
    ONLY_STOPS = "-crdebug-only-stops"
    AT_SIGNAL_AGAIN = "-crdebug-at-signal-again"
    AS_BEFORE = "-crdebug-as-before"
    SETTLE = "-crdebug-settle"
    STAY_STOPPED = "-crdebug-stay-stopped"
    # snapshot.commands
    KEEP = "-crdebug-keep"
    PUT_BACK = "-crdebug-put-back"
    ARRIVE = "-crdebug-arrive"
    SHOW = "-crdebug-show"
    FORGET = "-crdebug-forget"
    # step_ends, timed_waits
    STEP_ENDS = "-crdebug-step-ends"
    WAITS = "-crdebug-waits"
    # variables
    VARIABLES = "-crdebug-variables"
    # traces
    TRACE = "-crdebug-trace"
    TRACED = "-crdebug-traced"
    # stepper.commands, stepper.meet
    WALK_LIBRARY = "-crdebug-walk-library"
    HERE = "-crdebug-here"
    GO = "-crdebug-go"
    REVERSE = "-crdebug-reverse"
    RECALL = "-crdebug-recall"
    MEET = "-crdebug-meet"
    CALL_FRAME = "-crdebug-call-frame"


LOAD_STEPPER = "python import crdebug_gdb.stepper"
REFRESH_WATCHPOINTS = "python crdebug_gdb.snapshot.commands.refresh_watchpoints()"

# ---- errors -----------------------------------------------------------------------------------


class ErrorKind:
    """The kinds of errors to which crdebug reacts, instead of only showing the text."""

    AT_ORIGIN = "at-origin"  # a walk back from the place of its snapshot


_KIND, _END = "crdebug-error ", ": "


def error_text(kind: str, problem: str) -> str:
    """The text with which GDB reports an error of a kind."""
    return f"{_KIND}{kind}{_END}{problem}"


def error_parts(text: str) -> tuple[str, str]:
    """The kind and the problem in an error's text; "" for an error without a kind."""
    if not text.startswith(_KIND):
        return "", text
    kind, _, problem = text[len(_KIND) :].partition(_END)
    return kind, problem


# ---- threads ----------------------------------------------------------------------------------

EINTR = 4
ERESTART_RESTARTBLOCK = 516
# Codes that the kernel leaves in the result register of an interrupted call, to act on when the
# thread goes on (include/linux/errno.h): restart always, unless a handler ran, ...
RESTART_CODES = frozenset(-code & WORD for code in (512, 513, 514, ERESTART_RESTARTBLOCK))


def is_inside_call(orig_rax: int) -> bool:
    """Is a thread with this register in a system call? Otherwise it is -1."""
    return orig_rax < 1 << 32


def was_interrupted(rax: int, orig_rax: int) -> bool:
    """Was a thread with these registers stopped inside a system call that it has to repeat?

    -EINTR counts too: some calls (epoll_wait, semop, ...) return it when a debugger stops them,
    without any handler (signal(7), "Interruption of system calls ... by stop signals").
    """
    return is_inside_call(orig_rax) and (rax in RESTART_CODES or rax == -EINTR & WORD)


class Thread(NamedTuple):
    """A thread's state. tid: the kernel's number in the PID namespace of its GDB.

    signal: the siginfo_t of the signal at which it has stopped and which it gets next; b"" if there
    is none. told: has GDB reported that, or is it about to?
    """

    tid: int
    pc: int
    sp: int
    rax: int
    orig_rax: int
    told: bool = False
    signal: bytes = b""

    @property
    def was_interrupted(self) -> bool:
        return was_interrupted(self.rax, self.orig_rax)

    def word(self) -> str:
        """TID:PC:SP:RAX:ORIG_RAX:TOLD:SIGNAL, all but the TID in hexadecimal."""
        numbers = (self.pc, self.sp, self.rax, self.orig_rax, self.told)
        return ":".join((str(self.tid), *(f"{each:x}" for each in numbers), self.signal.hex()))

    @classmethod
    def of(cls, word: str) -> Thread:
        tid, *numbers, told, signal = word.split(":")
        pc, sp, rax, orig_rax = (int(each, 16) for each in numbers)
        return cls(int(tid), pc, sp, rax, orig_rax, told == "1", bytes.fromhex(signal))


def gdb_signal_name(number: int) -> str:
    """GDB's name for a signal: real-time ones by number, the others by their usual names."""
    return signal.Signals(number).name if number < signal.SIGRTMIN else f"SIG{number}"


def gdb_signal_number(name: str) -> int | None:
    """The number of the signal with this name in GDB; None for one that Linux does not have."""
    number = name[3:] if name.startswith("SIG") else name
    if number.isdecimal():
        return int(number) if int(number) <= signal.SIGRTMAX else None
    return getattr(signal, name, None)


# ---- places in a piece of history -------------------------------------------------------------


# A stack level is (base, offset, indirect, value): the register with DWARF's number `base` plus an
# offset must equal the value; or, if indirect is 1, the memory at that address must.


class Reach(NamedTuple):
    """A move: run until an address is reached for the times-th time at a level; None: at any."""

    pc: int
    level: StackLevel | None = None
    times: int = 1


class Steps(NamedTuple):
    """A move: so many instructions."""

    times: int


if TYPE_CHECKING:
    Move = Reach | Steps
    Moves = tuple[Move, ...]


def place_text(moves: Iterable[Move]) -> str:
    """A place: hit:PC:LEVEL:N and stepi:N, joined by semicolons; "-" for the start of the moves."""
    return ";".join(map(_move_text, moves)) or "-"


def _move_text(move: Move) -> str:
    if isinstance(move, Steps):
        return f"stepi:{move.times}"
    level = "-" if move.level is None else ",".join(f"{value:x}" for value in move.level)
    return f"hit:{move.pc:x}:{level}:{move.times}"


def place_of(text: str) -> Moves:
    """The moves of a place. Raises ValueError."""
    return tuple(map(_move_of, text.split(";"))) if text != "-" else ()


def _move_of(text: str) -> Move:
    kind, *rest = text.split(":")
    if kind == "stepi":
        return Steps(int(rest[0]))
    if kind != "hit":
        raise ValueError(f"'{text}' is not a place")
    pc, level, count = rest
    if level == "-":
        return Reach(int(pc, 16), None, int(count))
    base, offset, indirect, value = (int(each, 16) for each in level.split(","))
    return Reach(int(pc, 16), (base, offset, indirect, value), int(count))


# ---- the shim in a rank -----------------------------------------------------------------------
# struct crdebug_shim of crdebug/native/shim/crdebug.h

SHIM_ABI = 2
# abi, size, rank, signal, waiting, clash, crs_state, asker
SHIM_HEADER = struct.Struct("<IIiiIIiI")
CRS_STATE_OFFSET, ASKER_OFFSET = 24, 28
SHIM_THREAD = struct.Struct("<iiII")  # tid, syscall, flags, inside
EXEMPT, BLOCKED, ASKED, HELD_SHIFT = 1, 2, 4, 8  # flags; from HELD_SHIFT on a signal's number
NO_CALL, UNKNOWN_CALL = -1, -2  # in place of a system call's number
DEFAULT_SIGNAL = 62

# struct crdebug_python of crdebug/native/shim/python.c
PYTHON_LINES, PYTHON_TEXT = 32, 512  # at most so many lines; bytes of a file's name, a condition
PYTHON_STATE = struct.Struct("<I")
PYTHON_WANTED = struct.Struct(f"<{PYTHON_LINES}I" + f"{PYTHON_TEXT}s" * 2 * PYTHON_LINES)
PYTHON_STEP = struct.Struct("<II")  # its kind, and how many
PYTHON_COUNT = struct.Struct("<II")  # of lines: how deep, and which is wanted
PYTHON_COUNTED = struct.Struct("<I")  # how many there were
PYTHON_STOP = struct.Struct("<QIII256s1024s")  # now, depth, passed, line, function, path
PYTHON_STEPS = ("step", "next", "finish")  # the kinds, from 1 on
PYTHON_OFF, PYTHON_ASKED, PYTHON_TRACING, PYTHON_TAKEN = range(4)
PYTHON_FUNCTION = "crdebug_python_stop_"  # a line's number follows

# ---- on the console ---------------------------------------------------------------------------

CAUGHT = "crdebug-caught "  # begins the line about an exception of Python's
AT_PYTHON = "crdebug-python "  # begins the line about a stop in Python: LINE, FUNCTION, PATH
ENDING = "crdebug-ending "  # begins the line about how a rank is going to end
REPORT = "report of "  # follows it in a line about a sanitizer's report

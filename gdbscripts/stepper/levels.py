"""The frames of the stopped thread."""

from __future__ import annotations

import gdb

from ..ptrace import WORD
from ..wire import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .code import Book, Chain, Code

# In the order of DWARF's numbers.
REGISTER_NAMES = [
    "rax",
    "rdx",
    "rcx",
    "rbx",
    "rsi",
    "rdi",
    "rbp",
    "rsp",
    "r8",
    "r9",
    "r10",
    "r11",
    "r12",
    "r13",
    "r14",
    "r15",
]


class Level(NamedTuple):
    """A frame of the stopped thread. frame: its canonical address. expanded: the functions inlined
    at its present address."""

    frame: int
    pc: int
    code: Code | None
    expanded: Chain
    function: str
    is_signal: bool


def frame_rows() -> list[tuple[gdb.Frame, int, str | None, bool]]:
    """The frames of the selected thread, the newest first, for `levels_of`. Frames of inlined
    functions belong to the frame that contains them."""
    found = []
    frame: gdb.Frame | None = gdb.newest_frame()
    expanded, function = 0, gdb.newest_frame().name()
    while frame is not None:
        if frame.type() == gdb.INLINE_FRAME:
            expanded += 1
        else:
            is_signal = frame.type() == gdb.SIGTRAMP_FRAME
            found.append((frame, expanded, function, is_signal))
            older = frame.older()
            expanded, function = 0, older.name() if older is not None else None
        frame = frame.older()
    return found


def frame_address(book: Book, frame: gdb.Frame, pc: int) -> int | None:
    """A frame's canonical address (DWARF); None if it is unknown.

    The outermost frame that GDB shows is main's, and GDB does not say where that ends. A function
    that has jumped to the next one has no frame; GDBs differ in the stack pointer that they show.
    """
    older = frame.older()
    while older is not None and older.type() in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        older = older.older()
    if older is not None:
        return int(older.read_register("rsp")) & WORD
    rule = book.rule(pc)
    if rule is None:
        return None
    base, offset, indirect = rule
    at = (int(frame.read_register(REGISTER_NAMES[base])) + offset) & WORD
    return int.from_bytes(book.memory.read(at, 8), "little") if indirect else at


def levels_of(book: Book) -> list[Level]:
    """The levels of the selected thread, the newest first."""
    found: list[Level] = []
    inner = True
    for frame, expanded, function, is_signal in frame_rows():
        # After a call the address is the return address, which may be on another line, or on none.
        pc = frame.pc() if inner else frame.pc() - 1
        address = frame_address(book, frame, pc)
        if address is None:
            break
        if found and found[-1].frame == address:
            continue  # it jumped to the next newer function, and its frame is gone
        chain = book.chain(pc)[:expanded]
        found.append(Level(address, frame.pc(), book.code(pc), chain, function or "", is_signal))
        inner = is_signal
    return found

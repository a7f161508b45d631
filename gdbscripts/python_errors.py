"""-crdebug-catch-python: stop where Python is about to print an exception that nothing has caught.

{number=N}: an ordinary breakpoint. Right before its stop we print the exception on the console, as
one line that begins with wire.CAUGHT. No function of Python's is called: the objects are in its
memory as CPython's Include/cpython/pyerrors.h, tupleobject.h and unicodeobject.h have them. (Tried
with 3.11; not for builds without the interpreter lock, whose objects begin in another way.)
"""

from __future__ import annotations

import gdb

from .rank_state import symbol_address
from .wire import CAUGHT, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .wire import Answer

DISPLAY = "PyErr_Display"  # (type, value, traceback); both hooks of Python's for this call it
TYPE, NAME = 8, 24  # of an object; of a type
ARGUMENTS, LENGTH, FIRST = 24, 16, 24  # of an exception; of a tuple
TEXT_LENGTH, TEXT = 16, {False: 48, True: 40}  # of a str that is ASCII, in 3.12 and later
LONGEST = 200


def memory(address: int, size: int) -> bytes:
    return bytes(gdb.selected_inferior().read_memory(address, size).tobytes())


def word(address: int) -> int:
    return int.from_bytes(memory(address, 8), "little")


def c_string(address: int) -> str:
    found = b""
    while len(found) < LONGEST and b"\0" not in found:
        found += memory(address + len(found), 16)
    return found.partition(b"\0")[0].decode(errors="replace")


def is_newer() -> bool:
    """3.12 or later? Before 3.11 there is no such symbol."""
    try:
        return int.from_bytes(memory(symbol_address("Py_Version"), 4), "little") >= 0x030C0000
    except gdb.error:
        return False


def message(value: int) -> str:
    """The first argument, if it is a plain str; else ""."""
    arguments = word(value + ARGUMENTS)
    if not arguments or not word(arguments + LENGTH):
        return ""
    first = word(arguments + FIRST)
    if c_string(word(word(first + TYPE) + NAME)) != "str":
        return ""
    size = min(word(first + TEXT_LENGTH), LONGEST)
    data = memory(first + TEXT[is_newer()], size)
    text = data.decode("ascii", errors="replace")
    return text if text.isprintable() and text.isascii() else ""


def described(value: int) -> str:
    try:
        name = c_string(word(word(value + TYPE) + NAME))
        said = message(value)
    except gdb.error:
        return "an exception"
    return f"{name}: {said}" if said else name


class Uncaught(gdb.Breakpoint):
    def __init__(self) -> None:
        super().__init__(function=DISPLAY)

    def stop(self) -> bool:
        value = int(gdb.newest_frame().read_register("rsi"))
        gdb.write(f"{CAUGHT}{described(value & (1 << 64) - 1)}\n")
        gdb.flush()
        return True


class CatchPython(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        return {"number": str(Uncaught().number)}


CatchPython(Command.CATCH_PYTHON)

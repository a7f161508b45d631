"""-crdebug-variables: the program's variables, as places in memory that can be compared.

{objects=[{name=TEXT, address=N, size=BYTES, format=LETTER}], more=0|1}: scalars, and arrays of
them, of global and static variables, of the main thread's frames that are the program's own, and
what these point to in memory that malloc gave. format is that of Python's struct module, of one
element. Pointers themselves are no objects: where malloc puts something may differ from one run to
the next. Types that the program does not know whole, as the handles of an MPI, are left alone.
more: there are more than were looked at.
"""

from __future__ import annotations

import contextlib
import functools
import struct
from bisect import bisect_right

import gdb

from .arrays import letter
from .frames import of_program
from .snapshot.memory import areas
from .wire import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .wire import Answer

ADDRESSES = ("pthread_t", "uintptr_t", "intptr_t")  # types of pointers that are numbers
OWN = ("rw-p", "rwxp")  # access to private memory
MOST, ELEMENTS, DEEPEST = 20_000, 2_000, 6
SYMTAB, OBJECT = 2, 1  # elf(5): a section with symbols; the type of a symbol
HEADER, IN_USE, MAPPED = 16, 1, 2  # of a chunk of glibc's malloc: malloc/malloc.c, "Chunk"


class Full(Exception):
    pass


@functools.lru_cache(maxsize=1)  # the program is read once, not at each place of a comparison
def object_names(path: str) -> list[str]:
    """The names of the data objects in a program's table of symbols."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:5] != b"\x7fELF\x02":
        return []
    (at,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + size * n) for n in range(count)]
    found = []
    for _, kind, _, _, start, length, link, *_ in sections:
        if kind != SYMTAB:
            continue
        names = sections[link][4]
        for name, info, _, where, _, bytes_ in struct.iter_unpack(
            "<IBBHQQ", data[start : start + length]
        ):
            if info & 15 == OBJECT and where and bytes_:
                end = data.index(b"\0", names + name)
                found.append(data[names + name : end].decode(errors="replace"))
    return list(dict.fromkeys(found))


class Memory:
    """The writable mappings of the process, and what malloc keeps in them."""

    def __init__(self, pid: int) -> None:
        own = [area for area in areas(pid) if not area.inode and area.access in OWN]
        self.spans = [(area.start, area.end) for area in own]
        self.starts = [start for start, _ in self.spans]

    def word(self, address: int) -> int:
        data = gdb.selected_inferior().read_memory(address, 8).tobytes()
        return int.from_bytes(data, "little")

    def length(self, pointer: int) -> int:
        """How many bytes malloc has given there; 0 if it has not."""
        at = bisect_right(self.starts, pointer) - 1
        if at < 0 or pointer % 16:
            return 0
        start, end = self.spans[at]
        if not start + HEADER <= pointer < end:
            return 0
        head = self.word(pointer - 8)
        size = head & ~7
        if size < 32 or size % 16 or pointer - HEADER + size > end:
            return 0
        if head & MAPPED:
            return size - HEADER
        following = pointer - HEADER + size
        if following + HEADER > end or not self.word(following + 8) & IN_USE:
            return 0
        return size - 8


class Walk:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.objects: list[dict[str, str]] = []
        self.seen: set[int] = set()
        self.more = False

    def add(self, name: str, address: int, size: int, form: str) -> None:
        if len(self.objects) == MOST:
            raise Full
        place = {"name": name, "address": str(address), "size": str(size), "format": form}
        self.objects.append(place)

    def visit(self, name: str, kind: gdb.Type, address: int, deep: int) -> None:
        if kind.name in ADDRESSES:
            return
        kind = kind.strip_typedefs()
        if form := letter(kind):
            self.add(name, address, kind.sizeof, form)
        elif deep > DEEPEST:
            return
        elif kind.code == gdb.TYPE_CODE_ARRAY:
            self.array(name, kind, address, deep)
        elif kind.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            for field in kind.fields():
                where = getattr(field, "bitpos", None)  # a static one has none
                if where is not None and field.type is not None and not field.bitsize:
                    inner = name if field.is_base_class else f"{name}.{field.name}"
                    self.visit(inner, field.type, address + where // 8, deep + 1)
        elif kind.code == gdb.TYPE_CODE_PTR:
            self.pointer(name, kind.target(), self.memory.word(address), deep)

    def array(self, name: str, kind: gdb.Type, address: int, deep: int) -> None:
        try:
            low, high = kind.range()
        except gdb.error:  # its length is known only while it runs
            return
        element = kind.target().strip_typedefs()
        inner = element
        while inner.code == gdb.TYPE_CODE_ARRAY:
            inner = inner.target().strip_typedefs()
        if form := letter(inner):
            self.add(name, address, kind.sizeof, form)
            return
        for at in range(min(high - low + 1, ELEMENTS)):
            self.visit(f"{name}[{low + at}]", element, address + at * element.sizeof, deep + 1)

    def value(self, name: str, value: gdb.Value) -> None:
        """Of a variable, in memory or in a register."""
        if value.is_optimized_out:
            return
        if value.address is not None:
            self.visit(name, value.type, int(value.address), 0)
        elif (kind := value.type.strip_typedefs()).code == gdb.TYPE_CODE_PTR:
            self.pointer(name, kind.target(), int(value), 0)

    def pointer(self, name: str, target: gdb.Type, value: int, deep: int) -> None:
        target = target.strip_typedefs()
        if value in self.seen or target.sizeof < 1 or target.code == gdb.TYPE_CODE_VOID:
            return
        if target.code == gdb.TYPE_CODE_STRUCT and not target.fields():
            return
        length = self.memory.length(value)
        if not length:
            return
        self.seen.add(value)
        if form := letter(target):
            self.add(f"*{name}", value, length - length % target.sizeof, form)
            return
        for at in range(min(length // target.sizeof, ELEMENTS)):
            inner = f"{name}[{at}]" if target.code == gdb.TYPE_CODE_PTR else f"(*{name})"
            self.visit(inner, target, value + at * target.sizeof, deep + 1)
            if target.code != gdb.TYPE_CODE_PTR:
                break  # what is behind the first one may never have been set


def global_variables() -> Iterator[tuple[str, gdb.Value]]:
    space = gdb.current_progspace()
    for name in object_names(space.filename) if space and space.filename else ():
        symbol = gdb.lookup_global_symbol(name) or gdb.lookup_static_symbol(name)
        if symbol is not None and symbol.is_variable and symbol.type is not None:
            yield name, symbol.value()


def local_variables() -> Iterator[tuple[str, gdb.Value]]:
    """Of the main thread's frames that are the program's, outermost first."""
    frames: list[gdb.Frame] = []
    frame: gdb.Frame | None = gdb.newest_frame()
    while frame is not None:
        if of_program(frame):
            frames.append(frame)
        try:
            frame = frame.older()
        except gdb.error:
            break
    for each in reversed(frames):
        for block, symbol in reversed([*symbols(each)]):
            with contextlib.suppress(gdb.error, ValueError):
                yield f"{symbol.name} in {each.name()}", each.read_var(symbol, block)


def symbols(frame: gdb.Frame) -> Iterator[tuple[gdb.Block, gdb.Symbol]]:
    """The variables that a frame can see, innermost block first, each block's last one first."""
    block: gdb.Block | None = frame.block()
    seen: set[str] = set()
    while block is not None:
        for symbol in reversed([*block]):
            if (symbol.is_variable or symbol.is_argument) and symbol.name not in seen:
                seen.add(symbol.name)
                yield block, symbol
        if block.function is not None:
            return
        block = block.superblock


class Variables(gdb.MICommand):
    def invoke(self, arguments: list[str]) -> Answer:
        process, here = gdb.selected_inferior(), gdb.selected_thread()
        main = next((each for each in process.threads() if each.ptid[1] == process.pid), here)
        walk = Walk(Memory(process.pid))
        try:
            main.switch()
            for name, value in (*global_variables(), *local_variables()):
                with contextlib.suppress(gdb.error):  # an uninitialised pointer, a lost register
                    walk.value(name, value)
        except Full:
            walk.more = True
        finally:
            here.switch()
        return {"objects": walk.objects, "more": str(int(walk.more))}


Variables(Command.VARIABLES)

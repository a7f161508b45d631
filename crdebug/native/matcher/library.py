"""history.h for Python: the library that reads the logs of MPI calls and matches the messages.

Here are its functions and structures; loading.py loads it. The structures belong to the library and
grow: a `Column` is a view that finds the data anew at each access; do not keep it longer than its
owner.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_bool,
    c_int32,
    c_int64,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, ClassVar, Protocol, overload

NONE = -(1 << 31)  # no peer, no tag
NO_COMM, BEGIN, END, SELF = -1, 0, 1, 2  # communicators without a record of their own
DAMAGED = -2  # of log_read


def _column(element: Any) -> type[Structure]:
    fields = [("data", POINTER(element)), ("count", c_uint64), ("room", c_uint64)]
    return type(f"Column_{element.__name__}", (Structure,), {"_fields_": fields})


Longs, Ints, Bytes = _column(c_int64), _column(c_int32), _column(c_uint8)
_Any = Longs  # for elements that are structures, or of several types


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class Function(Structure):
    """The library's description of an MPI function: see enum special."""

    _fields_: ClassVar = _fields(c_int32, "kind shape mode special")


# enum special
(
    POSTS,
    MATCHED_PROBE,
    MATCHED_RECEIVE,
    START,
    STARTALL,
    ALL,
    SOME,
    LOOKS,
    FREES,
    BY_GROUP,
    BEGINS,
    ENDS,
    OUTSIDE,
    OF_WINDOW,
    EXPOSES,
    ACCESSES,
    EXPOSED,
    ACCESSED,
    PREPARES,
    RECEIVES,
    READIES,
    ARRIVED,
    SAME_SIZE,
) = (1 << n for n in range(23))


class CallStruct(Structure):
    """struct call: see timeline/calls.py."""

    _fields_: ClassVar = [
        *_fields(c_int64, "tick repeats bytes place"),
        ("completes", POINTER(c_int64)),
        ("completes_count", c_uint64),
        *_fields(
            c_int32, "rank function kind site comm peer tag peer2 tag2 wild odd mode older slot"
        ),
        ("slots", POINTER(c_int32)),
        *_fields(c_int32, "low high"),
        ("listed", POINTER(c_int32)),
        ("failed", c_int32),
    ]


class NeedsStruct(Structure):
    _fields_: ClassVar = [
        *_fields(c_int64, "entered waiter why"),
        *_fields(Longs, "keys values minima"),
    ]


class SendsStruct(Structure):
    _fields_: ClassVar = [
        *_fields(Longs, "tick done bytes"),
        *_fields(Ints, "peer comm tag partner slot"),
        *_fields(Bytes, "mode cancelled"),
    ]


class ReceivesStruct(Structure):
    _fields_: ClassVar = [
        *_fields(Longs, "tick done"),
        *_fields(Ints, "peer comm tag partner"),
        *_fields(Bytes, "wild cancelled"),
    ]


class SuccessionStruct(Structure):
    _fields_: ClassVar = [
        ("comm", c_int64),
        *_fields(Ints, "members ranks"),
        *_fields(_Any, "entered completed"),
        *_fields(Ints, "names roots"),
        *_fields(Bytes, "posted shape"),
        ("shapes", _Any),
        ("blocking", Longs),
        ("exposures", _Any),
        ("together", Ints),
        ("function", c_int32),
    ]


class ShapedStruct(Structure):
    _fields_: ClassVar = [*_fields(c_int64, "shape root"), ("numbers", Longs)]


class RankStruct(Structure):
    _fields_: ClassVar = [
        *_fields(c_int64, "last blind"),
        ("sends", SendsStruct),
        ("receives", ReceivesStruct),
        *_fields(_Any, "open grabbed grabs collectives started prepared parts"),
        ("log", c_void_p),
    ]


class Progress(Structure):
    """The progress of reading a log: calls, the next record, the tick; ticks of notable calls."""

    _fields_: ClassVar = [
        *_fields(c_uint64, "calls place"),
        ("tick", c_int64),
        *_fields(POINTER(Longs), "outside one_sided"),
    ]


class Cursor(Structure):
    """A place in a log: the last tick before it, its record, and the requests posted before it."""

    _fields_: ClassVar = [("tick", c_int64), *_fields(c_uint64, "place posted")]


class SeriesStruct(Structure):
    """struct series: the collectives of one communicator in a log."""

    _fields_: ClassVar = _fields(Longs, "numbers likes")


class KeptStruct(Structure):
    """struct kept: a call, and the posting that it refers to, if any."""

    _fields_: ClassVar = [("call", CallStruct), ("of", c_int64), ("of_slot", c_int32)]


class Definition(Structure):
    """The record that defines a communicator, and the words that follow it."""

    _fields_: ClassVar = [*_fields(c_uint64, "head body count"), ("words", POINTER(c_uint32))]


def functions(each: Sequence[tuple[int, int, int, int]]) -> Any:
    """Functions by their numbers: kind, shape, mode, special."""
    return (Function * len(each))(*(Function(*one) for one in each))


def ints(values: Sequence[int]) -> Any:
    """As int32_t[], for the library."""
    return (c_int32 * len(values))(*values)


def longs(values: Sequence[int]) -> Any:
    """As int64_t[], for the library."""
    return (c_int64 * len(values))(*values)


def calls(count: int, given: Iterable[CallStruct] = ()) -> Any:
    """Room for so many calls, initially with the given ones."""
    return (CallStruct * count)(*given)


def address_of(struct: Structure) -> int:
    return ctypes.addressof(struct)


def numbers(column: Any, width: int = 1) -> list[int]:
    """All numbers of a column; an entry may consist of several (`width`), one after the other."""
    return column.data[: column.count * width] if column.count else []


class Owner(Protocol):
    """An object that keeps some of the library's memory alive."""

    @property
    def library(self) -> Library: ...


class Memory:
    """Memory of the library's, which is freed with the last reference to this object."""

    def __init__(self, library: Library, address: int, free: Callable[[int], object]) -> None:
        self.library = library
        self.address = address
        weakref.finalize(self, free, address)


class Column(Sequence[int]):
    """A growing column of numbers in the library's memory, which its owner keeps alive."""

    __slots__ = ("_column", "_owner")

    def __init__(self, column: Any, owner: Owner) -> None:
        self._column = column
        self._owner = owner

    def __len__(self) -> int:
        return self._column.count  # type: ignore[no-any-return]

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        column = self._column
        if isinstance(index, slice):
            first, last, step = index.indices(column.count)
            if step == 1:
                return column.data[first:last] if first < last else []
            return [column.data[at] for at in range(first, last, step)]
        place = index if index >= 0 else index + column.count
        if not 0 <= place < column.count:
            raise IndexError(index)
        return column.data[place]  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[int]:
        return iter(numbers(self._column))

    def first_at(self, value: int) -> int:
        """Index of the first element that is not less; the elements are ticks, in order."""
        library = self._owner.library
        return library.first_at(byref(self._column), value)  # type: ignore[no-any-return]


class Found:
    """A column for the results of a query."""

    __slots__ = ("_column", "_library")

    def __init__(self, library: Library) -> None:
        self._library = library
        self._column = Longs()

    @property
    def reference(self) -> Any:
        return byref(self._column)

    @property
    def column(self) -> Any:
        return self._column

    def numbers(self, width: int = 1) -> list[int]:
        """All numbers; an entry may consist of several (`width`), one after the other."""
        return numbers(self._column, width)

    def __del__(self) -> None:
        self._library.column_free(self.reference)


def structures(column: Any, kind: type[Structure]) -> list[Any]:
    """The elements of a column of structures, in the library's memory."""
    address = ctypes.cast(column.data, c_void_p).value or 0
    size = ctypes.sizeof(kind)
    return [kind.from_address(address + at * size) for at in range(column.count)]


def pointed(column: Any, kind: type[Structure], first: int = 0) -> list[Any]:
    """The structures that a column points to, from one on; None for null pointers."""
    return [kind.from_address(each) if each else None for each in numbers(column)[first:]]


class Library:
    """The library's functions, by their names without crdebug_."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        def bind(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
            function = loaded[f"crdebug_{name}"]
            function.restype, function.argtypes = result, arguments
            return function

        column, call = POINTER(Longs), POINTER(CallStruct)
        table, ranks = POINTER(Function), POINTER(c_int32)
        void, number, index = c_void_p, c_int64, c_uint64
        self.first_at = bind("first_at", index, column, number)
        self.column_free = bind("column_free", None, column)
        self.needs_new = bind("needs_new", void)
        self.needs_free = bind("needs_free", None, void)
        self.needs_add = bind("needs_add", index, void, number, number)
        self.needs_put = bind("needs_put", None, void, index, number)
        self.needs_least = bind("needs_least", number, void, number, number, number)
        self.needs_needed_by = bind("needs_needed_by", number, void, number)
        self.needs_open_at = bind("needs_open_at", None, void, number, number, column)
        self.history_new = bind("history_new", void, number, number, table)
        self.history_free = bind("history_free", None, void)
        self.history_read = bind("history_read", None, void, call, index)
        self.history_rank = bind("history_rank", void, void, c_int32)
        self.history_succession = bind("history_succession", void, void, number)
        self.history_successions = bind("history_successions", column, void)
        self.history_starts = bind("history_starts", column, void)
        self.history_comm = bind("history_comm", c_int32, void, c_int32)
        self.history_needs = bind("history_needs", column, void)
        self.history_members = bind("history_members", None, void, number, ranks, index)
        self.history_learned = bind("history_learned", None, void, *[c_int32] * 4)
        self.history_learn = bind("history_learn", None, void, c_int32)
        self.history_settle = bind("history_settle", None, void)
        self.history_waiting = bind("history_waiting", None, void, c_int32, column)
        self.history_unposted = bind("history_unposted", None, void, c_int32, column)
        self.history_unexposed = bind(
            "history_unexposed", None, void, number, c_int32, c_int32, column
        )
        self.history_kept = bind("history_kept", c_bool, void, POINTER(number), c_int32, column)
        self.history_keep = bind("history_keep", None, void, POINTER(KeptStruct), index)
        self.history_blind = bind("history_blind", None, void, c_int32, number, number)
        self.log_begin = bind("log_begin", None, void, index, number, index)
        self.log_old = bind("log_old", None, void, index, number, index, c_int32)
        self.log_prepare = bind("log_prepare", None, void, void, table, call)
        self.log_prepares = bind("log_prepares", column, void)
        self.log_prepared_comm = bind("log_prepared_comm", c_int32, void, index)
        self.log_prepared_as = bind("log_prepared_as", number, void, c_int32)
        self.log_cursor = bind("log_cursor", c_bool, void, table, number, POINTER(Cursor))
        self.log_number = bind("log_number", number, void, number, c_int32)
        self.log_posting = bind("log_posting", number, void, index, POINTER(c_int32))
        self.log_place = bind("log_place", number, void, table, number)
        self.log_open = bind("log_open", void, ctypes.c_int, index, number, number)
        self.log_close = bind("log_close", None, void)
        self.log_define = bind("log_define", None, void, index, number, ranks, index)
        self.log_read = bind("log_read", number, void, void, table, index, index)
        choice = (*[index] * 3, call, column, POINTER(number))
        self.log_calls = bind("log_calls", index, void, table, *choice)
        self.log_heads = bind("log_heads", None, void, table, POINTER(number), index, ranks)
        self.log_together = bind("log_together", None, void, table, column)
        self.together_free = bind("together_free", None, column)
        self.log_progress = bind("log_progress", None, void, POINTER(Progress))
        self.log_definition = bind("log_definition", None, void, index, POINTER(Definition))

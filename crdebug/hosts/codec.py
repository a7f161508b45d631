"""Values as bytes and back, for messages between crdebug and its agents.

A value says what it is, so that the other side needs no description of it: scalars are themselves,
everything else is a list that begins with a mark. Only classes that are listed here can come in
(`_MODULES`), and they are data: nothing is called but their constructors.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache, lru_cache
from types import ModuleType
from typing import NamedTuple

import msgspec

from crdebug.acquire import daemons, mpir
from crdebug.base import answers, errors, events, ranks, settings
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.ranks import RankSet
from crdebug.debugger import (
    arrays,
    frames,
    question,
    rank_commands,
    rank_host,
    run,
    scalars,
    target,
    threads,
    traces,
    variables,
)
from crdebug.debugger.frames import CallPath
from crdebug.gdbscripts import wire
from crdebug.hosts import merged, messages
from crdebug.job import far_clocks, gathering, mirrored_logs, record_here
from crdebug.mi import records
from crdebug.node import criu_program, in_flight, probes, sharing

_MODULES: tuple[ModuleType, ...] = (
    *(answers, errors, events, ranks, settings),
    *(
        arrays,
        frames,
        question,
        rank_commands,
        run,
        scalars,
        rank_host,
        target,
        threads,
        traces,
        variables,
    ),
    *(daemons, gathering, merged, messages, mpir, records, wire),
    *(far_clocks, mirrored_logs, record_here),
    *(criu_program, in_flight, probes, sharing),
)
_DEEPEST = 64  # lists in lists
_MOST_RANKS = 1 << 17
_MOST_KEPT = 1 << 16  # bytes of a call path that is kept
_SMALL = 1 << 63
_PLAIN = frozenset((type(None), bool, float, bytes))
_SCALARS = _PLAIN | {int, str}


# What the parser, the constructors and the lookups raise.
_NONSENSE = (
    *(msgspec.MsgspecError, ValueError, LookupError),
    *(TypeError, AttributeError, RecursionError),
)


class BadMessage(CrdebugError):
    """Bytes that no crdebug of this version has sent."""


def _classes() -> Iterator[tuple[str, type]]:
    for module in _MODULES:
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == module.__name__ and _is_data(each):
                yield each.__name__, each


def _is_data(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or issubclass(kind, Enum) or _is_named_tuple(kind)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _by_name(classes: Iterator[tuple[str, type]]) -> dict[str, type]:
    found: dict[str, type] = {}
    for name, kind in classes:
        assert found.setdefault(name, kind) is kind, f"two classes are named {name}"
    return found


CLASSES: Mapping[str, type] = _by_name(_classes())
"""By name, every class whose objects can be sent."""


def encode(value: object) -> bytes:
    """Raises TypeError for a value that cannot be sent, which is a fault of ours."""
    return msgspec.msgpack.encode(_packed(value))


def decode(data: bytes) -> object:
    """Raises BadMessage."""
    try:
        return _unpacked(msgspec.msgpack.decode(data), 0)
    except BadMessage:
        raise
    except _NONSENSE as error:
        raise BadMessage(f"a message cannot be read: {error}") from error


def _packed(value: object) -> object:
    kind: type = value.__class__
    if kind in _PLAIN:
        return value
    match value:
        case str():
            return value if value.isascii() else _text(value)
        case Enum():
            return ["e", kind.__name__, value.value]
        case int():
            return value if -_SMALL <= value < _SMALL else ["i", f"{value:x}"]
        case Deadline(left=left):
            return ["d", left]  # the two sides have no clock in common
        case RankSet():
            first = value.first // 8 if value else 0
            mask = value.mask >> 8 * first
            return ["r", first, mask.to_bytes((mask.bit_length() + 7) // 8, "little")]
        case CallPath():
            return ["o", msgspec.msgpack.encode(_object_of(value, "CallPath"))]
        case array():
            return ["a", value.typecode, value.tobytes()]
    if (name := _name_of(kind)) is not None:
        return _object_of(value, name)
    match value:
        case tuple() | list() if not _is_named_tuple(kind):
            return ["t", *map(_packed, value)]
        case Mapping():
            return ["m", *([_packed(key), _packed(each)] for key, each in value.items())]
    raise TypeError(f"{kind.__name__} cannot be sent")


def _object_of(value: object, name: str) -> object:
    """By its class, which may be a base of the value's."""
    if _is_named_tuple(type(value)):
        assert isinstance(value, tuple)
        return ["c", name, *map(_packed, value)]
    return ["c", name, *(_packed(getattr(value, each)) for each in _fields(CLASSES[name]).names)]


def _text(value: str) -> object:
    """File names may have bytes that are no text (PEP 383)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return ["s", value.encode("utf-8", "surrogatepass")]
    return value


@cache
def _name_of(sent: type) -> str | None:
    """Of this class; of an error that only one side knows, the nearest class that both do."""
    for kind in sent.__mro__:
        if CLASSES.get(kind.__name__) is kind:
            return kind.__name__
        if not issubclass(sent, CrdebugError):
            break
    return None


class _Fields(NamedTuple):
    """Of a dataclass. in_order: its constructor takes them all by position."""

    names: tuple[str, ...]
    in_order: bool


@cache
def _fields(kind: type) -> _Fields:
    fields = dataclasses.fields(kind)
    in_order = not any(each.kw_only for each in fields)
    return _Fields(tuple(each.name for each in fields), in_order)


def _unpacked(value: object, depth: int) -> object:
    if value.__class__ in _SCALARS:
        return value
    if not isinstance(value, list):
        raise BadMessage("a message cannot be read: it has a value without a mark")
    if depth > _DEEPEST:
        raise BadMessage("a message cannot be read: it is too deep")
    mark, *rest = value
    match mark:
        case "c":
            return _object(rest[0], _all_unpacked(rest[1:], depth + 1))
        case "t":
            return tuple(_all_unpacked(rest, depth + 1))
        case "r":
            first, mask = rest
            if not 0 <= 8 * first < _MOST_RANKS:
                raise BadMessage("a message cannot be read: there are no so many ranks")
            return RankSet(int.from_bytes(mask, "little") << 8 * first)
        case "e":
            return CLASSES[rest[0]](rest[1])
        case "o":
            small = len(rest[0]) < _MOST_KEPT
            return _known_call_path(rest[0]) if small else _call_path(rest[0])
        case "d":
            return Deadline(float(rest[0]))
        case "m":
            return {_unpacked(k, depth + 1): _unpacked(v, depth + 1) for k, v in rest}
        case "a":
            return array(rest[0], rest[1])
        case "s":
            return rest[0].decode("utf-8", "surrogatepass")
        case "i":
            return int(rest[0], 16)
    raise BadMessage(f"a message cannot be read: it has the mark {mark!r}")


def _all_unpacked(values: list[object], depth: int) -> list[object]:
    return [each if each.__class__ in _SCALARS else _unpacked(each, depth) for each in values]


def _call_path(data: bytes) -> CallPath:
    value = _unpacked(msgspec.msgpack.decode(data), _DEEPEST // 2)
    if not isinstance(value, CallPath):
        raise BadMessage(f"a message cannot be read: a {type(value).__name__} does not travel so")
    return value


# Equal ones, of whatever host, are one object.
_known_call_path = lru_cache(maxsize=1024)(_call_path)


def _object(name: str, values: list[object]) -> object:
    kind = CLASSES[name]
    if _is_named_tuple(kind):
        return kind(*values)
    names, in_order = _fields(kind)
    if len(values) != len(names):
        raise BadMessage(f"a message cannot be read: a {name} has {len(names)} fields")
    return kind(*values) if in_order else kind(**dict(zip(names, values, strict=True)))

"""Requests that a Python program can make of crdebug: crdebug_app.h for Python. See docs/app.md.

Imports nothing of crdebug: where that is not installed, a copy of this file serves.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any


class Status(IntEnum):
    """Answers. Of `checkpoint`, N > 0 too: the job has been restarted N times so far."""

    DONE = 0
    NOT_HERE = -1
    REFUSED = -2
    FAILED = -3


class Moment(IntEnum):
    """When a callback is called."""

    BEFORE_CHECKPOINT = 0
    AFTER_CONTINUE = 1
    AFTER_RESTART = 2


class Refusal(Exception):
    """A callback raises it to prevent a checkpoint; its text is the reason."""


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_kept: list[object] = []  # callbacks that C has must not be collected


@functools.cache
def _find(name: str) -> Any:
    """A function that crdebug has put into the process, None without crdebug."""
    return getattr(ctypes.CDLL(None), f"crdebug_app_{name}", None)


def _call(name: str, *arguments: object) -> int:
    function = _find(name)
    return Status.NOT_HERE if function is None else int(function(*arguments))


def checkpoint(note: str = "") -> tuple[int, int]:
    """Take a checkpoint of the whole job; any rank may ask, alone. Returns (status, number).

    status: DONE once the checkpoint is whole; N > 0 in the job that was brought back from it; or
    why there is none.  number: the checkpoint's, 0 if there is none.
    """
    number = ctypes.c_int(0)
    status = _call("checkpoint", note.encode(), ctypes.byref(number))
    return status, number.value


def restart(number: int = 0) -> int:
    """Bring the whole job back to a checkpoint, the newest if 0. Returns only when it cannot be."""
    return _call("restart", ctypes.c_int(number))


def quiet_start() -> int:
    """No checkpoint from now on, until `quiet_end`; a request for one waits, or is refused."""
    return _call("quiet_start")


def quiet_end() -> int:
    """Checkpoints may be taken again."""
    return _call("quiet_end")


@contextmanager
def quiet() -> Iterator[None]:
    """No checkpoint in the block."""
    quiet_start()
    try:
        yield
    finally:
        quiet_end()


def register(callback: Callable[[Moment], None]) -> int:
    """Call it around every checkpoint, in a thread of its own: those registered last come first
    before a checkpoint, and last after it. Raising Refusal before a checkpoint prevents it."""

    def called(moment: int, _: object) -> int:
        try:
            callback(Moment(moment))
        except Exception as error:
            return _call("refuse", str(error).encode() or type(error).__name__.encode())
        return 0

    pointer = _Callback(called)
    _kept.append(pointer)
    return _call("register", pointer, None)


def reason() -> str:
    """Why the latest call was refused or failed; "" if none was."""
    function = _find("reason")
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    return bytes(function()).decode(errors="replace")

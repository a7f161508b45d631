"""Loads the matcher: the library that history.h describes. It is compiled on first use."""

from __future__ import annotations

import asyncio
import ctypes
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.native.build import build
from crdebug.native.matcher.library import Library

_COMPILE = 120.0  # seconds

_loaded: dict[str, Library] = {}  # by compiler


async def load(compiler: str) -> Library:
    """The library that this compiler makes; a process loads it once. Raises NotAvailable."""
    if compiler not in _loaded:
        native = await build(compiler, Deadline(_COMPILE))
        _loaded[compiler] = await asyncio.to_thread(_open, native.matcher)
    return _loaded[compiler]


def _open(path: Path) -> Library:
    return Library(ctypes.CDLL(str(path)))

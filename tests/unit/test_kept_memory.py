"""Which pages a process has of its own, however large a mapping is (snapshot/memory.py)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from crdebug.gdbscripts.snapshot import memory as kept_memory

PAGE = kept_memory.PAGE
NO_RESERVE, ANONYMOUS, PRIVATE = 0x4000, 0x20, 0x02
TOUCHED = (0, 5, 6, 63)  # pages

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@contextmanager
def reserved(size: int) -> Iterator[kept_memory.Area]:
    """A mapping of small pages."""
    at = libc.mmap(None, size, 3, PRIVATE | ANONYMOUS | NO_RESERVE, -1, 0)
    assert at is not None and at != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    no_huge_pages = 15
    libc.madvise(at, size, no_huge_pages)
    try:
        yield kept_memory.Area(at, at + size, "rw-p", 0, "00:00", 0, "")
    finally:
        libc.munmap(at, size)


def pages(area: kept_memory.Area, extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [((low - area.start) // PAGE, (high - area.start) // PAGE) for low, high in extents]


def test_a_page_at_the_end_of_a_huge_reservation_is_seen() -> None:
    with reserved(3 << 39) as area, kept_memory.Memory(os.getpid()) as memory:
        for at in (area.start, area.end - PAGE):
            ctypes.memset(at, 1, 1)
        last = (area.end - area.start) // PAGE
        assert pages(area, memory.extents(area)) == [(0, 1), (last - 1, last)]


@pytest.mark.parametrize("way", [kept_memory.own_pages_scanned, kept_memory.own_pages_read])
@pytest.mark.parametrize("at_once", [1, 3, 1 << 18])
def test_the_same_whatever_the_kernel_has_and_however_much_is_asked_for_at_once(
    way: object, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_memory, "PORTION_OF_PAGES", at_once)
    monkeypatch.setattr(kept_memory, "REGIONS", min(at_once, 1024))
    with reserved(64 * PAGE) as area, kept_memory.Memory(os.getpid()) as memory:
        for page in TOUCHED:
            ctypes.memset(area.start + page * PAGE, 1, 1)
        assert callable(way)
        found = way(memory.pages, area)
        if found is None:
            major, minor = os.uname().release.split(".")[:2]
            assert (int(major), int(minor)) < (6, 7)  # PAGEMAP_SCAN is as old as that
            return
        assert pages(area, found) == [(0, 1), (5, 7), (63, 64)]


def test_an_answer_that_is_too_short_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserved(64 * PAGE) as area, kept_memory.Memory(os.getpid()) as memory:
        pread = os.pread
        monkeypatch.setattr(os, "pread", lambda file, size, at: pread(file, size - 8, at))
        with pytest.raises(OSError, match="cannot look for pages"):
            kept_memory.own_pages_read(memory.pages, area)

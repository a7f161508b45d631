"""Registers of threads and the size of memory in CRIU's images, from images made by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdebug.base.errors import StoreError
from crdebug.checkpoint.images import (
    CoreThread,
    memory,
    open_files,
    read_threads,
    require_open,
)
from crdebug.checkpoint.open_files import SavedFile

pytestmark = pytest.mark.unit

WORD = (1 << 64) - 1


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def fixed(field: int, size: int) -> bytes:
    return varint(field << 3 | {8: 1, 4: 5}[size]) + bytes(size)


def registers(pc: int = 1, sp: int = 2, rax: int = 3, orig_rax: int = WORD) -> bytes:
    """UserX86RegsEntry: r15 is 1 … ax 11 … orig_ax 16, ip 17, cs 18, flags 19, sp 20 … (images/
    core-x86.proto), with irrelevant fields before, between and after."""
    values = {n: n * 1000 for n in range(1, 28)} | {11: rax, 16: orig_rax, 17: pc, 20: sp}
    return b"".join(number(n, value) for n, value in values.items())


MASK = 1 << 61


def core(gpregs: bytes, *, around: bytes = b"", thread: bool = False) -> bytes:
    """A core image: magic, entry's size, CoreEntry{mtype, thread_info{clear_tid, gpregs, …}, …}.

    thread: not the first one of its process, so that the mask is elsewhere.
    """
    mask = block(4, number(2, 9) + number(6, MASK)) if thread else block(3, number(5, MASK))
    info = number(1, 0x7F00) + block(2, gpregs) + block(3, b"fpregs \xff\x00")
    entry = number(1, 62) + around + block(2, info) + mask + around
    return struct.pack("<III", 0x54564319, 0x55053847, len(entry)) + entry


def put(images: Path, tid: int, data: bytes) -> None:
    (images / f"core-{tid}.img").write_bytes(data)


def test_each_thread_of_the_image_with_its_registers(tmp_path: Path) -> None:
    put(tmp_path, 7, core(registers(0x401000, 0x7FFD0000, WORD - 3, 7)))
    put(tmp_path, 12, core(registers(0x7F0000001234, 0x7FFE0000, 0, WORD), thread=True))
    for other in ("pstree.img", "mm-7.img", "core.img", "fdinfo-2.img"):
        (tmp_path / other).write_bytes(b"no core")
    assert set(read_threads(tmp_path)) == {
        CoreThread(7, 0x401000, 0x7FFD0000, WORD - 3, 7, MASK),
        CoreThread(12, 0x7F0000001234, 0x7FFE0000, 0, WORD, MASK),
    }


def test_an_image_without_threads_has_none(tmp_path: Path) -> None:
    assert read_threads(tmp_path) == ()


_word = st.integers(0, WORD)


@given(_word, _word, _word, _word)
def test_every_value_of_64_bits_is_read(
    tmp_path_factory: pytest.TempPathFactory, pc: int, sp: int, rax: int, orig_rax: int
) -> None:
    images = tmp_path_factory.mktemp("images")
    put(images, 1, core(registers(pc, sp, rax, orig_rax)))
    assert read_threads(images) == (CoreThread(1, pc, sp, rax, orig_rax, MASK),)


def test_fields_of_every_wire_type_are_passed_over(tmp_path: Path) -> None:
    around = number(9, 300) + fixed(10, 8) + fixed(11, 4) + block(12, b"\x08\x01")
    put(tmp_path, 1, core(registers(), around=around))
    assert read_threads(tmp_path) == (CoreThread(1, 1, 2, 3, WORD, MASK),)


def test_cut_off_anywhere_it_is_one_sentence(tmp_path: Path) -> None:
    whole = core(registers())
    for length in range(len(whole)):
        put(tmp_path, 1, whole[:length])
        with pytest.raises(StoreError, match=r"cannot read the image core-1\.img"):
            read_threads(tmp_path)


@pytest.mark.parametrize("missing", [11, 16, 17, 20])
def test_a_register_that_is_missing_is_one_sentence(tmp_path: Path, missing: int) -> None:
    gpregs = b"".join(number(n, 1) for n in range(1, 28) if n != missing)
    put(tmp_path, 1, core(gpregs))
    with pytest.raises(StoreError, match=r"cannot read the image core-1\.img"):
        read_threads(tmp_path)


@pytest.mark.parametrize(
    ("rax", "orig_rax", "call"),
    [
        (WORD - 3, 7, 7),  # poll, broken off: -EINTR
        (WORD - 3, 0, 0),  # read, too: the number 0 is one
        (WORD - 3, 232, 232),
        (WORD - 3, WORD, -1),  # the value of a computation
        (0, 7, -1),  # it had returned
        (WORD - 515, 7, -1),  # -ERESTART_RESTARTBLOCK: the kernel's own business
        (WORD - 4, 7, -1),  # another error
    ],
)
def test_a_call_that_the_crs_broke_off(rax: int, orig_rax: int, call: int) -> None:
    assert CoreThread(1, 0, 0, rax, orig_rax, 0).interrupted_call == call


# ---- memory ------------------------------------------------------------------------------------


def pagemap(*entries: bytes) -> bytes:
    """A pagemap image: magic, PagemapHead{pages_id}, and PagemapEntries, each after its size."""
    blocks = (struct.pack("<I", len(entry)) + entry for entry in (number(1, 7), *entries))
    return struct.pack("<II", 0x54564319, 0x56084025) + b"".join(blocks)


def test_memory_comes_from_the_image_and_its_parents(tmp_path: Path) -> None:
    assert memory(tmp_path) == 0
    # PagemapEntry: vaddr 1, nr_pages 2 or 5, in_parent 3, flags 4
    here, parent = number(4, 4), number(3, 1) + number(4, 1)
    old = pagemap(
        number(1, 0x1000) + number(2, 3) + here, number(1, 0x9000) + number(2, 4) + parent
    )
    (tmp_path / "pagemap-1.img").write_bytes(old)
    (tmp_path / "pagemap-shmem-2.img").write_bytes(
        pagemap(number(1, 0) + here + number(5, 1 << 20))
    )
    (tmp_path / "pages-1.img").write_bytes(b"x")
    assert memory(tmp_path) == 4096 * (3 + 4 + (1 << 20))


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_a_pagemap_that_is_cut_off_is_named(tmp_path: Path, missing: int) -> None:
    (tmp_path / "pagemap-1.img").write_bytes(pagemap(number(5, 1))[:-missing])
    with pytest.raises(StoreError, match=r"cannot read the image pagemap-1\.img"):
        memory(tmp_path)


# ---- open files ---------------------------------------------------------------------------------


def a_file(kind: int, body: bytes) -> bytes:
    """FileEntry{type, id, the field of that kind}."""
    return number(1, kind) + number(2, 9) + block(kind + 2, body)


def regular(name: str) -> bytes:
    """RegFileEntry{id, flags, pos, fown{…}, name, mnt_id}."""
    head = number(1, 9) + number(2, 0o2001) + number(3, 77) + block(5, block(6, b"/not this"))
    return head + block(6, name.encode()) + number(7, 4)


def test_only_files_that_the_image_has_open_are_put_back(tmp_path: Path) -> None:
    entries = [a_file(1, regular("/tmp/out")), a_file(3, block(6, b"/a/socket"))]
    entries.append(a_file(1, regular("/tmp/ä b")))
    framed = b"".join(struct.pack("<I", len(each)) + each for each in entries)
    (tmp_path / "files.img").write_bytes(struct.pack("<II", 0x54564319, 0x56303138) + framed)
    assert open_files(tmp_path) == {"/tmp/out", "/tmp/ä b"}
    require_open(tmp_path, [SavedFile("/tmp/out", 1), SavedFile("/tmp/ä b", 1)])
    require_open(tmp_path / "none", [])
    with pytest.raises(StoreError, match=r"the image has no /etc/passwd open, .*tampered"):
        require_open(tmp_path, [SavedFile("/tmp/out", 1), SavedFile("/etc/passwd", 1)])
    (tmp_path / "files.img").write_bytes(b"\0" * 8 + b"\x80" * 100)
    with pytest.raises(StoreError, match=r"cannot read the image files\.img"):
        open_files(tmp_path)

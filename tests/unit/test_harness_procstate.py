"""The harness's view of a process: the parts that compute, and a small live process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness import procstate
from harness.procstate import PAGE, Region, Snapshot, Thread
from harness.registers import in_system_call, register_differences
from harness.spans import Span, outside, union

pytestmark = pytest.mark.unit

MAPS = """\
00400000-00401000 r-xp 00000000 08:01 42                                 /opt/a program
00401000-00402000 rw-p 00001000 08:01 42                                 /opt/a program
00402000-00404000 rw-p 00000000 00:00 0                                  [heap]
00500000-00502000 rwxp 00000000 00:00 0
00502000-00503000 rw-p 00000000 00:00 0
00600000-00601000 rw-s 00000000 00:05 7                                  /dev/zero (deleted)
7ff000000000-7ff000004000 rw-p 00000000 00:00 0                          [stack]
"""


def page(*pairs: tuple[int, int]) -> bytes:
    data = bytearray(PAGE)
    for offset, value in pairs:
        data[offset] = value
    return bytes(data)


def stack(pages: dict[int, bytes], excluded: tuple[Span, ...] = ()) -> Snapshot:
    """A process whose only private writable mapping is the stack in MAPS."""
    lines = [line for line in procstate.parse_maps(MAPS) if line.name == "[stack]"]
    region = procstate.make_region(lines, pages, excluded)
    return Snapshot(1, (Thread(10, 1, "main"),), (region,), excluded)


STACK = 0x7FF000000000


# ---- addresses ----------------------------------------------------------------------------------


def test_a_union_is_sorted_and_has_no_overlaps() -> None:
    spans = [Span(8, 9), Span(1, 3), Span(3, 5), Span(2, 4), Span(6, 6)]
    assert union(spans) == (Span(1, 5), Span(8, 9))


def test_outside_returns_the_parts_that_no_hole_covers() -> None:
    holes = union([Span(0, 2), Span(4, 5), Span(9, 20)])
    assert list(outside(Span(1, 10), holes)) == [Span(2, 4), Span(5, 9)]
    assert list(outside(Span(9, 12), holes)) == []
    assert list(outside(Span(30, 31), holes)) == [Span(30, 31)]


# ---- mappings and threads -----------------------------------------------------------------------


def test_what_the_kernel_may_drop_is_known_by_its_flag() -> None:
    smaps = (
        "7f4a71190000-7f4a71191000 rw-p 00000000 00:00 0 \nSize:                  4 kB\n"
        "VmFlags: rd wr mr mw me nr wf dd dp \n"
        "00600000-00601000 rw-p 00000000 00:00 0                                  [heap]\n"
        "Size:                  4 kB\nVmFlags: rd wr mr mw me ac sd \n"
    )
    assert procstate.droppable(smaps) == (Span(0x7F4A71190000, 0x7F4A71191000),)
    assert procstate.droppable(smaps.replace(" dp", "")) == ()


def test_maps_are_read_with_names_that_have_blanks() -> None:
    lines = procstate.parse_maps(MAPS)
    assert lines[0].name == "/opt/a program"
    assert lines[1].offset == 0x1000
    assert lines[3].name == ""
    assert [line.private_writable for line in lines] == [False, *[True] * 4, False, True]


def test_mappings_that_touch_are_one_region_if_permissions_are_equal() -> None:
    groups = [
        [line.span.start for line in g] for g in procstate.adjacent(procstate.parse_maps(MAPS))
    ]
    assert groups == [[0x401000, 0x402000], [0x500000], [0x502000], [STACK]]


def test_a_thread_has_a_number_in_each_namespace() -> None:
    status = "Name:\tpoll it\nPid:\t700\nNSpid:\t700\t35\t4\nVmPeak:\t 1 kB\n"
    assert procstate.parse_status(status) == Thread(700, 4, "poll it")


def test_the_stack_is_left_out_only_below_the_red_zone() -> None:
    lines = procstate.parse_maps(MAPS)
    found = procstate.below_stack_pointers(lines, [STACK + 0x3000, 0x402010])
    assert found == (Span(STACK, STACK + 0x3000 - 128),)
    with pytest.raises(ValueError, match="600010"):
        procstate.below_stack_pointers(lines, [0x600010])


# ---- differences of memory ----------------------------------------------------------------------


def test_equal_memory_has_no_differences_and_an_absent_page_is_zeros() -> None:
    assert stack({STACK: page((5, 1))}).differences(stack({STACK: page((5, 1))})) == ()
    assert stack({STACK: page()}).differences(stack({})) == ()


def test_a_difference_names_the_mapping_the_offsets_and_the_bytes() -> None:
    before = stack({STACK + PAGE: page((16, 1), (18, 2))})
    after = stack({STACK + PAGE: page((16, 7), (18, 2))})
    assert before.differences(after) == (
        f"{STACK:x}-{STACK + 0x4000:x} [stack], offset 1010-1011: 01 became 07",
    )


def test_a_difference_across_a_page_border_is_one() -> None:
    after = stack({STACK: page((PAGE - 1, 3)), STACK + PAGE: page((0, 4))})
    (told,) = stack({}).differences(after)
    assert told.endswith("offset fff-1001: 00 00 became 03 04")


def test_what_one_snapshot_left_out_is_not_compared() -> None:
    hole = (Span(STACK, STACK + 0x20),)
    before = stack({STACK: page((1, 1), (0x20, 5))}, hole)
    assert before.differences(stack({STACK: page((2, 2), (0x20, 5))})) == ()
    (told,) = before.differences(stack({STACK: page((2, 2), (0x20, 6))}))
    assert "offset 20-21" in told


def test_many_differences_are_counted_not_listed() -> None:
    after = stack({STACK: page(*((at, 1) for at in range(0, PAGE, 64)))})
    told = stack({}).differences(after)
    assert len(told) == 9
    assert told[-1].endswith(f"{PAGE // 64 - 8} more differences")


def test_the_crc_covers_addresses_but_not_excluded_bytes() -> None:
    def crc(pages: dict[int, bytes], *holes: Span) -> int:
        region: Region = stack(pages, holes).regions[0]
        return region.crc

    assert crc({STACK: page((0, 1))}) != crc({STACK + PAGE: page((0, 1))})
    hole = Span(STACK, STACK + 4)
    assert crc({STACK: page((0, 1))}, hole) == crc({}, hole)


def test_new_and_vanished_threads_and_mappings_are_reported() -> None:
    before = stack({})
    after = Snapshot(2, (Thread(11, 1, "other"), Thread(12, 2, "new")), (), ())
    assert before.differences(after) == (
        "thread 1 was main, is other",
        "thread 2 (new) is new",
        f"{STACK:x}-{STACK + 0x4000:x} rw-p [stack] is gone",
    )


# ---- registers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "inside"), [("-1", False), ("7", True), ("0", True), ("0xffffffffffffffff", False)]
)
def test_orig_rax_tells_whether_a_thread_is_in_a_system_call(value: str, inside: bool) -> None:
    assert in_system_call({"orig_rax": value}) is inside


def test_only_rcx_and_r11_may_differ_and_only_in_a_system_call() -> None:
    def registers(call: str, rcx: str, rax: str) -> dict[int, dict[str, str]]:
        return {1: {"rax": rax, "rcx": rcx, "r11": rcx, "orig_rax": call}}

    differences = register_differences
    assert differences(registers("7", "1", "5"), registers("7", "2", "5")) == ()
    assert differences(registers("7", "1", "5"), registers("7", "2", "6")) == (
        "thread 1: rax was 5, is 6",
    )
    assert differences(registers("-1", "1", "5"), registers("-1", "2", "5")) == (
        "thread 1: rcx was 1, is 2",
        "thread 1: r11 was 1, is 2",
    )
    assert differences(registers("-1", "1", "5"), {}) == ("thread 1 is gone",)
    ignored = differences(registers("-1", "1", "5"), registers("-1", "1", "6"), ignored=["rax"])
    assert ignored == ()


# ---- a live process -----------------------------------------------------------------------------

# Says where its buffer is, stops itself, changes one byte of it, stops again.
LIVE = """
import ctypes, os, signal
buffer = ctypes.create_string_buffer(b"x" * 65536)
os.write(1, b"%d\\n" % ctypes.addressof(buffer))
os.kill(os.getpid(), signal.SIGSTOP)
buffer[40000] = b"y"
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def live() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", LIVE], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_stopped(process: subprocess.Popen[bytes]) -> None:
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def test_a_changed_byte_of_a_live_process_is_found(live: subprocess.Popen[bytes]) -> None:
    wait_stopped(live)
    assert live.stdout is not None
    address = int(live.stdout.readline()) + 40000
    before = procstate.snapshot(live.pid)
    assert before.differences(procstate.snapshot(live.pid)) == ()
    assert [thread.tid for thread in before.threads] == [live.pid]
    assert procstate.patched_code(live.pid) == ()

    live.send_signal(signal.SIGCONT)
    wait_stopped(live)
    region = next(r for r in before.regions if r.span.start <= address < r.span.end)
    offset = address - region.span.start
    told = before.differences(procstate.snapshot(live.pid))
    assert any(f"offset {offset:x}-" in line and "78 became 79" in line for line in told), told

    hole = Span(address, address + 1)
    told = before.differences(procstate.snapshot(live.pid, own=[hole]))
    assert not any(f"offset {offset:x}-" in line for line in told), told


def test_the_rseq_area_is_where_the_c_library_says(live: subprocess.Popen[bytes]) -> None:
    wait_stopped(live)
    here = ctypes.CDLL(None)
    try:
        offset = ctypes.c_ssize_t.in_dll(here, "__rseq_offset").value
        size = ctypes.c_uint.in_dll(here, "__rseq_size").value
    except ValueError:
        offset = size = 0
    area = procstate.rseq_area(live.pid, procstate.maps(live.pid))
    assert area == (Span(offset, offset + max(size, 32)) if size else None)

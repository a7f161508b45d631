"""Which states of the past a job can be brought to a cut from."""

from __future__ import annotations

from crdebug.base.instant import cut_of
from crdebug.travel.restore_points import Base, below, is_before
from crdebug.travel.reverse_continue import End


def test_the_nearest_state_that_is_not_beyond_the_cut_comes_first() -> None:
    start = Base(cut_of(0, 0), number=1, history=True)
    near = Base(cut_of(8, 9), kept="s1")
    beyond = Base(cut_of(8, 11), kept="s2")
    middle = Base(cut_of(6, 6), number=2)
    assert below([start, beyond, near, middle], cut_of(9, 10)) == [near, middle, start]
    assert below([beyond], cut_of(9, 10)) == []


def test_of_two_that_are_equally_far_the_one_in_memory_is_taken() -> None:
    disk, memory = Base(cut_of(4, 4), number=1), Base(cut_of(4, 4), kept="s1")
    assert below([disk, memory], cut_of(4, 5)) == [memory, disk]


def test_no_state_of_a_job_of_another_size_fits() -> None:
    assert not is_before(cut_of(1, 1), cut_of(1, 1, 1))
    assert is_before(cut_of(1, 1), cut_of(1, 1))


def test_a_place_of_the_stepper_as_the_end_of_a_pass() -> None:
    assert End.of("hit:401136:7,0,0,7ffe10:3") == End(0x401136, 0x7FFE10, 3)
    assert End.of("hit:401136:-:1") == End(0x401136, None, 1)

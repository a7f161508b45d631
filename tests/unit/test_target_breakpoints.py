"""Logical breakpoints: numbers there and back, hits, and the rest when ranks lose them."""

from __future__ import annotations

import pytest

from crdebug.base.errors import BadInput
from crdebug.base.events import Location, RankStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.breakpoints import BreakpointTable
from crdebug.debugger.target import BreakpointRequest, Inserted

pytestmark = pytest.mark.unit

ALL = RankSet.span(3)
WORK = Location(0x10, "work", "ring.c", 7)


def there(rank: int) -> Location:
    return Location(0x1000 * (rank + 1), "work", "ring.c", 7)


@pytest.fixture
def table() -> BreakpointTable:
    """Breakpoint 1 on all ranks, as GDB's 11, 12 and 13; breakpoint 2 on rank 1, as its 20."""
    table = BreakpointTable()
    table.add(ALL, BreakpointRequest("work", "n > 3", ignore=2))
    for rank in ALL:
        table.bind(1, rank, Inserted(11 + rank, (there(rank),), ignore=2))
    table.add(RankSet.of([1]), BreakpointRequest("later"))
    table.bind(2, 1, Inserted(20, ()))
    return table


def stop(rank: int, number: int, reason: StopReason = StopReason.BREAKPOINT) -> RankStopped:
    return RankStopped(rank, reason, str(number), 1, WORK)


def test_numbers_are_the_users(table: BreakpointTable) -> None:
    assert [table.translate(stop(rank, 11 + rank)).detail for rank in ALL] == ["1", "1", "1"]
    assert table.translate(stop(1, 20)).detail == "2"
    assert table.gdb_numbers(1) == {0: 11, 1: 12, 2: 13}


def test_a_number_that_only_gdb_knows(table: BreakpointTable) -> None:
    assert table.translate(stop(0, 20)).detail == "gdb 20"
    assert table.translate(stop(0, 5, StopReason.WATCHPOINT)).detail == "gdb 5"


def test_other_stops_keep_their_detail(table: BreakpointTable) -> None:
    assert table.translate(stop(0, 11, StopReason.EXITED)).detail == "11"


def test_equal_places_are_one_class(table: BreakpointTable) -> None:
    ((ranks, places),) = table.get(1).merged_places()
    assert ranks == ALL
    assert places == (there(0),)


def test_pending_until_it_is_resolved(table: BreakpointTable) -> None:
    assert table.get(2).pending == RankSet.of([1])
    table.changed(1, Inserted(20, (WORK,)))
    assert table.get(2).pending == RankSet()
    assert table.get(2).places == {1: (WORK,)}


def test_hits_add_up(table: BreakpointTable) -> None:
    table.changed(0, Inserted(11, (WORK,), 2))
    table.changed(1, Inserted(12, (WORK,), 1))
    table.changed(0, Inserted(11, (WORK,), 3))
    assert table.get(1).hits == 4


def test_what_gdb_has_besides_is_passed_over(table: BreakpointTable) -> None:
    before = table.all()
    table.changed(0, Inserted(99, (WORK,), 2))
    table.gone(0, 99)
    assert table.all() == before


def test_a_temporary_one_goes_with_its_last_rank() -> None:
    table = BreakpointTable()
    table.add(RankSet.of([0, 1]), BreakpointRequest("work", temporary=True))
    table.bind(1, 0, Inserted(5, (WORK,)))
    table.bind(1, 1, Inserted(6, (WORK,)))
    table.gone(0, 5)
    assert table.get(1).ranks == RankSet.of([1])
    assert table.get(1).places == {1: (WORK,)}
    table.gone(1, 6)
    assert table.all() == ()
    # GDB may report the stop after the deletion.
    assert table.translate(stop(1, 6)).detail == "1"


def test_a_new_gdb_gets_the_breakpoints_of_the_old_one(table: BreakpointTable) -> None:
    table.changed(1, Inserted(12, (WORK,), 2))
    assert [each.number for each in table.lost(1)] == [1, 2]
    assert table.missing(0) == ()
    assert table.request(1, 0) == BreakpointRequest("work", "n > 3", ignore=2)
    table.bind(1, 1, Inserted(1, (WORK,)))
    table.refuse(2, 1, "No such file")
    assert table.missing(1) == ()
    assert table.translate(stop(1, 1)).detail == "1"
    assert table.translate(stop(1, 12)).detail == "gdb 12"
    table.changed(1, Inserted(1, (WORK,), 3))
    assert table.get(1).hits == 5
    assert table.get(2).problems == {1: "No such file"}
    assert table.get(2).ranks == RankSet()


def test_a_refusal_is_forgotten_when_it_works(table: BreakpointTable) -> None:
    table.refuse(1, 0, "no")
    assert table.get(1).problems == {0: "no"}
    assert table.get(1).ranks == RankSet.of([1, 2])
    table.bind(1, 0, Inserted(50, (WORK,)))
    assert table.get(1).problems == {}
    assert table.get(1).ranks == ALL


def test_numbers_are_not_used_again(table: BreakpointTable) -> None:
    assert table.remove(2) == {1: 20}
    assert table.add(ALL, BreakpointRequest("x")).number == 3


def test_changes(table: BreakpointTable) -> None:
    table.change(1, enabled=False)
    table.change(1, condition="")
    assert (table.get(1).enabled, table.get(1).condition) == (False, "")
    assert table.request(1, 0) == BreakpointRequest("work", ignore=2, enabled=False)


def test_a_number_that_is_not_there(table: BreakpointTable) -> None:
    def request(number: int) -> object:
        return table.request(number, 0)

    for call in (table.get, table.remove, request, table.gdb_numbers):
        with pytest.raises(BadInput, match=r"there is no breakpoint 9 \(the breakpoints: 1, 2\)"):
            call(9)

"""What a user should know of the ways by which a job came to a place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from crdebug.base.instant import Instant
from crdebug.debugger.stepper import Earlier
from crdebug.travel.arrival import Arrival
from crdebug.travel.restore_points import StartOfHistory
from crdebug.travel.reverse_step import Reverse

pytestmark = pytest.mark.unit


def test_each_caveat_is_said_once_in_the_order_of_the_ways() -> None:
    way = Arrival(("a", "b")).then(Arrival()).then(Arrival(("b", "c")))
    assert way.caveats == ("a", "b", "c")
    assert way.text == "a; b; c"
    assert Arrival().text == ""


def test_the_start_of_history_is_reported_first() -> None:
    way = Arrival(("a",)).at_start("this is the start")
    assert way.text == "this is the start; a"
    assert way.then(Arrival(("b",))).text == "this is the start; a; b"
    assert Arrival(("b",)).then(way).text == "this is the start; b; a"


class Pieces(Reverse):
    """Walks back over segments of history, which another way leads to, too.

    found: the stepper's result from each origin, or its error.
    start: how many origins exist before history begins.
    """

    def __init__(self, *found: str | Earlier | StartOfHistory, start: int = -1) -> None:
        traveller: Any = SimpleNamespace(
            job=SimpleNamespace(group={}),
            recorded=SimpleNamespace(
                cut=lambda: [Instant.after(9)],
                clock=lambda focus: SimpleNamespace(read=lambda: SimpleNamespace(held=0)),
            ),
        )
        super().__init__(traveller)
        self.found, self.start = [*found], start
        self.origins = 0

    async def _origin_again(self) -> Arrival:
        if self.origins == self.start:
            raise StartOfHistory("this is the start of history")
        self.origins += 1
        return Arrival((f"way {self.origins}",))

    async def _have_origin(self, focus: int, now: Instant, *, whole: bool = False) -> Arrival:
        return await self._origin_again()

    async def _earlier(self, focus: int) -> Arrival:
        return await self._origin_again()

    async def _walk(self, focus: int, kind: str, frame: str) -> str | Earlier | None:
        found = self.found.pop(0)
        if isinstance(found, StartOfHistory):
            raise found
        return found

    async def _once(self, focus: int, place: str) -> None:
        assert place == "there"

    async def _arrive(self, focus: int) -> None: ...


EARLIER = Earlier("next", "")


async def test_caveats_are_those_of_the_way_that_led_to_the_place() -> None:
    assert await Pieces("there").back("next", 0) == Arrival(("way 1",))
    assert await Pieces(EARLIER, EARLIER, "there").back("next", 0) == Arrival(("way 3",))


async def test_at_the_start_of_history_they_are_those_of_the_last_way() -> None:
    pieces = Pieces(EARLIER, EARLIER, start=2)
    assert await pieces.back("next", 0) == Arrival(("way 2",), "this is the start of history")
    stands = Pieces(StartOfHistory("nothing before"))
    assert await stands.back("next", 0) == Arrival(("way 1",), "nothing before")
    nowhere = Pieces(start=0)
    assert (await nowhere.back("next", 0)).text == "this is the start of history"


async def test_a_place_inside_a_call_is_not_exact() -> None:
    went: list[tuple[Any, int]] = []

    async def to_cut(cut: Any, focus: int) -> Arrival:
        went.append((cut, focus))
        return Arrival(("one-sided",))

    traveller: Any = SimpleNamespace(
        job=SimpleNamespace(group={}), cut_for=lambda focus, now: now, to_cut=to_cut
    )
    arrival = await Reverse(traveller).to_state(1, Instant.within(4), "")
    assert arrival.text == "one-sided; inside the MPI call, just before it returns"
    assert went == [(Instant.within(4), 1)]

"""For how long no rank has come further: of made-up clocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from crdebug.base.instant import Instant
from crdebug.job.clocks import ClockView
from crdebug.travel import stood
from crdebug.travel.stood import Stood

pytestmark = pytest.mark.unit


class Ranks:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.time, self.now = 100.0, [1, 1]
        patch.setattr(stood, "time", SimpleNamespace(monotonic=lambda: self.time))
        self.stood = Stood()
        self.stood.goes_on()

    def after(self, seconds: float, *moved: int) -> float:
        self.time += seconds
        for rank in moved:
            self.now[rank] += 1
        self.stood.look(self.clocks())
        return self.stood.quiet[0]

    def clocks(self) -> list[ClockView]:
        def clock(rank: int) -> object:
            here = SimpleNamespace(now=Instant(self.now[rank]))
            return SimpleNamespace(rank=rank, worked=lambda: 0, read=lambda: here)

        return [cast(ClockView, clock(rank)) for rank in range(2)]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch)


def test_before_anybody_was_seen_nothing_is_quiet(ranks: Ranks) -> None:
    ranks.time += 50
    assert ranks.stood.quiet[0] == 0


def test_it_is_quiet_since_the_last_rank_came_further(ranks: Ranks) -> None:
    assert ranks.after(1) == 0
    assert ranks.after(2, 0) == 0
    assert ranks.after(3) == 3
    assert ranks.after(4, 1) == 0
    assert ranks.after(5) == 5


def test_while_the_job_stands_no_time_passes(ranks: Ranks) -> None:
    ranks.after(1)
    ranks.after(2)
    ranks.stood.stands(ranks.clocks())
    ranks.time += 3600
    ranks.stood.goes_on()
    assert ranks.after(1) == 3

"""Back and forth in the history of jobs in which MPI leaves much open: each place is always the
same."""

from __future__ import annotations

import random

import pytest

from crdebug.session import Session
from harness.programs import build
from harness.travel import Place, history, place, recorded, run_to

# What is asked at each place; `seen` is a hash of all that has been received so far, and how.
_VALUES = ("seen", "step", "rounds")
# Not asked is what MPI leaves open: handles (their addresses), the buffers of receives that have
# not completed, and of indices and statuses more than were said to be there.
_OPEN = ("request", "requests", "message", "value", "values", "indices", "statuses")


async def _look(job: Session, rank: int) -> Place:
    return await place(job, rank, _VALUES, but=_OPEN)


# The first two go to and fro in test_travel_reverse.py.
@pytest.mark.parametrize(
    ("program", "ranks", "rounds", "steps", "focus", "moves"),
    [
        pytest.param("wildcard", 4, 3, range(38), 0, 50, marks=pytest.mark.sweep),
        pytest.param("testsome", 4, 4, range(27), 0, 50, marks=pytest.mark.sweep),
        pytest.param("master", 8, 8, range(63), 0, 40, marks=pytest.mark.sweep),
        ("master", 4, 20, range(79), 2, 20),
        ("persistent", 5, 20, range(19), 0, 15),
    ],
)
async def test_a_tick_is_the_same_at_each_visit_from_any_place(
    program: str, ranks: int, rounds: int, steps: range, focus: int, moves: int, thorough: bool
) -> None:
    moves = moves if thorough else moves // 3
    chance = random.Random(f"{program} {focus}")
    arguments = ("--rounds", rounds, "--jitter-us", 1000)
    async with recorded(build(program), *arguments, ranks=ranks) as job:
        past = history(job)
        recorded_at: dict[int, Place] = {}  # by step, as it was when it was recorded
        for step in sorted(chance.sample(steps[len(steps) // 3 :], 3)):
            await run_to(job, 0, "note", f"step == {step}")
            recorded_at[step] = await _look(job, 0)
        end = past.traveller.recorded.tails()[focus] // 2
        assert end > 20

        ticks = chance.sample(range(2, end + 1), 8 if thorough else 5)
        seen: dict[int, Place] = {}
        for tick in [*ticks, *(chance.choice(ticks) for _ in range(moves - len(ticks)))]:
            moment = await past.goto_tick(focus, tick)
            assert moment.tick == tick
            now = await _look(job, focus)
            assert now.cut[focus] == 2 * tick
            before = seen.setdefault(tick, now)
            assert (now.cut, before.differences(now)) == (before.cut, ())
        assert len({each.values for each in seen.values()}) > 3, "they are different places"

        for step, there in sorted(recorded_at.items(), reverse=True):
            await past.goto_tick(0, there.cut[0] // 2)
            await run_to(job, 0, "note", f"step == {step}")
            again = await _look(job, 0)
            assert (again.cut[0], there.differences(again)) == (there.cut[0], ())

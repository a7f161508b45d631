"""A replay from a checkpoint follows the record, in whatever order the messages would arrive."""

from __future__ import annotations

import pytest

from crdebug.native.recorder.clock import Enforce
from crdebug.session import Session
from harness.jobs import Heard, run_to_end
from harness.programs import build
from harness.travel import history, recorded, run_to

# Programs that print what depends on the order of messages; delays are other ones in each run.
_OPTIONS = ("--rounds", 8, "--jitter-us", 300)


async def _again(job: Session, heard: Heard, *, enforce: bool = True) -> str:
    """Run from the checkpoint to the end; returns the job's output."""
    await job.restart(1)
    before = len(heard.text())
    if not enforce:
        for clock in history(job).traveller.recorded.clocks():
            clock.set_enforce(Enforce.ASK_ANEW)
    assert await run_to_end(job) == 0
    return heard.text()[before:]


# What each program asks MPI is repeated in tests/mpi/test_layer_replay.py.
@pytest.mark.parametrize(
    ("program", "ranks"),
    [
        ("wildcard", 4),
        pytest.param("testsome", 4, marks=pytest.mark.sweep),
        pytest.param("master", 6, marks=pytest.mark.sweep),
        pytest.param("persistent", 5, marks=pytest.mark.sweep),
    ],
)
async def test_a_result_that_depends_on_the_order_of_messages_is_repeated(
    program: str, ranks: int, thorough: bool
) -> None:
    times, anew = (13, 3) if thorough else (2, 2)
    heard = Heard()
    async with recorded(build(program), *_OPTIONS, ranks=ranks, heard=heard) as job:
        await run_to(job, 0, "note")
        await job.checkpoint()
        assert await run_to_end(job) == 0
        result = heard.text()
        assert len(result.splitlines()) == ranks
        assert [await _again(job, heard) for _ in range(times)] == [result] * times
        # from then on everything is recorded again
        others = [await _again(job, heard, enforce=False) for _ in range(anew)]
        assert set(others) != {result}
        assert await _again(job, heard) == others[-1]

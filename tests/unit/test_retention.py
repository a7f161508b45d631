"""Which checkpoints go, when the next one is due, and the meaning of the options."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdebug.checkpoint.retention import Keep, Upkeep, expendable
from crdebug.checkpoint.store import Checkpoint
from crdebug.detached import batch, jobs
from crdebug.detached.batch import pause
from crdebug.job.directory import JobDirectory
from crdebug.ui.options import SIZE, TIME

pytestmark = pytest.mark.unit

NOW = 1_000_000.0


def a_checkpoint(
    number: int, *, note: str = "", kept: bool = False, size: int = 10, age: float = 0.0
) -> Checkpoint:
    return Checkpoint("heat", number, NOW - age, note, size, False, 1, (), kept)


FIVE = tuple(a_checkpoint(number, age=60.0 * (5 - number)) for number in range(1, 6))


@pytest.mark.parametrize(
    ("keep", "gone"),
    [
        (Keep(), ()),
        (Keep(count=5), ()),
        (Keep(count=2), (1, 2, 3)),
        (Keep(count=1), (1, 2, 3, 4)),
        (Keep(seconds=150), (1, 2)),
        (Keep(seconds=0.5), (1, 2, 3, 4)),  # the newest is never too old
        (Keep(size=30), (1, 2)),
        (Keep(size=1), (1, 2, 3, 4)),  # nor too large
        (Keep(count=4, seconds=150, size=49), (1, 2)),
    ],
)
def test_by_count_age_and_disk(keep: Keep, gone: tuple[int, ...]) -> None:
    assert expendable(FIVE, keep, 5, NOW) == gone


CHECKPOINTS = st.lists(
    st.builds(
        a_checkpoint,
        st.just(0),
        note=st.sampled_from(["", "", "mine"]),
        kept=st.booleans(),
        size=st.integers(0, 100),
        age=st.floats(0, 1000),
    ),
    min_size=1,
    max_size=12,
).map(
    lambda made: tuple(
        a_checkpoint(i + 1, note=c.note, kept=c.kept, size=c.size, age=NOW - c.time)
        for i, c in enumerate(made)
    )
)
KEEPS = st.builds(Keep, st.integers(0, 8), st.floats(0, 500), st.integers(0, 500))


@given(CHECKPOINTS, KEEPS, st.data())
def test_what_must_stay_stays_and_the_oldest_go_first(
    found: tuple[Checkpoint, ...], keep: Keep, data: st.DataObject
) -> None:
    good = data.draw(st.integers(1, len(found)))  # newer ones may be damaged
    gone = expendable(found, keep, good, NOW)
    left = [each for each in found if each.number not in gone]
    for number in gone:
        each = found[number - 1]
        assert number < good and not each.note and not each.kept
    free = [each for each in left if not each.note and not each.kept and each.number < good]
    if keep.count and free:
        assert len([e for e in left if not e.note and not e.kept]) <= keep.count
    if keep.size and free:
        assert sum(each.size for each in left) <= keep.size
    if keep.seconds:
        assert all(NOW - each.time <= keep.seconds for each in free)
    if not keep.seconds and free and gone:
        assert max(gone) < min(each.number for each in free)


@given(st.floats(0.1, 1e5), st.lists(st.floats(0, 1e3), max_size=6))
def test_each_checkpoint_is_whole_within_the_interval_if_that_can_be(
    every: float, lasted: list[float]
) -> None:
    wait = pause(every, lasted)
    assert every / 4 <= wait <= every
    if lasted and max(lasted[-3:]) <= every / 2:
        assert wait + max(lasted[-3:]) <= every * (1 + 1e-9)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("2D", 172_800)],
)
def test_times(text: str, seconds: float) -> None:
    assert TIME.convert(text, None, None) == seconds


@pytest.mark.parametrize(("text", "size"), [("7", 7), ("500M", 500 << 20), ("1.5g", 3 << 29)])
def test_sizes(text: str, size: int) -> None:
    assert SIZE.convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "0", "-1s", "1w", "s", "1e3", "٣s", "1 m m"])
def test_what_is_neither(text: str) -> None:
    for kind in (TIME, SIZE):
        with pytest.raises(click.BadParameter, match="write it like"):
            kind.convert(text, None, None)


@pytest.mark.parametrize("warned", [False, True])
async def test_what_goes_wrong_with_a_checkpoint_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, warned: bool
) -> None:
    """A full disk, or a rank that ends just then: reported, and tried again; the last one too."""
    monkeypatch.setenv("CRDEBUG_HOME", str(tmp_path))
    failures: list[OSError] = [
        OSError(errno.ENOSPC, "No space left on device", "draft"),
        ProcessLookupError("process 7 is gone"),
    ]
    told: list[str] = []
    over = asyncio.Event()

    async def take(*_: object) -> Checkpoint:
        if failures:
            raise failures.pop(0)
        over.set()
        return Checkpoint("job", 1, 0.0, "", 0, False, 1, ())

    async def follow(*_: object) -> int:
        if warned:
            os.kill(os.getpid(), signal.SIGUSR1)
        await over.wait()
        return 0

    async def keeps(*_: object) -> tuple[str, ...]:
        return ()

    monkeypatch.setattr(jobs, "take_checkpoint", take)
    monkeypatch.setattr(jobs, "follow", follow)
    monkeypatch.setattr(batch, "prune", keeps)
    monkeypatch.setattr(batch, "is_alive", lambda record: True)
    monkeypatch.setattr(batch, "_ENDING", 0.01)
    monkeypatch.setattr(JobDirectory, "read", lambda self: None)
    upkeep = Upkeep(every=0.0 if warned else 0.05, warnings=(signal.SIGUSR1,))
    status = await batch.attend("job", upkeep, lambda event: told.append(str(event)))
    assert status == (batch.EXIT_AGAIN if warned else 0)
    assert any("checkpoint job:1 taken" in each for each in told)
    if not warned:
        assert any("draft: no space left on device" in each for each in told)
        assert any("process 7 is gone" in each for each in told)

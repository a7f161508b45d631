"""A record whose beginning was dropped: the rest reads as before."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crdebug.base.instant import Cut, Instant, cut_of
from crdebug.job import beginning, clocks
from crdebug.timeline.calls import Kind
from crdebug.timeline.cuts import latest_cut
from crdebug.timeline.kept import keep, load
from crdebug.timeline.messages import messages
from crdebug.timeline.recorded import Recorded
from harness.layered import Layered
from harness.matcher import library
from harness.mpis import MPIS, Mpi

PROGRAMS = {
    "wildcard": ("--rounds", 4),
    "testsome": ("--rounds", 4),
    "collectives": ("--rounds", 3),
    "persistent": ("--rounds", 3),
    "master": ("--rounds", 3),
    "pingpong": ("--rounds", 20),
    "futures": (),
    "onesided": (),
    "started": (),
}
RANKS = {"onesided": 2, "started": 2, "pingpong": 2}


NEWER = [mpi for mpi in MPIS if mpi.name != "Open MPI 4.1"]


def record(run: Path) -> Recorded:
    recorded = Recorded(library())
    recorded.read(clocks.logs(run).iterdir())
    return recorded


def ends(recorded: Recorded) -> Cut:
    return tuple(log.tail_now for _, log in sorted(recorded.logs.items()))


def cuts(recorded: Recorded, count: int) -> Iterator[Cut]:
    """States in which all ranks can have been at once, after MPI_Init."""
    last = ends(recorded)
    for part in range(1, count):
        now = Instant(last[0] * part // count)
        cut = latest_cut(recorded.matching, 0, now, last)
        if min(cut) >= 2 and max(cut) > 2:
            yield cut


def told(recorded: Recorded, after: Cut) -> dict[str, object]:
    """All that is asked of a history from a state on."""
    matching, last = recorded.matching, ends(recorded)
    found: dict[str, object] = {"ends": last}
    for rank, log in recorded.logs.items():
        calls = [call for call in log.calls if call.returned > after[rank]]
        found[f"calls {rank}"] = [
            (c.tick + c.repeats, c.name, c.kind, c.comm, c.peer, c.tag, c.failed) for c in calls
        ]
        places = range(max(after[rank], 4), last[rank])
        for now in cut_of(*places[:: max(1, len(places) // 10)]):
            if latest := [*latest_cut(matching, rank, now, last)]:
                found[f"cut {rank} {now}"] = [*map(max, latest, after)]
    found["messages"] = sorted(
        (m.sender, m.sent, m.receiver, m.comm, m.tag, m.bytes, m.received)
        for m in messages(matching)
        if m.sent > after[m.sender].tick + 1
    )
    found["collectives"] = sorted(
        (each.comm, each.name, sorted(each.entered.items()), str(each.shape), each.root)
        for succession in matching.successions.values()
        for each in map(succession.instance, range(len(succession.roots)))
        if any(tick > after[rank].tick + 1 for rank, tick in each.entered.items())
    )
    return found


def require_the_same(run: Path, count: int = 6) -> int:
    """Drop more and more: the rest reads as before. Returns how often."""
    whole, done = record(run), 0
    for cut in [*cuts(whole, count)]:
        now = record(run)
        kept = keep(now.matching, now.logs, cut)
        if kept is None:
            continue
        beginning.begin_at(run, kept)
        left = record(run)
        for rank, log in left.logs.items():
            first = log.calls[0]
            assert first.kind is Kind.NOTHING or first.tick == cut[rank].tick + 1
        before, after = told(whole, cut), told(left, cut)
        for what in before:
            assert after[what] == before[what], (cut, what)
        done += 1
    return done


class Killed(BaseException):
    pass


@pytest.mark.parametrize("program", ["wildcard", "persistent"])
def test_who_is_killed_while_it_is_given_up_leaves_a_whole_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """It begins as before, or afresh; and the next one does the missing part."""
    job = Layered(tmp_path / "time", program, *PROGRAMS[program])
    job.run()
    whole = record(tmp_path)
    every = [*cuts(whole, 40)]
    steps = begun = 0
    for at, cut in enumerate(every):
        now = record(tmp_path)
        kept = keep(now.matching, now.logs, cut)
        if kept is None:
            continue
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            _killed_before(patch, at)
            beginning.begin_at(tmp_path, kept)
        steps += 1
        found = load(tmp_path / "time")
        begun += found == kept
        begin = found.cut if found else cut_of(*[0] * job.ranks)
        before, after = told(whole, begin), told(record(tmp_path), begin)
        assert {what for what in before if after[what] != before[what]} == set()
        beginning.finish(tmp_path)
        for rank, log in record(tmp_path).logs.items():
            assert log.first == (found.ranks[rank].place if found else 0)
    assert 0 < begun < steps


def _killed_before(patch: pytest.MonkeyPatch, step: int) -> None:
    """Of what it does to files, the so-manieth from 0, and round again."""
    left = step % 10

    def until(does: Callable[..., object]) -> Callable[..., object]:
        def may_be(*arguments: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return does(*arguments)

        return may_be

    patch.setattr(os, "pwrite", until(os.pwrite))
    patch.setattr(Path, "write_bytes", until(Path.write_bytes))
    patch.setattr(Path, "rename", until(Path.rename))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_remaining_record_reads_as_before(tmp_path: Path, program: str) -> None:
    job = Layered(tmp_path / "time", program, *PROGRAMS[program], ranks=RANKS.get(program, 4))
    job.run()
    assert require_the_same(tmp_path) > 1


@pytest.mark.parametrize(
    "mpi",
    [
        pytest.param(mpi, id=mpi.name, marks=pytest.mark.sweep if number else ())
        for number, mpi in enumerate(NEWER)
    ],
)
def test_nor_by_calls_of_newer_mpis(tmp_path: Path, mpi: Mpi) -> None:
    job = Layered(tmp_path / "time", "newer", "--rounds", 6, ranks=4, mpi=mpi)
    job.run()
    assert require_the_same(tmp_path) > 1

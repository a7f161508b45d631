"""when, info timeline, timeline --html: their output and files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fake_history import STOCK, VIEW
from fake_session import FakeSession, as_session

from crdebug.base.errors import BadInput, Refused
from crdebug.base.instant import cut_of
from crdebug.base.ranks import RankSet
from crdebug.charts.pages import save
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.matching import Matching
from crdebug.timeline.page import Picture, page
from crdebug.timeline.text import Place, steps, timeline_text
from crdebug.travel.memory_snapshots import Snapshot, Stock
from crdebug.travel.moment import Moment
from crdebug.ui.render import render
from harness.matcher import library

pytestmark = pytest.mark.unit

REGISTRY = standard()


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


@pytest.fixture
def context(session: FakeSession) -> Context:
    return Context(as_session(session))


async def said(context: Context, line: str) -> list[str]:
    return render(await REGISTRY.run(context, line)).splitlines()


# ---- when --------------------------------------------------------------------------------------


async def test_equal_ranks_are_one_line(context: Context) -> None:
    assert await said(context, "when") == [
        "[0-2] tick 10 of 20",
        "[3] tick 9 of 19, inside the next call",
        "there is no way back yet: no checkpoint ('continue' takes one before it runs, "
        "'checkpoint' takes one now)",
    ]


async def test_only_those_that_were_asked_for(session: FakeSession, context: Context) -> None:
    assert session.history is not None
    session.history.every = 0.0
    assert await said(context, "[1,3] when") == [
        "[1] tick 10 of 20",
        "[3] tick 9 of 19, inside the next call",
        "there is no way back yet: no checkpoint ('checkpoint' takes one)",
    ]


async def test_what_is_near_and_where_history_begins(
    session: FakeSession, context: Context
) -> None:
    assert session.history is not None
    past = session.history
    start, near = Place("a1", cut_of(0, 0, 0, 1)), Place("2", cut_of(16, 17, 16, 16))
    past.view = replace(VIEW, here=VIEW.ends, before=near, earliest=start)
    past.marks = {
        "late": Moment(0, cut_of(*[30] * 4), 20),
        "early": Moment(0, cut_of(*[11] * 4), 20),
    }
    assert await said(context, "when") == [
        "[0-2] tick 20",
        "[3] tick 19, inside the next call",
        "marks: early (in call 6), late (tick 15)",
        "checkpoint before: 2 (tick 8)",
        "history begins at tick 0, checkpoint a1; ticks are those of rank 0",
    ]
    past.last = 1
    told = await said(context, "when")
    assert told[-2:] == [
        "checkpoint before: 2 (in call 9)",
        "history begins at tick 0, checkpoint a1; ticks are those of rank 1",
    ]


@pytest.mark.parametrize(
    "command", ["when", "info timeline", "timeline", "timeline --html x", "info snapshots"]
)
async def test_a_job_that_crdebug_did_not_start_has_no_history(
    session: FakeSession, context: Context, command: str
) -> None:
    session.history = None
    with pytest.raises(Refused, match="not started by crdebug"):
        await said(context, command)


async def test_when_shows_a_mark(session: FakeSession, context: Context) -> None:
    assert await said(context, "[2] mark here") == ["mark here: tick 10 of rank 2"]
    assert "mark: here (tick 10)" in await said(context, "when")


# ---- info snapshots ----------------------------------------------------------------------------


async def test_snapshots_are_a_table_with_their_memory_and_cost(
    session: FakeSession, context: Context
) -> None:
    assert session.history is not None
    here = VIEW.here
    session.history.marks["m1"] = Moment(0, here, 20)
    session.history.snapshots = Stock(
        (
            Snapshot(cut_of(2, 3, 2, 2), 61.26, 12 << 20, True),
            Snapshot(here, 0.04, 0, False),
            Snapshot(cut_of(40, 40, 40, 39), -3.0, None, False),
        ),
        *(40 << 20, 5 << 30, "", 62.0, 1.0, 0.0123, 0.005, 3.25),
    )
    assert await said(context, "info snapshots") == [
        "rank 0 at     taken        memory   way",
        "tick 1        61.3 s ago   12 MiB   copied",
        "tick 10 (m1)  0.0 s ago    0 bytes  frozen",
        "tick 20       3.0 s ahead           frozen",
        "together they hold 40 MiB at most, and may hold 5 GiB",
        "their share of 62.0 s of run: snapshots 1.2%, checkpoints 0.5%",
        "'set snapshot-cost' allows 100%: a snapshot every 3.2 s of run now",
    ]
    assert (await said(context, "[1] info snapshots"))[:2] == [
        "rank 1 at     taken        memory   way",
        "in call 2     61.3 s ago   12 MiB   copied",
    ]


async def test_why_there_are_no_snapshots(session: FakeSession, context: Context) -> None:
    assert session.history is not None
    assert await said(context, "info snapshots") == [
        "there are no snapshots",
        "their share of 0.0 s of run: snapshots 0%, checkpoints 0%",
        "'set snapshot-cost' allows 2%: a snapshot every 2.0 s of run now",
    ]
    none = replace(STOCK, why_not="a rank has ended", budget=0.0)
    session.history.snapshots = none
    assert await said(context, "info snapshots") == [
        "there are no snapshots",
        "the last one could not be taken: a rank has ended",
        "their share of 0.0 s of run: snapshots 0%, checkpoints 0%",
        "none are taken while the job runs ('set snapshot-cost')",
    ]


# ---- info timeline -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["info timeline", "timeline"])
async def test_the_timeline(session: FakeSession, context: Context, command: str) -> None:
    assert session.history is not None
    past = session.history
    past.view = replace(
        VIEW,
        checkpoints=(Place("1", cut_of(10, 10, 10, 10)),),
        automatic=(Place("a2", cut_of(30, 30, 30, 30)), Place("a1", cut_of(0, 0, 0, 0))),
    )
    past.survey.under_way = ["1 waits in MPI_Recv from 0, tag 7 (ring.c:8), since tick 6"]
    lines = await said(context, command)
    bar = lines[0].partition("|")[2].partition("|")[0]
    assert [sign for sign in bar if sign not in "-."] == ["+", "#", "@", "+"]
    assert lines[4:] == [
        "@ here: tick 10 of rank 0",
        "# checkpoint 1: tick 5",
        "+ 2 automatic checkpoints, from a1: tick 0, to a2: tick 15",
        ". recorded, ahead of here",
        "1 waits in MPI_Recv from 0, tag 7 (ring.c:8), since tick 6",
    ]


@pytest.mark.parametrize("ended", [0, 1])
async def test_the_history_can_be_seen_when_the_job_has_ended(
    session: FakeSession, context: Context, ended: int
) -> None:
    session.ended = ended
    for command in ("when", "info timeline", "timeline --html x.html"):
        assert await said(context, command)


def test_unsuccessful_tests_take_no_space() -> None:
    """Rank 1 polls a thousand times while rank 0 makes a call."""
    polling = [
        Call(1, 1, "MPI_Barrier", Kind.COLLECTIVE),
        Call(1, 2, "MPI_Test", Kind.NOTHING, repeats=1000),
        Call(1, 1002, "MPI_Test", Kind.COMPLETE),
    ]
    assert [steps(polling, now) for now in cut_of(0, 1, 2, 3, 4, 1001, 2002, 2003, 2004)] == [
        *(0, 1, 2, 3, 4, 3, 4, 5, 6)
    ]
    assert [steps(polling, now) for now in cut_of(2005, 2006)] == [7, 8], "more than is on record"
    assert [steps((), now) for now in cut_of(*range(5))] == [*range(5)]
    late = [Call(1, tick, "MPI_Barrier", Kind.COLLECTIVE) for tick in (101, 102)]  # of a record
    assert [steps(late, now) for now in cut_of(0, 199, 200, 201, 202, 203, 204)] == [
        0,
        0,
        0,
        *range(1, 5),
    ]
    waiting = [Call(0, tick, "MPI_Send", Kind.SEND) for tick in range(1, 4)]
    lines = timeline_text(
        cut_of(6, 2004), cut_of(4, 2002), logs={0: waiting, 1: polling}
    ).splitlines()
    assert lines[0].partition("|")[2].index("@") == lines[1].partition("|")[2].index("@")
    assert lines[1].endswith("1002 calls")


# ---- timeline --html ---------------------------------------------------------------------------


async def test_a_page_is_asked_for_by_name(
    session: FakeSession, context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert session.history is not None
    monkeypatch.setenv("HOME", str(tmp_path))
    assert await said(context, "timeline --html a page.html") == [
        "the timeline is in a page.html: open it in a browser"
    ]
    await said(context, "timeline --html ~/x.html")
    assert session.history.survey.saved == [Path("a page.html"), tmp_path / "x.html"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("timeline --html", "FILE is missing (usage: timeline --html FILE)"),
        ("timeline x.html", "a file needs --html (to write a page: timeline --html x.html)"),
    ],
)
async def test_an_error_says_which_option_or_place_is_missing(
    context: Context, line: str, sentence: str
) -> None:
    with pytest.raises(BadInput) as caught:
        await said(context, line)
    assert str(caught.value) == sentence


async def test_no_page_of_a_job_that_runs(session: FakeSession, context: Context) -> None:
    session.running = RankSet.of([1])
    with pytest.raises(Refused, match="the job runs"):
        await said(context, "timeline --html x.html")


@pytest.fixture
def html() -> str:
    return page(Picture("title", {0: []}, Matching(library()), cut_of(0)))


def test_a_page_may_be_written_again_and_is_the_owners(tmp_path: Path, html: str) -> None:
    path = tmp_path / "page.html"
    for text in (html, html + "<!-- again -->"):
        save(text, path)
        assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("content", ["", "precious", "<!DOCTYPE html><html></html>", "crdebug"])
def test_what_is_none_is_not_overwritten(tmp_path: Path, html: str, content: str) -> None:
    path = tmp_path / "thesis.html"
    path.write_text(content)
    with pytest.raises(Refused, match=r"exists, and is not one of crdebug's pages \(remove it, or"):
        save(html, path)
    assert path.read_text() == content
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("", Refused, "is not one of crdebug's pages"),
        ("missing/page.html", BadInput, "cannot write .*: No such file or directory"),
        ("file/page.html", BadInput, "cannot write .*: Not a directory"),
        ("x" * 300, BadInput, "cannot write .*: File name too long"),
    ],
)
def test_a_page_that_cannot_be_written_is_an_error(
    tmp_path: Path, html: str, name: str, error: type[Exception], sentence: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(error, match=sentence):
        save(html, tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_failure_on_the_way_leaves_the_old_page(
    tmp_path: Path, html: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.html"
    save(html, path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadInput, match="No space left on device"):
        save(html + "more", path)
    assert path.read_text() == html
    assert [*tmp_path.iterdir()] == [path]

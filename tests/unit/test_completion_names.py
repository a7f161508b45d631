"""Completion: the program's names by way of a GDB, files, and values of settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_session import FakeSession, as_session

from crdebug.base.errors import DeadlineExpired
from crdebug.base.events import RankRunning
from crdebug.base.ranks import RankSet
from crdebug.commands.completion import Names, complete
from crdebug.commands.context import Context
from crdebug.commands.standard import standard

pytestmark = pytest.mark.unit

REGISTRY = standard()


@pytest.fixture
def session() -> FakeSession:
    session = FakeSession()
    session.completions = ("ual", "_max")
    return session


@pytest.fixture
def context(session: FakeSession) -> Context:
    return Context(as_session(session))


NAMES = [
    ("print resid", 0, "print resid", ["residual", "resid_max"]),
    ("p/x resid", 0, "print resid", ["residual", "resid_max"]),
    ("[2-3] print 1 + resid", 2, "print 1 + resid", ["1 + residual", "1 + resid_max"]),
    ("[where x > 1] print resid", 0, "print resid", ["residual", "resid_max"]),
    ("break resid", 0, "break resid", ["residual", "resid_max"]),
    ("tb resid", 0, "break resid", ["residual", "resid_max"]),
    ("[1] gdb info resid", 1, "info resid", ["info residual", "info resid_max"]),
]


@pytest.mark.parametrize(("typed", "rank", "asked", "offered"), NAMES)
async def test_a_stopped_rank_is_asked_for_names(
    session: FakeSession,
    context: Context,
    typed: str,
    rank: int,
    asked: str,
    offered: list[str],
) -> None:
    found = await Names(REGISTRY, context).complete(typed)
    assert [typed[: len(typed) - each.typed] + each.text for each in found] == [
        typed[: typed.rindex(asked.split(" ", 1)[-1] if asked[0] in "pb" else asked)] + each
        for each in offered
    ]
    assert session.asked == [("complete", rank, asked)]


NOBODY = [
    "",
    "pri",
    "print ",
    "print resid ",
    "info ranks",
    "checkpoint resid",
    "[ resid",
    "nosuch x",
]


@pytest.mark.parametrize("typed", NOBODY)
async def test_gdb_is_not_asked_for_names_it_cannot_know(
    session: FakeSession, context: Context, typed: str
) -> None:
    assert await Names(REGISTRY, context).complete(typed) == ()
    assert session.asked == []


async def test_answers_are_kept_until_a_rank_runs(session: FakeSession, context: Context) -> None:
    names = Names(REGISTRY, context)
    for _ in range(2):
        await names.complete("print resid")
    assert len(session.asked) == 1
    session.tell(RankRunning(1))
    await names.complete("print resid")
    assert len(session.asked) == 2


async def test_the_focus_is_asked_unless_all_ranks_have_ended(
    session: FakeSession, context: Context
) -> None:
    context.focus = RankSet.of([3])
    names = Names(REGISTRY, context)
    await names.complete("print resid")
    assert session.asked == [("complete", 3, "print resid")]
    session.ended = 0
    assert await names.complete("print other") == ()


async def test_a_gdb_that_takes_too_long_offers_nothing(
    session: FakeSession, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(rank: int, line: str) -> tuple[str, ...]:
        raise DeadlineExpired("gdb's answer", 1.0)

    monkeypatch.setattr(session, "complete", slow)
    assert await Names(REGISTRY, context).complete("print resid") == ()


def texts(context: Context, typed: str) -> list[str]:
    return [
        typed[: len(typed) - each.typed] + each.text for each in complete(REGISTRY, context, typed)
    ]


def test_files(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("heat.log", "heat.c", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "hold").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert texts(context, "log he") == ["log heat.c", "log heat.log"]
    assert texts(context, f"log {tmp_path}/ho") == [f"log {tmp_path}/hold/"]
    assert texts(context, "log ~/.h") == ["log ~/.hidden"]
    assert texts(context, "log ") == ["log heat.c", "log heat.log", "log hold/"]
    assert texts(context, "log nowhere/x") == []


def test_values_of_settings(context: Context) -> None:
    assert texts(context, "set on-hangup ") == [
        f"set on-hangup {value}" for value in ("hold", "let-go", "kill")
    ]
    assert texts(context, "set pager of") == ["set pager off"]
    assert texts(context, "set limit-stop ") == []

"""focus, define-set, and sets in front of commands: their effect on a line."""

from __future__ import annotations

import pytest
from fake_session import FakeSession, as_session

from crdebug.base.answers import NoRankAnswered
from crdebug.base.errors import BadInput, GdbError
from crdebug.base.events import JobSays
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.ui.render import render
from crdebug.ui.screen import prompt

pytestmark = pytest.mark.unit

REGISTRY = standard()


@pytest.fixture
def session() -> FakeSession:
    session = FakeSession()
    session.values["x"] = ["1", "2", "3", "4"]
    session.values["x > 2"] = ["0", "false", "1", "true"]
    return session


async def play(context: Context, *lines: str) -> list[str]:
    return [render(await REGISTRY.run(context, line)) for line in lines]


async def test_names_states_and_the_focus(session: FakeSession) -> None:
    context = Context(as_session(session))
    said = await play(
        context, "define-set edge 0,3", "define-set big where x > 2", "[all - edge] print x"
    )
    assert said == ["edge: [0,3]", "big: [2-3]", "[1] = 2\n[2] = 3"]
    assert (await play(context, "focus", "focus edge", "print x", "[big - edge] print x")) == [
        "focus: [0-3]",
        "focus: [0,3]",
        "[0] = 1\n[3] = 4",
        "[2] = 3",
    ]
    assert prompt(context.focus) == "(crdebug 0,3) "
    (listed,) = await play(context, "info sets")
    assert [line.split() for line in listed.splitlines()[1:]] == [
        ["all", "4", "[0-3]"],
        ["@stopped", "4", "[0-3]"],
        ["big", "2", "[2-3]"],
        ["edge", "2", "[0,3]"],
    ]
    await play(context, "focus all", "undefine-set big")
    assert (context.focus, prompt(context.focus)) == (None, "(crdebug) ")
    with pytest.raises(BadInput, match="there is no rank set 'big'"):
        await play(context, "[big] print x")


async def test_a_predicate_that_fails_on_some_ranks_tells_gdbs_own_message(
    session: FakeSession,
) -> None:
    told: list[str] = []
    session.subscribe(lambda event: told.append(event.text) if isinstance(event, JobSays) else None)
    bad = GdbError("Cannot access memory at address 0x0", "print *p > 2")
    session.values["*p > 2"] = ["1", bad, "{a = 1}", "0"]
    assert await play(Context(as_session(session)), "[where *p > 2] print x") == ["[0] = 1"]
    assert told == [
        "[1] error, so not in 'where *p > 2': Cannot access memory at address 0x0",
        "[2] error, so not in 'where *p > 2': '*p > 2' is {a = 1}, not a number",
    ]
    with pytest.raises(NoRankAnswered, match='No symbol "nothing" in current context'):
        await play(Context(as_session(session)), "[where nothing] print x")


async def test_a_set_may_be_empty_but_is_not_addressed(session: FakeSession) -> None:
    context = Context(as_session(session))
    assert await play(context, "define-set none @running", "info sets") != []
    for line in ("[none] print x", "focus none", "[where x > 2 - 5] print x"):
        session.values["x > 2 - 5"] = ["0"] * 4
        with pytest.raises(BadInput, match="no rank is in"):
            await play(context, line)


def test_a_long_focus_is_abbreviated() -> None:
    many = FakeSession(size=100).ranks
    assert prompt(many.of(range(0, 100, 2))) == "(crdebug 50 ranks) "

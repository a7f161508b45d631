"""print, compare and their options: how a line shows many answers."""

from __future__ import annotations

import pytest
from fake_session import FakeSession, as_session

from crdebug.base.answers import NoRankAnswered
from crdebug.base.errors import BadInput, GdbError, NotAvailable
from crdebug.commands.arguments import flag, option, parse, rest, word
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.ui.render import render

pytestmark = pytest.mark.unit

REGISTRY = standard()


@pytest.fixture
def session() -> FakeSession:
    session = FakeSession(size=12)
    session.values["x"] = [str(rank) for rank in range(12)]
    session.values["total"] = ["5"] * 7 + ["6"] + ["5"] * 4
    return session


async def said(session: FakeSession, line: str) -> list[str]:
    return render(await REGISTRY.run(Context(as_session(session)), line)).splitlines()


async def test_print_sums_up_and_each_does_not(session: FakeSession) -> None:
    assert await said(session, "print x") == ["[0-11] 12 values, min 0 [0], max 11 [11], mean 5.5"]
    each = [f"[{rank}] = {rank}" for rank in range(12)]
    assert await said(session, "print --each x") == each
    assert await said(session, "print x --each") == each
    assert await said(session, "[0-1] p total") == ["[0-1] = 5"]


async def test_compare_is_of_ranks_unless_branches_are_named(session: FakeSession) -> None:
    assert await said(session, "compare total") == [
        "2 values on 12 ranks: [7] is the odd one out",
        "  [0-6,8-11] = 5",
        "  [7] = 6",
    ]
    assert await said(session, "[0-3] compare total") == ["all 4 ranks agree", "  [0-3] = 5"]
    with pytest.raises(NoRankAnswered, match='No symbol "main" in current context'):
        await said(session, "compare main")  # one word is an expression
    for line in ("compare total main", "compare main nosuch"):
        with pytest.raises(BadInput, match="an expression and two branches are needed"):
            await said(session, line)


async def test_if_an_expression_fails_on_a_rank_the_others_still_answer(
    session: FakeSession,
) -> None:
    session.values["*p"] = ["3", GdbError("Cannot access memory at address 0x0", "print *p")] * 6
    for line in ("print *p", "print --each *p", "compare *p"):
        lines = await said(session, f"[0-2] {line}")
        assert lines[-1].strip() == "[1] error: Cannot access memory at address 0x0"
        assert "3" in "".join(lines[:-1])


async def test_a_line_for_the_shell(
    session: FakeSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    for line in ("shell echo '[0]' $((6 * 7))", "!echo '[0]' $((6 * 7))"):
        assert await said(session, line) == []
        assert capfd.readouterr().out == "[0] 42\n"
    assert await said(session, "! exit 3") == ["the shell's exit status is 3"]
    assert await said(session, "shell kill -TERM $$") == ["the shell's exit status is 143"]
    with pytest.raises(BadInput, match="'shell' takes no rank set"):
        await said(session, "[0] !true")
    monkeypatch.setenv("SHELL", "/nonexistent/sh")
    with pytest.raises(NotAvailable, match="cannot start /nonexistent/sh: No such file"):
        await said(session, "!true")


# ---- flags and options --------------------------------------------------------------------------

EACH, SIZE, FILE = (
    flag("--each", "all"),
    option("--size", "N", "how many", read=int, default=0),
    option("--file", "FILE", "where", read=str, default=""),
)
EXPRESSION = rest("EXPR", "what")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x", (False, 0, "", "x")),
        ("--each x", (True, 0, "", "x")),
        ("x --each", (True, 0, "", "x")),
        ("--size 3 x --file a.png", (False, 3, "a.png", "x")),
        ("--size 3 --each x --file a.png", (True, 3, "a.png", "x")),
        ('x  --file "my file.png"  --each ', (True, 0, "my file.png", "x")),
        ("--i", (False, 0, "", "--i")),  # C's own
        ("a --each b", (False, 0, "", "a --each b")),
        ("--eachx", (False, 0, "", "--eachx")),
        ("x--each", (False, 0, "", "x--each")),
    ],
)
def test_options_may_come_first_or_last(text: str, values: tuple[object, ...]) -> None:
    arguments = (EACH, SIZE, FILE, EXPRESSION)
    found = parse(arguments, "usage", "", text)
    assert tuple(found[argument] for argument in arguments) == values


@pytest.mark.parametrize("text", ["x --size", "--size --each x", "--size"])
def test_an_option_without_its_value(text: str) -> None:
    with pytest.raises(BadInput, match="N is missing after --size"):
        parse((EACH, SIZE, EXPRESSION), "usage", "", text)


def test_options_after_a_word() -> None:
    name = word("NAME", "which", default="")
    assert parse((SIZE, name), "usage", "", "a --size 4") == {SIZE: 4, name: "a"}
    assert parse((SIZE, name), "usage", "", "--size 4") == {SIZE: 4, name: ""}

"""What derives from the declarations: help, completion, the manual."""

from __future__ import annotations

import difflib
import re

import pytest
from fake_session import FakeSession, as_session

from crdebug.base.errors import BadInput
from crdebug.commands.completion import complete
from crdebug.commands.context import Context
from crdebug.commands.docs import PAGE, markdown
from crdebug.commands.results import Text
from crdebug.commands.standard import standard

pytestmark = pytest.mark.unit

REGISTRY = standard()
SUBJECTS = [
    each.name.removeprefix("info ") for each in REGISTRY.commands if each.name.startswith("info ")
]


async def text_of(line: str) -> str:
    result = await REGISTRY.run(Context(as_session(FakeSession())), line)
    assert isinstance(result, Text)
    return result.text


def test_the_manual_agrees_with_the_declarations() -> None:
    found = PAGE.read_text(encoding="utf-8").splitlines()
    wanted = markdown(REGISTRY).splitlines()
    diff = "\n".join(difflib.unified_diff(found, wanted, str(PAGE), "declarations", lineterm=""))
    assert not diff, f"run python -m crdebug.commands.docs\n{diff}"


async def test_help_lists_every_command_with_its_summary() -> None:
    text = await text_of("help")
    for command in REGISTRY.commands:
        assert re.search(rf"^  {command.name} +{re.escape(command.summary)}$", text, re.MULTILINE)


async def test_help_for_a_group_a_family_and_a_command() -> None:
    assert (await text_of("help breakpoints")).startswith("Breakpoints (breakpoints):\n  break ")
    assert "info threads" in await text_of("help info")
    text = await text_of("help p")
    assert "Usage: [RANKS] print[/f] [--each] EXPR\nAlso: p, inspect\n" in text
    assert re.search("EXPR +an expression", text)
    with pytest.raises(BadInput, match="there is no command 'nosuch'"):
        await text_of("help nosuch")


def test_every_command_is_worth_reading_about() -> None:
    for command in REGISTRY.commands:
        assert command.summary.endswith("."), command.name
        assert len(command.summary) < 80, command.name
        for argument in command.arguments:
            assert argument.help, command.name


# ---- completion -------------------------------------------------------------------------------


@pytest.fixture
async def context() -> Context:
    context = Context(as_session(FakeSession()))
    for line in ("break relax", "break main", "checkpoint", "define-set edge 0,3"):
        await REGISTRY.run(context, line)
    return context


@pytest.mark.parametrize(
    ("before", "texts"),
    [
        ("con", ["condition", "continue"]),
        ("de", ["define-set", "delete", "detach"]),
        ("[e", ["edge"]),
        ("[edge & @r", ["@running"]),
        ("[all - (", []),
        ("focus wh", ["where"]),
        ("undefine-set ", ["edge"]),
        ("[where a[0] > 1] conti", ["continue"]),
        ("info br", ["breakpoints", "branches"]),
        ("i ", SUBJECTS),
        ("[0-1] c", ["call", "catch", "check", "compare", "continue"]),
        ("[0-1] info t", ["threads", "table", "types", "trace"]),
        ("[0-1] qu", []),
        ("delete ", ["1", "2"]),
        ("d 1", ["1"]),
        ("restart ", ["1"]),
        ("continue --", ["--to-end"]),
        ("print --", ["--each"]),
        ("help check", ["checkpoints", "checkpoint", "check"]),
        ("print x", []),
        ("nosuch ", []),
        ("info nosuch more", []),
    ],
)
def test_completion(context: Context, before: str, texts: list[str]) -> None:
    assert [each.text for each in complete(REGISTRY, context, before)] == texts


def test_completion_replaces_the_typed_word(context: Context) -> None:
    (candidate,) = complete(REGISTRY, context, "[2] adv")
    assert (candidate.text, candidate.typed) == ("advance", 3)


async def test_apropos_finds_commands_by_any_word_of_their_help() -> None:
    registry, context = standard(), Context(as_session(FakeSession()))

    async def found(line: str) -> list[str]:
        result = await registry.run(context, line)
        assert isinstance(result, Text)
        return [
            name
            for name in (each.name for each in registry.commands)
            if re.search(rf"^  {re.escape(name)} ", result.text, re.M)
        ]

    assert await found("apropos STOP-MODE") == ["continue", "wait", "break", "tbreak", "set"]
    assert await found("apropos run the ranks until a loc") == ["advance"]
    for command in registry.commands:
        assert command.name in await found(f"apropos {command.summary}")
    with pytest.raises(BadInput, match="no command's help has 'no such word' in it"):
        await registry.run(context, "apropos no such word")

"""Scripts: which lines are run, and the text of an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_session import FakeSession, as_session

from crdebug.base.errors import BadInput
from crdebug.commands.context import Context
from crdebug.commands.results import Left, Result
from crdebug.commands.script import ScriptFailed, ScriptLine, play, read_script
from crdebug.commands.standard import standard

pytestmark = pytest.mark.unit

SCRIPT = """\
# a comment
echo --- one

  break relax
    # another
continue
print "# not a comment"
"""


def write(directory: Path, text: str) -> str:
    file = directory / "heat.crdebug"
    file.write_text(text)
    return str(file)


async def run(lines: tuple[ScriptLine, ...]) -> tuple[list[str], list[Result]]:
    registry, context = standard(), Context(as_session(FakeSession()))
    shown: list[str] = []
    got: list[Result] = []
    await play(
        lines,
        lambda line, block: registry.run(context, line, block),
        registry,
        shown.append,
        got.append,
    )
    return shown, got


def test_comments_and_blank_lines_are_skipped_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    lines = read_script(write(tmp_path, SCRIPT))
    assert [(line.number, line.text) for line in lines] == [
        (2, "echo --- one"),
        (4, "break relax"),
        (6, "continue"),
        (7, 'print "# not a comment"'),
    ]


async def test_lines_are_shown_before_their_results_but_echo_speaks_for_itself(
    tmp_path: Path,
) -> None:
    shown, got = await run(read_script(write(tmp_path, "echo hello\nbreak relax\n")))
    assert shown == ["break relax"]
    assert len(got) == 2


@pytest.mark.parametrize("bad", ["frobnicate", "print nosuch", "[9] bt", "delete 7", "restart"])
async def test_the_first_error_ends_it_and_says_where(tmp_path: Path, bad: str) -> None:
    file = write(tmp_path, f"# one\nbt\n{bad}\necho never\n")
    with pytest.raises(ScriptFailed) as caught:
        await run(read_script(file))
    assert str(caught.value).startswith(f"{file}:3: ")
    assert str(caught.value).endswith(f"{caught.value.cause}; line 4 was not run")
    assert caught.value.line == 3


async def test_the_error_names_the_lines_that_were_not_run(tmp_path: Path) -> None:
    lines = read_script(write(tmp_path, "frob\n# two\n\nbt\nbt\nbreak relax\n"))
    after = (ScriptLine("next", 1, "bt"), ScriptLine("last", 2, "bt"), ScriptLine("last", 4, "bt"))
    with pytest.raises(ScriptFailed) as caught:
        await run((*lines, *after))
    assert str(caught.value).endswith("; lines 4-6, line 1 of next, lines 2-4 of last were not run")
    with pytest.raises(ScriptFailed) as caught:
        await run(lines[:1])
    assert "not run" not in str(caught.value)


async def test_the_lines_of_a_command_that_failed_are_part_of_it(tmp_path: Path) -> None:
    file = write(tmp_path, "commands 9\nbt\nend\nbt\n")
    with pytest.raises(ScriptFailed, match=r":1: .*; line 4 was not run$"):
        await run(read_script(file))
    file = write(tmp_path, "commands 9\nbt\nbt\n")
    with pytest.raises(ScriptFailed, match=r":1: 'end' is missing.*; lines 2-3 were not run$"):
        await run(read_script(file))


async def test_an_error_in_a_script_that_a_script_plays(tmp_path: Path) -> None:
    inner = write(tmp_path, "frob\nbt\n")
    lines = (ScriptLine("outer", 1, f"source {inner}"), ScriptLine("outer", 2, "bt"))
    with pytest.raises(ScriptFailed) as caught:
        await run(lines)
    assert str(caught.value).startswith(f"outer:1: {inner}:1: there is no command 'frob'")
    assert str(caught.value).endswith("; line 2 was not run; line 2 of outer was not run")


async def test_nothing_is_run_after_the_session_was_left(tmp_path: Path) -> None:
    _, got = await run(read_script(write(tmp_path, "quit\nfrobnicate\n")))
    assert got == [Left("heat", detached=False)]


def test_a_script_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nosuch cannot be read: No such file"):
        read_script(str(tmp_path / "nosuch"))
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        read_script(str(tmp_path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        read_script(str(tmp_path / "binary"))

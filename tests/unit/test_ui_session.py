"""The console: scripts in scripts, transcripts, long lines and answers, the toolbar."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from fake_session import FakeSession, a_checkpoint, as_session
from test_ui_console import CTRL_D, ENTER, INTRODUCTION, desk, home, script

from crdebug.base.events import RankRunning
from crdebug.commands.results import Text
from crdebug.debugger.group import RankInfo
from crdebug.ui.conversation import Plan
from crdebug.ui.screen import Screen
from crdebug.ui.toolbar import Toolbar

pytestmark = pytest.mark.unit

__all__ = ["home"]
END = CTRL_D * 2


# ---- source ------------------------------------------------------------------------------------


async def test_a_sourced_file_is_shown_and_run_line_by_line(tmp_path: Path) -> None:
    async with desk() as user:
        file = script(tmp_path, "# look\nbreak relax\necho a \\\n  b\n")
        shown = await user.talk(typed=f"source {file}{ENTER}{END}")
        assert shown[len(INTRODUCTION) :] == [
            "(crdebug) break relax",
            "breakpoint 1 on [0-3]: relax at heat.c:41",
            "a b",
        ]


async def test_an_error_in_a_file_that_a_file_sources_names_both_lines(tmp_path: Path) -> None:
    async with desk() as user:
        (tmp_path / "inner").write_text("bt\nfrobnicate\necho never\n")
        outer = script(tmp_path, f"source {tmp_path}/inner\necho never\n")
        shown = await user.talk(Plan([outer], batch=True, owns_job=False))
        assert user.status == 1
        where = f"{outer}:1: {tmp_path}/inner:2: there is no command 'frobnicate'"
        assert user.err.getvalue().startswith(where)
        assert "never" not in shown


async def test_a_file_that_sources_itself_is_refused(tmp_path: Path) -> None:
    async with desk() as user:
        file = script(tmp_path, "")
        script(tmp_path, f"source {file}\n")
        await user.talk(typed=f"source {file}{ENTER}source nosuch{ENTER}{END}")
        first, second = user.err.getvalue().splitlines()
        assert f"script {file} is already running" in first
        assert second == "script nosuch cannot be read: No such file or directory"


# ---- transcripts, and lines that go on ----------------------------------------------------------


async def test_the_transcript_has_the_input_and_the_output(tmp_path: Path) -> None:
    async with desk() as user:
        user.session.values["x + 1"] = ["5"] * 4
        lines = [f"log {tmp_path}/log", "print x \\", "+ 1", "nosuch", "log", "log off", "echo b"]
        shown = await user.talk(typed="".join(f"{line}{ENTER}" for line in lines) + END)
        assert "[0-3] = 5" in shown
        assert f"the transcript goes to {tmp_path}/log" in shown
        assert "no transcript is kept" in shown
    kept = (tmp_path / "log").read_text().splitlines()
    assert kept[:5] == [
        f"the transcript goes to {tmp_path}/log",
        "(crdebug) print x \\",
        "> + 1",
        "[0-3] = 5",
        "(crdebug) nosuch",
    ]
    assert kept[5].startswith("there is no command 'nosuch'")
    assert kept[-1] == "(crdebug) log off"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


async def test_a_transcript_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    async with desk() as user:
        await user.talk(typed=f"log {tmp_path}{ENTER}{END}")
        assert user.err.getvalue() == f"{tmp_path} cannot be written: Is a directory\n"


def test_a_transcript_has_no_escapes(tmp_path: Path) -> None:
    screen = Screen(terminal=True)
    screen.transcript.begin(tmp_path / "log")
    screen.error(ValueError("x"))
    screen.transcript.end()
    assert "\x1b" not in (tmp_path / "log").read_text()


# ---- long answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "terminal", "paged", "expected"),
    [
        (9, True, True, False),
        (10, True, True, True),
        (10, True, False, False),
        (10, False, True, False),
    ],
)
async def test_only_output_longer_than_the_terminal_is_paged(
    lines: int,
    terminal: bool,
    paged: bool,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "80")
    pages: list[str] = []

    def pager(text: str, color: bool) -> None:
        pages.append(text)

    monkeypatch.setattr(click, "echo_via_pager", pager)
    text = "\n".join("x" * lines)
    await Screen(terminal=terminal).answer(Text(text), paged=paged)
    assert pages == ([f"{text}\n"] if expected else [])
    assert capsys.readouterr().out == ("" if expected else f"{text}\n")


# ---- the toolbar ---------------------------------------------------------------------------------


def counted(session: FakeSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    asked: list[int] = []
    before = session.info_ranks

    def info_ranks() -> tuple[RankInfo, ...]:
        asked.append(1)
        return before()

    monkeypatch.setattr(session, "info_ranks", info_ranks)
    return lambda: len(asked)


def test_the_toolbar_tells_where_everything_is() -> None:
    session = FakeSession()
    toolbar = Toolbar(as_session(session))
    assert toolbar() == " job heat | [0-3] stopped | rank 0 at tick 10 "
    session._checkpoints += [a_checkpoint(1), a_checkpoint(2)]
    session.incarnation = 2
    toolbar.refresh()
    told = toolbar()
    assert " | incarnation 2 | " in told and told.endswith(" | 2 checkpoints: 24.7 MB ")
    session.end(3)
    assert " | ended with status 3 | " in toolbar()


def test_keys_cost_nothing_but_events_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    session = FakeSession()
    asked = counted(session, monkeypatch)
    toolbar = Toolbar(as_session(session))
    for _ in range(100):
        toolbar()
    assert asked() == 1
    session.tell(RankRunning(0))
    toolbar()
    assert asked() == 2


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in Screen(terminal=True)._coloured("x", "red")
    assert Screen(terminal=False)._coloured("x", "red") == "x"
    monkeypatch.setitem(os.environ, "NO_COLOR", "1")
    assert Screen(terminal=True)._coloured("x", "red") == "x"

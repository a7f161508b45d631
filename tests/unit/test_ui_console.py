"""The conversation: prompt, Ctrl-C, Ctrl-D, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_session import FakeSession, as_session, together
from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from crdebug.base.events import Event, JobEnded, StopReason
from crdebug.commands.context import Context, agree
from crdebug.commands.registry import Registry
from crdebug.commands.results import Nothing
from crdebug.detached import jobs
from crdebug.session import Session
from crdebug.ui import console
from crdebug.ui.conversation import Plan, TerminalGone, converse
from crdebug.ui.screen import Screen

pytestmark = pytest.mark.unit

CTRL_C, CTRL_D, ENTER, TAB = "\x03", "\x04", "\r", "\t"


@dataclass
class Desk:
    """A user at a terminal, with a session."""

    keys: PipeInput
    session: FakeSession = field(default_factory=FakeSession)
    out: io.StringIO = field(default_factory=io.StringIO)
    err: io.StringIO = field(default_factory=io.StringIO)
    prompt: console.Prompt | None = None
    status: int | None = None

    async def talk(self, plan: Plan | None = None, typed: str = "") -> list[str]:
        """Everything up to the end; the output, by lines."""
        self.keys.send_text(typed)
        screen = Screen(terminal=False, out=lambda: self.out, err=lambda: self.err)
        self.status = await converse(self.begin, plan or Plan(), screen, self.open)
        return self.out.getvalue().splitlines()

    async def begin(self, subscriber: Callable[[Event], None]) -> Session:
        self.session.subscribe(subscriber)
        return as_session(self.session)

    def open(self, registry: Registry, context: Context) -> console.Prompt:
        self.prompt = console.Prompt(registry, context, patched=False)
        return self.prompt


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRDEBUG_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield Desk(keys)


INTRODUCTION = ["job heat: ranks 0-3", "  [0-3] relax at heat.c:41"]


async def test_lines_are_run_and_ctrl_d_ends_after_a_question() -> None:
    async with desk() as user:
        user.session.values["x"] = ["5"] * 4
        shown = await user.talk(typed=f"print x{ENTER}{CTRL_D}y{ENTER}")
        assert shown == [*INTRODUCTION, "[0-3] = 5"]
        assert user.session.closed


async def test_a_no_stays_and_an_odd_answer_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[str] = []
    read = console.Prompt._read

    async def noted(session: PromptSession[str], prompt: str) -> str | None:
        prompts.append(prompt)
        return await read(session, prompt)

    monkeypatch.setattr(console.Prompt, "_read", staticmethod(noted))
    async with desk() as user:
        shown = await user.talk(
            typed=f"quit{ENTER}maybe{ENTER}n{ENTER}echo here{ENTER}q{ENTER}y{ENTER}"
        )
        assert shown == [*INTRODUCTION, "here"]
    _, question, again, *_ = prompts
    assert question.endswith("Quit anyway? (y or n) ")
    assert again == f"'maybe' is not an answer: type y for yes, n for no (Ctrl-C is no)\n{question}"


async def test_ctrl_c_clears_the_line() -> None:
    async with desk() as user:
        shown = await user.talk(typed=f"frobnicate{CTRL_C}echo here{ENTER}{CTRL_D}{CTRL_D}")
        assert shown == [*INTRODUCTION, "here"]
        assert user.err.getvalue() == ""


async def test_errors_are_shown_and_the_console_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as user:

        async def broken(*args: object) -> None:
            raise KeyError("x")

        monkeypatch.setattr(user.session, "backtrace", broken)
        shown = await user.talk(typed=f"frob{ENTER}bt{ENTER}echo here{ENTER}q{ENTER}y{ENTER}")
        assert shown[-1] == "here"
        first, second, *trace = user.err.getvalue().splitlines()
        assert first.startswith("there is no command 'frob'")
        assert second == "this is a bug in crdebug, please report it: KeyError: 'x'"
        assert trace[0].startswith("Traceback")


async def test_an_empty_line_steps_again_and_tab_completes() -> None:
    async with desk() as user:
        await user.talk(typed=f"cont{TAB}{ENTER}{ENTER}{CTRL_D}{CTRL_D}")
        assert user.session.asked == [("run on", "0-3")] * 2


async def test_history_is_kept_between_sessions_for_its_owner_only(home: Path) -> None:
    async with desk() as user:
        await user.talk(typed=f"echo one{ENTER}{CTRL_D}{CTRL_D}")
    assert (home / "history").stat().st_mode & 0o777 == 0o600
    async with desk() as user:
        await user.talk(typed=f"echo two{ENTER}{CTRL_D}{CTRL_D}")
        assert user.prompt is not None
        history = user.prompt._lines.history
        assert list(history.load_history_strings()) == ["echo two", "echo one"]


async def test_without_a_place_for_history_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CRDEBUG_HOME", str(tmp_path / "file" / "state"))
    async with desk() as user:
        assert "here" in await user.talk(typed=f"echo here{ENTER}{CTRL_D}{CTRL_D}")


# ---- Ctrl-C while the job runs ----------------------------------------------------------------


async def test_ctrl_c_interrupts_the_job_and_the_console_stays() -> None:
    async with desk() as user:
        user.session.hold.clear()
        user.session.coming.append(together(StopReason.INTERRUPT))
        talking = asyncio.create_task(user.talk(typed=f"continue{ENTER}"))
        await user.session.started.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await user.session.hold.wait()
        user.keys.send_text(f"echo here{ENTER}{CTRL_D}{CTRL_D}")
        assert (await talking)[len(INTRODUCTION) :] == [
            "ranks 0-3 were interrupted: relax at heat.c:41",
            "here",
        ]


async def test_the_third_ctrl_c_gives_up_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as user:
        user.session.hold.clear()
        asked: list[int] = []
        reached = asyncio.Event()

        async def deaf() -> None:
            asked.append(1)
            reached.set()

        monkeypatch.setattr(user.session, "interrupt", deaf)
        talking = asyncio.create_task(user.talk(typed=f"continue{ENTER}"))
        await user.session.started.wait()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            await reached.wait()
            reached.clear()
        os.kill(os.getpid(), signal.SIGINT)
        user.keys.send_text(f"echo here{ENTER}{CTRL_D}{CTRL_D}")
        assert (await talking)[-1] == "here"
        assert len(asked) == 2
        assert user.err.getvalue().startswith("gave up waiting for 'continue' (")


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
async def test_a_signal_at_the_prompt_clears_the_line(
    terminal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", terminal)
    async with desk() as user:
        talking = asyncio.create_task(user.talk(typed="frob"))
        while user.prompt is None or user.prompt._lines.default_buffer.text != "frob":
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        while user.prompt._lines.default_buffer.text:
            await asyncio.sleep(0)
        user.keys.send_text(f"echo here{ENTER}{CTRL_D}{CTRL_D}")
        assert (await talking)[-1] == "here"
        assert user.err.getvalue() == ""


async def test_sigint_is_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    async with desk() as user:
        await user.talk(typed=CTRL_D * 2)
    assert signal.getsignal(signal.SIGINT) is before


# ---- scripts and ends -------------------------------------------------------------------------


def script(directory: Path, text: str) -> str:
    (directory / "heat.crdebug").write_text(text)
    return str(directory / "heat.crdebug")


async def test_batch_shows_lines_and_kills_the_job_it_started(tmp_path: Path) -> None:
    async with desk() as user:
        file = script(tmp_path, "echo --- one\nbreak relax\ncontinue\n")
        assert await user.talk(Plan([file], batch=True)) == [
            *INTRODUCTION,
            "--- one",
            "(crdebug) break relax",
            "breakpoint 1 on [0-3]: relax at heat.c:41",
            "(crdebug) continue",
            "ranks 0-3 hit breakpoint 1: relax at heat.c:41",
            "the session is over: job heat is killed",
        ]
        assert user.session.closed


async def test_batch_detaches_from_the_job_it_attached_to(tmp_path: Path) -> None:
    async with desk() as user:
        plan = Plan([script(tmp_path, "bt\n")], batch=True, owns_job=False)
        shown = await user.talk(plan)
        assert shown[-1] == "job heat runs on; 'crdebug attach heat' comes back to it"
        assert user.session.asked[-1] == ("detach",)
        assert user.session.closed


async def test_batch_ends_at_the_first_error_and_a_changed_job_with_it(tmp_path: Path) -> None:
    async with desk() as user:
        file = script(tmp_path, "gdb set var x = 1\nprint nosuch\necho never\n")
        shown = await user.talk(Plan([file], batch=True))
        assert user.status == 1
        assert user.err.getvalue() == (
            f'{file}:2: ranks 0-3: No symbol "nosuch" in current context. '
            "('backtrace' shows where ranks are, 'info locals' the variables there); "
            "line 3 was not run\n"
        )
        assert shown[-1] == "the session is over: job heat is killed"
        assert user.session.closed
        assert "never" not in user.out.getvalue()


async def test_ctrl_c_ends_the_script_too(tmp_path: Path) -> None:
    async with desk() as user:
        user.session.hold.clear()
        user.session.coming.append(together(StopReason.INTERRUPT))
        file = script(tmp_path, "continue\necho never\n")
        talking = asyncio.create_task(user.talk(Plan([file], batch=True)))
        await user.session.started.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await talking
        assert (user.status, user.err.getvalue()) == (
            1,
            f"{file}:1: interrupted; line 2 was not run\n",
        )
        assert "were interrupted" in user.out.getvalue()


async def test_the_console_opens_after_a_script_even_one_that_failed(tmp_path: Path) -> None:
    async with desk() as user:
        plan = Plan([script(tmp_path, "frobnicate\necho never\n")])
        shown = await user.talk(plan, typed=f"echo here{ENTER}{CTRL_D}{CTRL_D}")
        assert "here" in shown and "never" not in shown
        assert user.status == 0
        assert "heat.crdebug:1: there is no command" in user.err.getvalue()


async def test_a_script_that_leaves_opens_no_console(tmp_path: Path) -> None:
    async with desk() as user:
        await user.talk(Plan([script(tmp_path, "detach\n")]))
        assert user.prompt is None
        assert user.session.asked == [("detach",)]


@pytest.mark.parametrize("told", [True, False])
async def test_a_job_that_ends_during_the_detach_does_not_run_on(
    told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """told: the session knew it before it closed; otherwise the end is still to be shown."""
    followed: list[str] = []
    async with desk() as user:

        async def detach(*, hold: bool = False) -> None:
            user.session.ended = 0

        async def follow(
            job: str, subscriber: Callable[[Event], None], *, told_before: dict[Path, int]
        ) -> int:
            followed.append(job)
            subscriber(JobEnded(0))
            return 0

        monkeypatch.setattr(user.session, "detach", detach)
        monkeypatch.setattr(user.session, "end_told", told)
        monkeypatch.setattr(jobs, "follow", follow)
        monkeypatch.setattr(jobs, "followed", lambda job: contextlib.nullcontext())
        file = script(tmp_path, "frobnicate\n")
        shown = await user.talk(Plan([file], batch=True))
        assert not any("runs on" in line for line in shown)
        assert shown.count("the job ended with status 0") == len(followed) == (not told)
        assert user.session.closed


async def test_the_session_is_closed_when_the_detach_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk() as user:

        async def refuse(*, hold: bool) -> None:
            from crdebug.base.errors import Refused

            raise Refused("no")

        monkeypatch.setattr(user.session, "detach", refuse)
        await user.talk(Plan([script(tmp_path, "bt\n")], batch=True, owns_job=False))
        assert user.err.getvalue() == "no\n"
        assert user.session.closed


HANGUP = [
    ("hold", [("detach", "held")], "job heat is held; 'crdebug attach heat' comes back to it"),
    ("let-go", [("detach",)], "job heat runs on; 'crdebug attach heat' comes back to it"),
    ("kill", [], "the session is over: job heat is killed"),
]


@pytest.mark.parametrize(("choice", "asked", "said"), HANGUP)
@pytest.mark.parametrize("how", ["signal", "terminal", "question"])
@pytest.mark.parametrize("owns_job", [True, False])
async def test_when_the_terminal_dies_the_setting_decides(
    choice: str, asked: list[tuple[str, ...]], said: str, how: str, owns_job: bool
) -> None:
    """SIGHUP announces it, or the next attempt to read a line or an answer."""
    async with desk() as user:
        lines = [f"set on-hangup {choice}"]

        class Terminal:
            waits = True

            async def line(self, prompt: str) -> str:
                if lines:
                    return lines.pop()
                if how == "signal":
                    told.append(signal.SIGHUP)
                    raise asyncio.CancelledError
                if how == "question":
                    return "kill"
                raise TerminalGone

            async def confirm(self, question: str) -> bool:
                raise TerminalGone

            def clear(self) -> None: ...

        told: list[int] = []
        screen = Screen(terminal=False, out=lambda: user.out, err=lambda: user.err)
        plan = Plan(owns_job=owns_job)
        talking = converse(user.begin, plan, screen, lambda registry, context: Terminal(), told)
        try:
            assert await talking == 128 + signal.SIGHUP
        except asyncio.CancelledError:
            assert how == "signal"
        assert user.session.asked == asked
        assert user.session.closed
        assert user.out.getvalue().splitlines()[-1].startswith(said)
        assert user.err.getvalue() == ""


@pytest.mark.parametrize("waits", [True, False])
async def test_a_line_is_run_once_the_session_has_made_use_of_the_time(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the time that a person takes: lines that come from a file are not kept waiting."""
    async with desk() as user:
        typed, asked = asyncio.Event(), user.session.asked

        class Source:
            confirm = staticmethod(agree)

            def __init__(self) -> None:
                self.waits = waits

            async def line(self, prompt: str) -> str:
                if typed.is_set():
                    raise EOFError
                await asyncio.sleep(0)  # whatever else there is begins
                typed.set()
                return "finish"

            def clear(self) -> None: ...

        async def rest() -> None:
            await typed.wait()
            await asyncio.sleep(0)
            asked.append(("rest",))
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(user.session, "rest", rest)
        screen = Screen(terminal=False, out=lambda: user.out, err=lambda: user.err)
        await converse(user.begin, Plan(), screen, lambda registry, context: Source())
        assert [each[0] for each in asked][:2] == (["rest", "finish"] if waits else ["finish"])
        assert ("a fault of ours" in user.err.getvalue()) is waits


async def test_a_dead_terminal_is_distinguished_from_the_end_of_input() -> None:
    master, slave = os.openpty()
    with os.fdopen(slave) as terminal:
        assert not console.is_gone(terminal)
        os.close(master)
        assert console.is_gone(terminal)
    assert not console.is_gone(io.StringIO())


def test_nothing_has_no_text() -> None:
    from crdebug.ui.render import render

    assert render(Nothing()) == ""

"""A newcomer's session at a real terminal: keys go in, and we read the terminal's output."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest
from pexpect import fdpexpect

from crdebug.detached import jobs
from crdebug.job.directory import all_jobs
from harness import looks, mpirun
from harness.cli import argv
from harness.jobs import JOB
from harness.programs import build

# Python 3.12 and later warn of any fork in a process that has threads; pexpect runs a program.
pytestmark = pytest.mark.filterwarnings("default:.*forkpty:DeprecationWarning")

RANKS = 2
CTRL_C, CTRL_D, CTRL_R, TAB, UP = "\x03", "\x04", "\x12", "\t", "\x1b[A"
# What a prompt begins with: a terminal that can do more is first asked to bracket what is pasted,
# and only then, so that the line that is drawn again while it is typed is not taken for a new one.
PROMPTS = {"xterm": r"\x1b\[\?2004h[^\n]*?\(crdebug\)", "dumb": r"\(crdebug\) "}
QUESTION = r"Quit anyway\? \(y or n\)"
ESCAPES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")
PROGRESS = re.compile(r"(checkpoint|restart): [a-z]")
SECONDS = 60
# COLUMNS and LINES are those of the process that started it; pytest's workers inherit 80 and 24.
ENVIRONMENT = {"PROMPT_TOOLKIT_NO_CPR": "1", "PAGER": "more", "COLUMNS": "200", "LINES": "100"}


class Terminal:
    """crdebug at a pseudo-terminal. shown: all of its output."""

    def __init__(self, kind: str, child: pexpect.spawn[str] | fdpexpect.fdspawn[str]) -> None:
        self._prompt = PROMPTS[kind]
        self._child = child
        self.shown = ""

    def until(self, pattern: str) -> str:
        """Wait for it; returns what was shown before, and with it, as text."""
        self._child.expect(pattern)
        new = f"{self._child.before}{self._child.after}"
        self.shown += new
        return ESCAPES.sub("", new)

    def prompt(self) -> str:
        return self.until(self._prompt)

    def type(self, keys: str) -> None:
        self._child.send(keys)

    def ask(self, line: str) -> list[str]:
        """Enter a line; returns the lines of the answer, without progress."""
        self.type(f"{line}\r")
        _, *answer, _ = self.prompt().split("\n")
        told = (text.strip("\r") for text in answer if text.strip())
        # What is typed before a dumb prompt listens is shown by the terminal itself, too.
        told = (text for text in told if text.removeprefix("(crdebug) ") != line)
        return [text for text in told if not PROGRESS.search(text)]

    def resize(self, rows: int, columns: int) -> None:
        assert isinstance(self._child, pexpect.spawn)
        self._child.setwinsize(rows, columns)

    def end(self) -> int | None:
        """Wait until crdebug has ended; returns its status."""
        self._child.expect(pexpect.EOF)
        self.shown += str(self._child.before)
        self._child.close()
        return self._child.exitstatus


@contextmanager
def terminal(kind: str, command: Sequence[str]) -> Iterator[Terminal]:
    environment = mpirun.environment(ENVIRONMENT | {"TERM": kind})
    program, *arguments = argv("run", "--name", JOB, "--", *command)
    child = pexpect.spawn(
        program,
        arguments,
        env=environment,
        encoding="utf-8",
        timeout=SECONDS,
        dimensions=(40, 100),
    )
    try:
        yield Terminal(kind, child)
    finally:
        if child.isalive():
            child.kill(signal.SIGTERM)
            child.expect(pexpect.EOF)
        child.close()


def run_some_steps() -> None:
    asyncio.run(looks.reach(max(looks.steps()) + 5))


@pytest.mark.parametrize("kind", PROMPTS)
def test_a_newcomers_session(kind: str, tmp_path: Path) -> None:
    log = tmp_path / "transcript"
    log.touch()
    program = build("threads")
    command = mpirun.command(program, "--steps", 10**9, "--delay-us", 1000, ranks=RANKS)
    with terminal(kind, command) as user:
        started = user.prompt()
        assert f"job {JOB}: ranks 0-1" in started
        assert re.search(r"  \[0-1\] main at .*threads\.c:\d+\r\n  \d+\tint main\(", started)

        # Look around.
        (told,) = user.ask("break work_step")
        assert told.startswith("breakpoint 1 on [0-1]: work_step at ")
        where, source, *_ = user.ask("continue")
        assert "hit breakpoint 1: work_step at " in where
        assert re.fullmatch(r"\d+\t.*static void work_step\(void\) \{", source)
        (hit,) = re.findall(r"^ranks? (\d).* hit ", where)  # the other one may be on its way
        assert user.ask(f"[{hit}] print 'threads.c'::step") == [f"[{hit}] = 1"]
        ranks, *frames = user.ask(f"[{hit}] backtrace")
        assert ranks == f"[{hit}]"
        assert [frame.split()[:2] for frame in frames] == [["#0", "work_step"], ["#1", "main"]]
        (error,) = user.ask("[7] print 1")
        assert "7" in error and "0-1" in error
        assert user.ask("delete 1") == []

        # What was typed before is found again, by a part of it and by its beginning.
        if kind != "dumb":
            for line in ("echo some words", "echo others"):
                user.ask(line)
            for keys in (f"{CTRL_R}me wo\r\r", f"echo s{UP}\r"):
                user.type(keys)
                assert re.search(r"^some words", user.prompt(), re.M), keys

        # Ctrl-C stops a job that runs; at the prompt it clears the line.
        user.type("continue\r")
        user.until("continue.*\n")
        run_some_steps()
        user.resize(20, 70)
        user.type(CTRL_C)
        assert re.search(r"^\^C\r+\n.* interrupted", user.prompt(), re.M)
        user.type(f"print nothing{CTRL_C}")
        assert "error" not in user.prompt()

        # Tables are as wide as the terminal, and long answers go page by page.
        if kind != "dumb":
            assert [line for line in user.ask("info ranks") if len(line) > 70] == []
            user.type("help\r")
            user.until("--More--")
            user.type("q")
            user.prompt()

        # Tab completes, where it can be shown.
        user.type(f"info ch{TAB}")
        if kind == "dumb":
            user.type("eckpoints")
        user.until("ch.*?eckpoints")
        assert user.ask("") == ["there are no checkpoints"]
        if kind != "dumb":
            user.type(f"break work_st{TAB}")
            user.until(r"work_st.*?ep")
            user.type(CTRL_C)
            user.prompt()

        # Sets, checkpoints and files are completed too; a line may go on in the next; and what is
        # typed and shown is kept.
        if kind != "dumb":
            user.ask("define-set edge 1")
            for keys, whole in (("[ed", r"\[ed.*?ge"), ("log tr", "tr.*?anscript")):
                user.type(keys + TAB)
                user.until(whole)
                user.type(CTRL_C)
                user.prompt()
        assert user.ask("log transcript") == ["the transcript goes to transcript"]
        user.type("echo one \\\r")
        user.until(">")
        assert user.ask("line") == ["one line"]
        user.ask("log off")
        assert log.read_text().splitlines()[1:] == [
            *("(crdebug) echo one \\", "> line", "one line", "(crdebug) log off"),
        ]

        # Go back, also from the end.
        step = user.ask("print 'threads.c'::step")
        (*_, told) = user.ask("checkpoint a note")
        assert told.startswith(f"checkpoint {JOB}:1 taken (")
        looks.end_soon()
        ended = user.ask("continue --to-end")
        assert [line for line in ended if line.startswith("out| rank 1: steps ")]
        assert "the job ended with status 0" in ended
        back = user.ask("restart")
        assert f"back at checkpoint {JOB}:1 (incarnation 2)" in back
        assert user.ask("print 'threads.c'::step") == step

        # The end asks first, as the job still lives; also when it was typed while a command ran.
        user.type(CTRL_D)
        assert "will be killed" in user.until(QUESTION)
        user.type("n\r")
        user.prompt()
        go = tmp_path / "go"
        user.type(f"shell echo goes; until [ -e {go} ]; do sleep 0.01; done\r")
        user.until("goes\r\n")
        user.type(CTRL_D)
        go.touch()
        user.until(QUESTION)
        user.type("n\r")
        user.prompt()
        user.type("quit\r")
        user.until(QUESTION)
        user.type("y\r")
        assert user.end() == 0
    assert [job.name for job in all_jobs()] == [JOB]
    assert ("\x1b[3" in user.shown) == (kind != "dumb"), "colours"


# ---- the terminal dies --------------------------------------------------------------------------


class Doomed(Terminal):
    """crdebug as the leader of a terminal of its own, which can be taken away."""

    def __init__(self, *arguments: object) -> None:
        self._master, slave = os.openpty()
        with os.fdopen(slave) as terminal:
            self._process = subprocess.Popen(
                ["setsid", "--ctty", *argv(*arguments)],
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                env=mpirun.environment(ENVIRONMENT | {"TERM": "dumb"}),
            )
        super().__init__("dumb", fdpexpect.fdspawn(self._master, encoding="utf-8", timeout=SECONDS))

    def dies(self) -> None:
        """Returns when crdebug has ended."""
        os.close(self._master)
        assert self._process.wait(SECONDS) == 128 + signal.SIGHUP


def state() -> str:
    (info,) = asyncio.run(jobs.list_jobs())
    return info.state


def test_when_the_terminal_dies_the_job_is_held_released_or_killed() -> None:
    """One job: held at the prompt, released while it runs, held while it runs, killed."""
    program = build("threads")
    command = mpirun.command(program, "--steps", 10**9, "--delay-us", 1000, ranks=RANKS)
    user = Doomed("run", "--name", JOB, "--", *command)
    user.prompt()
    user.ask("break work_step")
    user.ask("continue")
    user.ask(
        "delete 1"
    )  # otherwise a rank that has not reached it stops there after the next attach
    user.dies()  # what is held is so by default
    assert state() == "held"
    stood = looks.steps()

    user = Doomed("attach", JOB)
    assert re.search(r"\] (work_step|\S+) at ", user.prompt())
    assert looks.steps() == stood
    user.ask("set on-hangup let-go")
    user.type("continue\r")
    run_some_steps()
    user.dies()
    assert state() == "running"
    run_some_steps()

    user = Doomed("attach", JOB)
    user.prompt()
    user.ask("set on-hangup hold")
    user.type("continue\r")
    run_some_steps()
    user.dies()
    assert state() == "held"
    assert asyncio.run(jobs.release(JOB)) == ("rank 0 let go", "rank 1 let go")
    run_some_steps()

    user = Doomed("attach", JOB)
    user.prompt()
    user.ask("set on-hangup kill")
    user.dies()
    assert asyncio.run(jobs.list_jobs()) == ()


@pytest.mark.parametrize("kind", PROMPTS)
def test_an_error_at_the_start_is_one_line(kind: str) -> None:
    with terminal(kind, ["nompirun", "-n", "2", "x"]) as user:
        assert user.end() == 1
    assert ("\x1b[3" in user.shown) == (kind != "dumb"), "colours"
    said = [line.strip() for line in ESCAPES.sub("", user.shown).splitlines() if "crdebug:" in line]
    assert said == [
        "crdebug: the job could not be started: nompirun: No such file or directory",
    ]

"""What a job says cannot steer the terminal; in a pipe it stays what it is."""

from __future__ import annotations

import io

import pytest

from crdebug.base.events import GdbSays, JobOutput, JobSays, Progress
from crdebug.detached.jobs import JobInfo
from crdebug.ui import output
from crdebug.ui.listing import job_table
from crdebug.ui.printable import echo, printable
from crdebug.ui.progress import StatusLine
from crdebug.ui.screen import Screen

pytestmark = pytest.mark.unit

# A title, a cleared screen, a cursor that goes up, an answer-back, eight-bit CSI, reversed text.
# Bytes that are no text have become lone surrogates (PEP 383).
EVIL = "\x1b]0;owned\x07 \x1b[2J\x1b[1A \x05 \x9b31m ‮abc \x7f\x08\r"
SHOWN = r"\x1b]0;owned\x07 \x1b[2J\x1b[1A \x05 \x9b31m \u202eabc \x7f\x08\r"


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def test_controls_are_shown_and_text_is_left_alone() -> None:
    assert printable(EVIL) == SHOWN
    assert printable("ünïcode\tand\nlines — ok ✓ 漢字") == "ünïcode\tand\nlines — ok ✓ 漢字"


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_of_a_job_reaches_a_terminal_as_it_is(terminal: bool) -> None:
    """The job's output and names, GDB's output, and errors; our own colours remain."""
    out, err = Stream(terminal), Stream(terminal)
    screen = Screen(terminal=terminal, out=lambda: out, err=lambda: err)
    screen.event(JobOutput("stdout", f"{EVIL}\n"))
    screen.event(GdbSays(0, f"symbol {EVIL}|"))
    screen.event(JobSays(f"file {EVIL}|"))
    screen.error(KeyError(EVIL))
    told = out.getvalue() + err.getvalue()
    assert told.count(SHOWN if terminal else EVIL.rstrip("\r")) >= 3
    assert ("\x1b[2J" in told) != terminal
    assert ("\x1b[36m" in told or "\x1b[3" in told.replace("\x1b[31mA", "")) == terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_a_job_without_the_debugger(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    """Byte for byte what its launcher would have written, unless somebody looks at it."""
    stream = Stream(terminal)
    monkeypatch.setattr("sys.stdout", stream)
    output.Relay()(JobOutput("stdout", EVIL))
    assert stream.getvalue() == (SHOWN if terminal else EVIL)


def test_bytes_that_are_no_text_are_shown() -> None:
    """In the C locale Python would write them as they came: 0x9b begins a sequence."""
    assert printable(b"a\x9b2J".decode("utf-8", "surrogateescape")) == r"a\udc9b2J"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_line_of_a_command(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stream = Stream(terminal)
    monkeypatch.setattr("sys.stdout", stream)
    echo(f"job {EVIL}")
    assert (stream.getvalue() == f"job {SHOWN}\n") == terminal


def test_the_list_of_jobs_shows_the_command_of_a_job() -> None:
    """Which may be another user's: root has attached to it."""
    argv = ("mpirun", f"./{EVIL}")
    job = JobInfo("heat", "running", 2, 1, 4711, argv, 0.0, 0, None)
    table = job_table([job])
    assert SHOWN in table and not any(c in table for c in "\x1b\x07\x9b")


def test_the_status_line() -> None:
    stream = Stream(terminal=True)
    status = StatusLine(lambda: stream)
    status.show(Progress("back in time", EVIL))
    status.clear()
    assert "\x1b]0;owned" not in stream.getvalue() and "\x07" not in stream.getvalue()
    assert r"\x1b]0;owned" in stream.getvalue()

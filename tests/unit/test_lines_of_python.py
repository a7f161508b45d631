"""Lines of Python as users write them, and what ranks' GDBs tell of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crdebug.base.errors import BadInput
from crdebug.base.events import Location, RankStopped, StopReason
from crdebug.debugger import python_lines
from crdebug.debugger.target import Motion, Verb
from crdebug.gdbscripts.wire import AT_PYTHON, PYTHON_TEXT
from crdebug.session.source_lines import with_code

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [
        ("solver.py:14", "solver.py", 14),
        (" pkg/solver.py:3 ", "pkg/solver.py", 3),
        ("./solver.py:3", "solver.py", 3),
        ('"/my files/a.py":7', "/my files/a.py", 7),
    ],
)
def test_a_line_of_python(text: str, file: str, line: int) -> None:
    assert python_lines.place(text) == Location(0, "", file, line)


@pytest.mark.parametrize(
    "text",
    ["main", "heat.c:14", "py:14", "solver.py", "solver.py:f", "solver.pyx:3", "*0x14", "14"],
)
def test_another_location(text: str) -> None:
    assert python_lines.place(text) is None


def test_what_the_rank_has_no_room_for() -> None:
    with pytest.raises(BadInput, match="name is too long"):
        python_lines.place(f"{'d' * PYTHON_TEXT}.py:1")
    with pytest.raises(BadInput, match="more than 512 characters"):
        python_lines.require_expression("x" * PYTHON_TEXT)


@pytest.mark.parametrize("text", ["x =", "x = 3", "import os", "x > 3)", "\0", "\udc80"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(BadInput, match=r"the condition is no expression of Python's"):
        python_lines.require_expression(text)


def test_conditions() -> None:
    for text in ("", "x > 3 and 'a' in names", "[each for each in range(3)]", "grün == 1"):
        python_lines.require_expression(text)


def test_what_a_gdb_tells() -> None:
    told = python_lines.told(f"{AT_PYTHON}14\tSolver.relax\t/a b/solver.py\n")
    assert told == Location(0, "Solver.relax", "solver.py", 14, "/a b/solver.py")
    assert python_lines.told("Breakpoint 1, main ()\n") is None


_IN_C = RankStopped(
    0, StopReason.BREAKPOINT, "3", 1, Location(0x7000, "crdebug_python_stop_2", "", 0)
)
_LINE = Location(0, "f", "a.py", 3, "/d/a.py")


def test_a_stop_is_shown_where_python_is() -> None:
    stop = python_lines.in_python(_IN_C, _LINE, StopReason.STEP)
    assert stop == replace(_IN_C, location=replace(_LINE, address=0x7000))
    assert python_lines.is_in_python(stop) and not python_lines.is_in_python(_IN_C)
    # where a step ends there is a breakpoint of crdebug's own
    stop = python_lines.in_python(replace(_IN_C, detail="-7"), _LINE, StopReason.FINISH)
    assert (stop.reason, stop.detail) == (StopReason.FINISH, "")


def test_another_stop_stays_as_it_is() -> None:
    elsewhere = replace(_IN_C, location=Location(0x7000, "main", "a.c", 3))
    killed = RankStopped(0, StopReason.KILLED, "SIGKILL")
    for stop in (elsewhere, killed, replace(_IN_C, reason=StopReason.SIGNAL)):
        assert python_lines.in_python(stop, _LINE, StopReason.STEP) == stop
    assert python_lines.in_python(_IN_C, None, StopReason.STEP) == _IN_C


def test_steps_by_lines() -> None:
    assert python_lines.step(Motion(Verb.NEXT, 3)) == "-crdebug-python-step next 3"
    assert python_lines.step(Motion(Verb.STEPI, 3)) is None


def test_the_next_line_with_code(tmp_path: Path) -> None:
    text = "import os\n\n# nothing\ndef f():\n    return (\n        os\n    )\n\n\nx = 1\n# end\n"
    (tmp_path / "a.py").write_text(text)
    there = [tmp_path / "not-there", tmp_path]
    found = {line: with_code("a.py", line, there) for line in range(1, 11)}
    assert [found[line] for line in (1, 2, 3, 4, 5, 8, 10)] == [1, 4, 4, 4, 5, 10, 10]
    with pytest.raises(BadInput, match=r"there is no code at line 11 of .*a\.py, or after it"):
        with_code("a.py", 11, there)
    (tmp_path / "a.py").write_text("print 'of another Python'\n")
    assert with_code("a.py", 3, there) == 3
    assert with_code("b.py", 3, there) == 3

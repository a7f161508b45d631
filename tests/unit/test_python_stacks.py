"""Python's frames among C's, and the reasons for their absence."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable, Refused
from crdebug.base.events import Location
from crdebug.debugger.python import frames, interleaved
from crdebug.debugger.target import Frame
from crdebug.node.python_stacks import PythonFrame, PythonThread, Variable, python_stacks

pytestmark = pytest.mark.unit

LOOP = "_PyEval_EvalFrameDefault"


def c(*functions: str) -> list[Frame]:
    return [Frame(level, Location(0, name)) for level, name in enumerate(functions)]


def python(*functions: str) -> PythonThread:
    """The innermost first; frames called from C have a star."""
    return PythonThread(
        1, tuple(PythonFrame(f.strip("*"), "a.py", 7, is_entry="*" in f) for f in functions)
    )


def names(merged: tuple[Frame, ...]) -> str:
    return " ".join(each.location.name.replace(LOOP, "LOOP") for each in merged)


@pytest.mark.parametrize(
    ("of_c", "of_python", "merged"),
    [
        (("recv", LOOP, "main"), ("f", "g*"), "recv f g LOOP main"),
        (("recv", LOOP, "max", LOOP, "main"), ("f*", "g", "h*"), "recv f LOOP max g h LOOP main"),
        # the innermost run has only begun
        ((LOOP, "max", LOOP, "main"), ("g", "h*"), "LOOP max g h LOOP main"),
        # what GDB did not get to, or has no name for
        (("recv", LOOP), ("f*", "g*", "h*"), "recv f LOOP g h"),
        (("recv", "??"), ("f*",), "recv ?? f"),
        # before 3.11 each is a run; and compilers change its name
        (("recv", f"{LOOP}.constprop.0", LOOP), ("f*", "g*"), "recv f LOOP.constprop.0 g LOOP"),
        (("poll", "main"), (), "poll main"),
    ],
)
def test_pythons_frames_come_above_the_c_function_that_runs_them(
    of_c: tuple[str, ...], of_python: tuple[str, ...], merged: str
) -> None:
    told = interleaved(c(*of_c), python(*of_python))
    assert names(told) == merged
    assert [each.level for each in told if each.python] == list(range(len(of_python)))
    assert [each.level for each in told if not each.python] == list(range(len(of_c)))


def test_of_objects_the_class_counts_and_of_variables_the_arguments() -> None:
    variables = (
        Variable("self", True, "<Solver at 0x7f00>"),
        Variable("step", True, "3"),
        Variable("odd", True),
        Variable("mine", False, "[1]"),
    )
    frame = PythonFrame("f", "/usr/lib/x/a.py", 7, "a.py", variables)
    (told,) = frames([frame])
    assert told.arguments == "self=<Solver>, step=3, odd=..."
    assert str(told.location) == "f at a.py:7" and told.location.path == "/usr/lib/x/a.py"


async def test_what_runs_no_python_is_refused() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            with pytest.raises(Refused, match="it runs no Python"):
                await python_stacks(process.pid, Deadline(60.0))
        finally:
            process.kill()


async def test_without_a_py_spy_that_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotAvailable, match="py-spy is not installed"):
        await python_stacks(1, Deadline(60.0))
    for answer in ("[{", '[{"thread_id": "x", "frames": []}]'):
        (tmp_path / "py-spy").write_text(f"#!/bin/sh\necho '{answer}'\n")
        (tmp_path / "py-spy").chmod(0o755)
        with pytest.raises(NotAvailable, match="py-spy's answer cannot be read"):
            await python_stacks(1, Deadline(60.0))

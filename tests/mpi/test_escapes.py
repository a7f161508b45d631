"""Whatever a program and its launcher are called, and say: a terminal does not obey it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from harness import mpirun
from harness.cli import argv
from harness.programs import build

CLEAR = "\x1b[2J"
SHOWN = r"\x1b[2J"
# Each name that the program has a say in, in one answer at least.
SCRIPT = f"""break here
continue
info threads
info ranks
backtrace
thread apply all bt
up
info locals
info registers rip
print word
print &word
list
where
info sharedlibrary
info symbol evil
x/i evil
info breakpoints
info launch
delete
break MPI_Barrier
continue
info messages
timeline
timeline --html PAGE
mark a
continue
info ranks
backtrace
print no{CLEAR}such
"""


def on_terminal(*arguments: object) -> str:
    """What crdebug writes to a terminal of its own."""
    controller, terminal = os.openpty()
    said: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(controller, 65536):
                said.append(data)
        except OSError:  # EIO: nobody has it open any more
            return

    with subprocess.Popen(
        argv(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=mpirun.environment({"TERM": "xterm"}),
    ) as process:
        os.close(terminal)
        reader = threading.Thread(target=read)
        reader.start()
        process.wait(200)
        reader.join(60)
    os.close(controller)
    return b"".join(said).decode()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / f"program{CLEAR}"
    shutil.copy(build("escapes"), path)
    return path


def test_nothing_of_a_job_steers_the_terminal(program: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    page = tmp_path / "page.html"
    script.write_text(SCRIPT.replace("PAGE", str(page)))
    job = mpirun.command(program, f"argument{CLEAR}", ranks=2)
    said = on_terminal("run", "--batch", "--name", "escapes", "-x", script, "--", *job)
    for name in ("program", "evil", "file", "name", "out", "errword", "no"):
        assert f"{name}{SHOWN}" in said, (name, said)
    assert CLEAR not in said
    assert CLEAR not in page.read_text()


def test_nor_without_a_debugger(program: Path) -> None:
    job = mpirun.command(program, f"argument{CLEAR}", ranks=2)
    said = on_terminal("run", "--no-debugger", "--name", "escapes", "--", *job)
    said += on_terminal("run", "--no-debugger", "--", f"no{CLEAR}launcher")
    for name in ("out", "errword", "no"):
        assert f"{name}{SHOWN}" in said, name
    assert CLEAR not in said

"""A program that others may write to cannot have GDB do anything: what it brings is not run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from processes import Process, soon

from crdebug.attached.gdbs import launch_gdb
from crdebug.base.settings import Settings
from crdebug.debugger.target import Target
from harness.gdbs import GDBS, use_gdb

# What is in the section: a script, and the names of two.
SOURCE = """
__asm__(".pushsection .debug_gdb_scripts, \\"MS\\",%progbits,1\\n"
        ".byte 4\\n.ascii \\"inside.py\\\\nopen('DONE/inside.py', 'w')\\\\n\\"\\n.byte 0\\n"
        ".byte 1\\n.asciz \\"HERE/named.py\\"\\n"
        ".byte 1\\n.asciz \\"sought.py\\"\\n"
        ".popsection");
#include <unistd.h>
int main(void)
{
    char word = '!';
    (void)!write(1, &word, 1);
    for (;;)
        pause();
}
"""
BESIDE = ("program-gdb.py", "program-gdb.gdb", "named.py", "sought.py", ".gdbinit")
# What Python might look for in GDB's working directory.
MODULES = ("json.py", "re.py", "gdb.py", "usercustomize.py", "sitecustomize.py", "crdebug.py")
ASKED = {"inside.py", "named.py", "sought.py", "program-gdb.py", "program-gdb.gdb"}


@dataclass(frozen=True, slots=True)
class Hostile:
    """A program in a directory full of scripts; each makes a file of its name in `done`."""

    program: Path
    done: Path

    @property
    def did(self) -> set[str]:
        return {path.name for path in self.done.iterdir()}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hostile:
    """GDB starts in its directory."""
    here, done = tmp_path / "here", tmp_path / "done"
    here.mkdir()
    done.mkdir()
    for name in (*BESIDE, *MODULES):
        python = f"open('{done / name}', 'w')\n"
        text = python if name.endswith(".py") else f"shell touch {done / name}\n"
        (here / name).write_text(text)
    source = here / "program.c"
    source.write_text(SOURCE.replace("DONE", str(done)).replace("HERE", str(here)))
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    subprocess.run([compiler, "-g", "-o", here / "program", source], check=True)
    monkeypatch.chdir(here)
    return Hostile(here / "program", done)


@pytest_asyncio.fixture
async def process(hostile: Hostile) -> AsyncIterator[Process]:
    process = Process(hostile.program)
    yield process
    process.end()


async def look(process: Process, settings: Settings) -> None:
    """Attach, as crdebug does to a rank, and look at the program."""
    target: Target = await launch_gdb(0, 0, settings)
    try:
        await target.attach(process.pid, soon())
        await target.backtrace(5, soon())
    finally:
        await target.close(soon())


@pytest.mark.parametrize("which", GDBS)
async def test_scripts_of_a_program_are_not_run(
    which: str, hostile: Hostile, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_gdb(which, monkeypatch)
    await look(process, Settings())
    assert hostile.did == set()


@pytest.mark.parametrize("which", GDBS)
async def test_they_are_run_when_the_user_asks_for_it(
    which: str, hostile: Hostile, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_gdb(which, monkeypatch)
    await look(process, Settings(auto_load=str(hostile.program.parent)))
    assert hostile.did == ASKED


async def test_nor_by_a_gdb_that_was_built_to_run_them(
    hostile: Hostile, process: Process, tmp_path: Path
) -> None:
    """--with-auto-load-safe-path=/, as some build it."""
    careless = tmp_path / "gdb"
    careless.write_text('#!/bin/sh\nexec gdb -iex "set auto-load safe-path /" "$@"\n')
    careless.chmod(0o755)
    await look(process, Settings(gdb=str(careless)))
    assert hostile.did == set()

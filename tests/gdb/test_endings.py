"""A rank's GDB stops it where it is about to end, whatever it has executed and loaded before."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.programs import build

SCRIPTS = Path(__file__).parents[2] / "gdbscripts"
STANDS = "print $_siginfo.si_signo"


def played(*commands: str, program: Sequence[str] = ()) -> str:
    """What a rank's GDB says to these commands."""
    gdb = ["gdb", "-q", "-nx", "-batch", "-ex", f"source {SCRIPTS}/rank_gdb.py"]
    words = [word for each in commands for word in ("-ex", each)]
    argv = [*gdb, *words, *(("--args", *program) if program else ())]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert "Exception" not in ran.stderr, ran
    assert "Cannot" not in ran.stderr, ran
    return ran.stdout


@contextlib.contextmanager
def waiting(program: Path, fifo: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, where it reads from the FIFO."""
    with (
        os.fdopen(os.open(fifo, os.O_RDWR)) as file,
        subprocess.Popen([program, "waits"], stdin=file, stdout=subprocess.PIPE) as process,
    ):
        try:
            assert process.stdout is not None and process.stdout.read(1) == b"+"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("flags", [("-pie", "-fPIE"), ("-no-pie", "-fno-pie")])
@pytest.mark.parametrize("through", [(), ("/bin/sh", "-c", 'exec "$0"')])
def test_after_libraries_and_other_programs(
    flags: tuple[str, ...], through: tuple[str, ...]
) -> None:
    program = str(build("executes", compiler="gcc", flags=flags))
    told = played("run", STANDS, "kill", program=(*through, program))
    assert "crdebug-ending exit(3), from main at" in told
    assert "$1 = 5" in told  # SIGTRAP


def test_in_one_process_after_the_other(tmp_path: Path) -> None:
    """Libraries are at other addresses in each."""
    program, commands = build("executes", compiler="gcc"), []
    with contextlib.ExitStack() as stack:
        for number in range(3):
            fifo = tmp_path / str(number)
            os.mkfifo(fifo)
            started = stack.enter_context(waiting(program, fifo))
            commands += [f"attach {started.pid}", f"shell printf + > {fifo}", "continue", STANDS]
            commands.append("detach")
        told = played(*commands)
    assert told.count("crdebug-ending exit(3), from main at") == 3
    assert all(f"${number} = 5" in told for number in (1, 2, 3))

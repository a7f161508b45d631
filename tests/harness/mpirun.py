"""The launcher of the MPI in use, as the tests use it, and undisturbed runs to compare with."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from harness import mpis

_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Finished:
    """How a job ended: the launcher's exit status, and all that it printed."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    def expect(self, status: int = 0) -> Finished:
        """This, if the status is the expected one. Raises AssertionError with the output."""
        assert self.status == status, (
            f"{' '.join(self.argv)}\nended with {self.status}, not {status}\n"
            f"--- stdout\n{self.stdout}--- stderr\n{self.stderr}"
        )
        return self


def command(
    program: str | Path, *arguments: object, ranks: int | None = None, options: Sequence[str] = ()
) -> list[str]:
    """mpirun's command line; it runs on a machine with fewer processors than ranks too.

    options: for mpirun, besides the usual ones.
    """
    return [*mpis.launch(ranks), *options, str(program), *map(str, arguments)]


def starts_many_programs() -> bool:
    """Can mpirun itself start several programs? Debian 13's (PRRTE 3.0.8) crashes at every ":"."""
    return run([*command("true", ranks=1), ":", "-n", "1", "true"]).status != -signal.SIGSEGV


def require_many_programs() -> None:
    """Skip the test where mpirun itself cannot start several programs."""
    if not starts_many_programs():
        pytest.skip("this mpirun crashes when it is to start two programs")


def mixes_streams() -> bool:
    """Does mpirun itself pass pieces of one of the ranks' streams on in the other? Open MPI 5.0's
    does when both have much (5.0.7, PRRTE 3.0.8: one line of a hundred)."""
    asked = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True)
    return "(Open MPI) 5.0." in asked.stdout


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with the variables that let root run mpirun."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **allowed, **(extra or {})}


def run(
    argv: Sequence[str],
    *,
    seconds: float = 200.0,
    cwd: Path | None = None,
    extra: Mapping[str, str] | None = None,
) -> Finished:
    """Run a command to its end, undisturbed.

    Raises AssertionError after `seconds`, when it has ended the job with all its processes.
    """
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment(extra),
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            stdout, stderr = process.communicate()
            raise AssertionError(
                f"{' '.join(argv)}\nhas not ended in {seconds:g} s\n"
                f"--- stdout\n{stdout}--- stderr\n{stderr}"
            ) from None
        except BaseException:
            _end(process)
            raise
    return Finished(tuple(argv), process.returncode, stdout, stderr)


def reference(
    program: str | Path, *arguments: object, ranks: int | None = None, seconds: float = 200.0
) -> str:
    """What an undisturbed run of a program prints on stdout. Kept: the same question runs once.

    Only for programs that leave no files. Raises AssertionError unless it ends with 0 in time.
    """
    return _reference(tuple(command(program, *arguments, ranks=ranks)), seconds)


@functools.cache
def _reference(argv: tuple[str, ...], seconds: float) -> str:
    return run(argv, seconds=seconds).expect().stdout


def _end(process: subprocess.Popen[str]) -> None:
    """Ask mpirun to end its ranks, then end what is left of them."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # psutil compares creation times: a PID that is somebody else's by now is left alone.
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=_GRACE)

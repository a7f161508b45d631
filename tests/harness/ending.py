"""A test run that receives SIGTERM ends at once, with all that its tests have started; and the
programs that it starts have all signals as a terminal's shell gives them."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from types import FrameType

import psutil

from harness import leaks

# Tests of this run, and what each said. (Pytest shows it in the end, which may not come.)
failed: dict[str, str] = {}
_SECONDS = 10.0  # for those below, until they are killed
_OF_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}  # which it ignores itself, and not in its children


def usual_signals() -> None:
    """Nothing is blocked or ignored in programs started from now on. (A shell that runs nohup(1)
    ignores SIGHUP, and for a command in the background SIGINT and SIGQUIT.)"""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - _OF_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            # Still of no effect here, but execve(2) makes the default of it.
            ours = signal.default_int_handler if number is signal.SIGINT else lambda *_: None
            signal.signal(number, ours)


def at_once(home: Path) -> None:
    """From now on SIGTERM ends this process, what its tests have started, and those below it that
    run tests, which do the same. home: a directory to be removed then."""
    owner, screen = os.getpid(), os.dup(2)  # which pytest captures during each test

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == owner:  # and not a child of it, before it executes another program
            if failed:
                told = "".join(f"\n  {name}: {why}" for name, why in failed.items())
                os.write(screen, f"\nended by a signal; failed by then:{told}\n".encode())
            leaks.end_marked()
            _end_below()
            shutil.rmtree(home, ignore_errors=True)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)


def _end_below() -> None:
    below = psutil.Process().children(recursive=True)
    for child in psutil.Process().children():
        child.terminate()
    _, left = psutil.wait_procs(below, timeout=_SECONDS)
    for process in left:
        process.kill()

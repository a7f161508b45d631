"""Signals by name and number, sent to one process and to no other, and waiting for an end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, DeadlineExpired
from crdebug.base.signal_names import name_of, number_of, require_usable
from crdebug.node import proc, signals

pytestmark = pytest.mark.unit

ALL = sorted(map(int, signal.valid_signals()))


# ---- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ALL)
def test_every_signal_has_a_name_that_means_it(number: int) -> None:
    name = name_of(number)
    for text in (name, name.lower(), name.removeprefix("SIG"), str(number)):
        assert number_of(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SIGTSTP", 20),
        ("tstp", 20),
        ("62", 62),
        ("SIGRTMIN", 34),
        ("rtmin+4", 38),
        ("SIGRTMAX-2", 62),
        ("SIGRTMAX", 64),
        ("RTMIN+30", 64),
        ("RTMAX-30", 34),
    ],
)
def test_signals_by_number_and_name(text: str, number: int) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "-1", "65", "32", "33", "SIGNONE", "SIG", "SIGSIGTSTP", "²", "1e1"),
        *("RTMIN+31", "RTMIN-1", "RTMAX+1", "RTMAX-31", "RTMIN+", "RTMINX", "RTMIN + 1"),
        *("TSTP ", "SIGTSTP\n"),
    ],
)
def test_what_is_no_signal(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        number_of(text)
    assert str(caught.value) == f"'{text}' is not a signal"


@pytest.mark.parametrize(
    ("number", "name"),
    [(20, "SIGTSTP"), (34, "SIGRTMIN"), (35, "SIGRTMIN+1"), (62, "SIGRTMAX-2"), (64, "SIGRTMAX")],
)
def test_names_are_those_of_the_manual(number: int, name: str) -> None:
    assert name_of(number) == name


UNUSABLE = {"KILL", "STOP", "ILL", "TRAP", "ABRT", "BUS", "FPE", "SEGV", "SYS", "CHLD", "CONT"}


def test_which_may_lead_threads_into_a_waitpoint() -> None:
    refused = set()
    for number in ALL:
        try:
            require_usable(number)
        except BadInput as error:
            assert str(error).startswith(f"signal {name_of(number)} cannot be the waitpoint signal")
            refused.add(name_of(number).removeprefix("SIG"))
    assert refused == UNUSABLE | {"STKFLT"}


@pytest.mark.parametrize("number", [0, 32, 65, -1])
def test_a_number_that_is_no_signal_is_refused_too(number: int) -> None:
    with pytest.raises(BadInput, match=f"signal {number} cannot be the waitpoint signal"):
        require_usable(number)


# ---- sending -----------------------------------------------------------------------------------


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for us."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def soon() -> Deadline:
    return Deadline(30.0)


def test_kill_ends_the_process_with_that_start(child: subprocess.Popen[bytes]) -> None:
    signals.kill(child.pid, proc.started(child.pid))
    assert child.wait(30) == -signal.SIGKILL


def test_kill_without_a_start_and_with_another_signal(child: subprocess.Popen[bytes]) -> None:
    signals.kill(child.pid, None, signal.SIGTERM)
    assert child.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize("other", [-1, 1])
def test_kill_leaves_a_process_alone_that_only_has_the_same_pid(
    child: subprocess.Popen[bytes], other: int
) -> None:
    signals.kill(child.pid, proc.started(child.pid) + other)
    assert child.stdin is not None
    child.stdin.close()  # it ends by itself, and had got no signal
    assert child.wait(30) == 1


def test_kill_of_nobody_is_no_error(child: subprocess.Popen[bytes]) -> None:
    start = proc.started(child.pid)
    child.kill()
    child.wait()
    before = os.listdir("/proc/self/fd")
    signals.kill(child.pid, start)
    assert os.listdir("/proc/self/fd") == before


def test_tgkill_reaches_the_thread() -> None:
    got: list[int] = []
    old = signal.signal(signal.SIGRTMIN + 9, lambda number, frame: got.append(number))
    try:
        signals.tgkill(os.getpid(), os.getpid(), signal.SIGRTMIN + 9)
    finally:
        signal.signal(signal.SIGRTMIN + 9, old)
    assert got == [signal.SIGRTMIN + 9]


def test_tgkill_of_a_vanished_thread_is_reported() -> None:
    with pytest.raises(ProcessLookupError):
        signals.tgkill(os.getpid(), 1 << 22, 0)


# ---- the end -----------------------------------------------------------------------------------


async def test_waiting_for_an_end(child: subprocess.Popen[bytes]) -> None:
    waiting = asyncio.create_task(signals.ended(child.pid, soon(), "the end"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    child.kill()
    await waiting
    await signals.ended(child.pid, soon(), "what is over")


async def test_an_expired_wait_is_reported(child: subprocess.Popen[bytes]) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(DeadlineExpired, match=r"waited 0\.05 s for job 'x' to end"):
        await signals.ended(child.pid, Deadline(0.05), "job 'x' to end")
    assert os.listdir("/proc/self/fd") == before

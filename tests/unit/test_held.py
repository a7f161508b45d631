"""Holding a job's processes while their tracers come and go."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.node import proc, process_tree
from crdebug.node.ptrace import Held, Traced, held_container

pytestmark = pytest.mark.unit

INIT = 1 << 22  # no process: PID 1 of the container is left alone


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The only one of a job."""
    with subprocess.Popen(["sleep", "600"]) as running:
        monkeypatch.setattr(process_tree, "of_job", lambda init: (init, running.pid))
        yield running.pid
        running.kill()


def traced_at_first(monkeypatch: pytest.MonkeyPatch, tracer: int) -> None:
    """The kernel says once that somebody has it."""
    real = Held.seize
    told: list[int] = []

    def seize(self: Held, pid: int) -> bool:
        if not told:
            told.append(pid)
            raise Traced(pid, tracer)
        return real(self, pid)

    monkeypatch.setattr(Held, "seize", seize)


async def test_a_debugger_that_has_just_ended_is_nobodys(
    process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of our own that was killed, and that the event loop has waited for meanwhile."""
    with subprocess.Popen(["true"]) as ended:
        pass
    traced_at_first(monkeypatch, ended.pid)
    async with held_container(INIT, Deadline(60)):
        assert {thread.tracer for thread in proc.threads(process)} == {os.getpid()}


async def test_one_that_is_on_its_way_out_is_waited_for(
    process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "600"]) as ending:
        traced_at_first(monkeypatch, ending.pid)
        asked = []

        def is_ending(pid: int) -> bool:
            asked.append(pid)
            ending.kill()
            return pid == ending.pid

        monkeypatch.setattr(proc, "is_ending", is_ending)
        async with held_container(INIT, Deadline(60)):
            assert asked == [ending.pid] and not proc.is_alive(ending.pid)
            assert {thread.tracer for thread in proc.threads(process)} == {os.getpid()}


async def test_a_strangers_is_named(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = os.getppid()
    traced_at_first(monkeypatch, stranger)
    with pytest.raises(Refused, match=f"process {stranger} traces process {process}"):
        async with held_container(INIT, Deadline(60)):
            pass

"""Waits that last longer than the run between two of crdebug's own stops still complete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from crdebug.travel import snapshot_cost, waits
from harness.jobs import Heard, run_to_end
from harness.programs import build
from harness.travel import history, recorded

ONE, LIMIT = 0.2, 2.0  # seconds: between stops, and of each wait
# System calls whose time limit restarts, and their numbers
# (arch/x86/entry/syscalls/syscall_64.tbl; nanosleep(3) makes clock_nanosleep).
CALLS = {"poll": 7, "nanosleep": 230, "futex": 202, "epoll_wait": 232, "recv": 45}
CALLS["sigtimedwait"] = 128


async def test_every_wait_ends_while_checkpoints_and_snapshots_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile the main thread makes MPI calls, with short pauses; MPI's own threads, which always
    wait much longer, do not count."""
    for module, name in ((snapshot_cost, "FIRST"), (snapshot_cost, "LEAST"), (waits, "LEAST")):
        monkeypatch.setattr(module, name, ONE)
    found: dict[int, float] = {}
    pace = waits.Pace.stopped

    def stopped(self: waits.Pace, limits: Mapping[waits.Place, float], ran: float) -> None:
        for (_rank, _tid, place), limit in limits.items():
            number = int(place.partition("-")[0], 16)
            found[number] = max(limit, found.get(number, 0.0))
        pace(self, limits, ran)

    monkeypatch.setattr(waits.Pace, "stopped", stopped)
    heard, program = Heard(), build("syscalls")
    arguments = (
        "--only",
        ",".join((*CALLS, "select")),
        "--timeout-ms",
        int(1000 * LIMIT),
        "--delay-us",
        10000,
    )
    async with recorded(program, *arguments, ranks=1, heard=heard) as job:
        history(job).every = ONE
        history(job).costs.budget = 100.0
        async with asyncio.timeout(100):
            assert await run_to_end(job) == 0, heard.text()
        kept = [base.name for base in history(job).traveller.bases() if base.number]
    assert found == dict.fromkeys(CALLS.values(), LIMIT)
    assert "syscalls ok" in heard.text()
    assert len(kept) > 2, "checkpoints were taken beside the waits"

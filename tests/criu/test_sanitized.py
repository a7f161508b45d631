"""Checkpoints of programs with a sanitizer, which treats signals and memory in its own way."""

from __future__ import annotations

import pytest

from crdebug.base.errors import CrsFailed
from crdebug.base.events import StopReason
from harness import looks
from harness.jobs import as_by_default, session
from harness.nobody import needs_root
from harness.programs import build


@needs_root  # it deletes a file that it has mapped
async def test_threads_come_out_of_the_waitpoint_under_thread_sanitizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It delays all handlers except ours. CRIU cannot bring back the memory that it reserves."""
    monkeypatch.setenv("TSAN_OPTIONS", "detect_deadlocks=0")
    monkeypatch.setenv("PMIX_MCA_gds", "hash")  # Open MPI 5.0 needs it (docs/limits.md)
    program = build("wrong", flags=["-fsanitize=thread"])
    async with session(program, "--how", "race", ranks=2, settings=as_by_default()) as job:
        await job.checkpoint()
        with pytest.raises(CrsFailed, match="Unable to reserve memory"):
            await job.restart()
        (cause,) = (await job.resume(job.ranks)).cause
        assert cause.reason is StopReason.REPORT
        assert not any(shim.waiting() for shim in looks.shims())

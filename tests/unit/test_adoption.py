"""What of a job that crdebug did not start can be dumped at all."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import cast

import pytest

from crdebug.acquire.discovery import FoundJob
from crdebug.acquire.mpir import ProcDesc
from crdebug.attached.adopt import adopt, require_tree
from crdebug.base.errors import NotAvailable, Refused
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup

pytestmark = pytest.mark.unit


def job(root: int, *ranks: int) -> FoundJob:
    entries = (ProcDesc(rank, "here", "/bin/prog", pid) for rank, pid in enumerate(ranks))
    return FoundJob(root, "a test", tuple(entries), len(ranks))


def test_ranks_that_others_have_started_are_not_dumped_with_the_launcher(tmp_path: Path) -> None:
    """srun's are children of Slurm's daemon, which is no launcher either."""
    daemon = tmp_path / "slurmstepd"
    shutil.copy(shutil.which("sleep") or "", daemon)
    with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen([daemon, "60"]) as other:
        try:
            require_tree(job(os.getpid(), one.pid, other.pid))
            require_tree(job(one.pid, one.pid))
            with pytest.raises(Refused, match=r"^rank 1: .*sleep is not a launcher.*'crdebug run'"):
                require_tree(job(one.pid, one.pid, os.getpid()))
            with pytest.raises(Refused, match="slurmstepd is not a launcher"):
                require_tree(job(other.pid, other.pid))
        finally:
            one.kill()
            other.kill()


async def test_an_ordinary_user_can_take_no_checkpoint_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    group = cast(TargetGroup, None)
    with pytest.raises(NotAvailable, match=r"^only root can .*\('?start it with 'crdebug run'"):
        await adopt(job(1, 1), group, Settings(), lambda event: None)

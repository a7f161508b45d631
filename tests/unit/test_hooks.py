"""The operator's programs: which ones, in which order, with which arguments, and their effects."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crdebug.base.errors import DeadlineExpired, Refused
from crdebug.base.events import JobSays
from crdebug.base.settings import Settings
from crdebug.job import hooks
from crdebug.job.directory import JobDirectory, JobRecord
from crdebug.job.hooks import When
from crdebug.job.incarnation import Incarnation
from harness.nobody import needs_root

pytestmark = pytest.mark.unit

RECORD = JobRecord("heat", ("mpirun",), "/", 0.0, 62, "", "", 3, 1, 1, "")
JOB = Incarnation(JobDirectory("heat"), RECORD)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRDEBUG_HOOKS", str(tmp_path / "hooks"))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    (tmp_path / "hooks").mkdir(mode=0o700)
    return tmp_path / "hooks"


def write(directory: Path, name: str, text: str = "", mode: int = 0o700) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(mode)


def test_those_of_the_moment_by_name_if_they_can_be_run(directory: Path) -> None:
    for name in ("b.2", "before-checkpoint.20", "before-checkpoint", "before-checkpoint.100"):
        write(directory, name)
    write(directory, "before-checkpoint.3", mode=0o600)
    write(directory, "before-checkpoints")
    found = [path.name for path in hooks.find(When.BEFORE)]
    assert found == ["before-checkpoint", "before-checkpoint.100", "before-checkpoint.20"]
    assert hooks.find(When.RESTART) == ()


def test_without_a_directory_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRDEBUG_HOOKS", "/nowhere")
    assert hooks.find(When.BEFORE) == ()


@pytest.mark.parametrize(
    ("mode", "group"), [(0o702, -1), pytest.param(0o720, 65534, marks=needs_root)]
)
def test_what_others_may_change_is_not_run(directory: Path, mode: int, group: int) -> None:
    write(directory, "after-restart", mode=mode)
    for place in (directory / "after-restart", directory, directory.parent):
        os.chown(place, -1, group)
    with pytest.raises(Refused, match="can be changed by other users"):
        hooks.find(When.RESTART)
    write(directory, "after-restart")
    for place in (directory, directory.parent):
        before = place.stat().st_mode
        place.chmod(mode)
        with pytest.raises(Refused, match=f"{place} can be changed"):
            hooks.find(When.RESTART)
        place.chmod(before)


async def test_a_hook_that_others_may_change_once_the_one_before_it_has_run_is_not_run(
    directory: Path,
) -> None:
    write(directory, "after-restart.1", "chmod o+w $CRDEBUG_HOOKS")
    write(directory, "after-restart.2", "echo run >> $LOG")
    with pytest.raises(Refused, match="hooks can be changed by other users"):
        await hooks.run(When.RESTART, JOB, Settings())
    assert not (directory.parent / "log").exists()


async def test_the_first_failure_is_final_yet_the_later_ones_still_run(
    directory: Path,
) -> None:
    say = 'echo "$CRDEBUG_HOOK $CRDEBUG_INCARNATION $CRDEBUG_OUTCOME" >> $LOG'
    write(directory, "before-checkpoint.1", say)
    write(directory, "before-checkpoint.2", "echo first; echo the tape is full; exit 9")
    write(directory, "before-checkpoint.3", say)
    write(directory, "after-continue", f"{say}; exit 1")
    said: list[object] = []
    with pytest.raises(Refused, match=r"hook before-checkpoint.2 ended with status 9: the tape is"):
        async with hooks.around_checkpoint(JOB, Settings(), said.append):
            raise AssertionError("it was refused")
    log = (directory.parent / "log").read_text().splitlines()
    assert log == ["before-checkpoint 3 ", "after-continue 3 failed"]
    assert [each.text for each in said if isinstance(each, JobSays)] == [
        f"hook after-continue ended with status 1 (it is in {directory})"
    ]


async def test_a_hook_has_its_time(directory: Path) -> None:
    write(directory, "before-checkpoint", "sleep 600")
    with pytest.raises(DeadlineExpired, match=r"0.2 s for hook before-checkpoint"):
        await hooks.run(When.BEFORE, JOB, Settings(hook=0.2))

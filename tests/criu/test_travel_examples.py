"""The scripts of examples/advect show what their descriptions promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import advect
from harness.advect import answers
from harness.cli import crdebug
from harness.mpirun import command, reference


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return advect.make(tmp_path_factory.mktemp("advect"))


async def play(script: str, program: Path, *arguments: object) -> advect.Parts:
    mpirun = command(program, *arguments)
    argv = ("run", "--record", "--batch", "-x", advect.EXAMPLE / script, "--name", "example")
    ran = await crdebug(*argv, "--", *mpirun)
    return advect.parts(ran.stdout)


async def test_the_sum_that_is_not_a_number_is_traced_to_the_line_on_rank_2(program: Path) -> None:
    advect.traced(await play("trace.crdebug", program))


async def test_to_ticks_and_a_mark_also_when_the_job_has_ended(program: Path) -> None:
    advect.went_to(await play("goto.crdebug", program, 200), reference(program, 200))


async def test_from_one_end_of_a_message_to_the_other(program: Path) -> None:
    advect.followed_messages(await play("messages.crdebug", program, 200))


async def test_since_when(program: Path) -> None:
    advect.bisected(await play("bisect.crdebug", program, 400))


async def test_backwards_like_forwards(program: Path) -> None:
    advect.went_backwards(await play("reverse.crdebug", program, 200))


async def test_what_if(program: Path) -> None:
    part = await play("branches.crdebug", program, 400)
    (was,), (other,) = (answers(part[n], "[0] print total") for n in (0, 1))
    assert was != other
    assert re.findall(r"^  (\[0\] = .*)", part[2], re.M) == [was, other]
    assert answers(part[3], "[0] print total") == [was]
    assert "* main" in answers(part[3], "info branches")[0]


async def test_the_history_as_a_whole(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    part = await play("timeline.crdebug", program, 200)
    assert "^ mark first-report: tick 251" in part[1]
    assert "at the first report" in answers(part[1], "info checkpoints")[0]
    assert "first-report" in (tmp_path / "timeline.html").read_text()

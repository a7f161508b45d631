"""The scripts of examples/advect show what their descriptions promise."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harness.cli import crdebug
from harness.mpirun import command, reference

TOP = Path(__file__).parents[2]
EXAMPLE = TOP / "examples" / "advect"


@pytest.fixture(scope="module")
def advect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, made by the example's own Makefile, but elsewhere."""
    made = tmp_path_factory.mktemp("advect")
    for name in ("Makefile", "advect.c"):
        (made / name).write_text((EXAMPLE / name).read_text())
    subprocess.run(["make", "-s", "-C", str(made)], check=True)
    return made / "advect"


async def play(script: str, program: Path, *arguments: object) -> dict[int, str]:
    """Its output, by the numbers of its headings or, without numbers, from 0."""
    mpirun = command(program, *arguments)
    argv = ("run", "--record", "--batch", "-x", EXAMPLE / script, "--name", "example")
    ran = await crdebug(*argv, "--", *mpirun)
    parts = re.split(r"^--- .*\n", ran.stdout, flags=re.M)
    return dict(enumerate(parts))


def answers(text: str, typed: str) -> list[str]:
    """The output after each time that it was typed, up to the next prompt."""
    return [
        part.split("\n", 1)[1].rstrip()
        for part in text.split("(crdebug) ")
        if part.startswith(f"{typed}\n")
    ]


async def test_the_sum_that_is_not_a_number_is_traced_to_the_line_on_rank_2(advect: Path) -> None:
    part = await play("trace.crdebug", advect)
    assert "rank 0 hit breakpoint 1: complain" in part[1]
    assert "nan" in answers(part[1], "[0] print total")[0]
    assert re.search(r"first true after MPI call 990[456] of rank 0", part[2])
    assert re.search(r"\[0\] report at advect.c:\d+\n +\d+\t +MPI_Recv\(&theirs,", part[2])
    assert "message of 8 bytes from rank 2 to rank 0, tag 3" in part[3]
    assert "nan" in answers(part[3], "[2] print own")[0]
    # the number of this call of rank 2 does not depend on time; it is in the script's next part
    assert "first true after MPI call 9778 of rank 2" in part[4]
    assert "[2] exchange at advect.c" in part[5]
    assert "nan" not in answers(part[5], "[2] print u[22]@8")[0]
    assert "/* the bug: 0 / 0 where the wave is flat */" in part[6]
    (stack,) = answers(part[6], "[2] backtrace")
    assert re.findall(r"#\d +(\w+) ", stack) == ["limiter", "flux", "advance", "main"]
    assert answers(part[6], "[2] print cell[-1]@3")[0].count("1.1399999999999999") == 3
    assert "nan" in answers(part[7], "[2] print u[22]@8")[0]


async def test_to_ticks_and_a_mark_also_when_the_job_has_ended(advect: Path) -> None:
    part = await play("goto.crdebug", advect, 200)
    first, other, again = answers(part[1], "[0] print u[20]")
    assert first == again != other
    assert [len(answers(part[1], f"goto tick {tick} on 0")) for tick in (300, 900)] == [2, 1]
    assert answers(part[0], "when")[0].startswith("[0] tick 251\n") or (
        answers(part[0], "when")[0].startswith("[0-3] tick 251\n")
    )
    assert "tick 251 of 10" in answers(part[2], "when")[0]
    assert f"out| {reference(advect, 200)}" in part[3]
    assert "the job ended with status 0" in part[3]


async def test_from_one_end_of_a_message_to_the_other(advect: Path) -> None:
    part = await play("messages.crdebug", advect, 200)
    (sender,) = re.findall(r"^message of 16 bytes from rank ([13]) to rank 2", part[1], re.M)
    assert re.search(rf"^rank {sender} at tick [45] ", part[1], re.M)
    assert f"message of 16 bytes from rank {sender} to rank 2" in part[2]
    assert re.search(r"^rank 2 at tick 6 of ", part[2], re.M)
    assert re.search(r"^rank 2 at tick 6 of ", part[3], re.M)


async def test_since_when(advect: Path) -> None:
    part = await play("bisect.crdebug", advect, 400)
    assert "first true after MPI call 416 of rank 0" in part[1]
    assert "first true after MPI call 756 of rank 1" in part[2]
    assert "first true after MPI call 1058 of rank 0" in part[3]
    values = [float(word) for word in re.findall(r"= ([-0-9.e]+)$", part[3], re.M)]
    assert sum(values) > 1


async def test_backwards_like_forwards(advect: Path) -> None:
    part = await play("reverse.crdebug", advect, 200)
    assert re.findall(r"^  \[0\] (\w+) at advect.c", part[1], re.M) == ["report", "report", "main"]
    assert part[2].count("if (step % 50 == 49) {") == 5
    assert re.findall(r"^rank 2 at tick (\d+) ", part[3], re.M) == ["251", "246"]
    first, then = answers(part[4], "[0] print u[20]")
    assert first == then
    assert "u[i] = next_u[i];" in answers(part[4], "[0] last u[20]")[0]
    assert "this is the start of history" in part[5]


async def test_what_if(advect: Path) -> None:
    part = await play("branches.crdebug", advect, 400)
    (was,), (other,) = (answers(part[n], "[0] print total") for n in (0, 1))
    assert was != other
    assert re.findall(r"^  (\[0\] = .*)", part[2], re.M) == [was, other]
    assert answers(part[3], "[0] print total") == [was]
    assert "* main" in answers(part[3], "info branches")[0]


async def test_the_history_as_a_whole(
    advect: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    part = await play("timeline.crdebug", advect, 200)
    assert "^ mark first-report: tick 251" in part[1]
    assert "at the first report" in answers(part[1], "info checkpoints")[0]
    assert "first-report" in (tmp_path / "timeline.html").read_text()

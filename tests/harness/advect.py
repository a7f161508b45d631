"""The scripts of examples/advect, and what they promise: the same in every job that can go back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "advect"

Parts = dict[int, str]
"""A script's output, by the numbers of its headings or, without numbers, from 0."""


def make(place: Path) -> Path:
    """The program, made by the example's own Makefile, but elsewhere."""
    for name in ("Makefile", "advect.c"):
        (place / name).write_text((EXAMPLE / name).read_text())
    subprocess.run(["make", "-s", "-C", str(place)], check=True)
    return place / "advect"


def parts(output: str) -> Parts:
    return dict(enumerate(re.split(r"^--- .*\n", output, flags=re.M)))


def answers(text: str, typed: str) -> list[str]:
    """The output after each time that it was typed, up to the next prompt."""
    return [
        part.split("\n", 1)[1].rstrip()
        for part in text.split("(crdebug) ")
        if part.startswith(f"{typed}\n")
    ]


def traced(part: Parts) -> None:
    """trace.crdebug: the sum that is not a number is traced to the line on rank 2."""
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


def went_to(part: Parts, output: str) -> None:
    """goto.crdebug, of 200 steps: to ticks and a mark. output: of an undisturbed run."""
    first, other, again = answers(part[1], "[0] print u[20]")
    assert first == again != other
    assert [len(answers(part[1], f"goto tick {tick} on 0")) for tick in (300, 900)] == [2, 1]
    assert answers(part[0], "when")[0].startswith("[0] tick 251\n") or (
        answers(part[0], "when")[0].startswith("[0-3] tick 251\n")
    )
    assert "tick 251 of 10" in answers(part[2], "when")[0]
    shown = part[1] + part[3]  # the job prints it at its end, and again if it was there before
    assert shown.count(f"out| {output}") == 1
    assert "the job ended with status 0" in part[3]


def followed_messages(part: Parts) -> None:
    """messages.crdebug, of 200 steps: from one end of a message to the other."""
    (sender,) = re.findall(r"^message of 16 bytes from rank ([13]) to rank 2", part[1], re.M)
    assert re.search(rf"^rank {sender} at tick [45] ", part[1], re.M)
    assert f"message of 16 bytes from rank {sender} to rank 2" in part[2]
    assert re.search(r"^rank 2 at tick 6 of ", part[2], re.M)
    assert re.search(r"^rank 2 at tick 6 of ", part[3], re.M)


def bisected(part: Parts) -> None:
    """bisect.crdebug, of 400 steps."""
    assert "first true after MPI call 416 of rank 0" in part[1], part[1]
    assert "first true after MPI call 756 of rank 1" in part[2], part[2]
    assert "first true after MPI call 1220 of rank 0" in part[3], part[3]
    values = [float(word) for word in re.findall(r"= ([-0-9.e]+)$", part[3], re.M)]
    assert sum(values) > 1.5


def went_backwards(part: Parts) -> None:
    """reverse.crdebug, of 200 steps."""
    assert re.findall(r"^  \[0\] (\w+) at advect.c", part[1], re.M) == ["report", "report", "main"]
    assert part[2].count("if (step % 50 == 49) {") == 5
    assert re.findall(r"^rank 2 at tick (\d+) ", part[3], re.M) == ["251", "246"]
    first, then = answers(part[4], "[0] print u[20]")
    assert first == then
    assert "u[i] = next_u[i];" in answers(part[4], "[0] last u[20]")[0]
    assert "this is the start of history" in part[5]

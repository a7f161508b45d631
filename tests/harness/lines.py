"""The lines that tests/programs/files.c has written: each once, in order, none missing."""

from __future__ import annotations

from pathlib import Path

from crdebug.job.directory import JobDirectory
from harness import looks
from harness.jobs import JOB

LINE = 12


def lines_of(data: bytes, what: str) -> int:
    """The number of lines, which must be the numbers from 1 on, each once, in order."""
    whole = [int(data[at : at + LINE]) for at in range(0, len(data) - LINE + 1, LINE)]
    assert whole == list(range(1, len(whole) + 1)), f"{what}: {_odd(whole)}"
    return len(whole)


def _odd(numbers: list[int]) -> str:
    for at, number in enumerate(numbers):
        if number != at + 1:
            return f"line {at + 1} of {len(numbers)} is {numbers[max(0, at - 2) : at + 3]}"
    return ""


def require_the_end(said: str, ranks: int, last: int) -> None:
    """Each rank found its files right after its last step, and what they said of it came once.
    Rank 0 prints that for all, perhaps before another rank's last line has gone its own way."""
    ends = [line for line in said.splitlines() if ": files ok" in line]
    assert ends == [f"rank {rank}: files ok, {last} lines" for rank in range(ranks)]


def require_nothing_lost(ranks: int) -> None:
    """Of what the job in the working directory has written so far; it may be running on."""
    before = looks.steps()
    run = JobDirectory(JOB).run(JobDirectory(JOB).read().incarnation)
    told = (run / "stdout").read_text().splitlines(keepends=True)
    for rank in range(ranks):
        steps = [int(line.split()[3]) for line in told if line.startswith(f"rank {rank} step")]
        assert steps == list(range(1, len(steps) + 1)), f"output of rank {rank}: {_odd(steps)}"
        table = Path(f"table.{rank}").read_bytes()
        placed = lines_of(table[LINE:], f"table.{rank}")
        appended = lines_of(Path(f"append.{rank}").read_bytes(), f"append.{rank}")
        after = looks.steps()
        # A step appends, then places, then reports.
        assert before[rank] - 1 <= appended <= after[rank], (before, appended, after)
        assert before[rank] - 1 <= placed <= after[rank], (before, placed, after)
        assert len(steps) <= appended

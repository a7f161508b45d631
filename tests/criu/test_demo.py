"""The demo, and every command of README.md, do what their texts promise to a newcomer."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
RANKS = range(4)

# Progress of long operations, and input of other programs.
PROGRESS = re.compile(
    r"(run|attach|checkpoint|restart|back in time): [a-z ]+(a?\d+)?( on)?( \[[\d,-]+\])?$"
)
FOR_PROGRAMS = re.compile(r"MPIR_checkpoint_handle\) \w+:\d+$|MPIR_debug_info\) \S+:\d+$")


@pytest.fixture
def environment(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A newcomer's environment: nothing is set for Open MPI. Temporary files go where we can count
    them."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    return {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}


def play(argv: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run it from the top of the checkout; nothing may remain in the directory for temporary
    files."""
    ran = subprocess.run(
        argv,
        cwd=TOP,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n--- stderr\n{ran.stderr}"
    assert not list(Path(environment["TMPDIR"]).iterdir())
    return ran


# ---- make demo ----------------------------------------------------------------------------------


def sections(text: str) -> dict[int, list[str]]:
    """The demonstration's parts by number, without progress and empty lines."""
    found: dict[int, list[str]] = {}
    number = 0
    for line in text.splitlines():
        if heading := re.match(r"--- (\d)\. ", line):
            number = int(heading[1])
        elif line and not PROGRESS.match(line):
            found.setdefault(number, []).append(line)
    return found


def answers(lines: list[str], command: str) -> list[str]:
    """The answers to a command in one part."""
    start = lines.index(f"(crdebug) {command}") + 1
    rest = lines[start:]
    return rest[: next((n for n, line in enumerate(rest) if line.startswith("(crdebug) ")), None)]


def places(lines: list[str]) -> list[list[str]]:
    """The table of ranks without their PIDs."""
    table = [line.split() for line in answers(lines, "info ranks")]
    return [[*row[:2], *row[3:]] for row in table]


def test_the_demo_goes_back_to_where_it_was_and_ends_as_if_undisturbed(
    environment: dict[str, str],
) -> None:
    said = play(["scripts/demo"], environment).stdout
    part = sections(said)
    assert sorted(part) == list(range(8))

    before = part[2]
    assert len(places(before)) == 1 + len(RANKS)
    assert places(part[5]) == places(before)
    assert answers(part[5], "backtrace") == answers(before, "backtrace") != []
    for variable in ("print step", "print residual"):
        there = answers(before, variable)
        for number in (3, 5, 6):
            assert answers(part[number], variable) == there
        assert answers(part[4], variable) != there
    assert len(answers(before, "print residual")) == len(RANKS), "each has its own"

    assert answers(part[5], "restart")[0] == "back at checkpoint heat-demo:1 (incarnation 2)"
    assert answers(part[6], "restart")[0] == "back at checkpoint heat-demo:1 (incarnation 3)"
    steps = [int(line.split()[2]) for line in part[7] if line.startswith("out| step ")]
    assert steps == list(range(100, 1001, 100))
    assert "the job ended with status 0" in part[7]
    assert part[7][-1].startswith("demo: it ends with the same result, to the last bit: sum ")


# ---- README.md ----------------------------------------------------------------------------------

IN_SHELL = ("crdebug", "export", "make")


def commands() -> Iterator[str]:
    """Every command of the README's indented lines, in order."""
    for line in (TOP / "README.md").read_text().splitlines():
        if line.startswith("    "):
            yield line.split("#")[0].strip()


def in_shell(command: str) -> bool:
    return command.split()[0] in IN_SHELL


WAIT = """
until_running() {
    until crdebug jobs --json | grep -q '"state": "running"'; do :; done
}
"""


def as_script(typed: Iterator[str]) -> str:
    """The commands as one shell script: lines for crdebug's prompt become its standard input.

    A person does not type on before a job has started, so the script waits for that.
    """
    lines = ["set -eu", WAIT]
    for shell, group in groupby(typed, in_shell):
        if not shell:
            lines[-1] += f" <<'END'\n{chr(10).join(group)}\nEND"
            continue
        for command in group:
            if command.endswith("&"):
                lines += [command, "until_running"]
            elif not command.startswith("make"):
                lines += [f"echo {shlex.quote(f'$ {command}')}", command]
    return "\n".join([*lines, "wait", "crdebug jobs"])


def test_every_command_of_the_readme_works(environment: dict[str, str]) -> None:
    ran = play(["bash", "-c", as_script(commands())], environment)
    unexpected = [
        line
        for line in ran.stderr.splitlines()
        if not (PROGRESS.match(line) or FOR_PROGRAMS.match(line) or line == "crdebug: job bare")
    ]
    assert not unexpected

    said = ran.stdout
    assert "\nready: MPI jobs can be debugged" in said
    tour = said[said.index("$ crdebug run --name heat") : said.index("$ crdebug run --name back")]
    assert "checkpoint heat:1 taken" in tour
    assert "back at checkpoint heat:1 (incarnation 2)" in tour
    steps = re.findall(r"^\[.*\] = (\d+)$", tour, re.MULTILINE)
    asked = sum(command == "print step" for command in commands())
    values = [int(value) for value in steps]
    assert asked == 3
    assert min(values) in (49, 50)
    assert max(values) in (300, 301)
    assert values[-1] < 52, "back where it was"
    back = said[said.index("$ crdebug run --name back") : said.index("$ crdebug checkpoints heat")]
    # step 200 begins with the 800th call; how far the other ranks are by then differs
    assert re.search(r"^rank 2 at tick (79\d|80\d) of 80\d$", back, re.MULTILINE)
    assert "step has just been changed here" in back
    assert re.search(r"^rank 1 at tick 300 of 80\d$", back, re.MULTILINE)
    assert "job bare was killed; its checkpoints stay" in said
    assert "checkpoint bare:1 deleted" in said
    assert said.endswith("\n")

"""What becomes of a job when a script of --batch fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli import World, crdebug_, world  # noqa: F401

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("lines", "kind", "asked"),
    [
        ("echo x\nfrob\n", "run", "detach"),
        ("gdb set var x = 1\nfrob\n", "run", ""),
        ("gdb set var x = 1\nset on-script-error let-go\nfrob\n", "run", "detach"),
        ("set on-script-error kill\nfrob\n", "run", ""),
        ("set on-script-error hold\nfrob\n", "run", "detach held"),
        ("gdb set var x = 1\nfrob\n", "attach", "detach"),
        ("set on-script-error kill\nfrob\n", "attach", ""),
        ("echo x\n", "run", ""),
    ],
)
def test_what_becomes_of_the_job_when_a_script_fails(
    world: World,  # noqa: F811
    tmp_path: Path,
    lines: str,
    kind: str,
    asked: str,
) -> None:
    what = ("--", "mpirun", "x") if kind == "run" else ("heat",)
    script = tmp_path / "script"
    script.write_text(lines)
    result = crdebug_(kind, "--batch", "-x", str(script), *what)
    assert result.exit_code == ("frob" in lines), result.output
    left = [" ".join(map(str, each)) for each in world.session.asked if each[0] == "detach"]
    assert left == ([asked] if asked else [])
    followed = [each for each in world.asked if each[0] == "follow"]
    assert followed == ([("follow", "heat", True)] if (kind, asked) == ("run", "detach") else [])


def test_a_failing_script_is_status_1_with_file_and_line(
    world: World,  # noqa: F811
    tmp_path: Path,
) -> None:
    file = str(tmp_path / "script")
    Path(file).write_text("# heat\nfrobnicate\n")
    result = crdebug_("run", "--batch", "-x", file, "--", "mpirun", "./heat")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"{file}:2: there is no command 'frobnicate'")
    assert ("detach",) in world.session.asked
    assert world.asked[-1] == ("follow", "heat", True)
    assert world.session.closed

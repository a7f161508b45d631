"""`crdebug man` and `crdebug completion`: made from the declarations, so nothing is forgotten."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from test_record import a_job

from crdebug.base import settings
from crdebug.cli import main
from crdebug.commands.standard import standard
from crdebug.ui.man_page import man_page

pytestmark = pytest.mark.unit


@pytest.fixture
def page() -> str:
    return CliRunner().invoke(main, ["man"]).output


def bold(term: str) -> str:
    escaped = term.replace("\\", "\\e").replace("-", "\\-")
    return f"\\fB{escaped}\\fR\n"


def test_the_manual_page_has_every_command_and_option(page: str) -> None:
    for name, command in main.commands.items():
        assert f"\n.SS {name}" in page
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                longest = max(option.opts, key=len).replace("-", "\\-")
                assert re.search(rf"^\\fB.*{re.escape(longest)}\b", page, re.MULTILINE), option.name
    for declared in standard().commands:
        assert bold(declared.usage) in page


def test_the_manual_page_has_every_variable_that_settings_read(page: str) -> None:
    read = set(re.findall(r'environ\.get\("((?:CRDEBUG_)?\w+)"\)', inspect.getsource(settings)))
    assert {"CRDEBUG_HOME", "CC"} <= read
    for name in read:
        assert name.startswith("XDG_") or bold(name) in page, name


def test_what_roff_would_take_for_its_own_is_shown_as_it_is() -> None:
    @click.group(help="Does a thing.")
    def program() -> None: ...

    @program.command(help=".so /etc/passwd is no request, nor is 'this, and \\n stays.")
    def odd() -> None: ...

    shown = man_page(program, standard())
    assert "\n\\&.so /etc/passwd" in shown
    assert "\\en stays" in shown


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_the_manual_page_is_right_for_groff(page: str) -> None:
    ran = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii"], input=page, capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    assert "EXIT STATUS" in re.sub(r".\x08", "", ran.stdout)


# ---- completion -------------------------------------------------------------------------------


def completed(line: str, home: Path) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    environment = {**os.environ, **words, "CRDEBUG_HOME": str(home)}
    ran = subprocess.run(
        [sys.executable, "-c", "from crdebug.cli import main; main(prog_name='crdebug')"],
        env={**environment, "_CRDEBUG_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [offered.partition(",")[2] for offered in ran.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_crdebug(shell: str) -> None:
    said = CliRunner().invoke(main, ["completion", shell])
    assert said.exit_code == 0
    assert f"_CRDEBUG_COMPLETE={shell}_complete" in said.output


def test_bash_takes_the_script() -> None:
    script = CliRunner().invoke(main, ["completion", "bash"]).output
    check = f"{script}\ncomplete -p crdebug"
    ran = subprocess.run(["bash", "-c", check], capture_output=True, text=True, check=True)
    assert "-F _crdebug_completion crdebug" in ran.stdout


def test_commands_options_and_jobs_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRDEBUG_HOME", str(tmp_path))
    for name in ("heat", "heat-2", "other"):
        a_job(name)
    assert completed("crdebug re", tmp_path) == ["release", "restart"]
    assert "--note" in completed("crdebug checkpoint --n", tmp_path)
    assert completed("crdebug checkpoint he", tmp_path) == ["heat", "heat-2"]

"""docs/dependencies.md gives a reason for all that is depended on, and for nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

TOP = Path(__file__).parents[2]


def required() -> set[str]:
    """The Python packages that pyproject.toml names, those for tests included."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    named = [*project["dependencies"], *(each for extra in optional.values() for each in extra)]
    return {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in named}


def explained() -> dict[str, str]:
    """Package → reason, from the tables with these two columns."""
    reasons = {}
    for line in (TOP / "docs" / "dependencies.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 2 and cells[0] not in ("package", "---"):
            reasons.update(dict.fromkeys(cells[0].split(", "), cells[1]))
    return reasons


def test_every_python_package_has_a_reason() -> None:
    assert explained().keys() == required()
    assert all(explained().values())


def test_every_package_of_ours_is_installed() -> None:
    """Also where it is not installed editable."""
    settings = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["setuptools"]
    there = {
        ".".join(init.parent.relative_to(TOP).parts) for init in TOP.glob("crdebug/**/__init__.py")
    }
    assert set(settings["packages"]) == there | {
        f"crdebug.gdbscripts{part}" for part in ("", ".snapshot", ".stepper")
    }


def test_every_debian_package_that_setup_installs_has_a_reason() -> None:
    scripts = (TOP / "scripts" / "setup", TOP / "crdebug" / "node" / "setup" / "needs.sh")
    setup = "\n".join(script.read_text() for script in scripts)
    wanted = re.findall(r'^(?:want_gdb\(\) \{)?\s*want (?:"([^"]+)"|(\S+)) ', setup, re.MULTILINE)
    packages = {package for quoted, bare in wanted for package in (quoted or bare).split()}
    assert {"gdb", "criu", "lammps", "python3-venv"} <= packages
    table = (TOP / "docs" / "dependencies.md").read_text()
    cells = {word for line in table.splitlines() for word in re.findall(r"[\w.+-]+", line)}
    assert packages <= cells

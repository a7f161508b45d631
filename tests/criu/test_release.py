"""A wheel is all that a user needs: built from this tree and installed elsewhere, it runs the
demo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import crdebug

TOP = Path(__file__).parents[2]
BUILT_FROM = ("crdebug", "gdbscripts", "docs", "examples", "scripts", "tests", "benchmarks")
GDBSCRIPTS, INSTALLED_GDBSCRIPTS = TOP / "gdbscripts", Path("crdebug", "gdbscripts")
FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "Makefile")


def run(*argv: str | Path, cwd: Path) -> str:
    """The output; without the variables that could lead to the checkout, or past its launcher."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "OMPI_", "VIRTUAL_ENV"))
    }
    ran = subprocess.run(
        argv,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def required(name: str) -> Iterator[metadata.Distribution]:
    """The distributions that a user of this one gets, without extras."""
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield metadata.distribution(requirement.name)
            yield from required(requirement.name)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A directory with the wheel and the sdist that `python -m build` makes of this tree."""
    tree, made = tmp_path / "tree", tmp_path / "made"
    for name in BUILT_FROM:
        unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(TOP / name, tree / name, ignore=unwanted)
    for name in FILES:
        shutil.copy(TOP / name, tree)
    command = ["-m", "build", "--no-isolation", "--outdir", str(made), "."]
    ran = subprocess.run(
        [sys.executable, *command], cwd=tree, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return made


@pytest.fixture
def clean(built: Path, tmp_path: Path) -> Path:
    """The directory of programs of an environment with the wheel and its dependencies."""
    home = tmp_path / "clean"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    for distribution in required("crdebug"):
        for file in distribution.files or ():
            top = Path(file.parts[0])
            if file.parts[0] == "..":
                link, target = home / "bin" / file.name, Path(str(file.locate()))
            else:
                link, target = site / top, Path(str(distribution.locate_file(top)))
            if not link.exists():
                link.symlink_to(target.resolve())
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    return home / "bin"


def missing(site: Path) -> set[Path]:
    """Files of the packages here that were not installed."""
    return {
        into / path.relative_to(part)
        for part, into in ((TOP / "crdebug", Path("crdebug")), (GDBSCRIPTS, INSTALLED_GDBSCRIPTS))
        for path in part.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
        if not (site / into / path.relative_to(part)).exists()
    }


def test_a_wheel_outside_of_the_checkout_runs_the_demo(
    built: Path, clean: Path, tmp_path: Path
) -> None:
    version = crdebug.__version__
    names = [f"crdebug-{version}-py3-none-any.whl", f"crdebug-{version}.tar.gz"]
    assert sorted(path.name for path in built.iterdir()) == names
    (site,) = clean.parent.glob("lib/python*/site-packages")
    assert missing(site) == set()

    program = clean / "crdebug"
    where = run(clean / "python", "-c", "import crdebug; print(crdebug.__file__)", cwd=tmp_path)
    assert where.startswith(str(clean.parent))
    assert run(program, "--version", cwd=tmp_path).split()[-1] == version
    assert "\nready: MPI jobs can be debugged" in run(program, "doctor", cwd=tmp_path)

    heat = tmp_path / "heat"
    shutil.copytree(TOP / "examples" / "heat", heat)
    run("make", "--silent", cwd=heat)
    job = ("mpirun", "--oversubscribe", "-n", "4", "./heat")
    said = run(
        program, "run", "--batch", "--name", "demo", "-x", "demo.crdebug", "--", *job, cwd=heat
    )
    assert "back at checkpoint demo:1 (incarnation 3)" in said
    assert "the job ended with status 0" in said

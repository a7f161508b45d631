"""The tiers themselves: tests/conftest.py in a pytest of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

FINE = "def test_fine():\n    pass\n"


def pytest_in(
    directory: Path, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest on a directory with the tiers' conftest; by default, no tier is required."""
    shutil.copy(TESTS / "conftest.py", directory)
    argv = [sys.executable, "-m", "pytest", "-c", str(TESTS.parent / "pyproject.toml")]
    argv += ["--rootdir", str(directory), "-p", "no:cacheprovider"]
    kept = {k: v for k, v in os.environ.items() if k not in ("CI", "CRDEBUG_REQUIRE_TIERS")}
    return subprocess.run(
        [*argv, *options, str(directory)],
        capture_output=True,
        text=True,
        env={**kept, **environment},
        check=False,
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_test_without_a_tier_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "test_stray.py", FINE)
    ran = pytest_in(tmp_path)
    assert ran.returncode == 4
    assert "exactly one tier" in ran.stderr
    assert "test_stray.py::test_fine" in ran.stderr


def test_a_test_with_two_tiers_is_an_error(tmp_path: Path) -> None:
    marked = "import pytest\n@pytest.mark.gdb\n" + FINE
    write(tmp_path / "unit" / "test_both.py", marked)
    ran = pytest_in(tmp_path)
    assert ran.returncode == 4
    assert "test_both.py::test_fine" in ran.stderr


def test_a_marker_serves_where_the_directory_does_not(tmp_path: Path) -> None:
    write(tmp_path / "test_marked.py", "import pytest\n@pytest.mark.unit\n" + FINE)
    ran = pytest_in(tmp_path, "-m", "unit")
    assert ran.returncode == 0, ran.stdout
    assert "tiers: unit: 1 passed; gdb: not run" in ran.stdout


def test_an_unavailable_tier_is_skipped_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path / "criu" / "test_one.py", FINE)
    write(tmp_path / "unit" / "test_two.py", FINE)
    ran = pytest_in(tmp_path, CRDEBUG_CRIU="/nowhere/criu")
    assert ran.returncode == 0, ran.stdout
    assert "the criu tier cannot run here: criu: /nowhere/criu" in ran.stdout
    assert "tiers: unit: 1 passed; gdb: not run; mpi: not run; criu: 1 skipped" in ran.stdout
    # cheap tiers first, whatever the names' order
    assert ran.stdout.index("test_two.py") < ran.stdout.index("test_one.py")


def test_an_unavailable_tier_fails_where_all_are_required(tmp_path: Path) -> None:
    write(tmp_path / "criu" / "test_one.py", FINE)
    for required in ({"CI": "true"}, {"CI": "1"}, {"CRDEBUG_REQUIRE_TIERS": "all"}):
        ran = pytest_in(tmp_path, CRDEBUG_CRIU="/nowhere/criu", **required)
        assert ran.returncode == 1, ran.stdout
        assert "cannot run here, and must: criu: /nowhere/criu" in ran.stdout

"""The tiers themselves: tests/conftest.py in a pytest of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

FINE = "def test_fine():\n    pass\n"


def pytest_in(
    directory: Path, *options: str, file: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest on a directory with the tiers' conftest; by default, no tier is required."""
    shutil.copy(TESTS / "conftest.py", directory)
    shutil.copytree(TESTS / "harness", directory / "harness", dirs_exist_ok=True)
    argv = [sys.executable, "-m", "pytest", "-c", str(TESTS.parent / "pyproject.toml")]
    argv += ["--rootdir", str(directory), "-p", "no:cacheprovider"]
    kept = {k: v for k, v in os.environ.items() if k not in ("CI", "CRDEBUG_REQUIRE_TIERS")}
    return subprocess.run(
        [*argv, *options, str(directory / file)],
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
    named = "@pytest.mark.parametrize('of', ['gdb'])\ndef test_gdb(of):\n    pass\n"
    marked = f"import pytest\npytestmark = pytest.mark.unit\n{FINE}{named}"
    write(tmp_path / "test_marked.py", marked)
    ran = pytest_in(tmp_path, "-m", "unit")
    assert ran.returncode == 0, ran.stdout
    assert "tiers: unit: 2 passed; gdb: not run" in ran.stdout


@pytest.mark.root
def test_an_unavailable_tier_is_skipped_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path / "criu" / "test_one.py", FINE)
    write(tmp_path / "unit" / "test_two.py", FINE)
    ran = pytest_in(tmp_path, CRDEBUG_CRIU="/nowhere/criu")
    assert ran.returncode == 0, ran.stdout
    assert "the criu tier cannot run here: criu: /nowhere/criu" in ran.stdout
    assert "tiers: unit: 1 passed; gdb: not run; mpi: not run; criu: 1 skipped" in ran.stdout
    # cheap tiers first, whatever the order of names
    assert ran.stdout.index("test_two.py") < ran.stdout.index("test_one.py")


def test_a_sweep_is_left_out_unless_all_is_wanted_or_it_is_named(tmp_path: Path) -> None:
    sweep = "import pytest\n@pytest.mark.sweep\ndef test_more():\n    pass\n"
    write(tmp_path / "unit" / "test_one.py", sweep + FINE)
    assert "1 passed, 1 deselected" in pytest_in(tmp_path).stdout
    assert "2 passed" in pytest_in(tmp_path, "--all").stdout
    named = pytest_in(tmp_path, file="unit/test_one.py::test_more")
    assert "1 passed" in named.stdout


def test_what_needs_a_virtual_machine_runs_when_its_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "unit" / "test_vm.py", "import pytest\npytestmark = pytest.mark.vm\n" + FINE)
    assert "1 deselected" in pytest_in(tmp_path, "--all").stdout
    assert "1 passed" in pytest_in(tmp_path, file="unit/test_vm.py").stdout


def test_a_skip_is_a_failure_where_all_is_required(tmp_path: Path) -> None:
    skips = "import pytest\ndef test_one():\n    pytest.skip('no whales')\n"
    marked = "@pytest.mark.skipif(True, reason='no fish')\ndef test_two():\n    pass\n"
    write(tmp_path / "unit" / "test_skips.py", skips + marked)
    assert "2 skipped" in pytest_in(tmp_path).stdout
    ran = pytest_in(tmp_path, CI="true")
    assert "2 failed" in ran.stdout
    assert ran.returncode == 1
    for reason in ("no whales", "no fish"):
        assert f"it was skipped, and must not be: {reason}" in ran.stdout


@pytest.mark.root
def test_what_needs_root_is_counted_for_an_ordinary_user(tmp_path: Path) -> None:
    marked = "import pytest\n@pytest.mark.root\n" + FINE
    write(tmp_path / "unit" / "test_one.py", marked + FINE.replace("fine", "anybody"))
    write(tmp_path / "criu" / "test_two.py", FINE)
    asks = "import os\nos.geteuid = lambda: 1000\n"
    write(tmp_path / "somebody.py", asks)
    ran = pytest_in(tmp_path, "-p", "somebody", PYTHONPATH=str(tmp_path))
    assert ran.returncode == 0, ran.stdout
    assert "1 not run: they need root" in ran.stdout
    assert "2 passed, 1 skipped" in ran.stdout


@pytest.mark.root
def test_an_unavailable_tier_fails_where_all_are_required(tmp_path: Path) -> None:
    write(tmp_path / "criu" / "test_one.py", FINE)
    for required in ({"CI": "true"}, {"CI": "1"}, {"CRDEBUG_REQUIRE_TIERS": "all"}):
        ran = pytest_in(tmp_path, CRDEBUG_CRIU="/nowhere/criu", **required)
        assert ran.returncode == 1, ran.stdout
        assert "must not be: the criu tier cannot run here: criu: /nowhere/criu" in ran.stdout

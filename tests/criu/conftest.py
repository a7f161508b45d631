"""Every test of this tier has its own state directory, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from harness import mpis, works_with
from harness.jobs import state_directory
from harness.leaks import no_leaks  # noqa: F401
from harness.mpis import MPIS, Mpi


@pytest.fixture(autouse=True)
def home(
    no_leaks: None,  # noqa: F811 - torn down after this one
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """An empty state directory; tmp_path is the working directory, where programs leave files."""
    monkeypatch.chdir(tmp_path)
    with state_directory(tmp_path / "home", monkeypatch) as path:
        yield path


# ---- every MPI ----------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked `every_mpi` with every MPI; see below for which of these are a sweep."""
    if not metafunc.definition.get_closest_marker("every_mpi"):
        return
    if "language" in metafunc.fixturenames:
        cases = [(mpi, language) for mpi in MPIS for language in mpi.languages]
        ids = [f"{_id(mpi)}-{language}" for mpi, language in cases]
        metafunc.parametrize(("mpi", "language"), cases, ids=ids, indirect=["mpi"])
    else:
        metafunc.parametrize("mpi", MPIS, ids=map(_id, MPIS), indirect=True)


def _id(mpi: Mpi) -> str:
    """Of its tests: its name, and where it is from if there is another one of that name."""
    alike = [each for each in MPIS if each.name == mpi.name]
    return mpi.name if len(alike) == 1 else f"{mpi.origin}, {mpi.name}"


@pytest.hookimpl(tryfirst=True)  # before the sweeps are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as a sweep: for tests by turns, all MPIs but one, which moves on with each test of a
    column; the MPIs from `up_to` on; and languages other than C, except with the first MPI."""
    columns: dict[str, dict[str, None]] = {}
    for item in items:
        mark = item.get_closest_marker("every_mpi")
        if mark is None or not isinstance(item, pytest.Function):
            continue
        if item.get_closest_marker("sweep"):
            continue
        number = MPIS.index(item.callspec.params["mpi"])
        if mark.kwargs.get("by_turns"):
            tests = columns.setdefault(mark.args[0], {})
            test = f"{item.path}::{item.name.replace(_id(MPIS[number]), '')}"
            tests.setdefault(test)
            more = number != list(tests).index(test) % len(MPIS)
        else:
            language = item.callspec.params.get("language", "C")
            more = number >= mark.kwargs.get("up_to", len(MPIS)) or (number > 0 and language != "C")
        if more:
            item.add_marker("sweep")


@pytest.fixture(autouse=True)
def mpi(request: pytest.FixtureRequest) -> Iterator[Mpi | None]:
    """The MPI with which the test's programs are built and started, if the test is marked for
    it."""
    used: Mpi | None = getattr(request, "param", None)
    with mpis.using(used) if used else nullcontext():
        yield used


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the test's result for docs/mpis.md, under the marker's argument."""
    report = yield
    mark = item.get_closest_marker("every_mpi")
    if mark and isinstance(item, pytest.Function):
        tried = item.callspec.params
        with_mpi = tried["mpi"]
        assert isinstance(with_mpi, Mpi)
        of = (*works_with.row(with_mpi), tried.get("language", *mark.args))
        report.user_properties.append((works_with.PROPERTY, of))
    return report

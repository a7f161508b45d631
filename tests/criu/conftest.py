"""Every test of this tier has its own state directory, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from harness import mpis
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
    """Tests that are marked `every_mpi` run with every one, see below for `by_turns`."""
    if not metafunc.definition.get_closest_marker("every_mpi"):
        return
    if "language" in metafunc.fixturenames:
        cases = [(mpi, language) for mpi in MPIS for language in mpi.languages]
        ids = [f"{mpi.name}-{language}" for mpi, language in cases]
        metafunc.parametrize(("mpi", "language"), cases, ids=ids, indirect=["mpi"])
    else:
        metafunc.parametrize("mpi", MPIS, ids=[mpi.name for mpi in MPIS], indirect=True)


@pytest.hookimpl(tryfirst=True)  # before pytest's -k looks at them
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of those by turns leave, for each test, the first MPI and one of the others."""
    if config.getoption("every_mpi"):
        return
    turns: dict[Path, dict[str, None]] = {}
    left = []
    for item in items:
        mark = item.get_closest_marker("every_mpi")
        if mark is None or not mark.kwargs.get("by_turns") or not isinstance(item, pytest.Function):
            continue
        number = MPIS.index(item.callspec.params["mpi"])
        tests = turns.setdefault(item.path, {})
        test = item.name.replace(MPIS[number].name, "")
        tests.setdefault(test)
        if number not in (0, 1 + list(tests).index(test) % (len(MPIS) - 1)):
            left.append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture(autouse=True)
def mpi(request: pytest.FixtureRequest) -> Iterator[Mpi | None]:
    """The MPI that the test's programs are built with and started by, if it is marked so."""
    used: Mpi | None = getattr(request, "param", None)
    with mpis.using(used) if used else nullcontext():
        yield used


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """What docs/mpis.md says of each MPI, by the marker's argument."""
    report: pytest.TestReport = yield
    mark = item.get_closest_marker("every_mpi")
    if mark and isinstance(item, pytest.Function):
        tried = item.callspec.params
        mpis.note(tried["mpi"], tried.get("language", *mark.args), report.outcome)
    return report

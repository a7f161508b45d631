"""Tiers: what a test needs of the machine, one probe for each, and the order they run in.

A test's tier is the directory below tests/ that it is in; a test elsewhere says it by its
marker. A tier that this machine cannot run is skipped, with the probe's reason. Where CI is
"true" or "1", or CRDEBUG_REQUIRE_TIERS is "all", it fails instead: there a skip would only
hide that something is missing.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from crdebug.node import probes

os.environ["CRDEBUG_CONFIG"] = os.devnull  # what the user of this machine prefers is not tested


def _nothing() -> str | None:
    return None


# in the order they run: what breaks first should be seen first
OBSTACLES: dict[str, Callable[[], str | None]] = {
    "unit": _nothing,
    "gdb": probes.debugging_obstacle,
    "mpi": probes.mpi_obstacle,
    "criu": probes.checkpoint_obstacle,
}
TIERS = tuple(OBSTACLES)

_tier_of_test = pytest.StashKey[dict[str, str]]()
_outcomes: dict[str, Counter[str]] = {}


@functools.cache
def obstacle(tier: str) -> str | None:
    """Why this tier cannot run here, or None. Probed when its first test is about to run."""
    return OBSTACLES[tier]()


def every_tier_required() -> bool:
    required = os.environ.get("CRDEBUG_REQUIRE_TIERS") == "all"
    return required or os.environ.get("CI", "").lower() in ("true", "1")


def _tier(item: pytest.Item) -> str | None:
    """The one tier of a test, marked on it; None if there is none, or more than one."""
    marked = {mark.name for mark in item.iter_markers() if mark.name in TIERS}
    parts = item.path.relative_to(Path(__file__).parent).parts[:-1]
    if parts and parts[0] in TIERS and parts[0] not in marked:
        item.add_marker(parts[0])
        marked.add(parts[0])
    return marked.pop() if len(marked) == 1 else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-mpi",
        action="store_true",
        help="run all tests that are marked every_mpi with all MPIs, none by turns",
    )


@pytest.hookimpl(tryfirst=True)  # before pytest's -m looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers = {item.nodeid: _tier(item) for item in items}
    wrong = sorted(nodeid for nodeid, tier in tiers.items() if tier is None)
    if wrong:
        names = "\n  ".join(wrong)
        raise pytest.UsageError(
            f"each test needs exactly one tier ({', '.join(TIERS)}): put it in that directory of "
            f"tests/, or mark it; these have none, or several:\n  {names}"
        )
    known = {nodeid: tier for nodeid, tier in tiers.items() if tier is not None}
    config.stash[_tier_of_test] = known
    items.sort(key=lambda item: TIERS.index(known[item.nodeid]))


@pytest.hookimpl(tryfirst=True)  # before any fixture is made
def pytest_runtest_setup(item: pytest.Item) -> None:
    tier = item.config.stash[_tier_of_test][item.nodeid]
    reason = obstacle(tier)
    if reason is None:
        return
    if every_tier_required():
        pytest.fail(f"the {tier} tier cannot run here, and must: {reason}", pytrace=False)
    pytest.skip(f"the {tier} tier cannot run here: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report: pytest.TestReport = yield
    if report.when == "call" or report.outcome != "passed":
        tier = item.config.stash[_tier_of_test][item.nodeid]
        _outcomes.setdefault(tier, Counter())[report.outcome] += 1
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line: what became of each tier."""
    told = []
    for tier in TIERS:
        counts = _outcomes.get(tier)
        what = ", ".join(
            f"{counts[outcome]} {outcome}" for outcome in sorted(counts or ()) if counts
        )
        told.append(f"{tier}: {what or 'not run'}")
    terminalreporter.write_line("tiers: " + "; ".join(told))

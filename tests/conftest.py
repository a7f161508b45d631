"""Tiers: which resources of the machine a test needs, one probe for each, and their order.

A test's tier is the directory below tests/ that it is in; a test elsewhere names its tier by a
marker. If this machine cannot run a tier, its tests are skipped with the probe's reason. If CI is
"true" or "1", or CRDEBUG_REQUIRE_TIERS is "all", every skip is a failure instead: there it would
only hide that something is missing.

A test marked `sweep` repeats another test with more cases: it runs with --all, or if it is named. A
test marked `vm` needs another kernel than most machines have: it runs only if its file is named, in
scripts/in-vm.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # also for what pytest_plugins names
from crdebug.node import probes
from harness import ending, leaks

pytest_plugins = ("pytester", "harness.again", "harness.works_with")
os.environ["CRDEBUG_STRICT"] = "1"  # warnings of the native part are errors
os.environ["CRDEBUG_CONFIG"] = os.devnull  # what the user of this machine prefers is not tested
# A rank that waits lets others have its processor: several jobs run side by side on two of them.
os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"  # noqa: SIM112 - as Open MPI spells it
os.environ["MPIR_CVAR_POLLS_BEFORE_YIELD"] = "1"
# Debian's ld.so has no probes, so a GDB reads the whole list of libraries each time one is loaded.
# Many of the 70 that Open MPI 4.1 loads in MPI_Init, and of MPICH 4.0's 40, are never used here:
# hwloc's plugins for graphics cards, with the libraries of X11, components that are not chosen, and
# UCX's for InfiniBand.
os.environ["HWLOC_PLUGINS_BLACKLIST"] = ",".join(
    f"hwloc_{plugin}.so" for plugin in ("gl", "opencl", "pci", "xml_libxml")
)
os.environ["UCX_MODULES"] = "^ib,rdmacm"
for framework, unused in {
    "coll": "adapt,han,sm,sync",
    "mpool": "hugepage",
    "op": "avx",
    "reachable": "netlink",
    "schizo": "flux,jsm",
}.items():
    os.environ[f"OMPI_MCA_{framework}"] = f"^{unused}"


def _nothing() -> str | None:
    return None


# in the order in which they run: basic failures should come first
OBSTACLES: dict[str, Callable[[], str | None]] = {
    "unit": _nothing,
    "gdb": probes.debugging_obstacle,
    "mpi": probes.mpi_obstacle,
    "criu": probes.checkpoint_obstacle,
}
TIERS = tuple(OBSTACLES)
NEEDS_ROOT = "needs root"
_TIER = "tier"  # a property of reports

_tier_of_test = pytest.StashKey[dict[str, str]]()
_outcomes: dict[str, Counter[str]] = {}
_need_root: set[str] = set()


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
        "--all",
        action="store_true",
        help="run what is marked sweep too",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Give each process that runs tests its own mounts, and a state directory for tests that make
    none, because the leak check looks at both."""
    leaks.own_mounts()
    home = Path(tempfile.mkdtemp(prefix="crdebug-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ["CRDEBUG_HOME"] = str(home)
    # Hundreds of crdebugs are started, also by users who may only read the checkout: each takes
    # three times as long if it has to compile itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.pop("PYTHONUNBUFFERED", None)  # few users have it, and it hides what is not flushed
    hypothesis.settings.register_profile("untimed", deadline=None)  # the machine may be busy
    hypothesis.settings.load_profile("untimed")
    ending.usual_signals()
    ending.at_once(home)


@pytest.fixture(autouse=True, scope="session")
def temporary_directories(tmp_path_factory: pytest.TempPathFactory) -> None:
    """pytest makes the directory that all of its own are in when it first needs one: now, and not
    where some test has temporary files put that it counts, and removes."""
    tmp_path_factory.getbasetemp()


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether a test that does the same many times does it as often as for a release (--all)."""
    return bool(request.config.getoption("all"))


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
    named = any("::" in argument for argument in config.args)
    files = {config.invocation_params.dir / argument.split("::")[0] for argument in config.args}
    sweeps = named or config.getoption("all")
    left = {
        item
        for item in items
        if (item.get_closest_marker("sweep") and not sweeps)
        or (item.get_closest_marker("vm") and item.path not in files)
    }
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


def pytest_collection_finish(session: pytest.Session) -> None:
    """The tests themselves, some hundred thousand objects, are no garbage, and not looked at."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before any fixture is made
def pytest_runtest_setup(item: pytest.Item) -> None:
    tier = item.config.stash[_tier_of_test][item.nodeid]
    if os.geteuid() != 0 and item.get_closest_marker("root"):
        pytest.skip(NEEDS_ROOT)
    reason = obstacle(tier)
    if reason is not None:
        pytest.skip(f"the {tier} tier cannot run here: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.user_properties.append((_TIER, item.config.stash[_tier_of_test][item.nodeid]))
    if report.skipped and not hasattr(report, "wasxfail") and every_tier_required():
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ")
        report.outcome, report.longrepr = "failed", f"it was skipped, and must not be: {reason}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Of all tests, also where workers run them."""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        ending.failed[report.nodeid] = (crash.message if crash else report.longreprtext)[-500:]
    tier = dict(report.user_properties).get(_TIER)
    if not isinstance(tier, str):
        return  # a worker has died
    if report.when == "call" or report.outcome != "passed":
        _outcomes.setdefault(tier, Counter())[report.outcome] += 1
    if report.skipped and isinstance(report.longrepr, tuple) and NEEDS_ROOT in report.longrepr[2]:
        _need_root.add(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line with the result of each tier; another one with the tests that were left out."""
    told = []
    for tier in TIERS:
        counts = _outcomes.get(tier)
        what = ", ".join(
            f"{counts[outcome]} {outcome}" for outcome in sorted(counts or ()) if counts
        )
        told.append(f"{tier}: {what or 'not run'}")
    terminalreporter.write_line("tiers: " + "; ".join(told))
    if _need_root:
        terminalreporter.write_line(f"{len(_need_root)} not run: they need root")

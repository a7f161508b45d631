"""A pytest plugin: failed tests are run once more, each alone (--again).

This happens at the end, one after the other, each in a pytest of its own. A test that passes then
does not fail the run, but is "unsteady", and the first failure is shown at the end: a fault still
to be found, in the test or in the product.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

import pytest

# More than that are no matter of chance, and would only fail again.
MOST = 12


@dataclass(slots=True)
class Again:
    """The failures, by test. passed: those that passed when they were run once more."""

    failed: dict[str, list[pytest.TestReport]] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.setdefault(report.nodeid, []).append(report)

    @pytest.hookimpl(trylast=True)  # once xdist's workers have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
            return  # nothing failed, or it was interrupted
        if len(self.failed) > MOST:
            return
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(terminal, pytest.TerminalReporter)
        for nodeid, reports in self.failed.items():
            terminal.ensure_newline()
            terminal.write_line(f"once more, alone: {nodeid}")
            ran = _run(session.config, nodeid)
            if ran.returncode != pytest.ExitCode.OK:
                terminal.write_line(ran.stdout)
                continue
            self.passed.append(nodeid)
            for report in reports:
                _take_out(terminal.stats, report)
            terminal.stats.setdefault("unsteady", []).append(reports[0])
        if not any(terminal.stats.get(kind) for kind in ("failed", "error")):
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.failed) > MOST:
            terminalreporter.write_line(f"more than {MOST} tests failed: none was run once more")
        if not self.passed:
            return
        terminalreporter.section("unsteady: failed, and passed when run once more alone")
        for nodeid in self.passed:
            for report in self.failed[nodeid]:
                terminalreporter.write_sep("_", f"{nodeid} ({report.when})", yellow=True)
                terminalreporter.write_line(report.longreprtext)
                for title, text in report.sections:
                    terminalreporter.write_sep("-", title)
                    terminalreporter.write_line(text)
        terminalreporter.section("unsteady")
        for nodeid in self.passed:
            terminalreporter.write_line(f"UNSTEADY {nodeid}")


def _run(config: pytest.Config, nodeid: str) -> subprocess.CompletedProcess[str]:
    """One test in a pytest of its own."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if config.pluginmanager.hasplugin("xdist"):
        argv.append("-n0")
    if config.inipath is not None:
        argv += ["-c", str(config.inipath)]
    return subprocess.run(
        [*argv, "--rootdir", str(config.rootpath), nodeid],
        cwd=config.rootpath,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _take_out(stats: dict[str, list[object]], report: pytest.TestReport) -> None:
    for kind in ("failed", "error"):
        if report in stats.get(kind, ()):
            stats[kind].remove(report)
            if not stats[kind]:
                del stats[kind]  # else its count is written all the same


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--again",
        action="store_true",
        help="run each test that failed once more, alone; if it passes then, it is unsteady",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("again") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Again(), "again")

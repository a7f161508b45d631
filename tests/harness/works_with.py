"""A pytest plugin: docs/mpis.md says what was tried with each MPI, or the run fails.

With CRDEBUG_WRITE_DOCS=1 the page is written, not compared; a run of a part of the tests leaves
what they do not try as it was. Either way its rows of another Debian release's MPIs are left alone:
a run on that release is about them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.again import Again
from harness.mpis import MPIS, Mpi

PROPERTY = "every_mpi"  # of a test's report: the row of an MPI, and a column of the page
_DEBIAN = f"Debian {platform.freedesktop_os_release().get('VERSION_ID', 'testing')}'s"
_PATH = Path(__file__).parents[2] / "docs" / "mpis.md"
_COLUMNS = (
    *("C", "Fortran", "mpi4py", "launchers"),
    *("exact", "signals", "2 x 2", "faults", "attach", "as a user"),
)
_NOT_TRIED = "not tried"

_PAGE = """\
# MPIs

<!-- Written by tests/harness/works_with.py (CRDEBUG_WRITE_DOCS=1) from what was tried. -->

The table shows what the tests of the tier `criu` have tried. `-`: not in the package.

| MPI | from | {columns} |
| --- | --- |{rule}
{rows}

- **C**, **Fortran**, **mpi4py**, as one session each: start, stop at a breakpoint, look, take a
  checkpoint, go to the sender of a message that was received from anybody, restart, go back by a
  line, run to the end, restart, and come to the same end again.
- **launchers**: `mpiexec` with a hostfile that names this machine and two programs (`:`), with a
  checkpoint and a restart; all others use `mpirun`.
- **exact**: after a checkpoint and a restart every thread is where it was, with the same registers
  and memory: at breakpoints and watchpoints, inside the MPI library, in blocking calls.
- **signals**: a signal that is pending when a checkpoint is taken is delivered once.
- **2 x 2**: checkpoints with and without a debugger are restarted with and without one.
- **faults**: CRIU fails, is killed or hangs, the disk is full; a rank, a GDB and crdebug itself are
  killed in each phase of a checkpoint and of a restart.
- **attach**: crdebug attaches ten times to a job that it did not start, by the PID of the
  launcher, of a rank, or of a process between them, to all ranks or to some; the job is as before
  each time.
- **as a user**: the tests of all columns before this one, run by an ordinary user of the machine,
  who may make user namespaces and has no other rights.

`make test` runs all tests of exact, signals, 2 x 2 and faults with the MPIs that are there in
turn, those of the release and PyPI's, and with Debian's Open MPI some of them as an ordinary user;
`make test-all` runs all of them with every MPI. All other tests use Debian's Open MPI, and show
much more.

`crdebug run` uses the MPI that the launcher's path or name belongs to (`mpirun.mpich`), and
compiles the library that records MPI calls with the `mpicc` next to that launcher. `info launch`
shows the environment variables that crdebug set for the launcher, and why. crdebug also records
the additions of MPI 4 if the MPI has them: combined sends and receives (`MPI_Isendrecv`),
persistent collectives, partitioned communication, large counts. [limits.md](limits.md) lists the
calls that end the recording.

If a CRIU is killed while its code is inside MPICH's launcher (see [limits.md](limits.md)), the
launcher ends, and so does the job; Open MPI's launcher survives that. When a rank dies, MPICH's
launcher ends all others at once, and the error of a checkpoint that fails for this reason names
all of them. PyPI's mpi4py does not find Debian's MPICH by its name: `scripts/setup --test` makes
a `libmpi.so.12` for it in its virtual environment.

Debian 13's Open MPI (5.0.7, with PRRTE 3.0.8) has bugs of its own, with crdebug or without:
`mpirun` crashes when it has to start several programs (`:`); of standard input that is larger than
64 KiB it passes parts on more than once; `--output-filename` fails; when a rank writes much to both
standard output and standard error, it passes on pieces of the output as error; now and then (5 of
150 times) it ends without a word about the process whose status has ended it; and the Fortran
module lacks `MPI_Psend_init` and `MPI_Precv_init` that a program could call.

Open MPI 5.0 (seen with 5.0.11) has another: if the sender has more partitions than the receiver,
`MPI_Parrived` says yes when the first of those has arrived that make up the receiver's partition,
without the others. A program that then reads them may take another course in a replay.
"""


Row = tuple[str, str]
"""An MPI's name, and where it is from."""
Tried = Mapping[tuple[str, str, str], set[str]]
"""By row and column: "passed", "failed"."""


def row(mpi: Mpi) -> Row:
    return mpi.name, mpi.origin.replace("Debian's", _DEBIAN)


def _rows(text: str) -> dict[Row, list[str]]:
    """What the page says."""
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines()]
    return {
        (name, origin): cells
        for name, origin, *cells in (each for each in lines if len(each) == len(_COLUMNS) + 2)
        if name not in ("MPI", "---")
    }


def _elsewhere(of: Row) -> bool:
    """Is it another Debian release's?"""
    return of[1].startswith("Debian") and not of[1].startswith(_DEBIAN)


def page(tried: Tried, before: str, *, whole: bool, mpis: Iterable[Mpi] = MPIS) -> str:
    """docs/mpis.md, by what was tried. before: its text until now, which tells the rest unless the
    tests were run as a whole."""
    old = _rows(before)
    rows = {of: cells for of, cells in old.items() if _elsewhere(of)}
    for mpi in mpis:
        cells = _cells(mpi, tried)
        known = cells if whole else old.get(row(mpi), cells)
        rows[row(mpi)] = [
            then if now == _NOT_TRIED else now for now, then in zip(cells, known, strict=True)
        ]
    ordered = sorted(rows, key=lambda of: (not of[1].startswith("Debian"), of[1], of[0]))
    written = "\n".join(f"| {' | '.join((*of, *rows[of]))} |" for of in ordered)
    columns, rule = " | ".join(_COLUMNS), " --- |" * len(_COLUMNS)
    return _PAGE.format(columns=columns, rule=rule, rows=written)


def different(text: str, tried: Tried, *, whole: bool, mpis: Iterable[Mpi] = MPIS) -> list[str]:
    """The differences between the page and the results, as lines to read.

    whole: a missing test that should have been run is a difference too.
    """
    told, left = [], _rows(text)
    for mpi in mpis:
        name = f"{mpi.name} ({row(mpi)[1]})"
        written = left.pop(row(mpi), None)
        if written is None:
            told.append(f"{name}: the page does not tell of it")
            continue
        for column, cell, said in zip(_COLUMNS, _cells(mpi, tried), written, strict=True):
            if cell != said and (whole or cell != _NOT_TRIED):
                told.append(f"{name}, {column}: {cell}, and the page says '{said}'")
    if whole:
        gone = [of for of in left if not _elsewhere(of)]
        told += [f"{name} ({of}): the page tells of it, and it is not here" for name, of in gone]
    return told


def _cells(mpi: Mpi, tried: Tried) -> list[str]:
    def cell(column: str) -> str:
        outcomes = tried.get((*row(mpi), column), set())
        if not outcomes:
            return "-" if column == "Fortran" and column not in mpi.languages else _NOT_TRIED
        return "works" if outcomes == {"passed"} else "fails"

    return [cell(column) for column in _COLUMNS]


@dataclass(slots=True, eq=False)
class WorksWith:
    """outcomes: of the tests that have the property; by node, and the property's value."""

    outcomes: dict[tuple[str, str, str, str], set[str]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and not report.skipped:
                assert isinstance(value, tuple | list)  # a list of what an xdist worker sent
                name, origin, column = value
                key = (report.nodeid, name, origin, column)
                self.outcomes.setdefault(key, set()).add(report.outcome)

    @pytest.hookimpl(trylast=True)  # after what is run once more
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        again = session.config.pluginmanager.get_plugin("again")
        unsteady = again.passed if isinstance(again, Again) else []
        tried: dict[tuple[str, str, str], set[str]] = {}
        for (nodeid, *place), outcomes in self.outcomes.items():
            became = {"passed"} if nodeid in unsteady else outcomes
            tried.setdefault((place[0], place[1], place[2]), set()).update(became)
        if not tried:
            return
        whole = _whole(session)
        if os.environ.get("CRDEBUG_WRITE_DOCS"):
            _PATH.write_text(page(tried, _PATH.read_text(), whole=whole))
        self.told = different(_PATH.read_text(), tried, whole=whole)
        if self.told and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.told:
            terminalreporter.section("docs/mpis.md says otherwise than what was tried", red=True)
            for line in self.told:
                terminalreporter.write_line(line)


def _whole(session: pytest.Session) -> bool:
    """Are all tests run: none was selected, and none left out after a first failure?"""
    config = session.config
    if not config.getoption("all"):
        return False
    chosen = any(config.getoption(each, None) for each in ("keyword", "markexpr", "deselect", "lf"))
    by_default = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return by_default and not chosen and not session.shouldfail and not session.shouldstop


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(WorksWith(), "works_with")

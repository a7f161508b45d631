"""Every MPI that is installed, with every language that it has: one session each, from the start to
the end, back, and to the end again. docs/mpis.md says what was tried here.

With CRDEBUG_WRITE_DOCS=1 the page is written, not compared.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from harness import programs
from harness.cli import crdebug
from harness.mpis import MPIS, Mpi, page

_TO_END = ("delete", "continue --to-end", "restart 1", "continue --to-end")
_SESSIONS = {
    "C": (
        *("break took", "continue", "[0] print value", "checkpoint", "continue"),
        *(
            "info launch",
            "[0] goto-sender",
            "delete",
            "restart 1",
            "[0] next",
            "[0] reverse-next",
            *_TO_END,
        ),
    ),
    "Fortran": (
        *("break hear", "continue", "[0] print a(1:3)", "[0] print grid(2,3)", "checkpoint"),
        *(
            "continue",
            "[0] goto-sender",
            "delete",
            "restart 1",
            "[0] next",
            "[0] next",
            "[0] reverse-next",
        ),
        *("[0] backtrace", *_TO_END),
    ),
    "mpi4py": (
        *("break MPI_Mrecv", "continue", "checkpoint", "continue", "when", "[0] goto-sender"),
        *("delete", "restart 1", *_TO_END),
    ),
}
_CASES = [(mpi, language) for mpi in MPIS for language in mpi.languages]
_works: dict[str, set[str]] = {}


def _program(mpi: Mpi, language: str) -> list[str | Path]:
    if language == "mpi4py":
        return [mpi.python, Path(programs.__file__).parents[1] / "programs" / "anyone.py", 3]
    if language == "C":
        return [
            programs.build("wildcard", compiler=mpi.tool("mpicc"), flags=("-O0",)),
            "--rounds",
            2,
        ]
    flags = programs.BINDINGS["mpi_f08"]
    return [programs.build("field", compiler=mpi.tool("mpifort"), flags=flags), 3]


@pytest.mark.parametrize(
    ("mpi", "language"), _CASES, ids=[f"{mpi.name}-{language}" for mpi, language in _CASES]
)
async def test_there_and_back(tmp_path: Path, mpi: Mpi, language: str) -> None:
    script = tmp_path / "script"
    script.write_text("\n".join(_SESSIONS[language]))
    arguments = ("run", "--record", "--batch", "-x", script, "--name", "job", "--")
    ran = await crdebug(*arguments, *mpi.launch(3), *_program(mpi, language))
    said = ran.stdout
    assert said.count("the job ended with status 0") == 2, said
    ends = re.findall(r"^out\| .*(?:heard|rank 0:).*$", said, re.M)
    # What MPI left open is as it was the first time; what the clock says is not all recorded.
    assert len(ends) == 2 and len({end.split(" after")[0] for end in ends}) == 1, said
    assert re.search(r"message of \d+ bytes from rank [12] to rank 0, tag [1-7]", said), said
    if language == "C":
        assert "UCX_TLS=self,sm,tcp: network cards" in said, said
        assert re.search(r"\[0\] = [12]000\n", said), said
        assert re.search(r"\[[12]\] main at .*wildcard.c:90\n +90\s+MPI_Send", said), said
        assert re.search(r"reverse-next\n(.*\n)*? +\[0\] took at .*wildcard.c:8\n", said), said
    if language == "Fortran":
        assert "[0] = (0.5, 1.5, 2.5)\n" in said and "[0] = 23\n" in said, said
        assert "another way" not in said, said  # an array's element is no call
        assert re.search(r"\[0-2\] field at .*field.F90:", said), said  # not at C's main
        assert re.search(r"\[[12]\] field at .*\n +\d+\s+call mpi_send\(", said), said
        assert re.search(r"reverse-next\n(.*\n)*? +\[0\] .*\n +\d+\s+call hear\(", said), said
        assert re.search(r"#0 +field::gather_any \(.*\n +#1 +field \(\) at", said), said
    _works.setdefault(mpi.name, set()).add(language)


@pytest.mark.parametrize(
    ("how", "told", "status"),
    [
        ("bounds", "Fortran runtime error: Index '12' of dimension 1 of array 'a' above", 2),
        ("stop", "ERROR STOP rank 1 gives up", 1),
    ],
)
async def test_an_error_of_fortran_s_is_told_as_what_it_is(
    tmp_path: Path, how: str, told: str, status: int
) -> None:
    mpi = next((each for each in MPIS if "Fortran" in each.languages), None)
    if mpi is None:
        pytest.skip("no mpifort")
    script = tmp_path / "script"
    by = "_gfortran_runtime_error_at" if how == "bounds" else "_gfortran_error_stop_string"
    script.write_text("continue\n")
    program = [*_program(mpi, "Fortran")[:1], 1, how]
    arguments = ("run", "--no-record", "--batch", "-x", script, "--")
    said = (await crdebug(*arguments, *mpi.launch(2), *program)).stdout
    place = rf"exit\({status}\) without MPI_Finalize, by {by}, from field at .*field.F90:\d+"
    assert re.search(rf"rank 1 is about to end: {place}", said), said
    assert f"err| {told}" in said, said


def test_the_page_says_what_was_tried() -> None:
    if len(_works) < len(MPIS):
        pytest.skip("the sessions of this module were not all run")
    path = Path(__file__).parents[2] / "docs" / "mpis.md"
    if os.environ.get("CRDEBUG_WRITE_DOCS"):
        path.write_text(page(_works))
    rows = {line for line in page(_works).splitlines() if line.startswith("| ")}
    assert rows <= set(path.read_text().splitlines())

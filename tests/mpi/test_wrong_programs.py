"""Programs that go wrong, and the same without the error: what `why-blocked` and `check` say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from crdebug.timeline.findings import NOTHING
from harness.mpis import MPIS, Mpi
from harness.wrong_programs import CASES, PAGE, Case, answer, bare, cells, rows, write_row

DEBIANS = [mpi for mpi in MPIS if "Debian" in mpi.origin]
WRITES = os.environ.get("CRDEBUG_WRITE_DOCS")
# One of each kind; the others with --all.
FEW = frozenset(
    (
        *("wrong_tag", "no_receive", "no_such_rank", "send_not_completed"),
        *(
            "other_order",
            "other_root_of_bcast",
            "start_without_post",
            "no_finalize",
            "other_type",
            "two_senders",
        ),
    )
)
TWINS = frozenset(("wildcard_takes_it", "other_type_than_bytes", "two_senders", "locks_cross"))
SWEPT = (pytest.mark.sweep,)


def each(few: frozenset[str]) -> list[object]:
    return [
        pytest.param(
            *(case, mpi),
            id=f"{case.mode}, {mpi.name}",
            marks=() if case.mode in few and mpi is DEBIANS[0] else SWEPT,
        )
        for mpi in MPIS
        for case in CASES
    ]


@pytest.mark.parametrize(("case", "mpi"), each(FEW))
def test_a_wrong_program_is_named_with_the_lines_that_do_not_fit(
    case: Case, mpi: Mpi, tmp_path: Path
) -> None:
    place = tmp_path / "time"
    found = answer(case, mpi, place, right=False)
    if WRITES and mpi is DEBIANS[0]:
        write_row(case, cells(case, found, bare(case, mpi)))
    if not case.says or (case.accepted and found.check == (NOTHING,)):
        assert found.claims() == []
        return
    assert re.search(case.says, found.text), found
    missing = [line for line in case.marks if line not in found.text]
    assert not missing, f"{missing} are not in {found}"


@pytest.mark.parametrize(("case", "mpi"), each(TWINS))
def test_of_the_same_without_the_error_nothing_is_claimed(
    case: Case, mpi: Mpi, tmp_path: Path
) -> None:
    found = answer(case, mpi, tmp_path / "time", right=True)
    assert not found.hangs
    assert found.why == ()
    assert found.check == (NOTHING,), found.output


def test_the_page_has_a_row_for_each() -> None:
    assert [*rows(PAGE.read_text())] == [case.mode for case in CASES]

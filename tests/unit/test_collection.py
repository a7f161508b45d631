"""What the programs of a collection say of themselves, and what counts of the answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.timeline.findings import NOTHING
from harness.collection import Program, kind_of
from harness.wrong_programs import Answer

pytestmark = pytest.mark.unit

HEADER = """/*
BEGIN_MBI_TESTS
  $ mpirun -np 3 ${EXE} 5
  | ERROR: CallMatching
  | it hangs
END_MBI_TESTS */
"""
QUIET = Answer(hangs=False, why=(), check=(NOTHING,))
HANGS = Answer(hangs=True, why=("0 → 1 → 0: a deadlock, whatever else happens",), check=(NOTHING,))


def test_what_a_program_says_of_itself(tmp_path: Path) -> None:
    file = tmp_path / "one.c"
    file.write_text(HEADER)
    assert Program.of(file, 2) == Program(file, 3, ("5",), right=False)
    file.write_text(HEADER.replace("ERROR: CallMatching", "OK"))
    assert Program.of(file, 2).right
    file.write_text("int main(void) { return 0; }\n")
    assert Program.of(file, 2) == Program(file, 2, (), right=None)


def test_what_counts(tmp_path: Path) -> None:
    right, wrong = (Program(tmp_path, 2, (), each) for each in (True, False))
    assert kind_of(right, QUIET) == "right, nothing claimed"
    assert kind_of(right, HANGS) == "RIGHT, AND SOMETHING CLAIMED"
    assert kind_of(wrong, QUIET) == "wrong, ends, nothing said"
    assert kind_of(wrong, HANGS) == "wrong, hangs, named"

"""docs/mpis.md says what was tried with each MPI: the last module of its tier, by its name.

With CRDEBUG_WRITE_DOCS=1 the page is written, not compared.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.mpis import different, page


def test_the_page_says_what_was_tried() -> None:
    path = Path(__file__).parents[2] / "docs" / "mpis.md"
    if os.environ.get("CRDEBUG_WRITE_DOCS"):
        path.write_text(page())
    told = different(path.read_text())
    if told is None:
        pytest.skip("no test that the page tells of was run")
    assert not told

"""The page of `run --report`: what comes from a program stays text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crdebug.base.errors import BadInput, Refused
from crdebug.charts.pages import SIGNATURE, claim, save
from crdebug.ui.report import Report, Section, html, shortened

pytestmark = pytest.mark.unit

EVIL = "<script>alert('x')</script>&amp;\"\033[2J\u202e"


def test_nothing_of_a_program_is_a_mark_or_a_control() -> None:
    page = html(Report(EVIL, EVIL, [(EVIL, EVIL)], [Section(EVIL, EVIL)]))
    assert "<script" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page)
    assert (
        page.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;amp;&quot;\\x1b[2J") == 7
    )


def test_it_asks_no_network_and_runs_nothing() -> None:
    page = html(Report("t", "s", [], []))
    assert "default-src 'none'" in page
    assert not re.search(r"\bsrc=|href=|@import|url\(|http", page.replace("http-equiv", ""))


def test_a_section_without_text_is_left_out() -> None:
    page = html(Report("t", "s", [], [Section("full", "x"), Section("empty", " \n")]))
    assert "full" in page
    assert "empty" not in page


def test_it_is_written_over_a_page_of_crdebugs_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    claim(file)
    save(html(Report("one", "", [], [])), file)
    claim(file)
    save(html(Report("two", "", [], [])), file)
    assert "two" in file.read_text()
    assert SIGNATURE in file.read_text()[:1000]
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("mine")
    with pytest.raises(Refused, match="not one of crdebug's pages"):
        claim(file)
    with pytest.raises(BadInput, match="there is no directory"):
        claim(tmp_path / "none" / "a.html")
    assert [each.name for each in tmp_path.iterdir()] == ["a.html"]


def test_of_very_many_lines_the_middle_is_left_out() -> None:
    lines = [f"line {number}" for number in range(1000)]
    found = shortened("\n".join(lines)).splitlines()
    assert len(found) == 301
    assert found[199:202] == ["line 199", "(700 lines are left out)", "line 900"]
    assert shortened("\n".join(lines[:300])).splitlines() == lines[:300]

"""`info timeline`, `info messages` and the page: as text, as data, and in a real browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crdebug.base.instant import Instant, cut_of
from crdebug.timeline.branches import Branch
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.matching import Matching
from crdebug.timeline.page import Picture, page, page_data
from crdebug.timeline.text import Place, timeline_text
from harness.browser import browser, document_after_loading
from harness.matcher import library


def logs(rounds: int = 3) -> dict[int, list[Call]]:
    """Rank 0 sends to rank 1, which answers, and both meet; at last a message that nobody gets."""
    found: dict[int, list[Call]] = {0: [], 1: []}
    for n in range(rounds):
        for rank in (0, 1):
            call = Call(rank, 3 * n + 1, "MPI_Send", Kind.SEND, comm="world", peer=1 - rank, tag=4)
            received = replace(call, name="MPI_Recv", kind=Kind.RECV, tick=3 * n + 2)
            first, second = (call, received) if rank == 0 else (received, call)
            found[rank] += [
                replace(first, tick=3 * n + 1, bytes=16),
                replace(second, tick=3 * n + 2, bytes=16),
                Call(rank, 3 * n + 3, "MPI_Barrier", Kind.COLLECTIVE, comm="world"),
            ]
    last = Call(0, 3 * rounds + 1, "MPI_Send", Kind.SEND, comm="world", peer=1, tag=9, bytes=7)
    found[0].append(last)
    return found


def picture(calls: dict[int, list[Call]] | None = None, **more: Any) -> Picture:
    calls = calls or logs()
    matching = Matching(library())
    matching.extend(calls, {"world": (0, 1)})
    ends = tuple(Instant.after(len(each)) for each in calls.values())
    return Picture("a test", calls, matching, ends, **more)


def site(rank: int, tick: int) -> str:
    return f"ring.c:{10 * rank + tick}"


# ---- text --------------------------------------------------------------------------------------


def test_the_timeline_as_text() -> None:
    text = timeline_text(
        cut_of(40, 20),
        here=cut_of(20, 11),
        checkpoints=[Place("c2", cut_of(30, 18)), Place("c1", cut_of(0, 0))],
        marks=[Place("bad", cut_of(24, 16))],
        width=59,
    )
    assert text.splitlines() == [
        "rank 0 |#-------------------@...^.....#..........| 20 calls",
        "rank 1 |#----------@....^.#..                    | 10 calls",
        "@ here: tick 10 of rank 0",
        "# checkpoint c1: tick 0",
        "# checkpoint c2: tick 15",
        "^ mark bad: tick 12",
        ". recorded, ahead of here",
    ]


@pytest.mark.parametrize("width", [1, 40, 80, 200])
@pytest.mark.parametrize("end", [0, 1, 7, 10**9])
def test_the_timeline_fits_the_terminal(width: int, end: int) -> None:
    here, ends = cut_of(end // 2, end), cut_of(end, end)
    lines = timeline_text(ends, here, [Place("c", ends)], width=width).splitlines()
    assert all(len(line) <= max(width, 40) for line in lines[:2])
    assert all(line.count("@") == 1 for line in lines[:2])


# ---- the page ----------------------------------------------------------------------------------


def embedded(html: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert match is not None
    found: dict[str, Any] = json.loads(match[1])
    return found


def test_the_page_holds_the_history() -> None:
    drawn = picture(
        here=cut_of(9, 6),
        checkpoints=[Place("c1", cut_of(6, 6))],
        marks=[Place("bad", cut_of(3, 2))],
        branches=[Branch("main"), Branch("fix", "main", cut_of(4, 4), note="x = 1")],
    )
    html = page(drawn, site)
    data = embedded(html)
    assert data == page_data(drawn, site)
    assert (data["ranks"], data["here"], data["leftOut"]) == (2, [9, 6], [])
    assert [len(calls) for calls in data["calls"]] == [10, 9]
    assert data["messages"][0] == [0, 1, 1, 1, 1, 4, 16]
    assert data["messages"][3] == [0, 10, 1, None, None, 9, 7]
    assert len(data["messages"]) == 7
    assert data["collectives"][0][3] == [[0, 3], [1, 3]]
    assert (data["checkpoints"], data["marks"]) == ([["c1", 6, 6]], [["bad", 3, 2]])
    assert data["branches"] == [["main", "", ""], ["fix", "main", "x = 1", 4, 4]]
    first = data["calls"][1][0]
    assert [data["names"][n] for n in first[2:5]] == ["MPI_Recv", "ring.c:11", "receive"]


def test_the_page_needs_nothing_but_itself() -> None:
    html = page(picture(), site)
    assert not re.search(r"""(?:src|href)\s*=|@import|url\(|https?:|fetch\(|import\(""", html)
    assert "default-src 'none'" in html


def test_names_cannot_become_markup() -> None:
    drawn = replace(picture(), title="<b>&")
    html = page(drawn, lambda _rank, _tick: "</script><script>alert(1)</script>.c:3")
    assert "alert(1)</script>.c" not in html
    assert "<title>&lt;b&gt;&amp;</title>" in html
    assert "</script><script>alert(1)</script>.c:3" in embedded(html)["names"]
    html = page(replace(picture(), title="@DATA@ @SCRIPT@"), site)
    assert "<title>@DATA@ @SCRIPT@</title>" in html


def test_a_page_over_its_limit_shows_only_the_surroundings_and_says_so() -> None:
    data = page_data(picture(logs(100), here=cut_of(300, 300)), site, calls=40)
    for calls in data["calls"]:
        assert len(calls) == 20
        assert calls[0][0] < 150 < calls[-1][0]
    assert data["leftOut"][0] == "rank 0: 281 calls outside of ticks 140 to 159"
    assert "messages that begin or end outside" in data["leftOut"][-1]
    shown = {(rank, call[0]) for rank, calls in enumerate(data["calls"]) for call in calls}
    assert all((m[0], m[1]) in shown and (m[2], m[4]) in shown for m in data["messages"])
    assert all((r, t) in shown for bar in data["collectives"] for r, t in bar[3])


PROBE = """<script>
(() => {
  const t = window.timeline, shown = [...t.view()];
  const sent = t.at(0, 1), got = t.at(1, 1);
  document.body.dataset.call = t.about(t.x(got), t.y(1));
  document.body.dataset.arrow = t.about(t.x((sent + got) / 2), (t.y(0) + t.y(1)) / 2);
  document.body.dataset.right = got > sent;
  document.getElementById("in").click();
  document.body.dataset.span = (shown[1] - shown[0]) / (t.view()[1] - t.view()[0]);
  document.getElementById("here").click();
  const [from, to] = t.view();
  document.body.dataset.middle = (from + to) / 2 - t.at(0, t.data.here[0]);
  t.draw();
  const canvas = document.getElementById("picture");
  const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let n = 0; n < image.length; n += 4) if (image[n + 3] === 255) {
    colours.add([image[n], image[n + 1], image[n + 2]].join());
  }
  document.body.dataset.drawn = ["42,111,176", "44,138,75", "208,49,45", "106,63,181"]
    .filter((c) => colours.has(c)).length;
})();
</script></body>"""


def dataset(dom: str) -> dict[str, str]:
    body = re.search(r"<body([^>]*)>", dom)
    assert body is not None
    return dict(re.findall(r'data-(\w+)="([^"]*)"', body[1]))


@pytest.mark.skipif(browser() is None, reason="no browser is installed; see docs/dependencies.md")
@pytest.mark.parametrize("rounds", [3, 3400])
def test_a_real_browser_draws_it(tmp_path: Path, rounds: int) -> None:
    calls = logs(rounds)
    middle = 3 * rounds // 2 * 2
    here, before = cut_of(middle, middle), cut_of(middle - 2, middle)
    drawn = picture(calls, here=here, checkpoints=[Place("c1", before)])
    file = tmp_path / "page.html"
    file.write_text(page(drawn, site).replace("</body>", PROBE), encoding="utf-8")
    told = dataset(document_after_loading(file, tmp_path / "profile"))
    assert told["ready"] == "yes"
    assert told["call"].startswith("rank 1, tick 1: MPI_Recv\nring.c:11\npeer 0, tag 4, 16 bytes")
    if rounds == 3:
        assert told["arrow"].startswith(
            "message from rank 0 to rank 1: tag 4, 16 bytes\nsent: tick 1"
        )
    assert float(told["span"]) == pytest.approx(2)
    assert float(told["middle"]) == pytest.approx(0)
    assert told["right"] == "true"
    assert told["drawn"] == "4"  # sends, receives, here, the checkpoint, each in its colour

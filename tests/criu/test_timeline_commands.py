"""when, info timeline, timeline --html, automatic checkpoints and snapshots, on a real job."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.events import JobSays, StopReason
from crdebug.timeline.text import clock_text
from harness.browser import browser, document_after_loading
from harness.jobs import Heard, run_to_end
from harness.page import data_of
from harness.programs import build, source
from harness.talk import said
from harness.travel import ONE, history, recorded, run_to

# Looks at the first message that rank 0 received: at the call, and at its arrow.
LOOK = """<script>
(() => {
  const t = window.timeline, m = t.data.messages.find((m) => m[2] === 0 && m[4] !== null);
  const sent = t.at(m[0], 2 * m[1] - 1), got = t.at(0, 2 * m[4] - 1);
  t.show(sent - 5, got + 5);
  t.draw();
  document.body.dataset.told = t.about(t.x(got), t.y(0));
  document.body.dataset.arrow = t.about(t.x((sent + got) / 2), (t.y(0) + t.y(m[0])) / 2);
})();
</script></body>"""

RANKS, ROUNDS = 3, 12
ARGUMENTS = ("--rounds", ROUNDS, "--jitter-us", 2000)


async def test_the_history_is_shown_as_it_was(tmp_path: Path) -> None:
    program = build("master")
    async with recorded(program, *ARGUMENTS, ranks=RANKS) as job:
        past = history(job)
        assert "no checkpoint" in (await said(job, "when"))[-1]
        await run_to(job, 0, "note", "step == 4")
        await said(job, "[0] mark here")
        here = past.now(0).cut
        await job.checkpoint("mine")
        await run_to(job, 0, "note", "step == 8")
        tail = past.now(0)
        told = await said(job, "when")
        assert told[-2:] == [
            f"checkpoint before: 1 (tick {here[0] // 2})",
            "history begins at tick 0, checkpoint a1; ticks are those of rank 0",
        ]
        await past.goto_tick(0, here[0] // 2 - 3)
        now = past.now(0).cut
        told = await said(job, "when")
        assert told[0] == f"[0] tick {now[0] // 2} of {tail.tick}"
        assert f"mark: here (tick {here[0] // 2})" in told
        assert "checkpoint before: a1 (tick 0)" in told

        legend = (await said(job, "info timeline"))[RANKS:]
        assert f"@ here: tick {now[0] // 2} of rank 0" in legend
        assert f"# checkpoint 1: tick {here[0] // 2}" in legend
        assert f"^ mark here: tick {here[0] // 2}" in legend
        assert "+ automatic checkpoint a1: tick 0" in legend

        page = tmp_path / "page.html"
        await said(job, f"timeline --html {page}")
        data = data_of(page)
        assert (data["here"], data["leftOut"]) == ([*now], [])
        assert {each[0] for each in data["checkpoints"]} == {"1", "a1"}
        assert data["marks"] == [["here", *here]]
        # each call of rank 0, with its line in the program's source
        lines = source("master").read_text().splitlines()
        for call in data["calls"][0]:
            name, place = data["names"][call[2]], data["names"][call[3]]
            file, _, line = place.rpartition(":")
            assert Path(file).name.endswith((".c", ".h")), place
            if Path(file).name == "master.c":
                assert name in lines[int(line) - 1]
        # all that rank 0 received was sent, and is an arrow
        got = {(m[2], m[4]) for m in data["messages"] if m[4] is not None}
        received = [call for call in data["calls"][0] if data["names"][call[4]] == "receive"]
        assert received and all((0, call[0]) in got for call in received)

        (tmp_path / "other.html").write_text("mine")
        with pytest.raises(Refused, match="is not one of crdebug's pages"):
            await said(job, f"timeline --html {tmp_path / 'other.html'}")

        await run_to_end(job)
        assert (await said(job, "when"))[0].startswith("[0] tick")
        await said(job, f"timeline --html {page}")
        ended = data_of(page)
        assert ended["here"] == ended["ends"]
        assert any(ended["names"][call[3]] for call in ended["calls"][1]), "lines are still known"
    if browser() is None:
        pytest.skip("no browser is installed; see docs/dependencies.md")
    page.write_text(page.read_text().replace("</body>", LOOK))
    document = document_after_loading(page, tmp_path / "profile")
    assert 'data-ready="yes"' in document
    shown = re.search(r'data-told="(rank 0, tick \d+: MPI_\w+)\n[^"]*master\.c:\d+\n', document)
    assert shown is not None, document[-2000:]
    drawn = re.search(r'data-arrow="message from rank \d to rank 0: tag \d+, \d+ bytes', document)
    assert drawn is not None, document[-2000:]


async def test_checkpoints_are_taken_while_the_job_runs_and_thinned() -> None:
    heard, enough = Heard(), asyncio.Event()

    def given_up() -> list[str]:
        told = [event.text for event in heard.events if isinstance(event, JobSays)]
        return [text for text in told if "given up" in text]

    async with recorded(build("threads"), "--steps", 10**7, ranks=2, heard=heard) as job:
        past = history(job)
        assert await said(job, "set auto-checkpoint 0.2") == [
            "auto-checkpoint: at most every 0.2 s while the job runs"
        ]
        await said(job, "set auto-checkpoint-disk 1")
        past.costs.budget = 100.0  # this often, whatever they cost
        job.subscribe(lambda _: enough.set() if len(given_up()) == 2 else None)
        running = asyncio.create_task(job.resume(job.ranks))
        limit = Deadline(120)
        await limit.wait(enough.wait(), "two checkpoints to be given up")
        await job.interrupt()
        stop = await running
        assert {each.reason for each in stop.cause} == {StopReason.INTERRUPT}
        kept = [base for base in past.traveller.bases() if base.number]
        assert [base.name for base in kept] == ["a1", f"a{kept[-1].number}"]
        assert kept[-1].number >= 4
        assert not any(kept[0].cut), "history begins where it began"
        assert (await said(job, "when"))[-2:] == [
            f"checkpoint before: {kept[-1].name} ({clock_text(kept[-1].cut[0])})",
            "history begins at tick 0, checkpoint a1; ticks are those of rank 0",
        ]
        told = [event.text for event in heard.events if isinstance(event, JobSays)]
        assert sum("the first and the last one stay" in text for text in told) == 1


async def test_snapshots_that_were_taken_while_the_job_ran_are_shown() -> None:
    async with recorded(build("memory"), "--steps", 10**9, "--delay-us", 1000, ranks=2) as job:
        past = history(job)
        assert (await said(job, "info snapshots"))[0] == "there are no snapshots"
        assert await said(job, "set snapshot-cost 50%") == ["snapshot-cost: 50% of the run"]
        running = asyncio.create_task(job.resume(job.ranks))
        await Deadline(120).until(lambda: len(past.traveller.near.bases()) >= 3, "3 snapshots")
        await job.interrupt()
        await running
        header, *lines = await said(job, "[1] info snapshots")
        assert header.split() == ["rank", "1", "at", "taken", "memory", "way"]
        count = len(past.traveller.near.bases())
        rows = [
            re.fullmatch(
                r"(?:tick|in call) (\d+) +([\d.]+) s ago +[\d.]+ \w+ +(frozen|copied)", line
            )
            for line in lines[:count]
        ]
        found = [(int(match[1]), float(match[2])) for match in rows if match is not None]
        assert len(found) == count, lines
        ticks, ages = zip(*found, strict=True)
        assert list(ticks) == sorted(ticks) and ticks[-1] <= past.now(1).cut[1].entered
        assert list(ages) == sorted(ages, reverse=True)
        held, cost, allowed = lines[count:]
        assert held.startswith("together they hold ")
        spent = re.fullmatch(
            r"their share of ([\d.]+) s of run: snapshots (\S+)%, checkpoints 0%", cost
        )
        assert spent is not None and ages[0] < float(spent[1]) and 0 < float(spent[2]) < 100, cost
        assert allowed.startswith("'set snapshot-cost' allows 50%: a snapshot every ")
        # What was taken is still there, and no other one is due but the checkpoint.
        await said(job, "set snapshot-cost off")
        assert await past.begin_run() > ONE / 2
        assert (await said(job, "info snapshots"))[-1].startswith("none are taken while the job")
        assert len(past.traveller.near.bases()) == count

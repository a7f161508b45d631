"""A job's record goes round its ring: the oldest part is dropped, and the rest can be reached."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest

from crdebug.base.events import JobSays
from crdebug.commands.context import Context
from crdebug.commands.standard import standard
from crdebug.native.recorder.clock import LogHeader
from crdebug.session import Session
from crdebug.timeline.branches import MAIN
from crdebug.timeline.kept import load
from crdebug.travel.restore_points import StartOfHistory
from crdebug.ui.render import render
from harness.jobs import Heard, run_to_end
from harness.page import data_of
from harness.programs import build
from harness.travel import Place, history, place, recorded, run_to

RECORDS = 1 << 12
STEPS = 1600


async def _on(job: Session) -> tuple[int, Place]:
    """Run some steps on, to an automatic checkpoint."""
    await run_to(job, 1, "now_and_then")
    await history(job).take()
    here = await place(job, 1, ("step", "in[1]"))
    return int(here.values[0]), here


def _headers(job: Session) -> list[LogHeader]:
    logs: Path = history(job).traveller.job.run_directory / "time"
    return [LogHeader.parse((logs / str(rank)).read_bytes()[:4096]) for rank in range(3)]


def _said(heard: Heard, text: str) -> int:
    return sum(text in e.text for e in heard.events if isinstance(e, JobSays))


async def test_a_record_that_goes_round_its_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRDEBUG_TIME_RECORDS", str(RECORDS))
    heard = Heard()
    async with recorded(build("longrun"), "--steps", STEPS, ranks=3, heard=heard) as job:
        past = history(job)
        seen = dict([await _on(job) for _ in range(STEPS // 60)])
        last = max(seen)
        headers = _headers(job)
        assert max(header.tail for header in headers) > 4 * RECORDS
        assert min(header.tail for header in headers) > RECORDS
        assert not any(header.refused for header in headers)
        assert _said(heard, "from now on its oldest part is given up") == 1
        kept = load(past.traveller.job.run_directory / "time")
        assert kept is not None
        begin = past.traveller.recorded.beginning
        assert begin == kept.cut and min(begin) > RECORDS
        with pytest.raises(StartOfHistory, match=f"its record begins at tick {begin[1] // 2}"):
            await past.goto_tick(1, 100)
        earliest = (await past.overview(1)).earliest
        assert earliest is not None and earliest.cut == begin
        # To places after it, over everything that was made before it.
        left = [at.cut[1] // 2 for at in seen.values() if at.cut[1] > begin[1] + 2]
        assert left
        for tick in left:
            moment = await past.goto_tick(1, tick)
            assert moment.tick == tick and "held up" not in moment.note, moment
        assert (await past.goto_tick(1, begin[1] // 2 + 1)).tick == begin[1] // 2 + 1
        await run_to(job, 1, "now_and_then", f"step == {last}")
        assert not (await place(job, 1, ("step", "in[1]"))).differences(seen[last])
        await job.add_breakpoint(job.ranks, "one_step")
        back = await past.reverse("continue", 1)
        assert back.tick < seen[last].cut[1] // 2
        assert (await job.evaluate(job.ranks, "step")).values[1] == str(last - 1)
        for each in job.breakpoints():
            await job.delete_breakpoint(each.number)
        assert await run_to_end(job) == 0
        assert "done" in heard.text()


async def test_a_checkpoint_of_the_users_holds_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRDEBUG_TIME_RECORDS", str(RECORDS))
    heard = Heard()
    async with recorded(build("longrun"), "--steps", STEPS, ranks=3, heard=heard) as job:
        step, _ = await _on(job)
        taken = await job.checkpoint()
        for _ in range(8):
            await _on(job)
        assert _said(heard, f"checkpoint {taken.number} keeps what comes after it") == 1
        assert _said(heard, "the log is full") > 0
        await job.restart(taken.number)
        assert (await job.evaluate(job.ranks, "step")).values[1] == str(step)
        middle = history(job).traveller.recorded.tails()[1] // 4
        assert (await history(job).goto_tick(1, middle)).tick == middle


async def test_marks_branches_last_and_the_page_where_the_beginning_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CRDEBUG_TIME_RECORDS", str(RECORDS))
    async with recorded(build("longrun"), "--steps", STEPS, ranks=3) as job:
        past = history(job)
        await _on(job)
        await past.mark("early", 1)
        for _ in range(STEPS // 60 - 1):
            await _on(job)
            if min(past.traveller.recorded.beginning) > past.marks["early"].cut[1]:
                break
        begin = past.traveller.recorded.beginning
        with pytest.raises(StartOfHistory, match=f"its record begins at tick {begin[1] // 2}"):
            await past.goto_mark("early")
        step, here = await _on(job)
        await past.mark("late", 1)

        async def as_it_was() -> None:
            await past.goto_mark("late")
            assert not (await place(job, 1, ("step", "in[1]"))).differences(here)

        # The variable was last written by the receive of this step, whose message rank 0 sent.
        moment = await past.last("in[1]", 1)
        assert moment.tick < here.cut[1] // 2
        assert (await job.evaluate(job.ranks, "in[1]")).values[1] == str(step - 1)
        await as_it_was()

        await past.goto_tick(1, begin[1] // 2 + 20)
        name = await past.branch("aside")
        await run_to(job, 1, "now_and_then")
        assert past.branching.current == name
        await as_it_was()
        assert past.branching.current == MAIN
        await past.switch(name, 1)
        assert past.now(1).cut[1] < here.cut[1]
        await as_it_was()

        page = tmp_path / "page.html"
        context = Context(job)
        told = render(await standard().run(context, "when"))
        assert f"history begins at tick {begin[1] // 2}" in told, told
        await standard().run(context, f"timeline --html {page}")
        calls = data_of(page)["calls"]
        firsts = [rank[0][0] for rank in calls]
        assert all(map(operator.ge, firsts, (each // 2 for each in begin))), (firsts, begin)

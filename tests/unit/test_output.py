"""A job's output and end, as events; and notices of growing files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.events import Event, JobEnded, JobOutput, JobSays
from crdebug.job.output import OutputRelay
from crdebug.node import proc
from crdebug.node.file_watch import Follower

pytestmark = pytest.mark.unit


def soon() -> Deadline:
    return Deadline(30.0)


class Job:
    """An incarnation's directory, written to as a job does; and the events about it."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.events: list[Event] = []

    def write(self, name: str, data: bytes | str) -> None:
        with open(self.run / name, "ab") as file:
            file.write(data.encode() if isinstance(data, str) else data)

    def text(self, stream: str = "stdout") -> str:
        told = (e for e in self.events if isinstance(e, JobOutput) and e.stream == stream)
        return "".join(each.text for each in told)

    async def until(self, predicate: Callable[[], bool], what: str) -> None:
        await soon().until(predicate, what)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@asynccontextmanager
async def relaying(job: Job, *, from_now: bool = False) -> AsyncIterator[OutputRelay]:
    relay = OutputRelay(job.run, job.events.append, from_now=from_now)
    try:
        yield relay
    finally:
        await relay.stop()


async def test_old_and_new_output_is_reported_once_and_in_order(job: Job) -> None:
    job.write("stdout", "before\n")
    async with relaying(job):
        await job.until(lambda: job.text() == "before\n", "what was there")
        for number in range(100):
            job.write("stdout", f"{number}\n")
            job.write("stderr", f"e{number}\n")
            await asyncio.sleep(0)
        wanted = "before\n" + "".join(f"{n}\n" for n in range(100))
        await job.until(lambda: job.text() == wanted, "the output")
        errors = "".join(f"e{n}\n" for n in range(100))
        await job.until(lambda: job.text("stderr") == errors, "the errors")


async def test_from_now_leaves_out_old_output(job: Job) -> None:
    job.write("stdout", "before\n")
    async with relaying(job, from_now=True):
        job.write("stdout", "after\n")
        job.write("stderr", "new file\n")
        await job.until(lambda: bool(job.text() and job.text("stderr")), "the output")
    assert job.text() == "after\n" and job.text("stderr") == "new file\n"


TEXT = "a, é, €, 𝄞, ∑\n"  # characters of one to four bytes


@pytest.mark.parametrize("cut", range(1, len(TEXT.encode())))
async def test_a_character_is_reported_whole_wherever_its_bytes_are_cut(job: Job, cut: int) -> None:
    data = TEXT.encode()
    async with relaying(job) as relay:
        job.write("stdout", data[:cut])
        relay.catch_up()
        assert TEXT.startswith(job.text())
        job.write("stdout", data[cut:])
        relay.catch_up()
        assert job.text() == TEXT
    assert "" not in [e.text for e in job.events if isinstance(e, JobOutput)]


async def test_the_streams_do_not_share_half_characters(job: Job) -> None:
    euro = "€".encode()
    async with relaying(job) as relay:
        for name, data in (("stdout", euro[:1]), ("stderr", euro[:2]), ("stdout", euro[1:])):
            job.write(name, data)
            relay.catch_up()
        job.write("stderr", euro[2:])
        relay.catch_up()
    assert (job.text(), job.text("stderr")) == ("€", "€")


async def test_bytes_that_are_no_text_are_marked_and_lose_nothing_else(job: Job) -> None:
    async with relaying(job) as relay:
        job.write("stdout", b"a\xff\xfeb\n")
        relay.catch_up()
    assert job.text() == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b\n"


async def test_half_a_character_at_the_end_is_shown_broken(job: Job) -> None:
    async with relaying(job) as relay:
        job.write("stdout", "x€".encode()[:-1])
        job.write("events", "exit 0\n")
        relay.catch_up()
    assert job.events == [
        JobOutput("stdout", "x"),
        JobOutput("stdout", "\N{REPLACEMENT CHARACTER}"),
        JobEnded(0),
    ]


async def test_the_end_is_reported_once_with_its_status(job: Job) -> None:
    job.write("events", "ranks 2\n")
    async with relaying(job) as relay:
        over = asyncio.create_task(relay.over())
        relay.catch_up()
        assert relay.ended is None and job.events == []
        job.write("events", "exit 143\n")
        assert await soon().wait(over, "the end") == 143
        relay.catch_up()
        assert relay.ended == 143
        assert await soon().wait(relay.over(), "what is known") == 143
    assert job.events == [JobEnded(143)]


async def test_no_output_comes_after_the_end(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written between our look at stdout and our look at events."""
    read = Follower.read

    def late(self: Follower) -> list[tuple[Path, bytes]]:
        news = read(self)
        if not (job.run / "events").exists():
            job.write("stdout", "last words\n")
            job.write("events", "exit 0\n")
        return news

    monkeypatch.setattr(Follower, "read", late)
    async with relaying(job) as relay:
        relay.catch_up()
        await job.until(lambda: relay.ended is not None, "the end")
    assert job.events == [JobOutput("stdout", "last words\n"), JobEnded(0)]


async def test_a_late_rank_is_reported_once(job: Job) -> None:
    async with relaying(job) as relay:
        job.write("events", "ranks 2\nlate 1 /bin/a\n")
        relay.catch_up()
        relay.catch_up()
        job.write("events", "late 0 /bin/b\n")
        relay.catch_up()
    said = [event.text[:14] for event in job.events if isinstance(event, JobSays)]
    assert said == ["rank 1: /bin/a", "rank 0: /bin/b"]
    assert len(job.events) == 2


async def test_nothing_is_reported_after_stop(job: Job) -> None:
    async with relaying(job):
        pass
    job.write("stdout", "late\n")
    for _ in range(10):
        await asyncio.sleep(0)
    assert job.events == []


async def test_megabytes_come_whole(job: Job) -> None:
    line = "0123456789" * 100 + "\n"
    async with relaying(job):
        for _ in range(40):
            job.write("stdout", line * 100)
            await asyncio.sleep(0)
        await job.until(lambda: len(job.text()) == 40 * 100 * len(line), "all of it")
    assert job.text() == line * 4000


# ---- notices of growing files ------------------------------------------------------------------


async def test_a_follower_needs_its_directory_and_says_so(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Follower({tmp_path / "nowhere" / "file": 0})
    assert os.listdir("/proc/self/fd") == before


async def test_a_follower_starts_at_the_given_offset(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    follower = Follower({path: 3})
    try:
        assert follower.read() == [(path, b"45")]
        assert follower.read() == []
        path.write_bytes(b"1234567")
        assert follower.read() == [(path, b"67")]
    finally:
        follower.close()


async def test_a_follower_reads_to_the_end_of_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    writer = await asyncio.create_subprocess_exec(
        "sh", "-c", f"read begin; printf 12 > {path}; exit 1", stdin=asyncio.subprocess.PIPE
    )
    follower = Follower({path: 0}, (writer.pid, proc.started(writer.pid)))
    try:
        await writer.communicate(b"\n")
        assert b"".join([data async for news in follower.changes() for _, data in news]) == b"12"
    finally:
        follower.close()


async def test_a_writer_that_has_ended_before_has_written_all(tmp_path: Path) -> None:
    path, before = tmp_path / "file", os.listdir("/proc/self/fd")
    path.write_bytes(b"12")
    follower = Follower({path: 0}, (os.getpid(), proc.started(os.getpid()) + 1))  # another's PID
    try:
        assert [news async for news in follower.changes()] == [[(path, b"12")]]
    finally:
        follower.close()
    assert os.listdir("/proc/self/fd") == before

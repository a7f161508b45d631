"""Copies of logs that are written elsewhere: they are what the logs are, however these change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rank_log import WILD_SOURCE, LogWriter

from crdebug.base.errors import NotAvailable
from crdebug.job.mirrored_logs import Copy, FilesBeside, News, Source, write_beside
from crdebug.native.recorder import clock as layout
from crdebug.timeline.log import read_log
from harness.matcher import library

pytestmark = pytest.mark.unit

MOST = 1 << 30


def bring(source: Source, copy: Copy, most: int = MOST) -> int:
    """Everything that is new; returns how many bytes that were."""
    size, more = 0, True
    while more:
        news = source.news(copy.number, most)
        if news is None:
            break
        size, more = size + sum(map(len, news.parts.values())), news.more
        copy.take(news)
    return size


def same(log: Path, copy: Path) -> bool:
    return read_log(log, library()).calls[:] == read_log(copy, library()).calls[:]


def test_a_log_that_is_not_there_or_has_not_begun_is_none(tmp_path: Path) -> None:
    source = Source(tmp_path / "0")
    assert source.news(0, MOST) is None
    (tmp_path / "0").write_bytes(bytes(layout.LOG_HEADER))
    assert source.news(0, MOST) is None


@pytest.mark.parametrize("most", [1, 1000, MOST])
def test_a_copy_grows_with_its_log(tmp_path: Path, most: int) -> None:
    """Through calls, runs of them, receives that get their message late, and cuts; at random."""
    chance = random.Random(most)
    log = LogWriter(tmp_path / "0")
    log.define(1, [0, 1])
    source, copy = Source(log.path), Copy(tmp_path / "copy")
    open_receives: list[int] = []
    for _ in range(200):
        for _ in range(chance.randrange(12)):
            how = chance.randrange(4)
            if how == 0:
                open_receives.append(log.call("MPI_Irecv", tag=3, flags=WILD_SOURCE))
            elif how == 1 and open_receives:
                log.got(open_receives.pop(chance.randrange(len(open_receives))), "MPI_Irecv", 1, 3)
            else:
                log.call("MPI_Send", peer=1, tag=chance.randrange(9), size=4)
        bring(source, copy, most)
        assert same(log.path, tmp_path / "copy")


def test_nothing_is_brought_twice(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "0")
    log.define(1, [0, 1])
    for _ in range(2000):
        log.call("MPI_Send", peer=1, tag=1, size=4)
    source, copy = Source(log.path), Copy(tmp_path / "copy")
    assert bring(source, copy) > 16 * 2000
    assert bring(source, copy) == 0
    log.call("MPI_Send", peer=1, tag=1, size=4)
    assert 0 < bring(source, copy) <= (1 << 16) + layout.LOG_SIZE


def test_a_reader_that_has_lost_an_answer_gets_all_anew(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "0")
    log.define(1, [0, 1])
    source, copy = Source(log.path), Copy(tmp_path / "copy")
    bring(source, copy)
    log.call("MPI_Send", peer=1, tag=1, size=4)
    assert source.news(copy.number, MOST) is not None  # and nobody takes it
    log.call("MPI_Send", peer=1, tag=2, size=4)
    bring(source, copy)
    assert same(log.path, tmp_path / "copy")


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (-1, {}),
        (1 << 50, {}),
        (100, {-1: b"x"}),
        (100, {100: b"x"}),
        (100, {"0": b"x"}),
        (100, {0: "x"}),
    ],
)
def test_what_no_crdebug_has_sent_is_refused(
    tmp_path: Path, size: int, parts: dict[int, bytes]
) -> None:
    with pytest.raises(NotAvailable, match="cannot be part of a log"):
        Copy(tmp_path / "0").take(News(1, True, size, parts))
    assert not list(tmp_path.iterdir())


def test_what_is_no_log_is_copied_for_what_it_is(tmp_path: Path) -> None:
    log = tmp_path / "0"
    log.write_bytes(b"\xff" * layout.LOG_HEADER)
    source, copy = Source(log), Copy(tmp_path / "copy")
    bring(source, copy)
    with pytest.raises(Exception, match="version"):
        read_log(tmp_path / "copy", library())


def test_files_beside_logs_come_when_they_are_new(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    (there / "0").write_text("a log")
    (there / "0.maps").write_text("maps")
    beside = FilesBeside()
    (there / "kept").write_text("no host's")
    assert beside.news(there, 0, MOST) == ({"0.maps": b"maps"}, False)
    assert beside.news(there, 1, MOST) == ({}, False)
    assert beside.news(there, 1, MOST) == ({"0.maps": b"maps"}, False)  # one was lost
    (there / "1.maps").write_text("more")
    assert beside.news(there, 0, 1)[1]
    sent = {
        "0.maps": b"maps",
        "2.maps": b"",
        "../evil": b"",
        "1": b"no log",
        "..": b"",
        "kept": b"",
    }
    write_beside(here, sent, [0, 1])
    assert [path.name for path in here.iterdir()] == ["0.maps"]
    assert not (tmp_path / "evil").exists()

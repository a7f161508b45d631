"""Reading logs: all at once, in pieces, in any order, again after a cut; and the calls in them."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from rank_log import DONE, NO, ODD, PACKED, WILD_SOURCE, LogWriter

from crdebug.base.errors import NotAvailable
from crdebug.base.instant import Cut, Instant, cut_of
from crdebug.job import clocks
from crdebug.timeline.calls import Call, Kind
from crdebug.timeline.collectives import Shape
from crdebug.timeline.log import RankLog, read_log
from crdebug.timeline.matching import Matching
from crdebug.timeline.messages import Message, messages, pending, unmatched
from crdebug.timeline.recorded import Recorded
from crdebug.timeline.tables import SYNCHRONOUS
from harness.matcher import library

WORLD, SELF, OTHER = 1, 2, 3
BY = 0x401000


def begin(path: Path, rank: int, world: int = 2) -> LogWriter:
    log = LogWriter(path / str(rank), rank, world)
    log.define(WORLD, range(world))
    log.define(SELF, [rank])
    log.call("MPI_Init", comm=0)
    return log


class Writers:
    """Two ranks that do anything a job may do, by chance; messages are received in time."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chooser = random.Random(seed)
        self.logs = [begin(path, rank) for rank in range(2)]
        self.begun = self.logs[0].tail
        self.open: list[tuple[int, int]] = []  # wild receives of rank 1: their place, and age
        self.tests = -1  # the place of an unsuccessful run, if that is the last record

    def step(self) -> None:
        one, other = self.logs
        tests, self.tests = self.tests, -1
        match self.chooser.randrange(8):
            case 0:
                one.call("MPI_Send", peer=1, tag=7, size=self.chooser.choice((8, 5000)))
                other.call("MPI_Recv", peer=0, tag=7, size=8)
            case 1:
                one.call("MPI_Isend", peer=1, tag=3, size=8)
                one.call("MPI_Wait", size=1)
                place = other.call("MPI_Irecv", flags=WILD_SOURCE, tag=3)
                if self.chooser.random() < 0.5:
                    other.got(place, "MPI_Irecv", 0, 3)
                    other.call("MPI_Waitall", size=1, flags=PACKED)
                else:
                    self.open.append((place, 3))
            case 2:
                while self.open:  # all that is open has come by now
                    place, tag = self.open.pop()
                    other.got(place, "MPI_Irecv", 0, tag)
            case 3 if tests >= 0:
                other.once_more(tests)
                self.tests = tests
            case 3:
                self.tests = other.call("MPI_Iprobe", peer=0, tag=9, size=1, flags=NO)
            case 4:
                for log in self.logs:
                    log.call("MPI_Allreduce", size=8)
            case 5:  # a communicator under a number that an earlier one had
                members = self.chooser.choice(((0, 1), (1, 0)))
                for log in self.logs:
                    log.call("MPI_Comm_split")
                    log.define(OTHER, members)
                one.call("MPI_Send", comm=OTHER, peer=1 - members[0], tag=1, size=4)
                other.call("MPI_Recv", comm=OTHER, peer=members[0], tag=1, size=4)
            case 6:
                other.call("MPI_Wtime")
            case _:
                one.call("MPI_Isend", peer=1, tag=5, size=8)
                one.call("MPI_Isend", peer=1, tag=6, size=8)
                one.call("MPI_Waitall", size=2, words=(1, 2))
                other.call("MPI_Recv", peer=0, tag=6)
                other.call("MPI_Recv", peer=0, tag=5)


def facts(matching: Matching, ends: Cut) -> object:
    matching.settle()
    needs = {
        (entered, why, waiter): sorted(zip(found.keys, found.values, strict=True))
        for entered, each in matching.awaited.items()
        for waiter, why, found in each
        if len(found)
    }
    return [*messages(matching)], [*unmatched(matching)], [*pending(matching, ends)], needs


@pytest.mark.parametrize("seed", range(8))
def test_a_log_read_in_pieces_is_the_same_log(tmp_path: Path, seed: int) -> None:
    """And matching the records has the same result as matching lists of the calls."""
    writers, grown = Writers(tmp_path, seed), Recorded(library())
    for _ in range(writers.chooser.choice((20, 300))):
        writers.step()
        if writers.chooser.random() < 0.3:
            grown.read(tmp_path.iterdir())
    grown.read(tmp_path.iterdir())
    fresh, lists = Recorded(library()), Matching(library())
    fresh.read(sorted(tmp_path.iterdir(), reverse=True))
    calls = {rank: [*log.calls] for rank, log in fresh.logs.items()}
    comms = {name: who for log in fresh.logs.values() for name, who in log.comms.items()}
    lists.extend(calls, comms)
    ends = tuple(log.tail_now for _, log in sorted(fresh.logs.items()))
    assert [end.tick for end in ends] == [log.ticks for log in writers.logs]
    assert facts(grown.matching, ends) == facts(fresh.matching, ends) == facts(lists, ends)
    for rank, log in grown.logs.items():
        assert [*log.calls] == calls[rank] == read_log(log.path, library()).calls[:]
        for _ in range(20):  # from anywhere, and one by one
            first = writers.chooser.randrange(len(calls[rank]))
            last = writers.chooser.randint(first, len(calls[rank]))
            assert log.calls[first:last] == calls[rank][first:last]
            assert log.calls[first - len(calls[rank])] == calls[rank][first]


def test_a_log_that_was_cut_or_replaced_is_read_again(tmp_path: Path) -> None:
    writers, recorded = Writers(tmp_path, 3), Recorded(library())
    for _ in range(50):
        writers.step()
    recorded.read(tmp_path.iterdir())
    one = writers.logs[0]
    one.cut(writers.begun, 1)
    one.call("MPI_Send", peer=1, tag=7, size=8)
    recorded.read(tmp_path.iterdir())
    assert [call.name for call in recorded.logs[0].calls] == ["MPI_Init", "MPI_Send"]
    assert {found.sent for found in messages(recorded.matching) if found.sender == 0} == {2}
    (tmp_path / "0").unlink()
    begin(tmp_path, 0)
    recorded.read(tmp_path.iterdir())
    assert [call.name for call in recorded.logs[0].calls] == ["MPI_Init"]
    assert not [*messages(recorded.matching)]


def test_reading_stops_at_a_limit_of_time_or_memory_and_continues_there(tmp_path: Path) -> None:
    writers, recorded = Writers(tmp_path, 4), Recorded(library())
    for _ in range(50):
        writers.step()
    assert recorded.read(tmp_path.iterdir(), seconds=0.0)  # more follows
    assert recorded.read(tmp_path.iterdir(), room=0)
    assert recorded.unread == sum(log.records for log in recorded.logs.values()) > 50
    assert not recorded.read(tmp_path.iterdir(), room=1e9)
    assert recorded.unread == 0
    whole = Recorded(library())
    whole.read(tmp_path.iterdir())
    ends = tuple(log.tail_now for _, log in sorted(whole.logs.items()))
    assert facts(recorded.matching, ends) == facts(whole.matching, ends)


def test_what_a_record_says_of_a_call(tmp_path: Path) -> None:
    log = begin(tmp_path, 1)
    log.call("MPI_Irecv", flags=WILD_SOURCE, tag=2)
    got = log.call("MPI_Irecv", flags=WILD_SOURCE, tag=2)
    log.got(got, "MPI_Irecv", 0, 2)
    log.call("MPI_Test", size=3, flags=NO)
    log.call("MPI_Wait", size=1)
    log.call("MPI_Bcast", peer=1, size=80)
    # more bytes and a greater tag than a record has room for
    large = (1 << 33) + 5
    words = (large & 0xFFFFFFFF, large >> 32, 0, 1 << 29)
    log.call("MPI_Send", peer=0, tag=(1 << 28) - 5, size=(1 << 32) - 1, words=words)
    (tmp_path / "0").touch()  # a rank that has not begun
    recorded = Recorded(library())
    recorded.read(tmp_path.iterdir())
    calls = recorded.logs[1].calls
    assert [call.site for call in calls] == [BY] * 7
    assert calls[1:] == [
        Call(1, 2, "MPI_Irecv", Kind.POST_RECV, BY, "world", None, 2, wild=True),
        Call(1, 3, "MPI_Irecv", Kind.POST_RECV, BY, "world", 0, 2, wild=True),
        Call(1, 4, "MPI_Test", Kind.NOTHING, BY, repeats=3),
        Call(1, 7, "MPI_Wait", Kind.COMPLETE, BY, "world", completes=(3,)),
        Call(1, 8, "MPI_Bcast", Kind.COLLECTIVE, BY, "world", 1, bytes=80),
        Call(1, 9, "MPI_Send", Kind.SEND, BY, "world", 0, 1 << 29, large),
    ]
    (sent,) = messages(recorded.matching)
    assert sent == Message(1, 9, 0, "world", 1 << 29, large, 9)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 1, True),  # inside MPI_Init
        (0, 8, True),
        (1, 2, True),  # it was inside then, and is not any more
        (2, 8, False),
        (2, 9, True),  # inside MPI_Finalize
        (9, 10, True),
        (3, 3, False),
    ],
)
def test_calls_that_talk_with_the_launcher(
    tmp_path: Path, start: int, end: int, expected: bool
) -> None:
    log = begin(tmp_path, 0)
    for name in ("MPI_Send", "MPI_Recv", "MPI_Barrier", "MPI_Finalize"):
        log.call(name, peer=1, tag=0)
    found = read_log(log.path, library())
    between = cut_of(start, end)
    assert found.goes_outside(*between) is expected
    assert not found.goes_one_sided(*between)


def test_calls_of_one_sided_communication(tmp_path: Path) -> None:
    log = begin(tmp_path, 0)
    for name in ("MPI_Barrier", "MPI_Put", "MPI_Barrier"):
        log.call(name)
    found = RankLog(log.path, library())
    assert not found.goes_one_sided(*cut_of(0, 100))  # nothing was read
    found = read_log(log.path, library())
    calls = [found.goes_one_sided(Instant.before(n), Instant.after(n)) for n in (2, 3, 4)]
    assert calls == [False, True, False]


def test_each_of_many_that_were_started_is_matched_and_completed(tmp_path: Path) -> None:
    """MPI_Startall: to nobody, a synchronous send, a receive that is known, and one that got."""
    log = begin(tmp_path, 0)
    receive, synchronous = PACKED << 11, WILD_SOURCE << 11  # of a slot, clock.h
    slots = [(1, 0, 1, 0), (5 | synchronous, 6, 1, 8), (5 | receive, 6, 1, 8)]
    slots += [(5 | receive | synchronous | 1 << 31, 7, 1, 8)]
    words = [word for slot in slots for word in slot]
    log.call("MPI_Startall", size=4, words=words)
    log.call("MPI_Waitany", size=1)  # how far back: the last one
    log.call("MPI_Waitany", size=3)
    other = begin(tmp_path, 1)
    for tag in (3, 2):
        other.call("MPI_Send", peer=0, tag=tag, size=8)
    other.call("MPI_Recv", peer=0, tag=2, size=8)
    recorded = Recorded(library())
    recorded.read(tmp_path.iterdir())
    assert not recorded.matching.ranks[0].blind
    assert [*messages(recorded.matching)] == [
        Message(0, 2, 1, "world", 2, 8, 4, 4, 4),
        Message(1, 2, 0, "world", 3, 8, 2, 2, 3, wild=True),
        Message(1, 3, 0, "world", 2, 8, 3, 2),  # its receive has not completed
    ]
    assert recorded.matching.ranks[0].sends.mode[0] == SYNCHRONOUS


@pytest.mark.parametrize("start", ["MPI_Irecv", "MPI_Start", "MPI_Startall"])
@pytest.mark.parametrize("was", [False, True])
def test_a_cancelled_request_is_gone_if_it_was_cancelled(
    tmp_path: Path, start: str, was: bool
) -> None:
    log = begin(tmp_path, 0)
    flags = DONE | (ODD if was else 0)
    if start == "MPI_Startall":
        words = (5 | PACKED << 11 | 1 << 31 | was << 30, 6, 1, 8)
        log.call(start, size=1, words=words)
    else:
        log.call(start, peer=1, tag=2, flags=flags | (PACKED if start == "MPI_Start" else 0))
    log.call("MPI_Cancel", size=1)
    log.call("MPI_Wait", size=1)
    log.call("MPI_Recv", peer=1, tag=2)
    begin(tmp_path, 1).call("MPI_Send", peer=0, tag=2)
    recorded = Recorded(library())
    recorded.read(tmp_path.iterdir())
    (message,) = messages(recorded.matching)
    assert (message.posted, message.received) == ((5, 5) if was else (2, 4))


def test_a_matched_receive_takes_the_message_that_it_names(tmp_path: Path) -> None:
    """On a communicator whose ranks are the other way round, and not in the order of the probes."""
    log = begin(tmp_path, 0)
    log.define(3, (1, 0))
    for _ in range(2):
        log.call("MPI_Mprobe", comm=3, peer=0, tag=2)
    log.call("MPI_Imrecv", comm=3, peer=0, tag=2, words=(1,))  # one is older
    log.call("MPI_Mrecv", comm=3, peer=0, tag=2)
    log.call("MPI_Wait", size=1)
    other = begin(tmp_path, 1)
    other.define(3, (1, 0))
    for _ in range(2):
        other.call("MPI_Send", comm=3, peer=1, tag=2)
    recorded = Recorded(library())
    recorded.read(tmp_path.iterdir())
    assert [(m.sent, m.received) for m in messages(recorded.matching)] == [(2, 5), (3, 6)]


def test_a_window_is_distinguished_from_its_communicator_and_has_groups(tmp_path: Path) -> None:
    log = begin(tmp_path, 1)
    log.call("MPI_Win_create")
    log.define(3, (0, 1), window=True)
    log.call("MPI_Win_fence", comm=3, flags=ODD)
    log.call("MPI_Win_post", comm=3, size=2, words=(0, 2))
    log.call("MPI_Put", comm=3, peer=1, size=8)
    recorded = Recorded(library())
    recorded.read(tmp_path.iterdir())
    rma = partial(Call, kind=Kind.RMA, site=BY, comm="window(world)")
    assert recorded.logs[1].calls[2:] == [
        rma(1, 3, "MPI_Win_fence", opens=True),
        rma(1, 4, "MPI_Win_post", group=(0, 1)),
        rma(1, 5, "MPI_Put", peer=1, bytes=8),
    ]
    fences = recorded.matching.successions["window(world)"]
    assert fences.shape(0) is Shape.NOBODY


def test_without_a_place_for_logs_nothing_is_recorded(tmp_path: Path) -> None:
    """As for `when`, in a session that is attached to such a job."""
    with pytest.raises(NotAvailable, match="this job's MPI calls are not recorded"):
        Recorded(library()).look(clocks.of_ranks(tmp_path))

"""What the layer's log says of a run: calls, peers, communicators; its size; and when it ends."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from crdebug.base.instant import Instant
from crdebug.native.recorder.clock import Refused
from crdebug.timeline.calls import Kind
from crdebug.timeline.cuts import latest_cut
from crdebug.timeline.matching import Matching
from crdebug.timeline.messages import messages, pending, unmatched
from crdebug.timeline.recorded import Recorded
from crdebug.timeline.tables import SYNCHRONOUS
from harness.layered import Layered
from harness.matcher import library
from harness.mpis import MPIS, Mpi


def test_communicators_have_the_same_name_on_all_members(tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "collectives", "--rounds", 2)
    job.run()
    logs = [job.log(rank) for rank in range(job.ranks)]
    assert dict(logs[0].comms)["world"] == (0, 1, 2, 3)
    members: dict[str, tuple[int, ...]] = {}
    for log in logs:
        for name, ranks in log.comms.items():
            assert name == "self" or members.setdefault(name, ranks) == ranks
            assert log.rank in ranks
    assert {"0-1", "2-3", "3,2,1,0", "world#2", "0-1|2-3", "0,2"} <= set(members)
    # what was called on it, was called on it by all
    for name, ranks in members.items():
        collective = {
            tuple(c.name for c in logs[rank].calls if c.comm == name and c.kind is Kind.COLLECTIVE)
            for rank in ranks
        }
        assert len(collective) == 1


def test_each_receive_names_a_send(tmp_path: Path) -> None:
    """As many messages come from each rank as it sends, and every completion has its posting."""
    job = Layered(tmp_path / "time", "testsome", "--rounds", 2, "--jitter-us", 300)
    job.run()
    logs = [job.log(rank) for rank in range(job.ranks)]
    sent = Counter(
        (log.rank, c.peer, c.tag) for log in logs for c in log.calls if c.kind is Kind.SEND
    )
    posts = {c.tick: c for c in logs[0].calls if c.kind is Kind.POST_RECV}
    received = Counter((c.peer, 0, c.tag) for c in posts.values())
    assert sent == received
    completed = [tick for c in logs[0].calls for tick in c.completes]
    assert sorted(completed) == sorted(posts)


def test_ticks_follow_each_other_and_end_at_the_tail(tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "wildcard", "--rounds", 1)
    job.run()
    for rank in range(job.ranks):
        log = job.log(rank)
        tick = 1
        for call in log.calls:
            assert call.tick == tick
            tick += call.repeats
        assert log.tail_now == log.calls[-1].returned
        assert log.calls[0].name.startswith("MPI_Init")


def test_a_log_takes_sixteen_bytes_a_call_and_a_run_of_no_takes_them_once(tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "pingpong", "--rounds", 1000, ranks=2)
    job.run()
    log = job.log(1)
    assert len(log.calls) > 2000
    assert log.records <= len(log.calls) + 3 * len(log.comms)
    job = Layered(tmp_path / "polls", "wildcard", "--rounds", 2, "--jitter-us", 5000)
    job.run()
    calls = job.log(0).calls
    assert any(call.repeats > 1 for call in calls if call.kind is Kind.NOTHING)
    for one, next_one in pairwise(calls):
        again = (one.name, one.site) == (next_one.name, next_one.site)
        assert not (again and one.kind is next_one.kind is Kind.NOTHING), next_one


def test_a_full_log_ends_the_recording_not_the_run(tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "pingpong", "--rounds", 1000, ranks=2)
    job.run({"CRDEBUG_TIME_RECORDS": "600"})  # 512 of them are powers of two
    log = job.log(0)
    assert log.refused is Refused.LOG_FULL
    assert 502 < log.records <= 512


def test_a_limit_of_the_size_of_files_is_kept(tmp_path: Path) -> None:
    """Who makes a file larger than that is ended by SIGXFSZ."""
    job = Layered(tmp_path / "time", "pingpong", "--rounds", 1000, ranks=2)
    at = next(n for n, each in enumerate(job.argv) if each.endswith("pingpong"))
    job.argv[at:at] = ["prlimit", f"--fsize={100 << 20}"]
    job.run()
    log = job.log(0)
    assert log.refused is Refused.NO
    assert log.calls[-1].name == "MPI_Finalize"
    assert log.path.stat().st_size <= 100 << 20


def test_calls_of_a_second_thread_end_the_recording(tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "threaded", ranks=2)
    assert job.run() == "done\n" * 2
    log = job.log(0)
    assert log.refused is Refused.THREADS
    assert [c.name for c in log.calls] == ["MPI_Init_thread", "MPI_Barrier"]


def test_one_sided_epochs_are_tracked_and_calls_repeat(tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "onesided", ranks=2)
    assert job.run() == job.run() == "done\n"
    logs = {rank: job.log(rank).calls for rank in range(2)}
    calls = [c for c in logs[0] if c.kind is Kind.RMA]
    assert len(calls) == 25
    assert [c.comm for c in calls] == ["world", *["window(world)"] * 24]
    assert {c.peer for c in calls if c.name == "MPI_Put"} == {0, 1, None}
    assert {c.name: c.group for c in calls if c.group} == dict.fromkeys(
        ("MPI_Win_post", "MPI_Win_start"), (1,)
    )
    # While a rank is before its part, the other one is inside the call that waits for it.
    matching = Matching(library())
    matching.extend(logs, job.log(0).comms)
    ends = tuple(c[-1].returned.in_last_call for c in logs.values())
    fences = [c.tick for c in calls if c.name == "MPI_Win_fence"]
    windows = {c.name: c.tick for c in calls}
    for before, inside in [
        *((windows[name], windows[name]) for name in ("MPI_Win_create", "MPI_Win_free")),
        *zip(fences, fences, strict=True),
        (windows["MPI_Win_post"], windows["MPI_Win_start"]),
        (windows["MPI_Win_complete"], windows["MPI_Win_wait"]),
    ]:
        cut = latest_cut(matching, 0, Instant.before(before), ends)
        assert cut[1] == Instant.within(inside)
    assert [c.opens for c in calls if c.name == "MPI_Win_fence"] == [True, False, False]


@pytest.mark.parametrize(
    "mpi",
    [
        pytest.param(mpi, id=mpi.name, marks=pytest.mark.sweep if number > 1 else ())
        for number, mpi in enumerate(MPIS)
    ],
)
def test_all_that_is_started_cancelled_or_taken_by_a_probe_is_matched(
    tmp_path: Path, mpi: Mpi
) -> None:
    job = Layered(tmp_path / "time", "started", ranks=2, mpi=mpi)
    assert job.run() == job.run() == "done\n"
    recorded = Recorded(library())
    recorded.read((tmp_path / "time").iterdir())
    matching = recorded.matching
    assert not [*unmatched(matching)]
    calls = {rank: {c.tick: c for c in log.calls} for rank, log in recorded.logs.items()}
    ends = tuple(log.tail_now for _, log in sorted(recorded.logs.items()))
    assert not [*pending(matching, ends)]
    found = [*messages(matching)]
    assert Counter((m.sender, m.tag) for m in found) == {
        (rank, tag): count for rank in range(2) for tag, count in enumerate((2, 2, 2, 1, 2, 1), 1)
    }
    for m in found:
        received = calls[m.receiver][m.received or 0].name
        if m.tag < 4:
            assert calls[m.receiver][m.posted or 0].name == "MPI_Startall"
            assert [calls[m.sender][m.send_done or 0].name, received] == ["MPI_Waitany"] * 2
        if m.tag == 4:  # not one of those before, which were cancelled
            assert received == "MPI_Recv"
        if m.tag == 6:  # as before, and nobody asked whether the cancel came in time
            assert received == "MPI_Request_free"
    for rank in range(2):
        first, second = (m for m in found if (m.sender, m.tag) == (rank, 5))
        assert calls[1 - rank][first.received or 0].name == "MPI_Mrecv"
        assert calls[1 - rank][second.received or 0].name == "MPI_Wait"
    # The synchronous send waits for its receive, which the other has not started.
    start = next(c.tick for c in calls[0].values() if c.name == "MPI_Startall")
    sends = matching.ranks[1].sends
    ssend = next(at for at, tick in enumerate(sends.tick) if sends.tag[at] == 1)
    assert sends.mode[ssend] == SYNCHRONOUS
    cut = latest_cut(matching, 0, Instant.before(start), ends)
    assert cut[1] <= Instant.within(sends.done[ssend])


def test_another_program_is_a_divergence(tmp_path: Path) -> None:
    """It is held where it differs; the message has the expected and the actual call."""
    job = Layered(tmp_path / "time", "pingpong", "--rounds", 50, ranks=2)
    job.run()
    other = Layered(tmp_path / "time", "pingpong", "--rounds", 50, "--bytes", 2, ranks=2)
    with other.running() as running:
        ranks = running.find()
        running.wait(lambda: all(rank.clock().diverged for rank in ranks), "both diverge")
        for rank in ranks:
            clock = rank.clock()
            assert clock.held == 2
            assert clock.diverged_now == 3  # inside the second call
            assert clock.expected[0] >> 32 == 1
            assert clock.actual[0] >> 32 == 2

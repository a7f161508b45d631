"""The clock of a rank on another host: what is set counts at once, whatever is heard late."""

from __future__ import annotations

import struct

import pytest

from crdebug.base.errors import NotAvailable
from crdebug.base.instant import Instant
from crdebug.job.far_clocks import ClockLook, ClockWrite, FarClock
from crdebug.job.record_here import Is, RankSeen
from crdebug.native.recorder import clock as layout
from crdebug.native.recorder.clock import NEVER, Last
from crdebug.native.recorder.mpi_calls import DIGEST

_CALLS = struct.calcsize("<IIiiQQIIQQIiIIIIQ4QQ")  # where it says which calls it numbers
CLOCK = (
    struct.pack("<II", layout.ABI, layout.SIZE).ljust(_CALLS, b"\0") + struct.pack("<Q", DIGEST)
).ljust(layout.SIZE, b"\0")


def stop_of(clock: bytes) -> int:
    return int.from_bytes(clock[layout.STOP_OFFSET : layout.STOP_OFFSET + 8], "little")


class Agent:
    """Has the rank, and does what it is sent when it is told to."""

    def __init__(self) -> None:
        self.sent: list[ClockWrite] = []
        self.clock = CLOCK
        self.written = self.looks = 0
        self.far = FarClock(3, RankSeen(Is.THERE, CLOCK), self.sent.append)

    def do(self, writes: int) -> None:
        for write in self.sent[:writes]:
            end = write.offset + len(write.data)
            self.clock = self.clock[: write.offset] + write.data + self.clock[end:]
            self.written = write.number
        del self.sent[:writes]

    def tell(self) -> None:
        self.far.was_seen(RankSeen(Is.THERE, self.clock), self.look())

    def look(self) -> ClockLook:
        self.looks += 1
        return ClockLook(self.looks, self.written)

    @property
    def stop(self) -> int:
        return stop_of(self.far.seen.clock)


@pytest.mark.parametrize("done", range(4))
def test_what_is_heard_never_undoes_what_was_set(done: int) -> None:
    agent = Agent()
    for tick in (5, 6, 7):
        agent.far.set_stop(Instant.before(tick))
    agent.do(done)
    agent.tell()
    assert agent.stop == Instant.before(7)
    agent.do(3)
    agent.tell()
    assert agent.stop == stop_of(agent.clock) == Instant.before(7)


def test_what_has_changed_there_since_counts() -> None:
    agent = Agent()
    agent.far.set_stop(NEVER)
    agent.do(1)
    agent.clock = CLOCK  # memory was put back
    agent.far.stands(agent.clock, agent.look())
    assert agent.stop == 0


def test_what_was_seen_before_a_stop_and_heard_after_it_does_not_count() -> None:
    agent = Agent()
    before, old = agent.look(), agent.clock
    agent.far.set_stop(NEVER)
    agent.do(1)
    agent.far.stands(agent.clock, agent.look())
    agent.far.was_seen(RankSeen(Is.THERE, old), before)
    assert agent.stop == NEVER


def test_another_agent_knows_of_no_writes() -> None:
    agent = Agent()
    agent.far.set_stop(NEVER)
    agent.far.has_another_agent()
    agent.tell()
    assert agent.stop == 0


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (Is.ENDED, ProcessLookupError),
        (Is.ANOTHER, ProcessLookupError),
        (Is.UNREADABLE, NotAvailable),
    ],
)
def test_of_a_rank_that_is_gone_nothing_is_set(status: Is, error: type[Exception]) -> None:
    agent = Agent()
    agent.far.was_seen(RankSeen(status, problem="the agent on n2 has ended"), agent.look())
    with pytest.raises(error):
        agent.far.set_stop(NEVER)
    with pytest.raises(error):
        agent.far.wait_before_finalize(Last.GOES)
    with pytest.raises(error):
        agent.far.look_at(4096, 8)
    assert not agent.sent

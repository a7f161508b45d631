"""The MPI call that a rank is in, read from outside while it waits there."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.native.recorder.doing import Doing, Peer, Tag
from harness.layered import Layered
from harness.mpis import MPIS, Mpi

DEBIANS = [mpi for mpi in MPIS if "Debian" in mpi.origin]
WORLD = 1
LARGE = 1 << 22

# By mode, what each rank is in: the call, its peer and its tag.
EXPECTED: dict[str, list[tuple[str, int, int]]] = {
    "cycle": [("MPI_Recv", (rank + 1) % 4, 7) for rank in range(4)],
    "member": [*[("MPI_Barrier", Peer.NONE, Tag.NONE)] * 3, ("MPI_Recv", 0, 7)],
    "root": [("MPI_Bcast", rank % 2 == 0, Tag.NONE) for rank in range(4)],
    "wildcard": [("MPI_Recv", Peer.ANY, Tag.ANY), *[("MPI_Recv", 0, 7)] * 3],
    "rendezvous": [("MPI_Send", (rank + 1) % 4, 7) for rank in range(4)],
    "probe": [("MPI_Probe", (rank + 3) % 4, 7) for rank in range(4)],
    "halves": [("MPI_Sendrecv", (rank + 3) % 4, 7) for rank in range(4)],
    "fence": [*[("MPI_Win_fence", Peer.NONE, Tag.NONE)] * 3, ("MPI_Recv", 0, 7)],
    "waitall": [("MPI_Waitall", Peer.NONE, Tag.NONE)] * 4,
    "waitany": [("MPI_Waitany", Peer.NONE, Tag.NONE)] * 4,
    "finalize": [*[("MPI_Barrier", Peer.NONE, Tag.NONE)] * 3, ("MPI_Finalize", -1, -1)],
}


def waiting_in(job: Layered, mode: str) -> list[Doing]:
    """What each rank is in, once all are where they wait for ever."""
    found: list[Doing | None] = []
    with job.running() as running:
        ranks = running.find()

        def there() -> bool:
            clocks = [rank.clock() for rank in ranks]
            found[:] = [clock.doing for clock in clocks]
            told = [each and (each.call, each.peer, each.tag) for each in found]
            # A rank may leave the first fence later than another has come to its next call.
            together = mode != "fence" or len({clock.now for clock in clocks}) == 1
            return told == EXPECTED[mode] and together

        running.wait(there, f"all ranks wait as in mode {mode}")
        states = [(rank.clock().now, rank.clock().doing) for rank in ranks]
    assert [doing for _, doing in states] == found
    assert all(now % 2 for now, _ in states)
    return [each for each in found if each is not None]


@pytest.mark.parametrize("mpi", DEBIANS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("mode", EXPECTED)
def test_a_rank_says_what_it_waits_in(mode: str, mpi: Mpi, tmp_path: Path) -> None:
    found = waiting_in(Layered(tmp_path / "time", "hangs", "--mode", mode, mpi=mpi), mode)
    assert all(each.site for each in found)
    on_world = mode not in ("waitall", "waitany", "finalize", "fence")
    assert all(each.comm == WORLD for each in found if on_world)
    if mode == "rendezvous":
        assert {each.bytes for each in found} == {LARGE}
    if mode == "halves":
        assert [each.sends for each in found] == [((rank + 1) % 4, 8, 4) for rank in range(4)]
    if mode == "waitall":
        assert [each.ages for each in found] == [(3, 2, 1)] * 4
    if mode == "waitany":
        assert [each.ages for each in found] == [(2, 1)] * 4


@pytest.mark.parametrize("mode", ["member", "rendezvous", "waitall"])
def test_so_it_does_while_nothing_is_recorded(mode: str, tmp_path: Path) -> None:
    job = Layered(tmp_path / "time", "hangs", "--mode", mode)
    job.directory.rmdir()  # where there is no place for logs the layer only counts
    found = waiting_in(job, mode)
    if mode != "waitall":
        assert all(each.comm == WORLD for each in found)

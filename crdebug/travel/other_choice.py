"""Another future: a receive that left its sender open gets the message of another rank."""

from __future__ import annotations

from crdebug.base.errors import NotAvailable
from crdebug.timeline.calls import Call
from crdebug.timeline.log import RankLog
from crdebug.travel.history import History


async def choose_another(past: History, call: Call, source: int) -> str:
    """Go to where a rank is about to make a recorded call, and begin a branch on which that call
    gets the message of this rank; from then on the MPI chooses. Returns the branch's name.

    Raises CrdebugError if the job cannot be brought there.
    """
    recorded = past.traveller.recorded
    number = _number(recorded.logs()[call.rank], call, source)
    await past.goto_entry(call.rank, call.tick)
    known = past.branching.branches.known
    name = next(name for at in range(1, len(known) + 2) if (name := f"try-{at}") not in known)
    note = f"{call.name} of rank {call.rank} gets the message of rank {source}"
    await past.branch(name, f"{note}, not that of rank {call.peer}")
    recorded.clock(call.rank).choose(number)
    return name


def _number(log: RankLog, call: Call, source: int) -> int:
    """The number of a rank in the communicator of a call, as the call names it."""
    for _, comm in log.comms_at(log.records):
        if comm.name == call.comm and source in comm.peers:
            return comm.peers.index(source)
    raise NotAvailable(f"rank {source} is not known in communicator {call.comm}")

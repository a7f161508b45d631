"""Have processes come to rest, with nothing left to pass on to each other?"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from crdebug.node import in_flight, proc


def at_rest(pids: Collection[int]) -> bool:
    """Is there nothing that one of these processes could do before something new happens? They may
    wait for each other, and for the pseudo-terminals whose masters they have.

    Raises ProcessLookupError if one has ended.
    """
    for pid in pids:
        in_flight.flush_terminals(pid)
    slept = asleep(pids)
    return slept is not None and slept == asleep(pids)


def asleep(pids: Iterable[int]) -> dict[int, int] | None:
    """By thread, how often it has gone to sleep; None if one of these processes is awake.

    The threads are looked at one after the other, and one may hand its work to another meanwhile.
    After two equal answers there was a moment in between at which all of them slept.
    """
    found = {}
    for pid in pids:
        for tid in proc.tids(pid):
            with contextlib.suppress(ProcessLookupError):
                fields = proc.status(pid, tid)
                if fields["State"][0] != "S":
                    return None
                found[tid] = int(fields["voluntary_ctxt_switches"])
    return found

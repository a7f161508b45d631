"""Make other debuggers let go of a job's ranks for a checkpoint."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, Refused
from crdebug.base.ranks import RankSet
from crdebug.job.holds import Hold, with_shims
from crdebug.job.waitpoint import WaitpointHold
from crdebug.node import proc

_MOMENT = 1.0  # seconds
_HINT = "detach it, or ask there (docs/gdb.md)"


def _tracer(shim: WaitpointHold) -> int:
    return max((thread.tracer for thread in proc.threads(shim.pid)), default=0)


@contextlib.asynccontextmanager
async def let_go(holds: Sequence[Hold], deadline: Deadline) -> AsyncIterator[RankSet]:
    """For the block, make every rank that another debugger traces wait untraced. This works with
    debuggers that know the protocol: they break at MPIR_checkpoint_debugger_detach. Yields these
    ranks.

    Raises Refused if a debugger does not let go: it is at its prompt, or does not know the
    protocol.
    """
    shims = with_shims(holds)
    held = {shim.rank: _tracer(shim) for shim in shims}
    traced = [shim for shim in shims if held[shim.rank]]
    asked = [shim for shim in traced if await _runs(shim)]
    goes = {held[shim.rank] for shim in asked}
    for shim in traced:  # a debugger lets all of its ranks go when one of them asks
        if held[shim.rank] not in goes:
            raise _refused(shim, f"process {held[shim.rank]} has stopped it")

    def all_wait() -> bool:
        for shim in asked:
            if shim.shim().asker == 0:
                raise _refused(shim, f"process {held[shim.rank]} traces it, and does not let go")
        return all(shim.waits_for_debugger() for shim in traced)

    try:
        for shim in asked:
            shim.ask_debugger(os.getpid())
        try:
            await deadline.until(all_wait, "")
        except DeadlineExpired:
            late = next(shim for shim in traced if not shim.waits_for_debugger())
            raise _refused(late, f"process {held[late.rank]} does not let it go") from None
        yield RankSet.of(shim.rank for shim in traced)
    finally:
        for shim in asked:
            with contextlib.suppress(ProcessLookupError):
                shim.set_asker(0)
        # Nobody should find ranks waiting for a debugger that is about to return.
        with contextlib.suppress(DeadlineExpired):
            back = Deadline(deadline.seconds)
            await back.until(lambda: all(_is_back(shim, held) for shim in traced), "")


def _is_back(shim: WaitpointHold, held: Mapping[int, int]) -> bool:
    try:
        return shim.waiting() == 0 or not proc.is_alive(held[shim.rank])
    except ProcessLookupError:
        return True


async def _runs(shim: WaitpointHold) -> bool:
    """Does the rank run? Debuggers also stop ranks for a moment, to evaluate a condition, say."""
    with contextlib.suppress(DeadlineExpired):
        await Deadline(_MOMENT).until(lambda: proc.status(shim.pid)["State"][0] != "t", "")
        return True
    return False


def _refused(shim: WaitpointHold, text: str) -> Refused:
    return Refused(text, ranks=RankSet.of([shim.rank]), hint=_HINT)

"""Set the variables of the protocol's table in ranks that the CRS has brought back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from crdebug.base.errors import CrdebugError
from crdebug.base.ranks import RankSet
from crdebug.checkpoint.images import CoreThread, read_threads
from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.protocol import variables
from crdebug.job.holds import Hold, with_shims
from crdebug.native.shim import layout
from crdebug.node import proc


def set_variables(
    holds: Sequence[Hold], manifest: Manifest, images: Path, *, debugger: bool
) -> None:
    """Set the variables of the protocol's table in restored ranks, none of which has run yet.

    Verifies the values in the image, sets those that hold from now on, and queues the signal: to
    every thread if a debugger will want it in the waitpoint, to the waiting ones if they have to
    run the hook, and to those whose system call the CRS interrupted, which the handler undoes.
    Leaves a rank that SIGSTOP holds as it is. Raises CrdebugError.
    """
    threads = read_threads(images)
    calls, blocked = _broken(threads), {each.tid: each.blocked for each in threads}
    for bare in with_shims(holds):
        shim = replace(bare, blocked=blocked)  # under the CRS its threads still block all signals
        waiting = bool(shim.inside())
        # Without crdebug, a rank may have waited for another debugger.
        attended = manifest.debugger or waiting
        expected, wanted = variables(attended, debugger)
        found = (shim.with_checkpoint, shim.gate, waiting)
        if found != (expected.with_checkpoint, expected.gate, expected.waiting):
            raise CrdebugError(
                f"the image's variables are {found} and should be "
                f"{(expected.with_checkpoint, expected.gate, expected.waiting)}",
                ranks=RankSet.of([shim.rank]),
            )
        shim.set_with_checkpoint(wanted.with_checkpoint)
        if attended:
            if not debugger:
                shim.run_hook(layout.CRS_RESTART)  # opens the gate
            continue
        if debugger:
            shim.refuse_obstacles()
            shim.refuse_blockers()
            shim.close_gate({t.inner: calls.get(t.inner, -1) for t in proc.threads(shim.pid)})
            shim.queue_signal()
        else:
            shim.set_gate(wanted.gate)
            shim.make_calls_again(calls)


def broken_calls(images: Path) -> dict[int, int]:
    """By TID inside the job, the system call that the CRS interrupted. Raises StoreError."""
    return _broken(read_threads(images))


def _broken(threads: Iterable[CoreThread]) -> dict[int, int]:
    return {each.tid: each.interrupted_call for each in threads if each.interrupted_call >= 0}

"""The checkpoint/restart service behind a seam (Hursey's CRS framework: one of several)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from crdebug.base.deadline import Deadline
from crdebug.node.container import Container

T = TypeVar("T")

WhileFrozen = Callable[[int], Awaitable[T]]
"""Called while every process of the job is frozen, with the host PID of its first process."""

OnceWhole = Callable[[int], Awaitable[tuple[Path, T]]]
"""Called with the host PID of the first process of a job that is restored and has not run yet.
Returns the plan that makes the restart final (see crdebug.checkpoint.commit), which a process
carries out that depends on nobody; and the value for `Crs.restore` to return."""


class Crs(Protocol):
    """Dumps and restores a whole tree of processes; a dump is whole or it is nothing."""

    @property
    def name(self) -> str:
        """What the manifest calls it, with its version."""
        ...

    @property
    def tracks(self) -> bool:
        """Can it tell, on this machine, which memory was changed since a dump?"""
        ...

    async def dump(
        self,
        pid: int,
        images: Path,
        frozen: WhileFrozen[T],
        deadline: Deadline,
        *,
        container: Container | None,
        track: bool = False,
        base: Path | None = None,
    ) -> T:
        """Write the images of the tree under `pid`, which then runs on; what `frozen` returned.

        frozen: called once the images are written; if it raises, the tree runs on and there is no
        image.  container: whose namespaces the tree is in, if they are not ours.  track: a later
        dump may build on this one; changes count from now on.  base: the images of the last dump
        that was tracked: only memory that has changed since is written. Raises CrsFailed.
        """
        ...

    async def restore(
        self,
        images: Path,
        whole: OnceWhole[T],
        deadline: Deadline,
        *,
        container: Container | None,
        passed: int = -1,
        instead: Mapping[str, int] | None = None,
    ) -> T:
        """Bring the tree back; returns what `whole` did.

        whole: see there; if it raises, or its plan cannot be carried out, the new tree is ended.
        Neither cancellation nor the deadline break the plan off.  container: where to bring it
        back, see `dump`.  passed: a descriptor that the CRS keeps open until it ends.  instead:
        descriptors of ours, in the place of pipes that lead out of the tree, by their names.
        Raises CrsFailed.
        """
        ...

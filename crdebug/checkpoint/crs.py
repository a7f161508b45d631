"""The checkpoint/restart service behind a seam (Hursey's CRS framework: one of several)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from crdebug.base.deadline import Deadline

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
        mounts: Mapping[str, str],
        frozen: WhileFrozen[T],
        deadline: Deadline,
        *,
        container: bool = True,
        track: bool = False,
        base: Path | None = None,
    ) -> T:
        """Write the images of the tree under `pid`, which then runs on; what `frozen` returned.

        mounts: mount points to leave alone, each with the name to find it by on restore.
        frozen: called once the images are written; if it raises, the tree runs on and there is no
        image.  container: the tree is in namespaces of its own.  track: a later dump may build on
        this one; changes count from now on.  base: the images of the last dump that was tracked:
        only memory that has changed since is written. Raises CrsFailed.
        """
        ...

    async def restore(
        self,
        images: Path,
        mounts: Mapping[str, str],
        whole: OnceWhole[T],
        deadline: Deadline,
        instead: Mapping[str, int] | None = None,
        begun: Path | None = None,
    ) -> T:
        """Bring the tree back; returns what `whole` did.

        mounts: by name, what to put there.  whole: see there; if it raises, or its plan cannot be
        carried out, the new tree is ended. Neither cancellation nor the deadline break the plan
        off.  begun: a plan for when the tree's mounts are there, and no file is open yet.
        instead: None for a tree that was in
        namespaces of its own; else descriptors of ours, in the place of pipes that lead out of the
        tree, by their names. Raises CrsFailed.
        """
        ...

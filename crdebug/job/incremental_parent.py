"""Remember the checkpoint that a job's next one may build on.

It is the last one of the same incarnation, if no dump has failed since: each tracked dump makes the
kernel forget the changes before it. So we remove the note before a dump, and write it once the
checkpoint is complete. It belongs to the incarnation, because a restart has other processes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from crdebug.base.errors import StoreError
from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.store import CheckpointStore

_NAME = "base"


def find(run: Path, store: CheckpointStore, full_every: int) -> Manifest | None:
    """The checkpoint to build on; None if the next one must be full."""
    try:
        manifest = store.load(int((run / _NAME).read_text()))
        if len(manifest.bases) + 1 >= full_every:
            return None
        store.verify(manifest)
    except (OSError, ValueError, StoreError):  # there is none, or it was deleted, or damaged
        return None
    return manifest


def forget(run: Path) -> None:
    """A dump begins. Raises OSError."""
    (run / _NAME).unlink(missing_ok=True)


def note(run: Path, number: int) -> None:
    """Note that the last dump is this checkpoint."""
    with contextlib.suppress(OSError):  # without it the next one is full
        (run / _NAME).write_text(str(number))

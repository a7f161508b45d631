"""Which checkpoint the next one of a job may build on.

The last one of the same incarnation, if no dump since then has failed: each tracked dump makes the
kernel forget what was changed before it. So the note is removed before a dump and written once its
checkpoint is whole. It lies with the incarnation, since a restart has other processes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from crdebug.base.errors import StoreError
from crdebug.checkpoint.manifest import Manifest
from crdebug.checkpoint.store import CheckpointStore

_NAME = "base"


def find(run: Path, store: CheckpointStore, full_every: int) -> Manifest | None:
    """None when the next one has to be full."""
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
    """The last dump is this checkpoint."""
    with contextlib.suppress(OSError):  # without it the next one is full
        (run / _NAME).write_text(str(number))

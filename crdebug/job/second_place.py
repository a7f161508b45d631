"""The job's own files in the second place of its checkpoints, and bringing them back from there.

Anyone who can write there can run anything here: images are programs, and root restores them. So we
refuse files that others could have changed. See crdebug.checkpoint.staging for the checkpoints.
"""

from __future__ import annotations

from pathlib import Path

from crdebug.base.errors import BadInput
from crdebug.checkpoint.manifest import require_own
from crdebug.checkpoint.staging import RECORD
from crdebug.job import native_parts
from crdebug.job.directory import JobDirectory, decode
from crdebug.node import owners


def begin(directory: JobDirectory, place: Path) -> None:
    """Make this the job's second place. Raises BadInput if it cannot be a directory, StoreError if
    other users can change its files."""
    there = place / directory.name
    try:
        owners.make_private(there)
        require_own(there)
        data = (directory.path / RECORD).read_bytes()
        native_parts.take_along(
            directory.native, there / "native", decode(data, directory.path / RECORD)
        )
        _write(there / RECORD, data)
    except OSError as error:
        raise BadInput(f"cannot stage to {place}: {error.strerror}") from None
    _write(directory.path / "stage", str(place.resolve()).encode())


def import_staged(directory: JobDirectory, place: Path) -> None:
    """Take in a job that is unknown here and was staged there, perhaps by another machine.

    Raises StoreError if other users can change its files, BadInput.
    """
    there = place / directory.name
    if directory.exists() or not (there / RECORD).exists():
        return
    require_own(there)
    for name in (RECORD, "native"):
        require_own(there / name, whole=True)
    try:
        data = (there / RECORD).read_bytes()
        record = decode(data, there / RECORD)
        directory.create()
        native_parts.take_along(there / "native", directory.native, record)
        _write(directory.path / RECORD, data)
    except OSError as error:
        raise BadInput(f"cannot take {directory.name} from {place}: {error.strerror}") from None
    begin(directory, place)


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(data)
    unfinished.chmod(0o600)
    unfinished.rename(path)

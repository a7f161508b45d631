"""Keep the native parts that a job runs with beside it: a checkpoint may outlive the cache.

STATE/jobs/NAME/native/{starter,shim.so,stepper.so,pmpi.so}, and the same in the second place.

An image has them mapped by their paths in the cache, so a restart needs them there: we put back
the missing ones. The record has the SHA-256 of each.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from crdebug.base.errors import StoreError
from crdebug.base.settings import cache_home
from crdebug.job.directory import JobDirectory, JobRecord
from crdebug.node import owners


def keep(directory: JobDirectory, parts: Iterable[Path]) -> dict[str, str]:
    """Copy these parts beside the job; returns the SHA-256 of each by its path. Raises OSError, and
    NotAvailable where a restart could not run them."""
    owners.require_runnable(directory.native, "choose another place with $CRDEBUG_HOME")
    owners.make_private(directory.native)
    kept = {}
    for part in parts:
        kept[str(part)] = _sha256(part)
        _copy(part, directory.native / part.name)
    return kept


def starter(directory: JobDirectory, record: JobRecord) -> Path:
    """The copy of the job's starter to run. Raises StoreError."""
    return _kept(directory, record, record.starter)


def put_back(directory: JobDirectory, record: JobRecord) -> None:
    """Put a job's missing parts back to the paths in its images. Raises StoreError."""
    for name in record.parts:
        path = Path(name)
        if path.exists():
            continue  # the manifest says whether it is the same
        copy = _kept(directory, record, name)
        if not path.resolve().is_relative_to((cache_home() / "native").resolve()):
            raise StoreError(
                f"{path} is missing, and belongs to another cache than yours",
                hint="name that cache with $CRDEBUG_CACHE",
            )
        try:
            owners.make_readable(path.parent)
            _copy(copy, path)
        except OSError as error:
            raise StoreError(f"cannot put {path} back: {error.strerror}") from None


def take_along(source: Path, target: Path, record: JobRecord) -> None:
    """Copy the parts that are kept beside a job to another place. Raises StoreError, OSError."""
    owners.make_private(target)
    for name, sha256 in record.parts.items():
        part = Path(name).name
        if _is_same(target / part, sha256):
            continue
        if not _is_same(source / part, sha256):
            raise _not_whole(source / part)
        _copy(source / part, target / part)


def _kept(directory: JobDirectory, record: JobRecord, name: str) -> Path:
    copy = directory.native / Path(name).name
    if name not in record.parts or not _is_same(copy, record.parts[name]):
        raise _not_whole(copy)
    return copy


def _not_whole(path: Path) -> StoreError:
    what = "is not what the job was started with" if path.exists() else "is missing"
    return StoreError(f"{path} {what}", hint="the job cannot be brought back without it")


def _is_same(path: Path, sha256: str) -> bool:
    try:
        return _sha256(path) == sha256
    except OSError:
        return False


def _sha256(path: Path) -> str:
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Path, target: Path) -> None:
    """Copy a file, which appears complete, by one rename; a process that runs the old one goes on
    with that."""
    descriptor, name = tempfile.mkstemp(dir=target.parent)
    try:
        with open(descriptor, "wb") as out, open(source, "rb") as file:
            shutil.copyfileobj(file, out)
            os.fchmod(out.fileno(), 0o755)  # the CRS compares
        os.rename(name, target)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, error.strerror, str(target)) from None
        raise

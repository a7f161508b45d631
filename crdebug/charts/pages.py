"""HTML pages of crdebug's as files: written as a whole, and over nothing else."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from crdebug.base.errors import BadInput, Refused

SIGNATURE = '<meta name="generator" content="crdebug">'
"""Each page has it in its head."""

_HEAD = 1000  # bytes, in which it is


def save(html: str, path: Path) -> None:
    """Write a page. Raises Refused rather than overwrite a file that is not one, and BadInput
    when the file cannot be written."""
    try:
        if path.exists() and not _is_page(path):
            raise _not_a_page(path)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=".crdebug-", delete=False
        ) as unfinished:
            try:
                unfinished.write(html)
                unfinished.close()
                os.chmod(unfinished.name, 0o600)
                os.replace(unfinished.name, path)
            except BaseException:
                os.unlink(unfinished.name)
                raise
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None


def _is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return SIGNATURE.encode() in file.read(_HEAD)


def claim(path: Path) -> None:
    """Raises what `save` would raise, before there is a page. Writes nothing."""
    if path.exists() and not _is_page(path):
        raise _not_a_page(path)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        reason = "no permission" if path.parent.is_dir() else f"there is no directory {path.parent}"
        raise BadInput(f"cannot write {path}: {reason}")


def _not_a_page(path: Path) -> Refused:
    return Refused(
        f"{path} exists, and is not one of crdebug's pages",
        hint="remove it, or choose another name",
    )

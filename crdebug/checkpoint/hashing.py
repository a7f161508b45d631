"""Hashes of files that are still being written: a processor is idle while the CRS writes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from pathlib import Path

_BLOCK = 1 << 20
_LARGE = 4 << 20  # smaller files cost nothing to hash later
_PAUSE = 0.01  # seconds between two looks for more; nothing depends on it but the speed


class RunningHashes:
    """Follows the files of a directory, each written from its start to its end, by a thread.

    Made before the first byte is written; `finish` gives the hashes of what is there then.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._digests: dict[Path, tuple[int, hashlib._Hash]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="hashes")
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.is_set():
            if not self._read_more():
                self._stop.wait(_PAUSE)

    def _read_more(self) -> bool:
        found = False
        with contextlib.suppress(OSError):  # an unfinished image that was given up
            for path in self._directory.glob("pages-*.img"):
                if path.stat().st_size >= _LARGE:
                    found = self._read(path) or found
        return found

    def _read(self, path: Path) -> bool:
        offset, digest = self._digests.get(path, (0, hashlib.sha256()))
        start = offset
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            while block := file.read(_BLOCK):
                digest.update(block)
                offset += len(block)
            os.fdatasync(file.fileno())  # no need to wait for these later
        self._digests[path] = (offset, digest)
        return offset > start

    def finish(self) -> dict[Path, tuple[int, str]]:
        """Stop following; returns length and hexadecimal SHA-256 of what was read of each file.

        Only where the length is the file's own is the hash the file's.
        """
        self._stop.set()
        self._thread.join()
        self._read_more()
        return {path: (size, digest.hexdigest()) for path, (size, digest) in self._digests.items()}

"""Incremental images: which others an image needs, and how long those must be kept.

    N/images/parent -> ../../M/images     N builds on M; the CRS makes it and reads through it

Both places for checkpoints (crdebug.checkpoint.store, .staging) have a directory for each number,
and a file in it, its proof, that is written last. One that is deleted while others build on it
loses its proof, by one rename, and all that they do not need; it is gone when they are.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

BASE = "base.json"  # the name that the proof has then
PARENT = "images/parent"  # criu: criu/include/image.h, CRPARENT_LINK
_LINK = re.compile(r"\.\./\.\./([1-9][0-9]*)/images\Z", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]*\Z", re.ASCII)
# The CRS reads these files of the images that another builds on.
_SHARED = ("images/pages-", "images/pagemap-", "images/inventory.img")


def is_shared(name: str) -> bool:
    """Do those that build on a checkpoint need this file of it?"""
    return name.startswith(_SHARED)


def link(home: Path, base: int) -> None:
    """Make the images in a directory build on those of this number."""
    (home / PARENT).symlink_to(f"../../{base}/images")


def base_of(home: Path) -> int:
    """The number that the images in a directory build on; 0 if they are full."""
    with contextlib.suppress(OSError):
        match = _LINK.match(os.readlink(home / PARENT))
        return int(match[1]) if match else 0
    return 0


def chain(root: Path, number: int) -> tuple[int, ...]:
    """The numbers that a checkpoint builds on, as far as they exist: the nearest first, the full
    one last."""
    found: list[int] = []
    while 0 < (base := base_of(root / str(number))) < number:
        found.append(base)
        number = base
    return tuple(found)


def listed(root: Path, proof: str) -> tuple[int, ...]:
    """The numbers that have their proof, in order."""
    try:
        names = [entry.name for entry in os.scandir(root) if _NUMBER.match(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted(int(name) for name in names if (root / name / proof).exists()))


def proof_in(home: Path, proof: str) -> str:
    """The name that the proof has in a directory, which may be of a deleted one; "" if none."""
    return next((name for name in (proof, BASE) if (home / name).exists()), "")


def remove(root: Path, number: int, proof: str) -> None:
    """Delete one, except for the files that others need. Raises OSError."""
    home = root / str(number)
    others = (each for each in listed(root, proof) if each != number)
    if number in _needed(root, others):
        (home / proof).rename(home / BASE)
    else:
        drop(home, proof)
    sweep(root, proof)


def drop(home: Path, proof: str) -> None:
    """Take its proof away, so that it is not a checkpoint any more, whatever becomes of the rest.
    Raises OSError."""
    (home / proof).unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def sweep(root: Path, proof: str) -> None:
    """Remove what has no proof, but keep the files that others build on."""
    needed = _needed(root, listed(root, proof))
    for home in _without_proof(root, proof):
        if int(home.name) in needed and (home / BASE).exists():
            _trim(home)
        else:
            shutil.rmtree(home, ignore_errors=True)


def has_remains(root: Path, proof: str) -> bool:
    """Is a directory there that nothing needs?"""
    if not (unproved := _without_proof(root, proof)):
        return False
    needed = _needed(root, listed(root, proof))
    return any(int(home.name) not in needed for home in unproved)


def _without_proof(root: Path, proof: str) -> list[Path]:
    """The directories with the name of a checkpoint that are none."""
    with contextlib.suppress(FileNotFoundError):
        there = [Path(entry) for entry in os.scandir(root) if _NUMBER.match(entry.name)]
        return [home for home in there if not (home / proof).exists()]
    return []


def _needed(root: Path, numbers: Iterable[int]) -> set[int]:
    return {base for number in numbers for base in chain(root, number)}


def _trim(home: Path) -> None:
    for directory in (path for path in home.iterdir() if path.is_dir()):
        for path in directory.iterdir():
            name = f"{directory.name}/{path.name}"
            if not is_shared(name) and name != PARENT:
                path.unlink(missing_ok=True)

"""A roll back by paths on which something was changed since: links, and directories."""

from __future__ import annotations

import errno
import os
import re

import pytest
from test_rollback import NOW, World, starter, world

from crdebug.base.errors import StoreError
from crdebug.checkpoint.commit import Plan
from crdebug.checkpoint.open_files import SavedFile

__all__ = ["starter", "world"]  # fixtures
pytestmark = pytest.mark.unit


@pytest.mark.parametrize("swapped", ["table", "gone", "log", "data"])
@pytest.mark.parametrize("late", [False, True])
def test_a_symbolic_link_leads_to_no_file_of_anybody_else(
    world: World, swapped: str, late: bool
) -> None:
    """Put there by the owner of a directory: before the check, or after it. The file, or its
    directory, which then has the same names."""
    others = world.tmp / "others"
    others.mkdir()
    for name, data in NOW.items():
        (others / name).write_bytes(data)
    (others / "gone").write_bytes(b"of somebody else")
    before = {path.name: path.read_bytes() for path in others.iterdir()}
    place = world.here if swapped == "data" else world.here / swapped
    rollback = world.roll_back()
    if late:
        rollback.prepare()
    if place.exists():
        place.rename(world.tmp / "away")
    place.symlink_to(others if swapped == "data" else others / swapped)
    if late:
        told = world.carry_out(Plan(files=rollback.steps()))
        assert re.match(r"cannot roll back .*: Too many levels of symbolic links", told), told
    else:
        with pytest.raises(StoreError, match="symbolic link"):
            rollback.prepare()
    rollback.give_up()
    assert {path.name: path.read_bytes() for path in others.iterdir()} == before
    place.unlink()


def test_a_directory_that_cannot_be_made_leaves_everything_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    below = SavedFile(str(world.here / "below" / "it"), 4, "2")
    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", fail)
        with pytest.raises(StoreError, match=r"cannot roll back .*/it: No space left on device"):
            world.roll_back((below,)).prepare()
    assert world.contents() == NOW
    assert not world.made.exists()

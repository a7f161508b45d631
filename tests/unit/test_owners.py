"""Who could change what is at a path: the user, root, or somebody else?"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from crdebug.base.errors import Refused
from crdebug.node import owners
from harness.nobody import does, needs_root, public  # noqa: F401

pytestmark = pytest.mark.unit

MINE = "can be changed by other users"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "upper" / "lower" / "file"
    path.parent.mkdir(parents=True, mode=0o755)
    path.touch(0o600)
    return path


def test_what_only_the_user_can_change_is_his(file: Path) -> None:
    for path in (file, file.parent, file.parent / "not yet" / "there"):
        assert owners.why_not_own(path) == ""
    owners.require_own(file, "")


@pytest.mark.parametrize("mode", [0o702, 0o777])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_write_access_anywhere_on_the_path_is_enough_to_change_it(
    file: Path, mode: int, level: int
) -> None:
    place = (file, *file.parents)[level]
    place.chmod(mode)
    assert owners.why_not_own(file) == f"{place} {MINE}"
    with pytest.raises(Refused, match=rf"{MINE} \(do so\)$"):
        owners.require_own(file, "do so")


def test_the_group_counts_unless_it_is_the_users_own(file: Path) -> None:
    file.parent.chmod(0o770)
    details = file.parent.stat()
    own = details.st_gid == 0 or details.st_gid == os.geteuid()
    assert bool(owners.why_not_own(file)) != own
    if os.geteuid() == 0:
        os.chown(file.parent, 0, 12345)
        assert owners.why_not_own(file) == f"{file.parent} {MINE}"


def test_in_a_sticky_directory_others_cannot_touch_my_files(file: Path) -> None:
    file.parent.chmod(0o1777)
    assert owners.why_not_own(file) == ""
    assert owners.why_not_own(file.parent) == f"{file.parent} {MINE}"


def test_a_link_is_looked_at_where_it_leads(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert owners.why_not_own(link) == ""
    file.parent.chmod(0o777)
    assert owners.why_not_own(link) == f"{file.parent} {MINE}"


def test_all_that_is_in_a_directory(file: Path, tmp_path: Path) -> None:
    assert owners.why_not_all_own(tmp_path) == ""
    file.chmod(0o666)
    assert owners.why_not_all_own(tmp_path) == f"{file} {MINE}"


def test_no_device_is_anybodys() -> None:
    assert owners.why_not_own(Path(os.devnull)) == ""


@needs_root
def test_what_belongs_to_another_is_named_with_him(public: Path) -> None:  # noqa: F811
    does('touch "$1/his"; ln -s /etc/passwd "$1/link"; mkdir "$1/dir"; chmod 777 "$1/dir"', public)
    said = f"{public} belongs to nobody, and not to you"
    for name in ("his", "link", "dir", "dir/not yet"):
        assert owners.why_not_own(public / name) == said
    os.chown(public, 0, 0)
    assert owners.why_not_own(public / "his") == said.replace(str(public), f"{public}/his")
    assert owners.why_not_own(public / "link") == said.replace(str(public), f"{public}/link")


def test_directories_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        owners.make_private(tmp_path / "a" / "b")
        owners.make_readable(tmp_path / "c" / "d")
    finally:
        os.umask(before)
    modes = {"a": 0o700, "a/b": 0o700, "c": 0o755, "c/d": 0o755}
    for name, mode in modes.items():
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode, name
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        owners.make_private(tmp_path / "file")

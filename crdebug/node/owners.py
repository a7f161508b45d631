"""Who owns a file, and who else could change it? Files that crdebug runs, or trusts, must be the
user's.

The rule is that of ssh for its keys (sshd_config(5), StrictModes), for all of the way to a file:
whoever may write a directory can put another one in the place of what lies in it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from crdebug.base import settings
from crdebug.base.errors import Refused
from crdebug.node import proc

CACHE_HINT = "choose a place of your own with $CRDEBUG_CACHE"
_OVERFLOW = 65534  # whom user_namespaces(7) shows for owners that have no number here
_WHOLE = 1 << 31  # of uid_map: that many numbers and more are all of the machine's


def why_not_own(path: Path) -> str:
    """Why others than this user, and root, could change what is there: a clause; "" if nobody.

    A missing file is as safe as the directory that it will be made in. Symbolic links are followed,
    and whoever owns one can lead it elsewhere. Raises OSError.
    """
    here = path.absolute()
    for place in dict.fromkeys((here, here.resolve())):
        for at in (*reversed(place.parents), place):
            try:
                problem = _problem(at, below=at != place)
            except (FileNotFoundError, NotADirectoryError):
                break
            if problem:
                return problem
    return ""


def require_own(path: Path, hint: str) -> None:
    """Raises Refused when others could change what is there, or the way to it."""
    try:
        problem = why_not_own(path)
    except OSError:
        return  # a file that cannot be looked at cannot be used: the error of that says more
    if problem:
        raise Refused(problem, hint=hint)


def users_of(pid: int) -> frozenset[int]:
    """Whose a process is, in all ways that credentials(7) has: one, if it has no more than its
    user's rights. Raises ProcessLookupError."""
    return frozenset(map(int, proc.status(pid)["Uid"].split()))


def why_not_all_own(directory: Path) -> str:
    """`why_not_own`, of a directory and of all that is in it. Raises OSError."""
    problem = why_not_own(directory)
    return problem or next(filter(None, map(_problem, _below(directory))), "")


def _below(directory: Path) -> Iterator[Path]:
    for home, directories, names in os.walk(directory):
        yield from (Path(home) / name for name in (*directories, *names))


def _problem(at: Path, *, below: bool = False) -> str:
    """Of one place, not of the way to it. below: only for what lies in it."""
    details = at.lstat()
    if details.st_uid not in _trusted():
        return f"{at} belongs to {_name(details.st_uid)}, and not to you"
    if stat.S_ISLNK(details.st_mode) or stat.S_ISCHR(details.st_mode):  # /dev/null
        return ""
    writable = bool(details.st_mode & stat.S_IWOTH)
    own_group = details.st_gid == 0 or details.st_gid == os.getegid() == os.geteuid()
    writable |= bool(details.st_mode & stat.S_IWGRP) and not own_group
    if writable and not (below and details.st_mode & stat.S_ISVTX):
        return f"{at} may be changed by others than you"
    return ""


def _trusted() -> frozenset[int]:
    return frozenset((0, os.geteuid(), *_nobody_known()))


@functools.cache
def _nobody_known() -> tuple[int, ...]:
    """In a user namespace root's own directories show as nobody's, like all that is not in it."""
    with open("/proc/self/uid_map") as file:
        numbers = sum(int(line.split()[2]) for line in file)
    return () if numbers >= _WHOLE else (_OVERFLOW,)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


# ---- crdebug's own places ------------------------------------------------------------------------


def require_own_state() -> None:
    """Raises Refused when the jobs' home is not one's own (sudo -E, or one made beforehand)."""
    require_own(settings.state_home(), "choose a place of your own with $CRDEBUG_HOME")


def require_own_cache() -> None:
    """Raises Refused when what was compiled, and is run, may be somebody else's."""
    require_own(settings.cache_home(), CACHE_HINT)


def require_own_homes() -> None:
    """All places with files that crdebug runs, or trusts. Raises Refused."""
    require_own_state()
    require_own_cache()
    require_own(settings.data_home(), "choose a place of your own with $CRDEBUG_DATA")
    require_own(settings.config_file(), "choose a file of your own with $CRDEBUG_CONFIG")


def make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for this user only, whatever the
    umask; one that is there stays as it is. Raises OSError."""
    _make(directory, 0o700)


def make_readable(directory: Path) -> None:
    """`make_private`, of one that others may look into."""
    _make(directory, 0o755)


def _make(directory: Path, mode: int) -> None:
    for at in (*reversed(directory.parents), directory):
        # One after the other: mkdir(parents=True) leaves those above to the umask.
        with contextlib.suppress(FileExistsError):
            at.mkdir(mode=mode)
    if not directory.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(directory))

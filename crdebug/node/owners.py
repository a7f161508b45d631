"""Who owns a file, and who else could change it? Files that crdebug runs, or trusts, must be the
user's.

The rule is that of ssh for its keys (sshd_config(5), StrictModes), for every directory on the path
to a file: whoever may write to a directory can replace the files in it.
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
from crdebug.base.errors import NotAvailable, Refused
from crdebug.node import proc

CACHE_HINT = "choose a place of your own with $CRDEBUG_CACHE"
_OVERFLOW = 65534  # shown for owners without a number here (user_namespaces(7))
_WHOLE = 1 << 31  # a uid_map with at least so many numbers maps all of the machine's


def why_not_own(path: Path) -> str:
    """A clause that says why others than this user and root could change a place; "" if none could.

    A missing file is as safe as the directory in which it will be made. Symbolic links are
    followed; the owner of one can make it lead elsewhere. Raises OSError.
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
    """Raises Refused when others could change the place, or a directory on the path to it."""
    try:
        problem = why_not_own(path)
    except OSError:
        return  # an unreadable file cannot be used: the error of that use says more
    if problem:
        raise Refused(problem, hint=hint)


def require_runnable(path: Path, hint: str) -> None:
    """Raises NotAvailable where no program could be run that lies there (mount(8), noexec)."""
    at = next(each for each in (path, *path.parents) if os.path.exists(each))
    if os.statvfs(at).f_flag & os.ST_NOEXEC:
        raise NotAvailable(f"no program may be run below {at}, which is mounted noexec", hint=hint)


def users_of(pid: int) -> frozenset[int]:
    """The user IDs of a process, of all kinds in credentials(7): only one, if it has no more than
    its user's rights. Raises ProcessLookupError."""
    return frozenset(map(int, proc.status(pid)["Uid"].split()))


def why_not_all_own(directory: Path) -> str:
    """`why_not_own`, for a directory and everything in it. Raises OSError."""
    problem = why_not_own(directory)
    return problem or next(filter(None, map(_problem, _below(directory))), "")


def _below(directory: Path) -> Iterator[Path]:
    for home, directories, names in os.walk(directory):
        yield from (Path(home) / name for name in (*directories, *names))


def _problem(at: Path, *, below: bool = False) -> str:
    """The problem of one place, not of the path to it. below: only with the files in it."""
    details = at.lstat()
    if details.st_uid not in _trusted():
        return f"{at} belongs to {_name(details.st_uid)}, and not to you"
    if stat.S_ISLNK(details.st_mode) or stat.S_ISCHR(details.st_mode):  # /dev/null
        return ""
    writable = bool(details.st_mode & stat.S_IWOTH)
    own_group = details.st_gid == 0 or details.st_gid == os.getegid() == os.geteuid()
    writable |= bool(details.st_mode & stat.S_IWGRP) and not own_group
    if writable and not (below and details.st_mode & stat.S_ISVTX):
        return f"{at} can be changed by other users"
    return ""


def _trusted() -> frozenset[int]:
    return frozenset((0, os.geteuid(), *_nobody_known()))


@functools.cache
def _nobody_known() -> tuple[int, ...]:
    """In a user namespace root's own directories show as nobody's, like those of all users
    outside."""
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
    """Raises Refused when the jobs' home is not the user's (sudo -E, or one that others made)."""
    require_own(settings.state_home(), "choose a place of your own with $CRDEBUG_HOME")


def require_own_cache() -> None:
    """Raises Refused when the compiled files that we run may be somebody else's."""
    require_own(settings.cache_home(), CACHE_HINT)


def require_own_homes() -> None:
    """Check all places with files that crdebug runs, or trusts. Raises Refused."""
    require_own_state()
    require_own_cache()
    require_own(settings.data_home(), "choose a place of your own with $CRDEBUG_DATA")
    require_own(settings.config_file(), "choose a file of your own with $CRDEBUG_CONFIG")


def make_private(directory: Path) -> None:
    """Make a directory, and missing ones above it, for this user only, whatever the umask. Existing
    ones stay as they are. Raises OSError."""
    _make(directory, 0o700)


def make_readable(directory: Path) -> None:
    """`make_private`, but others may read it."""
    _make(directory, 0o755)


def _make(directory: Path, mode: int) -> None:
    for at in (*reversed(directory.parents), directory):
        # One after the other: mkdir(parents=True) applies the umask to those above.
        with contextlib.suppress(FileExistsError):
            at.mkdir(mode=mode)
    if not directory.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(directory))

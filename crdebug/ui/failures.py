"""Errors in words, in one place."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator, Mapping

from crdebug.base.errors import CrdebugError, NotAvailable

EXIT_ERROR = 1
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h


_OWNER = "run crdebug as its owner, or set CRDEBUG_HOME to a directory of yours"
_ROOM = "make room, or set CRDEBUG_HOME to a directory elsewhere"
# Any file that we use may fail with these; that is not a bug in crdebug.
_REFUSALS: Mapping[int, str] = {
    errno.EACCES: _OWNER,
    errno.EPERM: _OWNER,
    errno.EROFS: _OWNER,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
}


def expected(error: BaseException) -> tuple[CrdebugError, ...]:
    """The errors that a user is meant to read, if there are no others among them; else none."""
    leaves = tuple(map(_readable, _leaves(error)))
    wanted = tuple(leaf for leaf in leaves if isinstance(leaf, CrdebugError))
    return wanted if len(wanted) == len(leaves) else ()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _readable(error: BaseException) -> BaseException:
    """Turn an error of the operating system about a file into one that names the file and gives a
    hint."""
    if not isinstance(error, OSError) or error.filename is None:
        return error
    path, number = os.fsdecode(error.filename), error.errno
    if number is not None and number in _REFUSALS:
        return NotAvailable(f"{path}: {os.strerror(number).lower()}", hint=_REFUSALS[number])
    return error


def describe(error: BaseException) -> tuple[str, int]:
    """The text to show, and the exit status that goes with it.

    An expected error is its own sentence. Anything else is a bug: a notice and the traceback.
    """
    errors = expected(error)
    if errors:
        return "\n".join(dict.fromkeys(map(str, errors))), EXIT_ERROR
    notice = f"this is a bug in crdebug, please report it: {type(error).__name__}: {error}"
    return f"{notice}\n{''.join(traceback.format_exception(error)).rstrip()}", EXIT_BUG

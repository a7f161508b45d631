"""Errors in words, in one place."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from crdebug.errors import CrdebugError

EXIT_ERROR = 1
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h


def expected(error: BaseException) -> tuple[CrdebugError, ...]:
    """The errors that a user is meant to read, if it is nothing but those; else none."""
    leaves = tuple(_leaves(error))
    wanted = tuple(leaf for leaf in leaves if isinstance(leaf, CrdebugError))
    return wanted if len(wanted) == len(leaves) else ()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def describe(error: BaseException) -> tuple[str, int]:
    """What to show, and the exit status that goes with it.

    An expected error is its own sentence. Anything else is a bug: a notice and the traceback.
    """
    errors = expected(error)
    if errors:
        return "\n".join(dict.fromkeys(map(str, errors))), EXIT_ERROR
    notice = f"this is a bug in crdebug, please report it: {type(error).__name__}: {error}"
    return f"{notice}\n{''.join(traceback.format_exception(error)).rstrip()}", EXIT_BUG

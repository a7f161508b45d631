"""MPI's error classes, by their numbers in the log; each MPI has numbers of its own."""

from __future__ import annotations

# MPI finds these in the arguments: nothing was communicated.
_ARGUMENTS = (
    "BUFFER COUNT TYPE TAG COMM RANK REQUEST ROOT GROUP OP TOPOLOGY DIMS ARG WIN BASE LOCKTYPE "
    "ASSERT SIZE DISP RMA_SYNC RMA_CONFLICT RMA_RANGE RMA_ATTACH RMA_SHARED RMA_FLAVOR"
)
_OTHERS = (
    "UNKNOWN TRUNCATE OTHER INTERN IN_STATUS PENDING NO_MEM KEYVAL FILE NOT_SAME AMODE "
    "UNSUPPORTED_DATAREP UNSUPPORTED_OPERATION NO_SUCH_FILE FILE_EXISTS BAD_FILE ACCESS NO_SPACE "
    "QUOTA READ_ONLY FILE_IN_USE DUP_DATAREP CONVERSION IO SPAWN PORT SERVICE NAME"
)
NAMES = tuple(f"MPI_ERR_{word}" for word in (_ARGUMENTS + " " + _OTHERS).split())
ARGUMENTS = len(_ARGUMENTS.split())  # numbers from 1 up to this
OTHER = 255  # a class that is not in the list


def failure(number: int) -> str:
    """The meaning of a number in the log; "" for no failure."""
    if number == 0:
        return ""
    return NAMES[number - 1] if number <= len(NAMES) else "an error"

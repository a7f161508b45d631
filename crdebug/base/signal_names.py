"""Signals by number and name, and which of them can be the waitpoint signal."""

from __future__ import annotations

import re
import signal

from crdebug.base.errors import BadInput

_NAME = re.compile(r"(?:SIG)?(?:(RTMIN|RTMAX)([+-]\d+)?|([A-Z0-9]+))\Z", re.ASCII)
# Signals that a program cannot catch, that the kernel sends for its faults and children, that stop
# and continue it, and one for which GDB has no name.
_UNUSABLE = ("KILL", "STOP", "ILL", "TRAP", "ABRT", "BUS", "FPE", "SEGV", "SYS", "CHLD", "CONT")
_NOT_FOR_US = frozenset(getattr(signal, f"SIG{name}") for name in (*_UNUSABLE, "STKFLT"))


def number_of(text: str) -> int:
    """A signal by number, or by name as in signal(7): "SIGTSTP", "TSTP", "SIGRTMIN+4".

    Raises ValueError.
    """
    match = _NAME.match(text.upper())
    number = 0
    if text.isascii() and text.isdigit():
        number = int(text)
    elif match is not None and match[1]:
        number = int(signal.Signals[f"SIG{match[1]}"]) + int(match[2] or 0)
    elif match is not None:
        number = int(signal.Signals.__members__.get(f"SIG{match[3]}", 0))
    if number not in signal.valid_signals():
        raise ValueError(f"'{text}' is not a signal")
    return number


def name_of(number: int) -> str:
    """The name in signal(7); a real-time signal by its distance from the nearer end of the
    range."""
    first, last = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
    if not first < number < last:
        return signal.Signals(number).name
    near_first = number - first <= last - number
    return f"SIGRTMIN+{number - first}" if near_first else f"SIGRTMAX-{last - number}"


def require_usable(number: int) -> None:
    """Raises BadInput for a signal that cannot lead threads into a waitpoint."""
    if number in _NOT_FOR_US or number not in signal.valid_signals():
        known = number in signal.valid_signals()
        raise BadInput(
            f"signal {name_of(number) if known else number} cannot be the waitpoint signal",
            hint="choose one that programs may catch, such as SIGRTMAX-2 or SIGTSTP",
        )

"""app.h for Python: the struct in a rank through which its program makes requests of crdebug.

ABI must equal CRDEBUG_APP_ABI; `App.parse` refuses any other, and a test compares the offsets with
the compiler's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from crdebug.base.errors import NotAvailable

ABI = 1
SYMBOL = "crdebug_app"
_STRUCT = struct.Struct("<IIIIIIiiiiIIIiii128s256s256s")
SIZE = _STRUCT.size
DOOR, ANSWERED, STATUS, CALL, MOMENT, REASON = 12, 20, 32, 44, 52, 192  # offsets
REASON_SIZE = 256


class Wish(IntEnum):
    """A rank's request."""

    CHECKPOINT = 1
    RESTART = 2


class Moment(IntEnum):
    """The moments at which the program's callbacks are called."""

    BEFORE = 0
    CONTINUE = 1
    RESTART = 2


class Status(IntEnum):
    """Answers; a value above DONE counts the job's restarts."""

    DONE = 0
    NOT_HERE = -1
    REFUSED = -2
    FAILED = -3


@dataclass(frozen=True, slots=True)
class App:
    """The readable fields of struct crdebug_app.

    wanted: the number of the checkpoint to go back to, 0: the newest.
    moment: of the latest call of the callbacks.
    refused: a callback refused, with `refusal` as its words.
    helper: the TID in the job of the thread that runs callbacks.
    """

    quiet: int
    asked: int
    answered: int
    wish: int
    wanted: int
    callbacks: int
    call: int
    called: int
    moment: int
    refused: bool
    helper: int
    note: str
    refusal: str

    @property
    def waits(self) -> bool:
        """Does it wait for an answer?"""
        return self.asked != self.answered

    @classmethod
    def parse(cls, data: bytes) -> App:
        abi, size, quiet, _, asked, answered, wish, wanted, *_ = numbers = _STRUCT.unpack(data)
        callbacks, call, called, moment, refused, helper, note, _, refusal = numbers[10:]
        if abi != ABI or size < SIZE:
            raise NotAvailable(
                f"the rank's part for its program has ABI version {abi}, this crdebug knows {ABI}",
                hint="use the crdebug that started the job",
            )
        return cls(
            quiet=quiet,
            asked=asked,
            answered=answered,
            wish=wish,
            wanted=wanted,
            callbacks=callbacks,
            call=call,
            called=called,
            moment=moment,
            refused=bool(refused),
            helper=helper,
            note=_text(note),
            refusal=_text(refusal),
        )


def pack_reason(text: str) -> bytes:
    """As many whole characters of it as there is room for."""
    kept = text.encode()[: REASON_SIZE - 1].decode(errors="ignore").encode()
    return kept.ljust(REASON_SIZE, b"\0")


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode(errors="replace")

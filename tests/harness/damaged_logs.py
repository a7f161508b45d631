"""Damages a job's logs, reads them, and asks every possible question; in a separate process.

    python damaged_logs.py LOGS WORK SEED COUNT

LOGS: a directory of logs, named by rank, perhaps with `kept` beside them. A wild store of the
program can reach its rank's log, so each damage changes a few bits or bytes of one of them, mostly
where it has data; or it changes, removes or adds values of `kept`. Memory and processor time of
each are limited; the kernel ends this process at the limit. It prints the result of each: "read",
or an error's class.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import signal
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crdebug.native.matcher.library import Library

MEMORY = 768 << 20  # bytes, of which Python and the modules take some 60 MB
SECONDS = 8  # of processor time, for one damage
KEPT = "kept"
_ODD = (0, 1, 2, 0x7F, 0xFF, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 20, 1 << 28, 1 << 16)


class Logs:
    """The logs of a job, with copies to be damaged."""

    def __init__(self, logs: Path, work: Path) -> None:
        from crdebug.native.recorder import clock

        self._header = clock.LOG_HEADER
        self._work = work
        self._whole: dict[int, bytes] = {}
        self._size = 0  # of each
        kept = logs / KEPT
        self._kept = kept.read_bytes() if kept.exists() else b""
        self._mend_kept()
        for log in (each for each in logs.iterdir() if each.name.isdigit()):
            with open(log, "rb") as file:
                head = file.read(clock.LOG_SIZE)
                file.seek(0)
                header = clock.LogHeader.parse(head)
                self._size = header.area_offset(2)
                self._whole[int(log.name)] = file.read(clock.LOG_HEADER + 16 * header.tail)
            self._write(int(log.name), self._whole[int(log.name)])

    def _write(self, rank: int, data: bytes) -> None:
        with open(self._work / str(rank), "wb") as file:
            file.write(data)
            file.truncate(self._size)

    def _mend_kept(self) -> None:
        if self._kept:
            (self._work / KEPT).write_bytes(self._kept)

    @property
    def paths(self) -> list[Path]:
        return sorted(path for path in self._work.iterdir() if path.name != KEPT)

    def damage(self, chance: random.Random) -> int | None:
        """One of them; the rank that it is of, None of `kept`."""
        if self._kept and chance.random() < 0.8:
            (self._work / KEPT).write_bytes(damaged_text(self._kept, chance))
            return None
        rank = chance.choice(sorted(self._whole))
        data = bytearray(self._whole[rank])
        for _ in range(chance.choice((1, 1, 1, 2, 8))):
            area = (0, 88) if chance.random() < 0.2 else (self._header, len(data))
            at = chance.randrange(*area)
            match chance.randrange(5):
                case 0 | 1:
                    data[at] ^= 1 << chance.randrange(8)
                case 2:
                    data[at] = chance.randrange(256)
                case 3:
                    at -= at % 4
                    data[at : at + 4] = struct.pack("<I", chance.choice(_ODD))
                case _:
                    length = 16 * chance.randrange(1, 4)
                    other = chance.randrange(self._header, len(data))
                    data[at : at + length] = data[other : other + length]
        if chance.random() < 0.05:
            del data[chance.randrange(len(data)) :]
        self._write(rank, bytes(data))
        return rank

    def mend(self, rank: int | None) -> None:
        if rank is None:
            self._mend_kept()
        else:
            self._write(rank, self._whole[rank])


def damaged_text(text: bytes, chance: random.Random) -> bytes:
    """A checksum, and JSON with some values changed, missing or doubled, or not even JSON."""
    if chance.random() < 0.05:
        return text[: chance.randrange(len(text))]
    checksum, _, body = text.partition(b"\n")
    whole = json.loads(body)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        inside = whole
        while True:
            places = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            if not places:
                break
            at = chance.choice(places)
            if isinstance(inside[at], (dict, list)) and chance.random() < 0.9:
                inside = inside[at]
                continue
            match chance.randrange(6):
                case 0 | 1 if isinstance(inside[at], int):
                    inside[at] += chance.choice((-1, 1))
                case 0 | 1 | 2 | 3:
                    inside[at] = chance.choice((*_ODD, -1, -2, -(1 << 31), 1 << 62, 1 << 70, "x"))
                case 4:
                    del inside[at]
                case _:
                    other = chance.choice(places)
                    inside[at] = inside[other]
            break
    return checksum + b"\n" + json.dumps(whole).encode()


def ask_all(paths: list[Path], library: Library) -> None:
    """All that sessions, pages and cuts ask of a history."""
    from crdebug.base.instant import BEGINNING, Instant
    from crdebug.timeline.cuts import latest_cut
    from crdebug.timeline.messages import (
        collective_of,
        in_flight,
        made_ready,
        messages,
        pending,
        received_by,
        sent_by,
        unmatched,
    )
    from crdebug.timeline.recorded import Recorded

    recorded = Recorded(library)
    recorded.read(paths)
    matching = recorded.matching
    matching.settle()
    ends = tuple(recorded.logs[rank].tail_now for rank in sorted(recorded.logs))
    for rank, log in recorded.logs.items():
        list(log.calls)
        log.goes_outside(BEGINNING, ends[rank])
        log.goes_one_sided(BEGINNING, ends[rank])
        latest_cut(matching, rank, Instant(ends[rank].tick), ends)
        latest_cut(matching, rank, ends[rank], ends)
    list(messages(matching))
    list(unmatched(matching))
    list(pending(matching, ends))
    list(in_flight(matching, ends))
    for log in recorded.logs.values():
        for call in log.calls[:: max(1, len(log.calls) // 50)]:
            received_by(matching, call), sent_by(matching, call)
            collective_of(matching, call), made_ready(matching, call)


def main() -> None:
    from crdebug.base.errors import CrdebugError
    from crdebug.base.settings import Settings
    from crdebug.native.matcher.loading import load

    logs, work, seed, count = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:5])
    library = asyncio.run(load(Settings().compiler))
    damaged, chance = Logs(logs, work), random.Random(seed)
    ask_all(damaged.paths, library)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    outcomes: Counter[str] = Counter()
    for number in range(count):
        rank = damaged.damage(chance)
        print(f"damage {number}", file=sys.stderr, flush=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # SIGPROF ends the process
        try:
            ask_all(damaged.paths, library)
            outcomes["read"] += 1
        except CrdebugError as error:
            outcomes["refused" if "\n" not in str(error) else f"no sentence: {error}"] += 1
        except Exception as error:
            outcomes[f"{type(error).__name__}: {error} (damage {number})"] += 1
        signal.setitimer(signal.ITIMER_PROF, 0)
        damaged.mend(rank)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()

"""All that a job has recorded: its ranks' logs, and the messages between them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from crdebug.base.errors import NotAvailable, Refused
from crdebug.native.matcher.library import Library
from crdebug.timeline.log import RankLog, damaged, has_begun
from crdebug.timeline.matching import Matching

_STEP = 1 << 13  # calls, between two looks at the time
BYTES_A_CALL = 65  # of memory, once it is read; measured: docs/timeline.md


class Recorded:
    """Grows as the logs do; nothing is read twice."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.matching = Matching(library)
        self.logs: dict[int, RankLog] = {}

    def look(self, paths: Iterable[Path]) -> None:
        """Find out how long the logs are. Their files are named by rank.

        If one has been cut or replaced since, everything that was read is forgotten. Raises
        NotAvailable if there is no directory for logs: nothing is recorded.
        """
        try:
            named = {int(path.name): path for path in paths if path.name.isdigit()}
        except FileNotFoundError:
            raise NotAvailable(
                "this job's MPI calls are not recorded: there is no way back but to a checkpoint",
                hint="start it with 'crdebug run --record'",
            ) from None
        for rank, path in named.items():
            if rank in self.logs:
                self.logs[rank].path = path
        if not self._look(named):
            self.forget()
            self._look(named)

    def forget(self) -> None:
        """Read all of it anew."""
        self.matching, self.logs = Matching(self._library), {}

    def read(
        self, paths: Iterable[Path], seconds: float = float("inf"), room: float = float("inf")
    ) -> bool:
        """Look at the logs, and read on in them for at most this long, and until this many bytes of
        memory are full. Is there more?

        The receives that wait must be posted as they are recorded: see `Matching.extend`.
        """
        until = time.perf_counter() + seconds
        self.look(paths)
        left = [*self.logs.values()]
        while left and time.perf_counter() < until and room > 0:
            room -= len(left) * _STEP * BYTES_A_CALL
            left = [log for log in left if log.read_on(_STEP)]
        self.matching.grown([*self.logs])
        return bool(left)

    def read_sound(
        self, paths: Iterable[Path], room: float, hint: str | None = None
    ) -> Sequence[NotAvailable]:
        """Read all that is new, but leave out logs that are damaged: their errors.

        room: bytes of memory that it may take.  Raises NotAvailable for what is damaged and is no
        rank's own, Refused if there is too little room, OSError.
        """
        left, errors = [*paths], list[NotAvailable]()
        while True:
            try:
                if self.read(left, room=room):
                    raise self.too_long(room, hint)
                return errors
            except NotAvailable as error:
                names = {str(rank) for rank in error.ranks or ()}
                sound = [path for path in left if path.name not in names]
                if len(sound) == len(left):
                    raise
                left = sound
                errors.append(error)
                self.forget()

    @property
    def unread(self) -> int:
        """How many records there are that have not been read."""
        return sum(log.unread for log in self.logs.values())

    def too_long(self, room: float, hint: str | None = None) -> Refused:
        """The error where not all of it has room in so many bytes. hint: what to do then."""
        needed = self.unread * BYTES_A_CALL >> 20
        return Refused(
            f"the record is too long for this machine: {self.unread} records are not read yet, "
            f"which may take {needed} MiB, and half of {int(room) >> 19} MiB is free for them",
            hint=hint,
        )

    def _look(self, named: dict[int, Path]) -> bool:
        for rank, path in named.items():
            if rank not in self.logs and has_begun(path):
                self.logs[rank] = RankLog(path, self._library, self.matching)
        same = all(log.look() for log in self.logs.values())
        worlds = Counter(log.world for log in self.logs.values()).most_common(1)
        for rank, log in self.logs.items():
            if log.rank != rank or log.world != worlds[0][0]:
                raise damaged(log.path, "its header")
        return same

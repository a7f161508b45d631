"""All that a job has recorded: its ranks' logs, and the messages between them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from crdebug.timeline.log import RankLog, has_begun
from crdebug.timeline.matching import Matching

_STEP = 1 << 13  # calls, between two looks at the time


class Recorded:
    """Grows as the logs do; what was read once is not read again."""

    def __init__(self) -> None:
        self.matching = Matching()
        self.logs: dict[int, RankLog] = {}

    def read(self, paths: Iterable[Path], seconds: float = float("inf")) -> bool:
        """Read on in the logs, which are named by rank; is there more when so much time is over?

        Where a log has been cut or replaced since, all of them are read anew. The receives that
        wait must be posted as they are recorded: see `Matching.extend`.
        """
        until = time.perf_counter() + seconds
        named = {int(path.name): path for path in paths}
        for rank, path in named.items():
            if rank in self.logs:
                self.logs[rank].path = path
        if not self._look(named):
            self.matching, self.logs = Matching(), {}
            self._look(named)
        left = [*self.logs.values()]
        while left and time.perf_counter() < until:
            left = [log for log in left if log.read_on(_STEP)]
        self.matching.grown([*self.logs])
        return bool(left)

    def _look(self, named: dict[int, Path]) -> bool:
        for rank, path in named.items():
            if rank not in self.logs and has_begun(path):
                self.logs[rank] = RankLog(path, self.matching)
        return all(log.look() for log in self.logs.values())

"""What an agent tells unasked: how its ranks are, what happens to them, how far runs have come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from crdebug.base.events import StopReason
from crdebug.base.ranks import RankSet
from crdebug.debugger.group_run import GroupRun
from crdebug.debugger.target import Notice
from crdebug.hosts.merged import Mirror, mirrors, told
from crdebug.hosts.messages import Happened, Message, Stand

_SOON = 0.05  # seconds: ranks of one program do the same at about one time


class Telling:
    """look: makes the mirrors of these ranks, as of one look.  send: to crdebug."""

    def __init__(
        self,
        look: Callable[[list[int]], list[Mirror]],
        send: Callable[[*tuple[Message, ...]], None],
    ) -> None:
        self._look = look
        self._send = send
        self._shown: dict[int, Mirror] = {}  # as crdebug knows them
        self._changed = RankSet()  # those that may be otherwise
        self._notices: list[tuple[int, Notice]] = []  # to tell, after that
        self._runs: dict[int, GroupRun] = {}  # by number
        self._stand: dict[int, tuple[RankSet, bool]] = {}  # by number, as in the last Stand
        self._soon: asyncio.TimerHandle | None = None

    def show(self, mirrors: list[Mirror]) -> None:
        """crdebug gets these otherwise."""
        self._shown |= {mirror.rank: mirror for mirror in mirrors}

    def has_changed(self, ranks: RankSet) -> None:
        """These ranks may be otherwise."""
        self._changed |= ranks
        self._tell_soon()

    def happened(self, rank: int, notice: Notice) -> None:
        self._notices.append((rank, notice))
        self.has_changed(RankSet.of([rank]))

    @contextmanager
    def running(self, number: int, run: GroupRun) -> Iterator[None]:
        """While the block lasts, tell how far this run has come."""
        run.on_news = partial(self._has_news, number, run)
        run.on_start = self.tell
        self._runs[number], self._stand[number] = run, (RankSet(), False)
        try:
            yield
        finally:
            del self._runs[number], self._stand[number]

    def stop(self, number: int, reason: StopReason, seconds: float) -> None:
        """End a run, if it is under way."""
        if (run := self._runs.get(number)) is not None:
            run.ask_to_stop(seconds, reason)

    def _has_news(self, number: int, run: GroupRun) -> None:
        known = self._stand[number][1]
        if run.is_over and not known and not run.is_asked:  # other hosts are to stop at once
            self.tell()
        else:
            self._tell_soon()

    def _tell_soon(self) -> None:
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_SOON, self.tell)

    def tell(self) -> None:
        """Send what is new."""
        self._send(*self.news())

    def news(self) -> list[Message]:
        """What is new, to be sent at once, before all that follows from it."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        notices, self._notices = self._notices, []
        changed, self._changed = self._changed, RankSet()
        new = [each for each in self._look([*changed]) if self._is_new(each)] if changed else []
        self.show(new)
        messages: list[Message] = []
        if new or notices:
            messages.append(Happened(mirrors(new), told(notices)))
        for number, run in self._runs.items():
            if (stand := (run.stand, run.is_over)) != self._stand[number]:
                self._stand[number] = stand
                messages.append(Stand(number, *stand))
        return messages

    def _is_new(self, mirror: Mirror) -> bool:
        before = self._shown.get(mirror.rank)
        return before is None or mirror != replace(before, look=mirror.look)

"""The line below the prompt: the job, its ranks, where it is in its history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from crdebug.base.errors import CrdebugError
from crdebug.base.ranks import RankSet
from crdebug.ui.listing import size

if TYPE_CHECKING:
    from crdebug.base.events import Event
    from crdebug.session import Session


class Toolbar:
    """Computed anew when a prompt appears, and after an event; not at each key."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._text: str | None = None
        self._sizes: dict[int, int] = {}
        session.subscribe(self._changed)

    def __call__(self) -> str:
        if self._text is None:
            self._text = f" {' | '.join(self._parts())} "
        return self._text

    def refresh(self) -> None:
        """Compute it anew: a command may have changed anything."""
        self._text = None

    def _changed(self, event: Event) -> None:
        self._text = None

    def _parts(self) -> Iterator[str]:
        session = self._session
        yield f"job {session.job}"
        if session.ended is not None:
            yield f"ended with status {session.ended}"
        else:
            states: dict[str, list[int]] = {}
            for rank in session.info_ranks():
                states.setdefault(rank.state, []).append(rank.rank)
            yield ", ".join(f"[{RankSet.of(ranks)}] {state}" for state, ranks in states.items())
        if session.incarnation > 1:
            yield f"incarnation {session.incarnation}"
        if session.ended is None:
            yield from self._place()
        checkpoints = session.checkpoint_sizes()
        if checkpoints:
            count = len(checkpoints)
            words = f"{count} checkpoint{'s' if count > 1 else ''}"
            yield f"{words}: {size(sum(checkpoints.values()))}"

    def _place(self) -> Iterator[str]:
        history = self._session.history
        if history is None or not history.recorded:
            return
        try:
            yield history.brief(self._session.ranks)
        except (CrdebugError, OSError):  # ended ranks have no clocks
            return

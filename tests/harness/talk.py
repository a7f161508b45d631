"""Lines of the console at a real job, and their output."""

from __future__ import annotations

from collections.abc import Sequence

from crdebug.commands.context import Context
from crdebug.commands.results import Result
from crdebug.commands.standard import standard
from crdebug.session import Session
from crdebug.ui.render import render


class Talk:
    """Runs lines as the console does. shown: the text of all results so far, one by one."""

    def __init__(self, session: Session) -> None:
        self.registry = standard()
        self.shown: list[str] = []
        self.context = Context(session, show=self._show)

    def _show(self, result: Result) -> None:
        text = render(result)
        if text:
            self.shown.append(text)

    async def __call__(self, line: str, *block: str) -> str:
        """The output of the line, with that of the lines that it led to."""
        before = len(self.shown)
        self._show(await self.registry.run(self.context, line, block))
        return "\n".join(self.shown[before:])

    async def all(self, lines: Sequence[str]) -> list[str]:
        return [await self(line) for line in lines]


async def said(session: Session, line: str) -> list[str]:
    """The output of one line, without that of lines that it leads to."""
    return render(await standard().run(Context(session), line)).splitlines()

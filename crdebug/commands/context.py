"""What a command needs to know besides its own line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from crdebug.base.errors import BadInput
from crdebug.base.ranks import RankSet
from crdebug.commands.transcript import Transcript

if TYPE_CHECKING:
    from crdebug.commands.results import Result
    from crdebug.session import Session


async def agree(question: str) -> bool:
    """The answer of a script: scripts are not asked."""
    return True


class Hangup(Enum):
    """What becomes of the job when the terminal goes away."""

    HOLD = "hold"
    LET_GO = "let-go"
    KILL = "kill"


class OnError(Enum):
    """What becomes of the job when a script of --batch fails."""

    AUTO = "auto"  # it runs on, unless the session started it and the script has changed it
    LET_GO = "let-go"
    HOLD = "hold"
    KILL = "kill"


@dataclass(slots=True)
class Preferences:
    """What the user chose for the console; see the settings of the same names."""

    on_hangup: Hangup = Hangup.HOLD
    on_script_error: OnError = OnError.AUTO
    pager: bool = True


def _nobody(told: object) -> None:
    pass


@dataclass(slots=True)
class Context:
    """The state of a conversation: it outlives a command, and is not the job's.

    focus: the ranks a command addresses when it names none; None is all of them.
    owns_job: the job was started (or restarted) here, so it ends with the session; a job that was
    only attached to runs on instead.
    confirm: asks the user before something is lost.
    repeat: the line that an empty line stands for.
    show: called with the results of a breakpoint's commands that come before the last one's, which
    is the result of the whole.
    echo: called with each line of a script before it runs.  interrupted: the user pressed Ctrl-C
    while the current command ran.  changed: a command may have changed what the program does.
    sourcing: the scripts that are being run, outermost first.
    over: the session has ended; no command can run any more.
    transcript: keeps what is typed and shown.
    origins: who chose a setting that does not have its default value, by the setting's name.
    """

    session: Session
    focus: RankSet | None = None
    owns_job: bool = True
    confirm: Callable[[str], Awaitable[bool]] = agree
    repeat: str = ""
    over: bool = False
    preferences: Preferences = field(default_factory=Preferences)
    transcript: Transcript = field(default_factory=Transcript)
    origins: dict[str, str] = field(default_factory=dict)
    show: Callable[[Result], None] = _nobody
    echo: Callable[[str], None] = _nobody
    interrupted: bool = False
    changed: bool = False
    sourcing: tuple[str, ...] = ()

    @property
    def addressed(self) -> RankSet:
        """The ranks of a command that names none."""
        return self.session.ranks if self.focus is None else self.focus

    async def rank_set(self, text: str) -> RankSet:
        """Read a rank set, as it is written in front of a command. Raises BadInput, also for an
        empty one, and NoRankAnswered when a `where` fails."""
        ranks = await self.session.select(text)
        if not ranks:
            raise BadInput(f"no rank is in '{text.strip()}'")
        return ranks

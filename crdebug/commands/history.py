"""Back in time: where the job is in its history, and going elsewhere in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from crdebug.base.errors import BadInput, Refused
from crdebug.base.ranks import RankSet
from crdebug.commands.arguments import Completes, integer, rest, word
from crdebug.commands.checkpoints import checkpoint_number
from crdebug.commands.context import Context
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import Messages, Moved, Restarted, Result, Text

if TYPE_CHECKING:
    from crdebug.session.values import History, Moment

HISTORY = Group("history", "Back in time")

_TICK = re.compile(r"tick\s+(\d+)(?:\s+on\s+(\d+))?\Z")


def history(call: Call) -> History:
    """The session's. Raises Refused for a job that has none."""
    found = call.context.session.history
    if found is None:
        raise Refused(
            "there is no way back in time: the job was not started by crdebug",
            hint="start it with 'crdebug run'",
        )
    return found


def moved(call: Call, moment: Moment) -> Result:
    return Moved(
        moment.focus,
        moment.tick,
        moment.recorded,
        moment.note,
        call.context.session.info_ranks(),
    )


def _marks(context: Context) -> Iterable[str]:
    found = context.session.history
    return found.marks if found is not None else ()


PLACE = rest("PLACE", "a checkpoint N, a mark, or 'tick N [on RANK]'", candidates=_marks)
MARK = word("NAME", "a name for this place")


@HISTORY.command(
    "goto",
    """
Go to a checkpoint, a mark, or a tick of a rank, backward or forward.

'goto tick N on RANK' goes to where the rank's N-th MPI call has just returned; without 'on' the
rank is the one in brackets, or the one that stopped last. The other ranks go to where they can have
been at that moment.
""",
    arguments=(PLACE,),
    ranks=True,
    requires=Requires.ANY,
)
async def goto(call: Call) -> Result:
    place, past = call[PLACE].strip(), history(call)
    tick = _TICK.match(place)
    if tick is not None:
        rank = int(tick[2]) if tick[2] else past.focus(call.ranks)
        if rank not in call.context.session.ranks:
            raise BadInput(f"there is no rank {rank}")
        return moved(call, await past.goto_tick(rank, int(tick[1])))
    if place in past.marks:
        return moved(call, await past.goto_mark(place))
    if place.startswith("tick"):
        raise BadInput(f"'{place}' is not a tick", hint="write 'tick N' or 'tick N on RANK'")
    if not place.rpartition(":")[2].isdigit():
        names = ", ".join(past.marks) or "none"
        raise BadInput(f"there is no mark '{place}'", hint=f"marks: {names}; 'mark NAME' sets one")
    session = call.context.session
    taken = await session.restart(checkpoint_number(place, session.job))
    return Restarted(taken, session.incarnation, session.info_ranks())


@HISTORY.command(
    "mark",
    """
Give this place a name, to come back to it with 'goto NAME'.

The place is that of the rank in brackets, or of the one that stopped last.
""",
    arguments=(MARK,),
    ranks=True,
)
async def mark(call: Call) -> Result:
    past = history(call)
    name = call[MARK]
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name) or name == "tick":
        raise BadInput(f"'{name}' is not a name for a mark", hint="begin with a letter")
    await past.mark(name, past.focus(call.ranks))
    return Text(f"mark {name}: tick {past.marks[name].tick} of rank {past.marks[name].focus}")


# ---- reverse execution -------------------------------------------------------------------------

TIMES = integer("N", "how many times", default=1)
_ABOUT = """

The rank is the one in brackets, or the one that stopped last. The others go back with it as little
as possible: until they have nothing from its future.
"""


def _reverse(kind: str, help: str, *aliases: str) -> None:
    """Declare a command that goes back by one kind of step."""

    @HISTORY.command(
        f"reverse-{kind}",
        help + _ABOUT,
        aliases=aliases,
        arguments=(TIMES,),
        ranks=True,
        repeats=True,
    )
    async def reverse(call: Call) -> Result:
        past = history(call)
        return moved(call, await past.reverse(kind, past.focus(call.ranks), call[TIMES]))


_reverse("step", "Go back to the beginning of the previous source line, into functions.", "rs")
_reverse("next", "Go back to the beginning of the previous source line, over functions.", "rn")
_reverse("stepi", "Go back one instruction.", "rsi")
_reverse("nexti", "Go back one instruction; a called function counts as one.", "rni")
_reverse(
    "continue",
    "Go back to the last stop: a breakpoint, watchpoint, catchpoint or signal.",
    "rc",
)
_reverse("finish", "Go back to where the innermost function was called.", "rfin")


# ---- messages ----------------------------------------------------------------------------------


@HISTORY.command(
    "goto-sender",
    """
Go to where the message that the rank received last was sent.

The rank is the one in brackets, or the one that stopped last; the receive is the last one at or
before its place, and may still be waiting. If the rank waits in a call that has received nothing
yet, crdebug says so, too. After a collective operation, go to the rank that entered it last, if
messages show which. Later commands are about the sender.
""",
    ranks=True,
)
async def goto_sender(call: Call) -> Result:
    past = history(call)
    return moved(call, await past.goto_sender(past.focus(call.ranks)))


@HISTORY.command(
    "goto-receiver",
    """
Go to where the message that the rank sent last was received.

The counterpart of 'goto-sender'.
""",
    ranks=True,
)
async def goto_receiver(call: Call) -> Result:
    past = history(call)
    return moved(call, await past.goto_receiver(past.focus(call.ranks)))


@HISTORY.command(
    "info messages",
    """
Show the messages that are in flight here.

Messages that were sent and not received, and receives that wait; each with the line of its call.
Calls that have not returned count, too.
""",
)
async def info_messages(call: Call) -> Result:
    past = history(call)
    await past.refresh()
    return Messages(await past.partners.on_the_way())


EXPRESSION = rest(
    "EXPR", "something in memory, like a variable or a[3]", completes=Completes.EXPRESSION
)


@HISTORY.command(
    "last",
    """
Go back to where EXPR was last changed.

The job is then just after the instruction that changed it, and crdebug shows the line that did, and
a number's old and new value; or inside the MPI call that did, which is named with the origin of the
data ('goto-sender' goes there). The rank is the one in brackets, or the one that stopped last.
crdebug evaluates EXPR here, once, and follows that memory back,
also to places where the name is unknown. For a rank that has ended, it evaluates EXPR after the
rank's last MPI call; changes after that call count too.
""",
    arguments=(EXPRESSION,),
    ranks=True,
    requires=Requires.ANY,
)
async def last(call: Call) -> Result:
    past = history(call)
    return moved(call, await past.last(call[EXPRESSION], past.focus(call.ranks)))


# ---- searching ---------------------------------------------------------------------------------

_ONE = re.compile(r"\s*rank\s+(\d+)\s*:")
PREDICATE = rest("PREDICATE", "like 'rank 3: p != 0', 'sum(x) > 1', 'max(x)-min(x) < 1e-9'")


@HISTORY.command(
    "bisect",
    """
Find the first moment at which a predicate holds, and go there.

The predicate is over ranks: 'rank 3: p != 0', 'any(x < 0)', 'all(x == y)', 'sum(n) == 12',
'max(x) - min(x) > 1e-9'; inside the parentheses are expressions for the ranks' GDBs, which each
rank evaluates where it is; a rank inside MPI, in the code that called it. An expression that cannot
be evaluated counts as false. Moments are the returns of one rank's MPI calls (of the rank in
brackets, or of 'rank N:', or of the one that stopped last). The search is by halves: the answer is
right if the predicate stays true once it is. A job that has ended can be searched too.
""",
    arguments=(PREDICATE,),
    ranks=True,
    requires=Requires.ANY,
)
async def bisect(call: Call) -> Result:
    past = history(call)
    ranks = call.ranks
    if ranks == call.context.session.ranks and (one := _ONE.match(call[PREDICATE])):
        ranks &= RankSet.of([int(one[1])])
    focus = past.focus(ranks) if ranks else past.focus(call.ranks)
    found, moment = await past.bisect(call[PREDICATE], focus)
    if found.tick is None:
        also = f"; {found.note}" if found.note else ""
        raise Refused(
            "bisect needs a condition that is true at the end of the history and stays true; "
            f"'{call[PREDICATE]}' is false there{also}"
        )
    first = f"first true after MPI call {found.tick} of rank {focus} ({found.probes} probes)"
    note = f"{first}; {found.note}" if found.note else first
    return moved(call, replace(moment, note=note))

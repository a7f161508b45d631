"""From one end of a message to the other, and messages on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath

from crdebug.base.errors import BadInput
from crdebug.base.events import Location
from crdebug.base.instant import BEGINNING, Instant
from crdebug.base.ranks import RankSet
from crdebug.timeline.calls import Call, Kind, entered_by, entered_last
from crdebug.timeline.collectives import Shape, is_collective
from crdebug.timeline.cuts import last_arriver
from crdebug.timeline.messages import (
    Message,
    Pending,
    collective_of,
    in_flight,
    made_ready,
    pending,
    received_by,
    sent_by,
)
from crdebug.travel.call_sites import Sites
from crdebug.travel.recorded_job import RecordedJob
from crdebug.travel.under_way import under_way, waits_in

_ARRIVED = "MPI_Parrived"
_FAR = 100_000  # calls that are looked back at
_BOTH = frozenset((Kind.SENDRECV, Kind.POST_SENDRECV, Kind.COMPLETE))
_RECEIVES = _BOTH | {Kind.RECV, Kind.POST_RECV, Kind.PROBE}
_SENDS = _BOTH | {Kind.SEND, Kind.POST_SEND, Kind.READY}


@dataclass(frozen=True, slots=True)
class Partner:
    """The other end: a rank's call. text: for people, what came from where."""

    rank: int
    tick: int
    text: str


@dataclass(frozen=True, slots=True)
class OnTheWay:
    """Messages and receives between the ranks at a cut, with the lines of the calls."""

    sent: tuple[tuple[Message, Location | None], ...]
    awaited: tuple[tuple[Pending, Location | None], ...]


class Partners:
    """Asks the recorded messages of a job."""

    def __init__(self, recorded: RecordedJob) -> None:
        self._recorded = recorded
        self._sites = Sites(recorded.job.group)

    async def sender(self, focus: int) -> Partner:
        """The sender of the message that the rank received last, at or before its place; for a
        collective, the rank that came to it last. Raises BadInput if there is none."""
        find = partial(self._partner, _RECEIVES, received_by, self._as_received)
        return await self._told(focus, find)

    async def receiver(self, focus: int) -> Partner:
        """The receiver of the message that the rank sent last, at or before its place."""
        return await self._told(focus, partial(self._partner, _SENDS, sent_by, self._as_sent))

    def name(self, rank: int, tick: int) -> str:
        """The name of a rank's call."""
        call = self._call(rank, tick)
        return call.told if call is not None else "an MPI call"

    async def where(self, rank: int, tick: int) -> str:
        """The line and the tick of a rank's call, as words to follow."""
        place = await self.line(rank, tick)
        at = f" at {PurePath(place.file).name}:{place.line}" if place is not None else ""
        return f"{at}, tick {tick}"

    async def source(self, rank: int, tick: int) -> str:
        """The origin of the data that was written inside a rank's call, as words to follow; "" if
        that is not on record."""
        call = self._call(rank, tick)
        if call is None:
            return ""
        matching = self._recorded.matching()
        # Open receives complete inside any call.
        inside, ranks = Instant.within(tick), self._recorded.job.group.ranks
        cut = tuple(inside if each == rank else BEGINNING for each in ranks)
        came = {(each.sender, each.sent) for each in self._messages(call)}
        came |= {
            (each.sender, each.sent)
            for each in pending(matching, cut)
            if each.receiver == rank and each.sender is not None and each.sent is not None
        }
        if len(came) == 1:
            ((sender, sent),) = came
            return f": rank {sender} sent it{await self.where(sender, sent)} ('goto-sender')"
        if came:
            return f": {RankSet.of(sender for sender, _ in came).words} sent what was awaited there"
        instance = collective_of(matching, call)
        if instance is None:
            return ": by one-sided communication" if call.comm.startswith("window(") else ""
        root = instance.root
        if instance.shape is Shape.FROM_ROOT and root is not None and root != rank:
            where = await self.where(root, instance.entered[root])
            return f": rank {root} is the root{where} ('goto-sender')"
        return f": a collective of {RankSet.of(instance.entered).words}"

    def _messages(self, call: Call) -> list[Message]:
        found = received_by(self._recorded.matching(), call)
        return [each for each in found if self._is_other_end(each)]

    async def _told(self, focus: int, find: Callable[[int], Partner]) -> Partner:
        """And where the rank waits, if it does: the user may have meant the message that it gets
        there."""
        waits = await waits_in(self._recorded, focus)
        try:
            found = find(focus)
        except BadInput as error:
            if not waits:
                raise
            hint = error.hint or "'why-blocked' tells who waits for whom"
            raise BadInput(f"{error.problem}; rank {focus} waits {waits}", hint=hint) from None
        if not waits:
            return found
        return replace(found, text=f"{found.text}; rank {focus} was waiting {waits}")

    def _partner(
        self,
        kinds: frozenset[Kind],
        messages: Callable[..., tuple[Message, ...]],
        partner: Callable[[Message], Partner],
        focus: int,
    ) -> Partner:
        matching = self._recorded.matching()
        for call in self._before(focus):
            if is_collective(call) or self._starts_one(call):
                found_last = self._last_arriver(call, receives=kinds is _RECEIVES)
                if found_last is not None:
                    return found_last
            if call.kind in kinds:
                found = [each for each in messages(matching, call) if self._is_other_end(each)]
                if found:
                    return partner(found[-1])
            ready = made_ready(matching, call) if call.name == _ARRIVED else None
            if ready is not None and kinds is _RECEIVES:
                return Partner(*ready, f"the partition was ready at rank {ready[0]}")
        word = "received" if kinds is _RECEIVES else "sent"
        raise BadInput(f"rank {focus} has {word} nothing so far")

    def _starts_one(self, call: Call) -> bool:
        """Is a collective among what MPI_Startall starts?"""
        if call.name != "MPI_Startall":
            return False
        return collective_of(self._recorded.matching(), call) is not None

    def _is_other_end(self, message: Message) -> bool:
        return message.posted is not None

    def _before(self, focus: int) -> Sequence[Call]:
        """The calls that the rank has entered, latest first."""
        entered = self._recorded.cut()[focus].entered
        calls = self._recorded.logs()[focus].calls
        count = entered_by(calls, entered)
        return calls[max(count - _FAR, 0) : count][::-1]

    def _as_received(self, message: Message) -> Partner:
        return Partner(message.sender, message.sent, _text(message))

    def _as_sent(self, message: Message) -> Partner:
        tick = message.received or message.posted
        assert tick is not None
        return Partner(message.receiver, tick, _text(message))

    def _last_arriver(self, call: Call, *, receives: bool) -> Partner | None:
        """The rank that was last to come to a collective; None if that brought the rank nothing.
        Raises BadInput if it is not known."""
        matching = self._recorded.matching()
        instance = collective_of(matching, call)
        if instance is None:
            raise BadInput(f"nothing is known of the others in {call.name}")
        if instance.shape is Shape.FROM_ROOT and receives and instance.root is not None:
            if instance.root == call.rank:
                return None
            tick = instance.entered[instance.root]
            return Partner(
                instance.root, tick, f"rank {instance.root} is the root of {instance.name}"
            )
        last = last_arriver(matching, call, len(self._recorded.cut()))
        if last is None:
            raise BadInput(
                f"cannot tell which rank entered {instance.name} last: no message orders them",
                hint="'info timeline' shows who did what",
            )
        return Partner(
            last, instance.entered[last], f"rank {last} was the last one to enter {instance.name}"
        )

    async def on_the_way(self) -> OnTheWay:
        """Messages in flight where the job is, and receives that wait; those of calls that ranks
        are in, too."""
        matching, cut = self._recorded.matching(), self._recorded.cut()
        sent, awaited = [*in_flight(matching, cut)], [*pending(matching, cut)]
        now = await under_way(self._recorded)
        sending = [(each.asked.site, found) for each in now if (found := each.message())]
        waiting = [(each.asked.site, going) for each in now if (going := each.receive())]
        return OnTheWay(
            (
                *[(each, await self.line(each.sender, each.sent)) for each in sent],
                *[(each, await self._at(each.sender, site)) for site, each in sending],
            ),
            (
                *[(each, await self.line(each.receiver, each.posted)) for each in awaited],
                *[(each, await self._at(each.receiver, site)) for site, each in waiting],
            ),
        )

    async def line(self, rank: int, tick: int) -> Location | None:
        """The line of a rank's call."""
        call = self._call(rank, tick)
        return await self._at(rank, call.site) if call is not None else None

    async def _at(self, rank: int, site: int) -> Location | None:
        return (await self._sites.find(rank, [site])).get(site) if site else None

    def _call(self, rank: int, tick: int) -> Call | None:
        call = entered_last(self._recorded.logs()[rank].calls, tick)
        return call if call is not None and tick < call.tick + call.repeats else None


def _text(message: Message) -> str:
    comm = "" if message.comm == "world" else f" on {message.comm}"
    return (
        f"message of {message.bytes} bytes from rank {message.sender} to rank {message.receiver}, "
        f"tag {message.tag}{comm}"
    )

"""What a job's record shows to be wrong, whatever came of it this time. Pure.

Only what MPI's rules forbid is called wrong (MPI 4.1); where the record leaves it open, nothing is
said. What must have happened by MPI_Finalize is looked for only if all ranks' records come to it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from crdebug.base.instant import BEGINNING, Instant
from crdebug.base.ranks import RankSet
from crdebug.native.recorder.clock import Refused
from crdebug.native.recorder.mpi_errors import ARGUMENTS, NAMES
from crdebug.native.recorder.mpi_types import KIND
from crdebug.timeline.asked import asked
from crdebug.timeline.calls import Call, Calls, Kind, Together, entered_last
from crdebug.timeline.collectives import SAME_SIZE, Shape, communicator_of, shape_of
from crdebug.timeline.epochs import epochs
from crdebug.timeline.findings import Finding, Spot, Weight
from crdebug.timeline.log import RankLog, Unfreed
from crdebug.timeline.matching import Matching
from crdebug.timeline.mistyped import mistyped
from crdebug.timeline.needs import NEVER
from crdebug.timeline.races import Race, races
from crdebug.timeline.unsafe import unsafe

# Errors that MPI finds in the arguments, and a message that was too long. Others may be expected:
# a file that is not there, a port with nobody behind it.
_REFUSED = frozenset(NAMES[:ARGUMENTS])
_MISTAKES = _REFUSED | {"MPI_ERR_TRUNCATE"}
# Of these the record does not say how many bytes there are.
_COUNTS_ARE_ARRAYS = ("MPI_Reduce_scatter", "MPI_Ireduce_scatter", "MPI_Reduce_scatter_init")
_END = "MPI_Finalize"
_TOGETHER = 4096  # collectives that are compared at once
T = TypeVar("T")
_FREEING = ("MPI_Comm_free", "MPI_Comm_disconnect", "MPI_Win_free")


@dataclass(frozen=True, slots=True)
class Record:
    """What is checked.

    size: how many ranks there are.  cut_short: those whose record has begun late, or has ended
    before the rank.
    unfinished: by rank, the call after these, which has not returned; failed: because the MPI has
    ended the process in it.  left: with which status ranks have called exit before MPI_Finalize.
    over: the job has ended.  aborts: those that have called MPI_Abort.
    unfreed: by rank, what it had not freed at MPI_Finalize.
    """

    matching: Matching
    calls: Mapping[int, Calls]
    size: int
    cut_short: RankSet = field(default_factory=RankSet)
    unfinished: Mapping[int, Call] = field(default_factory=dict)
    left: Mapping[int, int] = field(default_factory=dict)
    over: bool = False
    aborts: RankSet = field(default_factory=RankSet)
    unfreed: Mapping[int, Sequence[Unfreed]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, matching: Matching, logs: Mapping[int, RankLog], size: int, *, over: bool = False
    ) -> Record:
        """Of all logs that there are."""
        short = [
            rank
            for rank, log in logs.items()
            if log.first_now > BEGINNING or log.refused is not Refused.NO
        ]
        calls = {rank: log.calls for rank, log in logs.items()}
        unfinished = {rank: call for rank, log in logs.items() if (call := _unfinished(log))}
        left = {rank: log.left for rank, log in logs.items() if log.left is not None}
        unfreed = {rank: log.unfreed for rank, log in logs.items()}
        aborts = RankSet.of(rank for rank, log in logs.items() if log.aborts)
        known = RankSet.of(short), unfinished, left, over, aborts, unfreed
        return cls(matching, calls, size, *known)

    @property
    def whole(self) -> bool:
        """Is every call of every rank on record, up to now?"""
        return not self.cut_short and len(self.calls) == self.size

    def caveats(self) -> list[str]:
        """What was not looked at, and why."""
        found = []
        missing = RankSet.of(range(self.size)) - RankSet.of(self.calls)
        if missing:
            found.append(f"there is no record of {missing}: collectives were not compared")
        elif self.cut_short:
            ranks = self.cut_short
            found.append(f"the record of {ranks} is not whole: collectives were not compared")
        if self.aborts:
            found.append(f"{self.aborts} called MPI_Abort")
        if not self.at_end:
            found.append("the job has not come to MPI_Finalize on all ranks")
        return found

    def spot(self, rank: int, tick: int) -> Spot:
        """The call of a tick."""
        call = entered_last(self.calls.get(rank, ()), tick)
        return _spot(call) if call is not None else Spot(rank, tick, 0, "a call")

    def finalizes(self, rank: int) -> bool:
        """Has it come to MPI_Finalize? Not all MPIs return from it where something is left."""
        last = [*self.calls.get(rank, ())[-1:], *filter(None, [self.unfinished.get(rank)])]
        return bool(last) and last[-1].name == _END

    @property
    def at_end(self) -> bool:
        """Have all ranks come to MPI_Finalize?"""
        last = [self.calls.get(rank, ())[-1:] for rank in range(self.size)]
        return self.whole and all(each and each[0].name == _END for each in last)


def _unfinished(log: RankLog) -> Call | None:
    """The call after those that are on record, if the rank was in one."""
    now, outside = Instant(log.tail_now + 1), log.outside
    if outside is not None:
        name = f"MPI_{outside.name.removeprefix('MPI_').removeprefix('internal_')}"
        kind, site, failed = Kind.OTHER, outside.site, outside.failed
        return Call(log.rank, log.tail_now.tick, name, kind, site, failed=failed)
    if log.doing is None or log.unread:
        return None
    each = asked(log.rank, now, log.doing, log, moves=False, blind=False)
    peer = each.peer if each.peer >= 0 else None
    tag = each.tag if each.tag >= 0 else None
    return Call(
        *(log.rank, each.tick, each.call, each.kind, each.site, each.comm, peer, tag),
        bytes=max(each.bytes, 0),
        types=log.doing.types,
        failed=log.doing_failed,
    )


def check(record: Record) -> list[Finding]:
    """Everything that is found."""
    found = [*_failed(record), *_left(record), *_unreceived(record), *_incomplete(record)]
    found += [*_freed(record), *_unfreed(record), *mistyped(record.matching, record.calls)]
    found += epochs({r: each for r, each in record.calls.items() if r not in record.cut_short})
    if record.whole:
        found += [
            *_collectives(record),
            *in_races(record, races(record.matching, record.calls)),
            *_unsafe(record),
        ]
    return found


def _spot(call: Call) -> Spot:
    return Spot(call.rank, call.tick, call.site, call.name)


def _failed(record: Record) -> Iterator[Finding]:
    """Calls that the MPI refused."""
    for calls in record.calls.values():
        for call in calls.of():
            if call.failed in _MISTAKES:
                yield Finding(Weight.WRONG, _spot(call), f"failed: {call.failed}")
    for call in record.unfinished.values():
        if call.failed:
            yield Finding(Weight.WRONG, _spot(call), f"failed: {call.failed}, which ended the job")


def _left(record: Record) -> Iterator[Finding]:
    """Ranks that have not come to the end of MPI. Where one failed, the others were ended."""
    for rank, status in record.left.items():
        if status == 0 and record.calls.get(rank):
            says = "is followed by exit(0), without MPI_Finalize"
            yield Finding(Weight.WRONG, _spot(record.calls[rank][-1]), says)
    failed = any(call.failed for call in record.unfinished.values())
    if record.over and not failed and not record.left and not record.aborts:
        for call in record.unfinished.values():
            yield Finding(Weight.OPEN, _spot(call), "had not returned when the job ended")


def _unreceived(record: Record) -> Iterator[Finding]:
    """Messages that nobody received. Before the end they may still be on their way."""
    matching, at_end = record.matching, record.at_end
    weight, when = (Weight.WRONG, "by MPI_Finalize") if at_end else (Weight.OPEN, "so far")
    for sender, receiver, row in sorted(matching.unmatched_sends()):
        sends = matching.ranks[sender].sends
        known = receiver in matching.ranks and not matching.ranks[receiver].blind
        if sends.cancelled[row] or not known or not record.whole:
            continue
        comm = matching.comm_name(sends.comm[row])
        on = "" if comm == "world" else f" on {comm}"
        says = f"sends tag {sends.tag[row]}{on}, which is not received {when} by"
        yield Finding(weight, record.spot(sender, sends.tick[row]), says, peer=receiver)


def _incomplete(record: Record) -> Iterator[Finding]:
    """Receives that were posted and never completed. Of sends the calls do not say it: an MPI may
    give one request for several that are complete at once; see `_unfreed`."""
    for rank, calls in sorted(record.calls.items()):
        state = record.matching.ranks.get(rank)
        if state is None or not record.at_end or _cancels(calls):
            continue
        receives, freed = state.receives, {call.frees for call in calls.of(Kind.OTHER)}
        for row, done in enumerate(receives.done):
            if done == NEVER and not receives.cancelled[row] and receives.tick[row] not in freed:
                at = record.spot(rank, receives.tick[row])
                yield Finding(Weight.WRONG, at, "is not completed by MPI_Finalize")


def _cancels(calls: Calls) -> bool:
    return any(call.name == "MPI_Cancel" for call in calls.of(Kind.CANCEL))


def _freed(record: Record) -> Iterator[Finding]:
    """Requests that were freed while they were active. Of MPI_Isend a program may do that; then it
    learns in another way that the message has been received (MPI 4.1, 3.7.3, 3.9 and 6.12)."""
    for rank, calls in sorted(record.calls.items()):
        if rank in record.cut_short or _cancels(calls):
            continue
        for call in calls.of(Kind.OTHER):
            posted = entered_last(calls, call.frees) if call.frees else None
            if posted is not None and not posted.name.endswith("send"):
                says = "frees a request that is not completed, that of"
                yield Finding(Weight.WRONG, _spot(call), says, _spot(posted))


def _unfreed(record: Record) -> Iterator[Finding]:
    """Requests that were not completed, and objects that were not freed."""
    for rank, found in sorted(record.unfreed.items()):
        for each in found if record.finalizes(rank) else ():
            at = record.spot(rank, each.tick)
            at = at._replace(site=each.site, name=each.name or at.name)
            if each.kind == "request":
                yield Finding(Weight.WRONG, at, "is not completed by MPI_Finalize")
            else:
                what = "persistent request" if each.kind == "persistent" else each.kind
                article = "an" if what[0] in "aeiou" else "a"
                yield Finding(Weight.LEFT, at, f"makes {article} {what} that is not freed")


def in_races(record: Record, found: Iterable[Race]) -> Iterator[Finding]:
    """Receives that could have got another message; not wrong by itself, for any order may be fine.

    record: a whole one.  found: its races.
    """
    for race in found:
        says, then = "could have got another message, that of", ", instead of that of"
        for sender, tick in race.others:
            other = record.spot(sender, tick)
            at = _spot(race.call)
            yield Finding(Weight.RACE, at, says, other, peer=race.source, then=then)


def _unsafe(record: Record) -> Iterator[Finding]:
    for each in unsafe(record.matching, record.calls):
        at = record.spot(each.rank, each.tick)
        other = record.spot(each.awaited, each.there)
        yield Finding(Weight.UNSAFE, at, "would wait for ever because of", other)


# ---- collectives -------------------------------------------------------------------------------


def _collectives(record: Record) -> Iterator[Finding]:
    """All members of a communicator call its collectives in the same order (MPI 4.1, 6.1).

    Not the beginning and the end of MPI; and not what the MPI refused for an argument, for a root
    that is not there is no other root.
    """
    series: defaultdict[str, dict[int, _Called]] = defaultdict(dict)
    for rank, calls in sorted(record.calls.items()):
        for comm, each in calls.together().items():
            series[comm][rank] = _Called(calls, each)
    for rank, call in record.unfinished.items():
        comm = communicator_of(call)
        if call.failed not in _REFUSED and comm and not comm.startswith("("):
            series[comm].setdefault(rank, _Called(record.calls[rank])).last = call
    for comm, called in sorted(series.items()):
        for number in _to_compare([*called.values()]):
            there = [each[number] for each in called.values() if number < len(each)]
            wrong = [*_unlike(comm, there)]
            yield from wrong
            if any(each.says.startswith("is called") for each in wrong):
                break  # from here on they do not belong together
        else:
            yield from _missing(record, comm, called)


@dataclass(slots=True)
class _Called:
    """The calls of one member, and the one that has not returned, if that is one of them."""

    calls: Calls
    done: Together = field(default_factory=lambda: Together((), ()))
    last: Call | None = None

    def __len__(self) -> int:
        return len(self.done.numbers) + (self.last is not None)

    def __getitem__(self, number: int) -> Call:
        if self.last is not None and number == len(self.done.numbers):
            return self.last
        return self.calls[self.done.numbers[number]]

    def likes(self, first: int, end: int) -> list[object]:
        """As in Together, of some of them; of the one that has not returned, like no other."""
        last = [object()] if self.last is not None and first <= len(self.done.likes) < end else []
        return [*self.done.likes[first:end], *last]


def _to_compare(called: Sequence[_Called]) -> Iterator[int]:
    """Where the calls of those members that have one may not fit."""
    for first in range(0, max(map(len, called)), _TOGETHER):
        likes = [each.likes(first, first + _TOGETHER) for each in called]
        if any(each != likes[0] for each in likes):
            for at in range(max(map(len, likes))):
                if len({each[at] for each in likes if at < len(each)}) > 1:
                    yield first + at


def _unlike(comm: str, calls: Sequence[Call]) -> Iterator[Finding]:
    """Those of one collective that are not as most of the others."""
    on = "" if comm == "world" else f" on {comm}"
    most, names = _most([call.name for call in calls])
    if names > 1:
        other = next(call for call in calls if call.name == most)
        for call in calls:
            if call.name != most:
                says = f"is called{on} where others call"
                yield Finding(Weight.WRONG, _spot(call), says, _spot(other))
        return
    if "|" in comm:  # of two groups, whose arguments differ
        return
    rooted = shape_of(most) in (Shape.FROM_ROOT, Shape.TO_ROOT)
    root, roots = _most([call.peer for call in calls]) if rooted else (None, 1)
    moving = [call for call in calls if call.bytes or call.name in _COUNTS_ARE_ARRAYS]
    typed = [call for call in moving if call.types.type]
    kind, kinds = _most([KIND[call.types.type] for call in typed] or [""])
    ops = [call.types.op for call in moving]
    op, differ = _most(ops) if ops and all(ops) else ("", 1)
    size, sizes = _most([call.bytes for call in calls]) if most in SAME_SIZE else (0, 1)
    for call in calls:
        if roots > 1 and call.peer != root:
            other = next(each for each in calls if each.peer == root)
            says = f"has root {call.peer}{on}, but root {root} in"
            yield Finding(Weight.WRONG, _spot(call), says, _spot(other))
        elif kinds > 1 and call in typed and KIND[call.types.type] != kind:
            other = next(each for each in typed if KIND[each.types.type] == kind)
            says = f"has {call.types.type}{on}, but {other.types.type} in"
            yield Finding(Weight.WRONG, _spot(call), says, _spot(other))
        elif differ > 1 and call in moving and call.types.op != op:
            other = next(each for each in moving if each.types.op == op)
            says = f"has {call.types.op}{on}, but {op} in"
            yield Finding(Weight.WRONG, _spot(call), says, _spot(other))
        elif roots == 1 and sizes > 1 and call.bytes != size:
            other = next(each for each in calls if each.bytes == size)
            says = f"has {call.bytes} bytes{on}, but {size} in"
            yield Finding(Weight.WRONG, _spot(call), says, _spot(other))


def _most(values: Sequence[T]) -> tuple[T, int]:
    """The most frequent, and how many different ones there are."""
    counted = Counter(values)
    return counted.most_common(1)[0][0], len(counted)


def _missing(record: Record, comm: str, called: Mapping[int, _Called]) -> Iterator[Finding]:
    """A collective that some members have not called, though all are at their end."""
    members = range(record.size) if comm == "world" else called
    counts = {rank: len(called[rank]) if rank in called else 0 for rank in members}
    least = min(counts.values())
    if not record.at_end or max(counts.values()) == least:
        return
    for rank in (rank for rank, count in counts.items() if count > least):
        call = called[rank][least]
        if call.name in _FREEING:  # who does not free it, leaves it behind
            continue
        on = "" if comm == "world" else f" on {comm}"
        for absent in (absent for absent, count in counts.items() if count == least):
            yield Finding(Weight.WRONG, _spot(call), f"is called{on}, but not by", peer=absent)

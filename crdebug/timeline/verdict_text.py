"""A verdict in words: a line for each class of ranks that wait alike, then what follows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from crdebug.base.ranks import RankSet
from crdebug.native.recorder.doing import Peer, Tag
from crdebug.timeline.asked import Asked, Way
from crdebug.timeline.calls import Kind
from crdebug.timeline.knots import Option
from crdebug.timeline.meetings import Meeting
from crdebug.timeline.verdict import Posted, Standing, State, Verdict
from crdebug.timeline.waits import Envelope

MOST = 20  # lines
_CLASSES, _STATES, _UNWANTED, _UNFIT = 8, 4, 2, 2
_FEW = 3
_POSTED = 2  # requests of a call that are named
_LONGEST = 40  # characters of a rank set
_WAY = 8  # ranks of a cycle that are named

Place = Callable[[int, int], str]
"""The line of a rank's call at a tick, "exchange.c:41"; "" if it is unknown."""


@dataclass(frozen=True, slots=True)
class _Class:
    """Ranks that wait alike. comm: ", on world#2". parts: prepositions and what follows the peer;
    peers: of each of them, by rank."""

    call: str
    place: str
    comm: str
    parts: tuple[tuple[str, str], ...]
    others: str
    note: str = ""
    posted: tuple[Posted, ...] = ()


def lines(
    verdict: Verdict,
    standings: Mapping[int, Standing],
    ranks: RankSet | None = None,
    place: Place = lambda _rank, _tick: "",
) -> list[str]:
    """ranks: only what these do; the verdict is of all. place: called for a few messages only."""
    chosen = RankSet.of(standings) if ranks is None else ranks
    shown = {rank: each for rank, each in standings.items() if rank in chosen}
    size = max(standings, default=0) + 1
    found = [*_waiting(verdict, shown, size), *_not_waiting(verdict, shown)]
    found += _knots(verdict, standings)
    for meeting in verdict.unfit[:_UNFIT]:
        found.append(_unfit(meeting))
    found += _unwanted(verdict, size, place)
    return found[:MOST]


def calls(verdict: Verdict, standings: Mapping[int, Standing], size: int) -> list[str]:
    """Only the calls that these ranks are in, those alike in one line. size: of the job."""
    return [*_waiting(verdict, standings, size), *_not_waiting(verdict, standings)]


# ---- who waits for what --------------------------------------------------------------------------


def _waiting(verdict: Verdict, shown: Mapping[int, Standing], size: int) -> Iterator[str]:
    classes = _classes(verdict, shown, tags=True)
    if len(classes) > _CLASSES:  # each has a tag, or a size, of its own
        classes = _classes(verdict, shown, tags=False)
    ordered = sorted(
        (one for each, peers in classes.items() for one in _few_apart(each, peers)),
        key=lambda item: (-len(item[1]), min(item[1])),
    )
    for each, peers in sorted(ordered[:_CLASSES], key=lambda item: min(item[1])):
        yield _one_class(each, peers, [shown[rank] for rank in peers], size)
    rest = [rank for _, peers in ordered[_CLASSES:] for rank in peers]
    if rest:
        yield f"{named(rest)} wait in {len(ordered) - _CLASSES} other ways"


def _few_apart(
    each: _Class, peers: dict[int, tuple[int, ...]]
) -> list[tuple[_Class, dict[int, tuple[int, ...]]]]:
    """A few ranks with peers of their own have a line of their own, each."""
    if len(peers) > _FEW or len({*peers.values()}) == 1:
        return [(each, peers)]
    return [(each, {rank: found}) for rank, found in peers.items()]


def _classes(
    verdict: Verdict, shown: Mapping[int, Standing], *, tags: bool
) -> dict[_Class, dict[int, tuple[int, ...]]]:
    """Ranks that wait alike, with the peers that they name."""
    classes: dict[_Class, dict[int, tuple[int, ...]]] = {}
    others: dict[tuple[int, ...], str] = {}
    for rank, each in shown.items():
        if each.asked is None or rank not in verdict.needs:
            continue
        parts = [*_parts(each.asked)]
        told = tuple((word, about if tags else "") for word, _, about in parts)
        options = verdict.needs[rank]
        key = tuple(id(group) for option in options for group in option)
        if not parts and key not in others:
            others[key] = _others(options)
        comm = _on(each.asked.comm)
        note = "" if each.state is State.IN_MPI else f", {each.state.value}"
        posted = (
            each.posted if tags else tuple(replace(one, tag=None, comm="") for one in each.posted)
        )
        which = _Class(each.asked.call, each.place, comm, told, others.get(key, ""), note, posted)
        classes.setdefault(which, {})[rank] = tuple(peer for _, peer, _ in parts)
    return classes


def _parts(asked: Asked) -> Iterator[tuple[str, int, str]]:
    """Of messages: "from" or "to", the peer, and what there is to say of it."""
    if asked.kind in (Kind.RECV, Kind.PROBE, Kind.SENDRECV):
        yield "from", asked.peer, _tag(asked.tag)
    if asked.kind is Kind.SEND:
        yield "to", asked.peer, f"{_tag(asked.tag)}, {asked.bytes} bytes"
    if asked.sends is not None:
        yield "to", asked.sends[0], _tag(asked.sends[1])


def _tag(tag: int) -> str:
    return ", any tag" if tag == Tag.ANY else f", tag {tag}" if tag >= 0 else ""


def _on(comm: str) -> str:
    return f", on {comm}" if comm not in ("world", "") else ""


def _others(options: Sequence[Option]) -> str:
    """Whom a rank waits for, where its call does not say so."""
    found: set[int] = set()
    for option in options:
        for group in option:
            found.update(group.ranks)
    either = len(options) > 1 or any(not g.every and len(g.ranks) > 1 for o in options for g in o)
    if not found:
        return ""
    return f" for {'one of ' if either and len(found) > 1 else ''}{named(found)}"


def _one_class(
    each: _Class, peers: Mapping[int, tuple[int, ...]], ranks: Sequence[Standing], size: int
) -> str:
    whom = ""
    for at, (word, about) in enumerate(each.parts):
        named_peer = _peer({rank: found[at] for rank, found in peers.items()}, size)
        whom += f"{' and' if at else ''} {word} {named_peer}{about}"
    at_line = f" ({each.place})" if each.place else ""
    root = {one.asked.peer for one in ranks if one.asked is not None}
    rooted = ""
    if not each.parts and len(root) == 1 and min(root) >= 0:
        rooted = f", {'target' if 'Win_' in each.call else 'root'} {min(root)}"
    verb = "wait" if len(peers) > 1 else "waits"
    return (
        f"{named(peers)} {verb} in {each.call}{whom}{each.comm}{rooted}"
        f"{at_line}{each.others}{_to_complete(each.posted)}{each.note}{_since(ranks)}"
    )


def _to_complete(posted: Sequence[Posted]) -> str:
    """Which requests it is about."""
    if not posted:
        return ""
    some = [
        f"{each.call}{_tag(each.tag) if each.tag is not None else ''}{_on(each.comm)}"
        f"{f' ({each.place})' if each.place else ''}"
        for each in posted[:_POSTED]
    ]
    if len(posted) > _POSTED:
        some.append("others")
    return f", to complete {' and '.join(some)}"


def _peer(peers: Mapping[int, int], size: int) -> str:
    """The peers of ranks, where each has one."""
    different = {*peers.values()}
    if len(different) == 1:
        (one,) = different
        return "anyone" if one == Peer.ANY else str(one)
    if Peer.ANY not in different:
        offsets = {(peer - rank) % size for rank, peer in peers.items()}
        if len(offsets) == 1:
            (offset,) = offsets
            word = {1: "the next one", size - 1: "the one before"}.get(offset)
            return f"{word}" if word else f"the {offset}th one after it"
    some = ", ".join(f"{rank} {peers[rank]}" for rank in sorted(peers)[:3])
    return f"different ranks ({some}{', ...' if len(peers) > 3 else ''})"


def _since(ranks: Sequence[Standing]) -> str:
    """Since when, and for how long, as far as it is the same."""
    ticks = {each.asked.tick for each in ranks if each.asked is not None}
    tick = f", since tick {min(ticks)}" if len(ticks) == 1 else ""
    known = [each.seconds for each in ranks if each.seconds is not None]
    return tick + (f", for {duration(min(known))}" if known and min(known) >= 1 else "")


def duration(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def named(ranks: Iterable[int]) -> str:
    """A rank set; of one that would be long only how many there are."""
    found = RankSet.of(ranks)
    text = str(found)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST].rpartition(',')[0]},... ({len(found)} ranks)"


# ---- the others ----------------------------------------------------------------------------------


_VERBS = {
    State.IN_MPI: ("is in", "are in"),
    State.RUNS: ("goes on", "go on"),
    State.COMPUTES: ("computes", "compute"),
    State.STOPPED: ("is stopped", "are stopped"),
    State.ENDED: ("has ended", "have ended"),
    State.UNKNOWN: ("cannot be asked", "cannot be asked"),
}


def _not_waiting(verdict: Verdict, shown: Mapping[int, Standing]) -> Iterator[str]:
    classes: dict[tuple[State, str, bool, str, str], list[int]] = {}
    for rank, each in shown.items():
        if rank not in verdict.needs:
            call = each.asked.call if each.asked is not None else ""
            known = each.asked is None or not each.asked.blind or each.asked.way is not Way.BLOCKS
            classes.setdefault((each.state, call, known, each.place, each.note), []).append(rank)
    listed = sorted(classes.items(), key=lambda item: min(item[1]))
    for (state, call, known, place, note), ranks in listed[:_STATES]:
        verb = _VERBS[state][len(ranks) > 1]
        if state is State.IN_MPI:
            verb += f" {call or 'MPI'}"
            where = f" ({place})" if place else ""
            goes_on = ", and can go on" if known else ", and may wait: the record is not known"
            where += goes_on if call else ""
        else:
            where = f" in {place}" if place and state is State.COMPUTES else ""
        seconds = min(shown[rank].seconds or 0 for rank in ranks)
        long = f", for {duration(seconds)}" if seconds >= 1 else ""
        yield f"{named(ranks)} {verb}{where}{long}{f': {note}' if note else ''}"
    if len(listed) > _STATES:
        yield f"{named(rank for _, ranks in listed[_STATES:] for rank in ranks)} do not wait either"


# ---- what follows --------------------------------------------------------------------------------


def _knots(verdict: Verdict, standings: Mapping[int, Standing]) -> Iterator[str]:
    if verdict.proved:
        if verdict.way:
            yield f"{_around(verdict.way)}: a deadlock, whatever else happens"
        rest = verdict.proved - {*verdict.way}
        gone = [rank for rank, each in standings.items() if each.state is State.ENDED]
        if rest and verdict.way:
            yield f"{named(rest)} can never go on either"
        elif rest:
            ended = f": {named(gone)} {'have' if len(gone) > 1 else 'has'} ended" if gone else ""
            yield f"{named(rest)} can never go on, whatever else happens{ended}"
    doubtful = verdict.perhaps - verdict.proved
    if doubtful and verdict.perhaps_way and not {*verdict.perhaps_way} <= verdict.proved:
        yield (
            f"{_around(verdict.perhaps_way)}: perhaps a deadlock; it is one if they are still "
            "there in a moment"
        )
    elif doubtful:
        yield f"{named(doubtful)}: perhaps {'it' if len(doubtful) == 1 else 'they'} cannot go on"
    if not verdict.perhaps:
        yield _no_deadlock(verdict, standings)


def _around(way: Sequence[int]) -> str:
    if len(way) > _WAY:
        some = [*map(str, way[: _WAY - 2]), "...", str(way[-1]), str(way[0])]
        return f"{' → '.join(some)} ({len(way)} ranks)"
    return " → ".join(map(str, (*way, way[0])))


def _no_deadlock(verdict: Verdict, standings: Mapping[int, Standing]) -> str:
    if not verdict.needs:
        return "no rank waits for another one"
    awaited = RankSet.of(verdict.awaited)
    states = {standings[rank].state.value for rank in awaited if rank in standings}
    if not awaited:
        return "no deadlock is certain"
    which = f", which {states.pop()}" if len(states) == 1 and len(awaited) == 1 else ""
    return (
        f"no deadlock: the others wait for {'rank ' * (len(awaited) == 1)}{named(awaited)}{which}"
    )


def _unfit(meeting: Meeting) -> str:
    differs = meeting.what_differs()
    assert differs is not None
    what, said = differs
    comm = meeting.comm
    text = ", ".join(
        f"{value.removeprefix('MPI_') if what == 'operation' else value} on {named(ranks)}"
        for value, ranks in [*said.items()][:4]
    )
    word = "" if what == "call" else f", {meeting.name}: {what}"
    return f"these do not fit: collective {meeting.number + 1} on {comm}{word}: {text}"


def _unwanted(verdict: Verdict, size: int, place: Place) -> Iterator[str]:
    """The messages that nobody has asked for, those alike in one line."""
    classes: dict[tuple[str, int], list[Envelope]] = {}
    for each in verdict.unwanted:
        classes.setdefault((each.comm, each.tag), []).append(each)
    ordered = sorted(classes.items(), key=lambda item: -len(item[1]))
    for (comm, tag), found in ordered[:_UNWANTED]:
        first = found[0]
        senders = [each.rank for each in found]
        to = _peer({each.rank: each.peer for each in found}, size)
        on = f" on {comm}" if comm != "world" else ""
        at = place(first.rank, first.tick)
        what = "a message" if len({*senders}) == len(found) else f"{len(found)} messages"
        yield (
            f"{named(senders)} {'has' if len({*senders}) == 1 else 'have'} sent {to} {what} that "
            f"nobody has asked for: tag {tag}{on}{f' ({at})' if at else ''}: "
            f"'goto tick {first.tick} on {first.rank}'"
        )
    if len(ordered) > _UNWANTED:
        count = sum(len(found) for _, found in ordered[_UNWANTED:])
        yield f"and {count} more messages that nobody has asked for"

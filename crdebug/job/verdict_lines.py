"""A verdict in words, with the source lines of the calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from crdebug.base.events import StandsStill
from crdebug.base.ranks import RankSet
from crdebug.base.units import seconds_text
from crdebug.job.call_lines import CallLines
from crdebug.timeline.calls import Call, entered_last
from crdebug.timeline.log import RankLog
from crdebug.timeline.verdict import Posted, Standing, State, Verdict
from crdebug.timeline.verdict_text import calls, lines

_MESSAGES = 64  # of which the lines are asked for
_REQUESTS = 16  # of a rank


def standstill(seconds: float, lines: Sequence[str], *, for_ever: bool = False) -> StandsStill:
    """What is told when no rank has come further for so long. lines: why."""
    said = f"no rank has come further in its MPI calls for {seconds_text(seconds)}:"
    return StandsStill("\n  ".join([said, *lines]), for_ever)


async def in_words(
    verdict: Verdict,
    standings: Mapping[int, Standing],
    places: CallLines,
    logs: Mapping[int, RankLog],
    ranks: RankSet | None = None,
) -> list[str]:
    """places: of the calls. ranks: only what these do; the verdict is of all."""
    known = await _with_requests(verdict, await _with_lines(standings, places, logs), places, logs)
    sites = await _sites_of_unwanted(verdict, places, logs)
    return lines(verdict, known, ranks, lambda rank, tick: sites.get((rank, tick), ""))


async def calls_in_words(
    verdict: Verdict,
    standings: Mapping[int, Standing],
    places: CallLines,
    logs: Mapping[int, RankLog],
    ranks: RankSet,
) -> list[str]:
    """The same, but only the calls that these ranks are in."""
    inside = {
        rank: each for rank, each in standings.items() if rank in ranks and each.asked is not None
    }
    known = await _with_requests(verdict, await _with_lines(inside, places, logs), places, logs)
    return calls(verdict, known, len(standings))


async def _with_lines(
    standings: Mapping[int, Standing], places: CallLines, logs: Mapping[int, RankLog]
) -> dict[int, Standing]:
    """With the lines of the calls that ranks are in, or were in last."""
    sites = {}
    last = {}
    for rank, each in standings.items():
        if each.asked is not None:
            sites[rank] = rank, each.asked.site
        elif each.state is State.COMPUTES and rank in logs and logs[rank].calls:
            last[rank] = logs[rank].calls[-1]
            sites[rank] = rank, last[rank].site
    told = await places.of(sites.values())
    found = {}
    for rank, each in standings.items():
        place = told.get(sites.get(rank, (-1, 0)), "")
        if rank in last:
            at = f" ({place})" if place else ""
            after = f"since {last[rank].name}{at}, tick {last[rank].tick}"
            found[rank] = replace(each, note=each.note or after)
        else:
            found[rank] = replace(each, place=place)
    return found


async def _with_requests(
    verdict: Verdict,
    standings: Mapping[int, Standing],
    places: CallLines,
    logs: Mapping[int, RankLog],
) -> Mapping[int, Standing]:
    """With the calls that have posted the requests that ranks wait for, those alike once."""
    posted = {
        rank: [*_entered(logs[rank], ticks[:_REQUESTS])]
        for rank, ticks in verdict.opened.items()
        if rank in verdict.needs and rank in standings and rank in logs and places.knows(rank)
    }
    told = await places.of((rank, call.site) for rank, those in posted.items() for call in those)
    found = dict(standings)
    for rank, those in posted.items():
        alike = dict.fromkeys(
            Posted(call.name, call.tag, call.comm, told.get((rank, call.site), ""))
            for call in those
        )
        found[rank] = replace(standings[rank], posted=tuple(alike))
    return found


def _entered(log: RankLog, ticks: Sequence[int]) -> Iterator[Call]:
    """The calls that a rank was in at these ticks."""
    for tick in ticks:
        call = entered_last(log.calls, tick)
        if call is not None:
            yield call


async def _sites_of_unwanted(
    verdict: Verdict, places: CallLines, logs: Mapping[int, RankLog]
) -> dict[tuple[int, int], str]:
    sites: dict[tuple[int, int], tuple[int, int]] = {}
    for each in verdict.unwanted[:_MESSAGES]:
        log = logs.get(each.rank)
        if log is None or not places.knows(each.rank):
            continue
        for call in _entered(log, [each.tick]):
            sites[each.rank, each.tick] = each.rank, call.site
    told = await places.of(sites.values())
    return {key: told[site] for key, site in sites.items() if site in told}

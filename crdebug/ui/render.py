"""Results as text, without colours or streams. It reads no files except sources."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, assert_never

from crdebug.base.answers import classes
from crdebug.base.ranks import RankSet
from crdebug.commands.results import (
    Applied,
    Backtraces,
    Breakpoints,
    BreakpointsDeleted,
    BreakpointSet,
    Charted,
    Checkpoints,
    CheckpointTaken,
    Communicators,
    Comparison,
    Displayed,
    Frames,
    Gathered,
    Hosts,
    Killed,
    Left,
    Messages,
    Moved,
    Nothing,
    Pictured,
    Printed,
    Ranked,
    Ranks,
    Repeated,
    Restarted,
    Result,
    Said,
    Sets,
    Several,
    Snapshots,
    Stopped,
    Tabled,
    Text,
    Threads,
    ThreadStacks,
    Timeline,
    TraceTable,
    Tree,
    Whereabouts,
)
from crdebug.session.values import PointKind, agreed
from crdebug.ui.answers import compared, errors, values
from crdebug.ui.charts import pictured, plotted
from crdebug.ui.history import communicator_table, message_table, snapshot_table, timeline, when
from crdebug.ui.listing import checkpoint_table, checkpoint_taken, killed
from crdebug.ui.source import SourceLines
from crdebug.ui.stacks import tree
from crdebug.ui.stops import describe, describe_places, gathered
from crdebug.ui.tables import table
from crdebug.ui.traces import trace_table
from crdebug.ui.value_table import value_table
from crdebug.ui.verified import verified_text

if TYPE_CHECKING:
    from crdebug.base.answers import Answers
    from crdebug.base.events import Location
    from crdebug.session.values import Breakpoint, Frame, HostInfo, RankInfo, Stack, ThreadInfo

T = TypeVar("T", bound=Hashable)


def render(result: Result, width: int = 0) -> str:
    """The text of a result, without the last newline; empty when there is nothing to say."""
    return "\n".join(_lines(result, width))


def _lines(result: Result, width: int) -> Iterator[str]:  # noqa: C901 - a case for each result
    match result:
        case Stopped():
            yield from describe(result.stop)
        case Printed():
            yield from values(result.answers, each=result.each)
        case Ranked():
            yield from compared(result.answers, result.deviating)
        case Tabled():
            yield from value_table(result.columns, width, each=result.each)
        case Said():
            yield from _said(result.answers)
        case Backtraces():
            yield from _backtraces(result.answers, each=result.each)
        case Tree():
            yield from tree(result.tree)
        case Charted():
            yield from plotted(result.plot, width)
        case Pictured():
            yield from pictured(result.image, width)
        case Applied():
            for number, answers in result.threads:
                yield f"thread {number}:"
                yield from (f"  {line}" for text in _said(answers) for line in text.split("\n"))
        case ThreadStacks():
            for number, stacks in result.threads:
                yield f"thread {number}:"
                yield from (f"  {line}" for line in _backtraces(stacks, each=False))
        case Gathered():
            yield from gathered(result.barrier)
        case Frames():
            yield from _frames(result.answers)
        case Displayed():
            for shown, answers in result.values:
                said = replace(answers, errors={})
                yield from (f"{shown.number}: {shown.expression} {line}" for line in values(said))
        case Several():
            for each in result.results:
                yield from _lines(each, width)
        case Threads():
            yield _threads(result.answers, width)
            yield from errors(result.answers)
        case Ranks():
            yield _ranks(result.ranks, width)
        case Hosts():
            yield _hosts(result.hosts, width)
        case Sets():
            rows = ((name, str(len(ranks)), f"[{ranks}]") for name, ranks in result.sets)
            yield table(("set", "size", "ranks"), rows, width)
        case BreakpointSet():
            yield from _breakpoint(result.breakpoint)
        case BreakpointsDeleted():
            if not result.numbers:
                yield "there are no breakpoints"
        case Breakpoints():
            yield _breakpoints(result.breakpoints, width)
        case CheckpointTaken():
            yield checkpoint_taken(result.checkpoint)
        case Restarted():
            handle = result.checkpoint.handle
            yield f"back at checkpoint {handle} (incarnation {result.incarnation})"
            yield from places(result.ranks)
        case Checkpoints():
            yield checkpoint_table(result.checkpoints, width)
        case Moved():
            yield from _moved(result)
        case Comparison():
            for at in result.branches:
                yield f"branch {at.branch}:"
                yield from (f"  {line}" for line in values(at.answers))
        case Repeated():
            yield from verified_text(result.verified)
        case TraceTable():
            point = result.point
            condition = f" if {point.condition}" if point.condition else ""
            yield f"trace point {point.number}: {point.location}{condition}"
            yield from trace_table(result.names, result.answers, result.last, width)
        case Communicators():
            yield communicator_table(result.found, width)
        case Messages():
            yield message_table(result.on_the_way, width)
        case Whereabouts():
            yield when(result.overview, result.ranks)
        case Snapshots():
            yield snapshot_table(result.stock, result.focus, result.marks, width)
        case Timeline():
            yield timeline(result.overview, width)
            yield from result.calls
        case Text():
            yield result.text
        case Killed():
            yield killed(result.job)
        case Left():
            if result.held:
                yield (
                    f"job {result.job} is held; 'crdebug attach {result.job}' comes back to it, "
                    f"'crdebug release {result.job}' lets it run on"
                )
            elif result.detached:
                yield f"job {result.job} runs on; 'crdebug attach {result.job}' comes back to it"
        case Nothing():
            return
        case _:
            assert_never(result)


def _said(answers: Answers[str]) -> Iterator[str]:
    for ranks, text in answers.merged():
        said = text.rstrip("\n")
        if "\n" in said:
            yield f"[{ranks}]"
            yield said
        elif said:
            yield f"[{ranks}] {said}"
    yield from errors(answers)


# ---- stacks and threads ---------------------------------------------------------------------


def _backtraces(answers: Answers[Stack], *, each: bool) -> Iterator[str]:
    # Of ranks in the same calls the arguments are shown in which all of them agree.
    values = answers.values.items()
    same = classes((rank, rank if each else stack.path) for rank, stack in values)
    for ranks, _ in same:
        yield f"[{ranks}]"
        stacks = [answers.values[rank] for rank in ranks]
        arguments = agreed(stack.arguments for stack in stacks)
        for frame, text in zip(stacks[0].path.frames, arguments, strict=True):
            yield "  " + _frame(frame, text)
    yield from errors(answers)


def _frames(answers: Answers[Frame]) -> Iterator[str]:
    source = SourceLines()
    shapes = classes((rank, _shape(frame)) for rank, frame in answers.values.items())
    for ranks, _ in shapes:
        same = [answers.values[rank] for rank in ranks]
        (arguments,) = agreed((frame.arguments,) for frame in same)
        yield f"[{ranks}] {_frame(same[0], arguments)}"
        yield from source.at(same[0].location)
    yield from errors(answers)


def _shape(frame: Frame) -> tuple[int, bool, str]:
    return frame.level, frame.python, str(frame.location)


def _frame(frame: Frame, arguments: str) -> str:
    location = frame.location
    where = f" at {location.file}:{location.line}" if location.file else ""
    number = f"py{frame.level:<2}" if frame.python else f"#{frame.level:<3}"
    return f"{number} {location.name} ({arguments}){where}"


def _threads(answers: Answers[tuple[ThreadInfo, ...]], width: int) -> str:
    # Thread ids differ between ranks, and are shown only for a single rank.
    rows: dict[tuple[int, str, str, str], dict[int, int]] = {}
    for rank, threads in answers.values.items():
        for thread in threads:
            where = "" if thread.location is None else str(thread.location)
            key = (thread.number, thread.name, thread.state, where)
            rows.setdefault(key, {})[rank] = thread.tid
    texts = []
    for (number, name, state, where), tids in sorted(rows.items(), key=lambda row: row[0]):
        tid = str(next(iter(tids.values()))) if len(tids) == 1 else ""
        texts.append((f"[{RankSet.of(tids)}]", str(number), tid, name, state, where))
    return table(("ranks", "thread", "tid", "name", "state", "where"), texts, width)


# ---- ranks ----------------------------------------------------------------------------------


def _ranks(ranks: Iterable[RankInfo], width: int) -> str:
    rows = (
        (
            str(each.rank),
            each.state,
            "" if each.pid is None else str(each.pid),
            each.host,
            each.executable,
            "" if each.location is None else str(each.location),
        )
        for each in ranks
    )
    return table(("rank", "state", "pid", "host", "executable", "where"), rows, width)


def _hosts(hosts: Iterable[HostInfo], width: int) -> str:
    rows = (
        (each.name, str(len(each.ranks)), f"[{each.ranks}]", _agent(each.lost)) for each in hosts
    )
    return table(("host", "size", "ranks", "agent"), rows, width)


def _agent(lost: str | None) -> str:
    if lost is None:
        return "none: crdebug is here"
    return f"lost: it {lost}" if lost else "reached"


def places(ranks: Iterable[RankInfo]) -> Iterator[str]:
    """Where ranks are, equal places as one."""
    return describe_places(
        ((each.rank, each.location, each.state) for each in ranks), SourceLines()
    )


def _moved(moved: Moved) -> Iterator[str]:
    """The focused rank comes first, alone."""
    if moved.note:
        yield moved.note
    yield f"rank {moved.focus} at tick {moved.tick} of {moved.recorded}"
    yield from places(each for each in moved.ranks if each.rank == moved.focus)
    yield from places(each for each in moved.ranks if each.rank != moved.focus)


# ---- breakpoints ----------------------------------------------------------------------------


def _breakpoint(each: Breakpoint) -> Iterator[str]:
    kind = "temporary breakpoint" if each.temporary else each.kind.word
    condition = f" if {each.condition}" if each.condition else ""
    places = _places_of(each)
    if len(places) == 1:
        yield f"{kind} {each.number} on [{each.ranks}]: {places[0][1]}{condition}"
    else:
        yield f"{kind} {each.number} on [{each.ranks}]: {each.location}{condition}"
        yield from (f"  [{ranks}] {place}" for ranks, place in places)
    problems = classes(each.problems.items())
    yield from (f"[{ranks}] error: {problem}" for ranks, problem in problems)


def _places_of(each: Breakpoint) -> list[tuple[RankSet, str]]:
    """Its places, by ranks; one entry for a breakpoint that is at the same place on all of them."""
    placed = [(ranks, _together(locations)) for ranks, locations in each.merged_places()]
    if each.kind is not PointKind.BREAK:
        return [(each.ranks, f"{each.kind.value} {each.location}")]
    return [(ranks, text or f"{each.location} (pending)") for ranks, text in placed]


def _together(locations: tuple[Location, ...]) -> str:
    if len(locations) > 3:
        return f"{len(locations)} places"
    return ", ".join(dict.fromkeys(str(location) for location in locations))


def _breakpoints(breakpoints: tuple[Breakpoint, ...], width: int) -> str:
    if not breakpoints:
        return "there are no breakpoints"
    rows = [row for each in breakpoints for row in _breakpoint_rows(each)]
    return table(("number", "ranks", "location", "hits", "condition"), rows, width)


def _breakpoint_rows(each: Breakpoint) -> Iterator[tuple[str, ...]]:
    words = [f"if {each.condition}"] if each.condition else []
    words += ["once"] if each.temporary else []
    words += [] if each.enabled else ["disabled"]
    words += [f"not the next {each.ignore}"] if each.ignore else []
    hits = "" if each.kind is PointKind.TRACE else str(each.hits)  # 'info trace' counts them
    first = (str(each.number), hits, ", ".join(words))
    for ranks, place in _places_of(each) or [(each.ranks, each.location)]:
        yield first[0], f"[{ranks}]", place, first[1], first[2]
        first = ("", "", "")
    yield from (("", "", f"  {line}", "", "") for line in each.commands)

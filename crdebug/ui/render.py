"""Results as text. Pure: no colour, no stream."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, TypeVar, assert_never

from crdebug.commands.results import (
    Backtraces,
    Breakpoints,
    BreakpointsDeleted,
    BreakpointSet,
    Checkpoints,
    CheckpointTaken,
    Killed,
    Left,
    Nothing,
    Printed,
    Ranks,
    Restarted,
    Result,
    Said,
    Stopped,
    Text,
    Threads,
)
from crdebug.ranks import RankSet
from crdebug.ui.stops import classes, describe
from crdebug.ui.tables import table

if TYPE_CHECKING:
    from crdebug.checkpoint.store import Checkpoint
    from crdebug.target.answers import Answers
    from crdebug.target.breakpoints import Breakpoint
    from crdebug.target.gdb import Frame, ThreadInfo
    from crdebug.target.group import RankInfo

T = TypeVar("T", bound=Hashable)


def render(result: Result, width: int = 0) -> str:
    """The text of a result, without the last newline; empty when there is nothing to say."""
    return "\n".join(_lines(result, width))


def _lines(result: Result, width: int) -> Iterator[str]:
    match result:
        case Stopped():
            yield from describe(result.stop)
        case Printed():
            for ranks, value in result.answers.merged():
                yield f"[{ranks}] = {value}"
            yield from _errors(result.answers)
        case Said():
            yield from _said(result.answers)
        case Backtraces():
            yield from _backtraces(result.answers)
        case Threads():
            yield _threads(result.answers, width)
            yield from _errors(result.answers)
        case Ranks():
            yield _ranks(result.ranks, width)
        case BreakpointSet():
            yield _breakpoint(result.breakpoint)
        case BreakpointsDeleted():
            if not result.numbers:
                yield "there are no breakpoints"
        case Breakpoints():
            yield _breakpoints(result.breakpoints, width)
        case CheckpointTaken():
            yield f"checkpoint {result.checkpoint.handle} taken ({size(result.checkpoint.size)})"
        case Restarted():
            handle = result.checkpoint.handle
            yield f"back at checkpoint {handle} (incarnation {result.incarnation})"
            yield from places(result.ranks)
        case Checkpoints():
            yield checkpoint_table(result.checkpoints, width)
        case Text():
            yield result.text
        case Killed():
            yield f"job {result.job} was killed; its checkpoints stay"
        case Left():
            if result.detached:
                yield f"job {result.job} runs on; 'crdebug attach {result.job}' comes back to it"
        case Nothing():
            return
        case _:
            assert_never(result)


def _errors(answers: Answers[T]) -> Iterator[str]:
    for ranks, text in answers.merged_errors():
        yield f"[{ranks}] error: {text}"


def _said(answers: Answers[str]) -> Iterator[str]:
    for ranks, text in answers.merged():
        said = text.rstrip("\n")
        if "\n" in said:
            yield f"[{ranks}]"
            yield said
        elif said:
            yield f"[{ranks}] {said}"
    yield from _errors(answers)


# ---- stacks and threads ---------------------------------------------------------------------


def _backtraces(answers: Answers[tuple[Frame, ...]]) -> Iterator[str]:
    # Arguments and addresses differ between ranks that are at the same place, so they take no
    # part in the comparison; arguments are shown where the whole class agrees.
    shapes = classes(
        (rank, tuple((frame.level, str(frame.location)) for frame in frames))
        for rank, frames in answers.values.items()
    )
    for ranks, _ in shapes:
        yield f"[{ranks}]"
        for same in zip(*(answers.values[rank] for rank in ranks), strict=True):
            yield "  " + _frame(same)
    yield from _errors(answers)


def _frame(same: tuple[Frame, ...]) -> str:
    first = same[0]
    arguments = first.arguments if all(f.arguments == first.arguments for f in same) else "..."
    location = first.location
    name = location.function or hex(location.address)
    where = f" at {location.file}:{location.line}" if location.file else ""
    return f"#{first.level:<3} {name} ({arguments}){where}"


def _threads(answers: Answers[tuple[ThreadInfo, ...]], width: int) -> str:
    # Thread ids differ between ranks, and are shown where there is no one to differ from.
    rows: dict[tuple[int, str, str, str], dict[int, int]] = {}
    for rank, threads in answers.values.items():
        for thread in threads:
            where = "" if thread.location is None else str(thread.location)
            key = (thread.number, thread.name, word(thread.state), where)
            rows.setdefault(key, {})[rank] = thread.tid
    texts = []
    for (number, name, state, where), tids in sorted(rows.items(), key=lambda row: row[0]):
        tid = str(next(iter(tids.values()))) if len(tids) == 1 else ""
        texts.append((f"[{RankSet.of(tids)}]", str(number), tid, name, state, where))
    return table(("ranks", "thread", "tid", "name", "state", "where"), texts, width)


# ---- ranks ----------------------------------------------------------------------------------


def word(state: object) -> str:
    """The word for a state, whatever it is kept as."""
    return str(state.value) if isinstance(state, Enum) else str(state)


def _ranks(ranks: Iterable[RankInfo], width: int) -> str:
    rows = (
        (
            str(each.rank),
            word(each.state),
            str(each.pid),
            each.host,
            each.executable,
            "" if each.location is None else str(each.location),
        )
        for each in ranks
    )
    return table(("rank", "state", "pid", "host", "executable", "where"), rows, width)


def places(ranks: Iterable[RankInfo]) -> Iterator[str]:
    """Where ranks are, equal places as one."""
    known = (
        (each.rank, word(each.state) if each.location is None else str(each.location))
        for each in ranks
    )
    for each, place in classes(known):
        yield f"  [{each}] {place}"


# ---- breakpoints ----------------------------------------------------------------------------


def _breakpoint(each: Breakpoint) -> str:
    kind = "temporary breakpoint" if each.temporary else "breakpoint"
    condition = f" if {each.condition}" if each.condition else ""
    return f"{kind} {each.number} on [{each.ranks}]: {each.location}{condition}"


def _breakpoints(breakpoints: tuple[Breakpoint, ...], width: int) -> str:
    if not breakpoints:
        return "there are no breakpoints"
    rows = (
        (
            str(each.number),
            f"[{each.ranks}]",
            str(each.location) + (f" if {each.condition}" if each.condition else ""),
            "once" if each.temporary else "",
        )
        for each in breakpoints
    )
    return table(("number", "ranks", "location", ""), rows, width)


# ---- checkpoints ----------------------------------------------------------------------------


def size(count: int) -> str:
    """A number of bytes for people."""
    from rich.filesize import decimal

    return decimal(count)


def moment(time: float) -> str:
    """A time since 1970 as local date and time."""
    return datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M:%S")


def checkpoint_table(checkpoints: tuple[Checkpoint, ...], width: int = 0) -> str:
    """Checkpoints as a table."""
    if not checkpoints:
        return "there are no checkpoints"
    headers = ("checkpoint", "taken", "size", "incarnation", "debugger", "where", "note")
    rows = (
        (
            each.handle,
            moment(each.time),
            size(each.size),
            str(each.incarnation),
            "yes" if each.debugger else "no",
            _taken_at(each.locations),
            each.note,
        )
        for each in checkpoints
    )
    return table(headers, rows, width)


def _taken_at(locations: tuple[str, ...]) -> str:
    known = classes((rank, place) for rank, place in enumerate(locations) if place)
    if not known:
        return ""
    ranks, place = known[0]
    more = f" and {len(known) - 1} other places" if len(known) > 1 else ""
    return f"[{ranks}] {place}{more}"

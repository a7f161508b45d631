"""Errors are sentences, events are values, and every wait has an end with a reason."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
from typing import Any, get_args

import pytest

from crdebug.base import errors, events
from crdebug.base.deadline import Deadline
from crdebug.base.errors import (
    BadInput,
    CrdebugError,
    CrsFailed,
    DeadlineExpired,
    GdbDied,
    GdbError,
    InvalidTransition,
    NotAvailable,
    Refused,
    StoreError,
)
from crdebug.base.events import Event, GroupStopped, Location, Progress, RankStopped, StopReason
from crdebug.base.ranks import RankSet

pytestmark = pytest.mark.unit

TWO = RankSet.of([0, 2])


# ---- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (BadInput("no such rank"), "no such rank"),
        (BadInput("no such rank", hint="write 0-3"), "no such rank (write 0-3)"),
        (Refused("it runs", ranks=RankSet.of([3])), "rank 3: it runs"),
        (Refused("it runs", ranks=TWO), "ranks 0,2: it runs"),
        (Refused("it runs", phase="herd"), "during herd: it runs"),
        (
            Refused("it runs", ranks=TWO, phase="herd", hint="stop it"),
            "ranks 0,2 during herd: it runs (stop it)",
        ),
        (Refused("it runs", ranks=RankSet()), "it runs"),
        (GdbError("No symbol.", "print x", ranks=RankSet.of([1])), "rank 1: No symbol."),
        (GdbDied("gdb ended", "continue", -9), "gdb ended (exit status -9) during 'continue'"),
        (GdbDied("gdb ended", "continue", None), "gdb ended during 'continue'"),
        (
            DeadlineExpired("the rank to stop", 0.25, ranks=TWO, phase="interrupt"),
            "ranks 0,2 during interrupt: waited 0.25 s for the rank to stop",
        ),
        (DeadlineExpired("it", 30.0), "waited 30 s for it"),
        (CrsFailed("criu dump failed"), "criu dump failed"),
        (CrsFailed("criu dump failed", ("a", "b")), "criu dump failed: a | b"),
        (StoreError("it is damaged", hint="delete it"), "it is damaged (delete it)"),
        (NotAvailable("there is no gdb"), "there is no gdb"),
        (InvalidTransition("not now", ("one", "two")), "not now\n  one\n  two"),
    ],
)
def test_the_sentence_of_an_error(error: CrdebugError, sentence: str) -> None:
    assert str(error) == sentence


def kinds() -> list[type[CrdebugError]]:
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, CrdebugError)]


def made(kind: type[CrdebugError]) -> CrdebugError:
    """One with a value for every field that has no default."""
    values: dict[str, Any] = {
        field.name: {"float": 1.0, "int | None": 1}.get(str(field.type), "x")
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING
    }
    return kind(**values)


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_can_be_raised_caught_and_distinguished(
    kind: type[CrdebugError],
) -> None:
    error = made(kind)
    with pytest.raises(CrdebugError) as caught:
        raise error
    assert caught.value is error
    assert error != made(kind)  # two errors with the same words are two errors
    assert len({error, made(kind)}) == 2
    assert "x" in str(error)


@pytest.mark.parametrize("kind", kinds())
def test_what_is_learnt_later_is_added(kind: type[CrdebugError]) -> None:
    error = made(kind)
    error.ranks, error.phase, error.hint = TWO, "dump", "do this"
    assert str(error).startswith("ranks 0,2 during dump: ")
    assert str(error).endswith(" (do this)")


# ---- events ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", get_args(Event))
def test_events_are_values(kind: type) -> None:
    values = [f"{field.name}" for field in dataclasses.fields(kind) if _needed(field)]
    one, same = kind(*values), kind(*values)
    assert one == same and hash(one) == hash(same)
    assert pickle.loads(pickle.dumps(one)) == one
    field = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, field, 1)


def _needed(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING


def test_the_union_names_all_of_them() -> None:
    values = {each for each in vars(events).values() if isinstance(each, type)}
    parts = {events.StopReason, Location, RankSet}
    assert set(get_args(Event)) == {e for e in values if dataclasses.is_dataclass(e)} - parts


def test_the_words_of_reasons_differ() -> None:
    words = [reason.value for reason in StopReason]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (Location(0x10, "f", "a.c", 3), "f at a.c:3"),
        (Location(0x10, "f"), "f"),
        (Location(0x10, ""), "0x10"),
        (Location(0x10, "", library="/lib/libmpi.so.40"), "?? in libmpi.so.40"),
        (Location(0x10, "f", library="/lib/libmpi.so.40"), "f"),
        (Location(0x10, "", "a.c", 3), "0x10 at a.c:3"),
    ],
)
def test_a_place_in_words(location: Location, text: str) -> None:
    assert str(location) == text


def test_defaults_are_the_ones_of_a_rank_that_has_ended() -> None:
    stop = RankStopped(1, StopReason.EXITED)
    assert (stop.detail, stop.thread, stop.location) == ("", 0, None)
    assert GroupStopped((stop,), (stop,)).cause == (stop,)
    assert Progress("run", "launch").ranks is None


# ---- deadlines ---------------------------------------------------------------------------------


async def test_wait_gives_the_result() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 7

    assert await Deadline(30.0).wait(answer(), "it") == 7


async def test_wait_passes_an_exception_on() -> None:
    async def fail() -> None:
        raise StoreError("no")

    with pytest.raises(StoreError):
        await Deadline(30.0).wait(fail(), "it")


async def test_an_expired_wait_says_what_it_awaited_and_cancels_it() -> None:
    ended = asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(DeadlineExpired) as caught:
        await Deadline(0.02).wait(forever(), "rain", ranks=TWO, phase="summer")
    assert str(caught.value) == "ranks 0,2 during summer: waited 0.02 s for rain"
    assert ended.is_set()


async def test_a_timeout_inside_is_not_taken_for_the_deadlines() -> None:
    """Its own text would name the wrong wait."""

    async def inner() -> None:
        await Deadline(0.01).wait(asyncio.Event().wait(), "the inner")

    with pytest.raises(DeadlineExpired, match="the inner"):
        await Deadline(30.0).wait(inner(), "the outer")


async def test_cancelling_a_wait_cancels_it() -> None:
    task = asyncio.create_task(Deadline(30.0).wait(asyncio.Event().wait(), "it"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_until_looks_at_once_and_then_again() -> None:
    looks: list[int] = []

    def third_time() -> bool:
        looks.append(1)
        return len(looks) == 3

    await Deadline(30.0).until(third_time, "it")
    assert len(looks) == 3
    await Deadline(0.0).until(lambda: True, "what is so already")


async def test_an_expired_until_says_what_it_awaited_after_a_last_look() -> None:
    looks: list[int] = []

    def never() -> bool:
        looks.append(1)
        return False

    with pytest.raises(DeadlineExpired) as caught:
        await Deadline(0.02).until(never, "rain", phase="summer")
    assert str(caught.value) == "during summer: waited 0.02 s for rain"
    assert len(looks) > 1


async def test_until_passes_the_exception_of_a_look_on() -> None:
    def gone() -> bool:
        raise ProcessLookupError("gone")

    with pytest.raises(ProcessLookupError):
        await Deadline(30.0).until(gone, "it")


def test_a_deadline_counts_from_its_creation_and_is_shared() -> None:
    past = Deadline(5.0, started=Deadline(0.0).started - 10.0)
    assert past.left == 0.0
    fresh = Deadline(5.0)
    assert 0 < fresh.left <= 5.0
    assert fresh.expired("x").seconds == 5.0

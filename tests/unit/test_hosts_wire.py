"""A conversation between two crdebugs: both sides of a wire in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from fake_hosts import End, pair

from crdebug.base.errors import BadInput, CrdebugError
from crdebug.hosts.messages import Do, Failed, Message, Ping, Reply, Request, Says
from crdebug.hosts.wire import MARK, Wire


async def nothing(request: Request) -> object:
    raise BadInput("nothing is served here")


@asynccontextmanager
async def wires(
    serve: Callable[[Request], Awaitable[object]],
    take: Callable[[Message], None] = lambda message: None,
) -> AsyncIterator[tuple[Wire, Wire, End]]:
    """One that asks and hears, one that serves; and the stream of the latter."""
    here, there = pair()
    asking, serving = Wire(here, nothing, take), Wire(there, serve)
    running = [asyncio.create_task(each.run()) for each in (asking, serving)]
    try:
        yield asking, serving, there
    finally:
        for each in (asking, serving):
            each.end(CrdebugError("over"))
        for end in (here, there):
            end.reader.feed_eof()
        await asyncio.gather(*running)


async def test_answers_find_their_questions_in_any_order() -> None:
    gates = [asyncio.Event() for _ in range(3)]

    async def serve(request: Request) -> object:
        assert isinstance(request, Do)
        await gates[request.rank].wait()
        return request.rank

    async with wires(serve) as (asking, _, _):
        calls = [asyncio.create_task(asking.call(Do(rank, "x", ()))) for rank in range(3)]
        for rank in (2, 0, 1):
            gates[rank].set()
            assert await calls[rank] == rank


async def test_errors_come_as_they_are_and_faults_in_words() -> None:
    async def serve(request: Request) -> object:
        if isinstance(request, Ping):
            raise BadInput("no", hint="do something else")
        raise KeyError("ours")

    async with wires(serve) as (asking, _, _):
        with pytest.raises(BadInput, match=r"no \(do something else\)"):
            await asking.call(Ping())
        with pytest.raises(CrdebugError, match="a fault of crdebug's: KeyError"):
            await asking.call(Do(0, "x", ()))


async def test_an_answer_that_cannot_be_sent_does_not_leave_anybody_waiting() -> None:
    async def serve(request: Request) -> object:
        return object()

    async with wires(serve) as (asking, _, _):
        with pytest.raises(CrdebugError, match="cannot be sent"):
            await asking.call(Ping())


async def test_whoever_is_cancelled_has_the_other_side_stop_too() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def serve(request: Request) -> object:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return None

    async with wires(serve) as (asking, _, _):
        call = asyncio.create_task(asking.call(Ping()))
        await begun.wait()
        call.cancel()
        await ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_other_messages_come_in_order_before_the_answer() -> None:
    heard: list[str] = []

    async def serve(request: Request) -> object:
        serving.send(Says("one"))
        serving.send(Says("two"))
        return None

    def take(message: Message) -> None:
        assert isinstance(message, Says)
        heard.append(message.text)

    async with wires(serve, take) as (asking, serving, _):
        await asking.call(Ping())
        assert heard == ["one", "two"]


async def wait(request: Request) -> object:
    await asyncio.Event().wait()
    return None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it has ended"),
        (b"\0\0", "it has ended"),
        (b"\0\0\0\5ab", "it has ended"),
        (b"\0\0\0\0", "cannot be read"),
        (b"\0\0\0\1\xc1", "cannot be read"),
        (b"Welcome to this host!", "cannot be right"),
    ],
)
async def test_when_the_other_side_ends_or_says_nonsense_nobody_waits(
    data: bytes, words: str
) -> None:
    async with wires(wait) as (asking, _, there):
        calls = [asyncio.create_task(asking.call(Ping())) for _ in range(2)]
        await asyncio.sleep(0)
        there.write(data)
        there.close()
        for call in calls:
            with pytest.raises(CrdebugError, match=words):
                await call
        with pytest.raises(CrdebugError, match=words):  # and nobody begins to
            await asking.call(Ping())


async def marked(before: bytes) -> str:
    """What a wire says whose other side has sent this, and then ended."""
    here, there = pair()
    there.write(before)
    there.close()
    return str(await Wire(here, nothing, mark=MARK).run())


async def test_a_host_may_greet_its_users_first() -> None:
    assert await marked(b"Welcome!\nHave fun.\n" + MARK) == "it has ended"
    assert await marked(MARK[:5] + MARK + b"\0\0") == "it has ended"
    assert await marked(b"bash: no such file\n") == "it has ended: bash: no such file"
    assert await marked(b"noise" * 20_000 + MARK) == "something else answers there"


async def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    async def serve(request: Request) -> object:
        return 5

    async with wires(serve) as (asking, serving, _):
        serving.send(Reply(77, 1))
        serving.send(Failed(78, CrdebugError("late")))
        assert await asking.call(Ping()) == 5

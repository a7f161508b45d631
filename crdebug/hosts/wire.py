"""A conversation between crdebug and an agent over a stream of bytes.

A message is its length in four bytes, the first of them the highest, and then the bytes of
`codec`. Either side may end at any time; then everything that waits gets an error, at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from crdebug.base.errors import CrdebugError
from crdebug.hosts.codec import BadMessage, decode, encode
from crdebug.hosts.messages import Call, Cancel, Failed, Message, Reply, Request

_LARGEST = 1 << 28  # bytes of one message
_MOST_NOISE = 1 << 16  # bytes before the first one

MARK = b"\0crdebug agent\n"
"""An agent's first bytes. What comes before them is the host's: shells greet their users."""


class HasEnded(CrdebugError):
    """The other side has ended."""


class IsLost(CrdebugError):
    """The way to the other side is gone; nothing is known of it."""


class Stream(Protocol):
    """Bytes to and from the other side."""

    async def read(self, size: int) -> bytes:
        """Exactly so many. Raises EOFError if there are no more, OSError."""
        ...

    def write(self, data: bytes) -> None:
        """Queue bytes; never blocks, and drops them once the other side has ended."""
        ...

    def close(self) -> None:
        """Let the other side read the end. Idempotent."""
        ...


class Wire:
    """One side of the conversation. Made, then `run` until it ends.

    serve: answers the other side's requests; raises CrdebugError. Requests are begun in the order
    in which they come, and then served side by side.
    take: gets the other messages, in order; must not raise.
    mark: comes before the other side's first message.
    before_answers: messages that are to come before an answer.
    """

    def __init__(
        self,
        stream: Stream,
        serve: Callable[[Request], Awaitable[object]],
        take: Callable[[Message], None] = lambda message: None,
        mark: bytes = b"",
        before_answers: Callable[[], Sequence[Message]] = lambda: (),
    ) -> None:
        self._stream = stream
        self._serve = serve
        self._take = take
        self._mark = mark
        self._before_answers = before_answers
        self.heard = time.monotonic()
        self._last = 0
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self.ended: CrdebugError | None = None

    async def run(self) -> CrdebugError:
        """Read until the other side ends; returns why it is over."""
        try:
            await self._skip_noise()
            while True:
                length = int.from_bytes(await self._stream.read(4), "big")
                if length > _LARGEST:
                    raise BadMessage(f"a message of {length} bytes cannot be right")
                message = await self._stream.read(length)
                self.heard = time.monotonic()
                self._got(decode(message))
        except EOFError:
            return self.end(HasEnded("it has ended"))
        except OSError as error:
            return self.end(IsLost(f"the connection is lost: {error.strerror or error}"))
        except CrdebugError as error:
            return self.end(error)
        finally:
            for task in self._serving.values():
                task.cancel()
            await asyncio.gather(*self._serving.values(), return_exceptions=True)

    async def _skip_noise(self) -> None:
        noise = b""
        while not noise.endswith(self._mark):
            if len(noise) == _MOST_NOISE:
                raise BadMessage("something else answers there")
            try:
                noise += await self._stream.read(1)
            except EOFError:
                said = noise.decode("utf-8", "backslashreplace").strip().splitlines()
                raise HasEnded(f"it has ended{f': {said[-1]}' if said else ''}") from None

    def end(self, error: CrdebugError) -> CrdebugError:
        """It is over: everything that waits gets this error. The first one counts, and is
        returned."""
        if self.ended is None:
            self.ended = error
            waiting, self._waiting = self._waiting, {}
            for each in waiting.values():
                if not each.done():
                    each.set_exception(error)
                    each.exception()  # who waits may be gone
        self._stream.close()
        return self.ended

    async def call(self, request: Request) -> object:
        """The other side's answer. Raises its error, or that of the end of the conversation. If it
        is cancelled, the other side stops working on it."""
        if self.ended is not None:
            raise self.ended
        self._last += 1
        number = self._last
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.send(Call(number, request))
        try:
            return await answer
        except asyncio.CancelledError:
            self.send(Cancel(number))
            raise
        finally:
            self._waiting.pop(number, None)

    def post(self, request: Request) -> None:
        """Send a request that the other side does not answer."""
        self._last += 1
        self.send(Call(-self._last, request))

    def send(self, *messages: Message) -> None:
        """Send messages that nobody answers, at once: each packet costs more than a message."""
        if self.ended is None and messages:
            encoded = map(encode, messages)
            self._stream.write(b"".join(len(each).to_bytes(4, "big") + each for each in encoded))

    def _got(self, message: object) -> None:
        match message:
            case Call(number=number, request=request):
                self._serving[number] = asyncio.create_task(self._answer(number, request))
            case Cancel(number=number):
                if (task := self._serving.get(number)) is not None:
                    task.cancel()
            case Reply(number=number, value=value):
                if (answer := self._waiting.get(number)) is not None and not answer.done():
                    answer.set_result(value)
            case Failed(number=number, error=error):
                if (answer := self._waiting.get(number)) is not None and not answer.done():
                    answer.set_exception(error)
            case _:
                try:
                    self._take(message)  # type: ignore[arg-type]
                except CrdebugError:
                    raise
                except Exception as fault:
                    raise BadMessage(f"a message cannot be right: {fault!r}") from fault

    async def _answer(self, number: int, request: Request) -> None:
        before: Sequence[Message] = ()
        try:
            answer: Message
            try:
                answer = Reply(number, await self._serve(request))
            except CrdebugError as error:
                answer = Failed(number, error)
            if number > 0:
                before = self._before_answers()
                self.send(*before, answer)
        except Exception as fault:  # ours: nobody must wait for ever, and somebody must read of it
            self.send(*before, Failed(number, CrdebugError(f"a fault of crdebug's: {fault!r}")))
        finally:
            self._serving.pop(number, None)

"""One crdebug asks the session of another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, DeadlineExpired, Refused
from crdebug.job.control_socket import ControlServer, Request, ask, is_attended

pytestmark = pytest.mark.unit

Answer = Callable[[Request], Awaitable[int]]


def soon() -> Deadline:
    return Deadline(30.0)


@pytest.fixture(params=["short", "longer than an address"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where the socket is; a Unix socket's address has 108 bytes at most."""
    directory = tmp_path if request.param == "short" else tmp_path / ("d" * 120)
    directory.mkdir(exist_ok=True)
    return directory / "session"


@asynccontextmanager
async def serving(path: Path, answer: Answer) -> AsyncIterator[ControlServer]:
    server = ControlServer(path, answer)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def seven(request: Request) -> int:
    return 7


async def test_a_session_answers(path: Path) -> None:
    heard: list[Request] = []

    async def answer(request: Request) -> int:
        heard.append(request)
        return len(heard)

    async with serving(path, answer):
        assert await is_attended(path)
        assert await ask(path, Request("a note\nin two lines, ünïcode"), soon()) == 1
        assert await ask(path, Request(), soon()) == 2
    assert heard == [Request("a note\nin two lines, ünïcode"), Request("")]


async def test_several_ask_at_once(path: Path) -> None:
    async def answer(request: Request) -> int:
        await asyncio.sleep(0)
        return int(request.note)

    async with serving(path, answer):
        asked = (ask(path, Request(str(n)), soon()) for n in range(50))
        assert await asyncio.gather(*asked) == list(range(50))


async def test_without_a_session_there_is_no_answer(path: Path) -> None:
    assert not await is_attended(path)
    assert await ask(path, Request(), soon()) is None


async def test_after_the_session_there_is_no_answer_and_no_socket(path: Path) -> None:
    async with serving(path, seven):
        pass
    assert not path.exists()
    assert await ask(path, Request(), soon()) is None


def _left_behind(path: Path) -> None:
    """A socket that nobody listens at any more."""
    directory = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"/proc/self/fd/{directory}/{path.name}")
    os.close(directory)


async def test_the_socket_of_a_dead_session_is_no_session(path: Path) -> None:
    _left_behind(path)
    assert path.exists()
    assert not await is_attended(path)
    assert await ask(path, Request(), soon()) is None
    async with serving(path, seven):
        assert await ask(path, Request(), soon()) == 7


async def test_a_second_session_is_refused_and_the_first_stays(path: Path) -> None:
    async with serving(path, seven):
        with pytest.raises(Refused, match="under another session already"):
            await ControlServer(path, seven).start()
        assert await ask(path, Request(), soon()) == 7


async def test_only_the_owner_may_ask(path: Path) -> None:
    async with serving(path, seven):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_an_error_arrives_in_the_sessions_own_words(path: Path) -> None:
    async def answer(request: Request) -> int:
        raise Refused("the job runs", hint="interrupt it")

    async with serving(path, answer):
        with pytest.raises(CrdebugError) as caught:
            await ask(path, Request(), soon())
        assert str(caught.value) == "the job runs (interrupt it)"
        with pytest.raises(CrdebugError):  # and again
            await ask(path, Request(), soon())


@pytest.mark.parametrize("line", [b"no JSON\n", b"[1]\n", b'{"note": 7}\n', b'{"note'])
async def test_a_request_that_cannot_be_read_gets_an_error(path: Path, line: bytes) -> None:
    async with serving(path, seven):
        reply = await _say(path, line)
        assert b'"number":0' in reply and b'"error":"' in reply


@pytest.mark.parametrize("line", [b"x" * (1 << 20), b""])
async def test_a_request_that_is_none_ends_the_connection_and_nothing_else(
    path: Path, line: bytes
) -> None:
    async with serving(path, seven):
        assert await _say(path, line) == b""
        assert await ask(path, Request(), soon()) == 7


async def _say(path: Path, line: bytes) -> bytes:
    directory = os.open(path.parent, os.O_PATH)
    try:
        name = f"/proc/self/fd/{directory}/{path.name}"
        reader, writer = await asyncio.open_unix_connection(name)
    finally:
        os.close(directory)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(line)
            writer.write_eof()
            return await soon().wait(reader.read(), "the reply")
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class Gate:
    """An answer that is not given before the test says so."""

    def __init__(self) -> None:
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: Request) -> int:
        self.asked.set()
        await self.let.wait()
        return 9


async def test_an_expired_deadline_names_the_awaited_event(path: Path) -> None:
    gate = Gate()
    async with serving(path, gate):
        with pytest.raises(DeadlineExpired, match=r"waited 0\.1 s for the attached"):
            await ask(path, Request(), Deadline(0.1))
        gate.let.set()  # nobody waits any more: that is no error here


async def test_close_gives_the_answer_that_is_being_made(path: Path) -> None:
    gate = Gate()
    async with serving(path, gate) as server:
        asked = asyncio.create_task(ask(path, Request(), soon()))
        await soon().wait(gate.asked.wait(), "the request")
        closing = asyncio.create_task(server.close())
        gate.let.set()
        await soon().wait(closing, "the end")
        assert await asked == 9


async def test_close_does_not_wait_for_a_silent_client(path: Path) -> None:
    async with serving(path, seven) as server:
        silent = asyncio.create_task(_silent(path))
        await soon().until(lambda: bool(server._silent), "the connection")
        await soon().wait(server.close(), "the end")
        assert await soon().wait(silent, "the end of the connection") == b""


async def _silent(path: Path) -> bytes:
    with contextlib.chdir(path.parent):
        reader, writer = await asyncio.open_unix_connection(path.name)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


class Impostor:
    """A peer at the socket that says something else, or hangs up."""

    def __init__(self, path: Path, reply: bytes) -> None:
        self.path, self.reply = path, reply

    async def __aenter__(self) -> None:
        with contextlib.chdir(self.path.parent):
            self._server = await asyncio.start_unix_server(self._serve, self.path.name)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(self.reply)
        writer.close()

    async def __aexit__(self, *problem: object) -> None:
        self._server.close()
        await self._server.wait_closed()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"", "during checkpoint: the attached session ended before it answered"),
        (b"what?\n", "the attached session's answer cannot be read"),
        (b'{"number": "one"}\n', "the attached session's answer cannot be read"),
    ],
)
async def test_a_session_that_dies_or_is_another_version_is_one_sentence(
    path: Path, reply: bytes, words: str
) -> None:
    async with Impostor(path, reply):
        with pytest.raises(CrdebugError, match=words):
            await ask(path, Request(), soon())


def test_no_descriptor_is_left(path: Path) -> None:
    async def conversation() -> None:
        async with serving(path, seven):
            await ask(path, Request(), soon())
            await is_attended(path)
        await ask(path, Request(), soon())

    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        asyncio.run(conversation())
    assert set(os.listdir("/proc/self/fd")) == before

"""Commands, answers and everything in between, over a transport in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fake_mi import FakeTransport

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, DeadlineExpired, GdbDied, GdbError
from crdebug.base.ranks import RankSet
from crdebug.mi.connection import Connection
from crdebug.mi.records import Async, Garbage, Record, Result, Stream

pytestmark = pytest.mark.unit


def soon() -> Deadline:
    return Deadline(10.0)


class Talk:
    def __init__(self) -> None:
        self.gdb = FakeTransport()
        self.told: list[Record] = []
        self.deaths: list[GdbDied] = []
        self.connection = Connection(
            self.gdb, rank=3, subscriber=self.told.append, on_death=self.deaths.append
        )

    async def send(self, *commands: str) -> list[asyncio.Task[Result]]:
        """Start commands and wait until all are written."""
        tasks = [asyncio.create_task(self.connection.command(each, soon())) for each in commands]
        await turn()
        return tasks


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest_asyncio.fixture
async def talk() -> AsyncIterator[Talk]:
    talk = Talk()
    yield talk
    await talk.connection.close(soon())
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not {task for task in others if not task.done()}


async def test_answers_find_their_commands_in_any_order(talk: Talk) -> None:
    for order in itertools.permutations(range(3)):
        tasks = await talk.send("-a", "-b", "-c")
        tokens = [token for token, _ in talk.gdb.commands[-3:]]
        for each in order:
            talk.gdb.say(f'{tokens[each]}^done,n="{each}"')
        results = await asyncio.gather(*tasks)
        assert [result.payload.number("n") for result in results] == [0, 1, 2]


async def test_fifty_commands_are_under_way_at_once(talk: Talk) -> None:
    tasks = await talk.send(*(f"-x {n}" for n in range(50)))
    assert len(talk.gdb.commands) == 50
    for token, text in talk.gdb.commands:
        talk.gdb.say(f'{token}^done,v="{text}"', "(gdb) ")
    results = await asyncio.gather(*tasks)
    assert [result.payload.text("v") for result in results] == [f"-x {n}" for n in range(50)]


async def test_an_error_has_gdbs_message_in_full(talk: Talk) -> None:
    (task,) = await talk.send("-exec-finish")
    talk.gdb.say('1^error,msg="\\"finish\\" not meaningful in the outermost frame."')
    with pytest.raises(GdbError) as caught:
        await task
    assert caught.value.problem == '"finish" not meaningful in the outermost frame.'
    assert caught.value.command == "-exec-finish"
    assert caught.value.ranks == RankSet.of([3])


async def test_async_records_keep_their_order_and_come_before_the_answers_reader(
    talk: Talk,
) -> None:
    (task,) = await talk.send("-exec-continue")
    talk.gdb.say("1^running", '*running,thread-id="all"', '*stopped,reason="exited-normally"')
    assert (await task).kind == "running"
    assert [each.name for each in talk.told if isinstance(each, Async)] == ["running", "stopped"]


async def test_text_belongs_to_the_console_command_under_way(talk: Talk) -> None:
    first = asyncio.create_task(talk.connection.console("print x", soon()))
    second = asyncio.create_task(talk.connection.console('print "é\\"', soon()))
    await turn()
    assert talk.gdb.texts() == [
        '-interpreter-exec console "print x"',
        '-interpreter-exec console "print \\"é\\\\\\""',
    ]
    talk.gdb.say('~"$1 = "', '~"5\\n"', "1^done", '~"$2 = 6\\n"', '&"warning: w\\n"', "2^done")
    talk.gdb.say('~"later\\n"')
    assert await first == "$1 = 5\n"
    assert await second == "$2 = 6\nwarning: w\n"
    await turn()
    # what a stop says comes between: the subscriber hears all that is on the console
    told = ["$1 = ", "5\n", "$2 = 6\n", "later\n"]
    assert talk.told == [Stream("console", text) for text in told]


async def test_text_during_a_plain_command_belongs_to_nobody(talk: Talk) -> None:
    (task,) = await talk.send("-exec-run")
    talk.gdb.say('~"Starting\\n"', "1^done")
    await task
    assert talk.told == [Stream("console", "Starting\n")]


async def test_text_of_a_command_that_nobody_waits_for_is_not_the_next_ones(talk: Talk) -> None:
    with pytest.raises(DeadlineExpired) as caught:
        await talk.connection.console("slow", Deadline(0.0))
    assert "gdb's answer to 'slow'" in str(caught.value)
    assert talk.connection.busy == "slow"
    task = asyncio.create_task(talk.connection.console("quick", soon()))
    await turn()
    talk.gdb.say('~"slow text"', "1^done", '~"quick text"', "2^done")
    assert await task == "quick text"
    assert talk.connection.busy is None


async def test_garbage_is_reported_unchanged(talk: Talk) -> None:
    (task,) = await talk.send("-a")
    talk.gdb.say("who prints here?", b"\xff\xfe", "1^done")
    await task
    assert talk.told == [Garbage("who prints here?"), Garbage("\\xff\\xfe")]


async def test_an_answer_after_garbage_is_found(talk: Talk) -> None:
    (task,) = await talk.send("-a")
    talk.gdb.say('no newline 99^done 1^done,v="1"')
    assert (await task).payload.text("v") == "1"
    assert talk.told == [Garbage("no newline 99^done ")]


async def test_an_answer_that_cannot_be_read_fails_its_command(talk: Talk) -> None:
    (task, other) = await talk.send("-a", "-b")
    talk.gdb.say("1^done,value=[", "2^done")
    with pytest.raises(GdbError, match="cannot be read: 1\\^done,value="):
        await task
    await other


async def test_an_answer_without_a_command_is_reported(talk: Talk) -> None:
    (task,) = await talk.send("-a")
    talk.gdb.say("77^done", "^done", "1^done")
    await task
    assert talk.told == [Result(77, "done"), Result(None, "done")]


async def test_the_end_wakes_every_waiter(talk: Talk) -> None:
    tasks = await talk.send("-a", "-b", "-c")
    console = asyncio.create_task(talk.connection.console("print x", soon()))
    await turn()
    talk.gdb.words = "internal-error: no\n"
    talk.gdb.end(-11)
    for task, command in zip([*tasks, console], ["-a", "-b", "-c", "print x"], strict=True):
        with pytest.raises(GdbDied) as caught:
            await task
        assert caught.value.command == command
        assert caught.value.status == -11
        assert caught.value.ranks == RankSet.of([3])
        assert "internal-error: no" in str(caught.value)
    assert [death.command for death in talk.deaths] == ["-a"]


async def test_what_gdb_said_before_its_end_counts(talk: Talk) -> None:
    first, second = await talk.send("-a", "-b")
    talk.gdb.say("1^done", '*stopped,reason="exited"')
    talk.gdb.end()
    assert (await first).kind == "done"
    with pytest.raises(GdbDied):
        await second
    assert isinstance(talk.told[0], Async)


async def test_after_the_end_every_command_fails_at_once(talk: Talk) -> None:
    talk.gdb.end(0)
    await turn()
    with pytest.raises(GdbDied, match="exit status 0\\) during '-a'"):
        await talk.connection.command("-a", soon())
    with pytest.raises(GdbDied, match="during 'print x'"):
        await talk.connection.console("print x", soon())
    assert talk.gdb.commands == []


async def test_a_deadline_names_command_and_rank(talk: Talk) -> None:
    with pytest.raises(DeadlineExpired, match="rank 3: waited 0 s for gdb's answer to '-a'"):
        await talk.connection.command("-a", Deadline(0.0))


@pytest.mark.parametrize("command", ["-a\n-b", "-a\r", "-a\0"])
async def test_a_command_is_one_line(talk: Talk, command: str) -> None:
    with pytest.raises(BadInput):
        await talk.connection.command(command, soon())
    if "\0" not in command:
        with pytest.raises(BadInput):
            await talk.connection.console(command, soon())


async def test_breaking_in_only_when_gdb_is_at_something(talk: Talk) -> None:
    talk.connection.break_in()
    assert talk.gdb.interrupts == 0
    await talk.send("-a")
    talk.connection.break_in()
    assert talk.gdb.interrupts == 1
    talk.gdb.say("1^done")
    await turn()


async def test_closing_twice_asks_once(talk: Talk) -> None:
    await talk.connection.close(soon())
    await talk.connection.close(soon())
    assert talk.gdb.texts() == ["-gdb-exit"]
    assert talk.gdb.closed


async def test_closing_wakes_waiters(talk: Talk) -> None:
    (task,) = await talk.send("-a")
    await talk.connection.close(soon())
    with pytest.raises(GdbDied):
        await task


async def test_a_fault_of_the_subscriber_is_not_a_hang() -> None:
    gdb = FakeTransport()

    def fault(record: Record) -> None:
        raise RuntimeError("a bug")

    connection = Connection(gdb, rank=0, subscriber=fault)
    task = asyncio.create_task(connection.command("-a", soon()))
    await turn()
    gdb.say("=x")
    with pytest.raises(GdbDied, match="cannot be read any more: RuntimeError"):
        await task
    with pytest.raises(RuntimeError):
        await connection.close(soon())

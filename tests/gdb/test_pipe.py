"""The subprocess of a connection: lines of any length, and an end that is always noticed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from processes import soon

from crdebug.base.errors import NotAvailable
from crdebug.node import proc
from crdebug.node.pipe import Pipe


async def lines(pipe: Pipe) -> list[bytes]:
    found = []
    while line := await soon().wait(pipe.readline(), "a line"):
        found.append(line)
    return found


async def python(code: str) -> Pipe:
    return await Pipe.start([sys.executable, "-c", code])


async def test_lines_and_the_rest_and_the_end() -> None:
    pipe = await python("import sys; sys.stdout.write('a\\n\\nb\\nrest'); sys.exit(3)")
    assert await lines(pipe) == [b"a\n", b"\n", b"b\n", b"rest"]
    assert await lines(pipe) == []
    assert await pipe.wait() == 3
    assert await pipe.close(soon()) == 3


async def test_a_line_of_any_length() -> None:
    size = 20_000_000
    pipe = await python(f"print('x' * {size}); print('end')")
    assert [len(line) for line in await lines(pipe)] == [size + 1, 4]
    await pipe.close(soon())


async def test_it_is_out_of_reach_of_ctrl_c_and_in_our_session() -> None:
    pipe = await python("input()")
    assert os.getpgid(pipe.pid) == pipe.pid
    assert os.getsid(pipe.pid) == os.getsid(0)
    await pipe.close(soon())


async def test_what_is_written_arrives() -> None:
    pipe = await python("import sys; [print(l.strip()[::-1], flush=True) for l in sys.stdin]")
    pipe.write(b"abc\n")
    assert await soon().wait(pipe.readline(), "an answer") == b"cba\n"
    # At the end of its input it ends by itself.
    assert await pipe.close(soon()) == 0
    pipe.write(b"nobody\n")
    assert await pipe.readline() == b""


async def test_a_child_that_keeps_the_pipe_open_does_not_hide_the_end() -> None:
    pipe = await python(
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.read(0, 1); os._exit(0)\n"
        "print('parent', flush=True); os._exit(7)"
    )
    assert await lines(pipe) == [b"parent\n"]
    assert await pipe.wait() == 7
    # The child ends with its input, which is closed now.
    await pipe.close(soon())


async def test_killed_it_does_not_leave_a_stopped_child() -> None:
    """As GDB leaves it when it is killed while it tries ptrace: the child stops after that."""
    pipe = await python(
        "import os, signal\n"
        "parent = os.getpid()\n"
        "if child := os.fork():\n"
        "    print(child, flush=True)\n"
        "    signal.pause()\n"
        "while os.getppid() == parent:\n"
        "    pass\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    child = int(await soon().wait(pipe.readline(), "the child"))
    os.kill(pipe.pid, signal.SIGKILL)
    assert await pipe.wait() == -signal.SIGKILL
    await soon().until(lambda: not proc.is_alive(child), "the child to end")
    await pipe.close(soon())


async def test_last_words() -> None:
    pipe = await python("import sys; sys.stderr.write('x' * 10000 + 'the reason\\n'); sys.exit(1)")
    assert await lines(pipe) == []
    assert pipe.last_words().endswith("the reason")
    assert len(pipe.last_words()) < 5000
    await pipe.close(soon())


async def test_its_output_does_not_end_before_its_last_words() -> None:
    """A process closes one descriptor after the other when it ends."""
    pipe = await python(
        "import os, sys; os.close(1); input(); os.write(2, b'the reason'); os._exit(1)"
    )
    reading = asyncio.create_task(lines(pipe))
    output = Path(f"/proc/{pipe.pid}/fd/1")
    await soon().until(lambda: not os.path.lexists(output), "its output to be closed")
    pipe.write(b"\n")
    assert await reading == []
    assert pipe.last_words() == "the reason"
    await pipe.close(soon())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_death_by_signal_is_a_negative_status(number: signal.Signals) -> None:
    pipe = await python("print('there', flush=True); input()")
    assert await soon().wait(pipe.readline(), "a line") == b"there\n"
    os.kill(pipe.pid, number)
    assert await lines(pipe) == []
    assert await pipe.wait() == -number
    assert await pipe.close(soon()) == -number


async def test_one_that_ignores_everything_is_killed() -> None:
    pipe = await python(
        "import signal, threading\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('there', flush=True)\n"
        "threading.Event().wait()"
    )
    assert await soon().wait(pipe.readline(), "a line") == b"there\n"
    assert await pipe.close(type(soon())(1.0)) == -signal.SIGKILL


async def test_interrupt() -> None:
    pipe = await python(
        "import threading\n"
        "try:\n"
        "    print('there', flush=True); threading.Event().wait()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)"
    )
    assert await soon().wait(pipe.readline(), "a line") == b"there\n"
    pipe.interrupt()
    assert await lines(pipe) == [b"interrupted\n"]
    await pipe.wait()
    pipe.interrupt()
    await pipe.close(soon())


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(NotAvailable, match="cannot start no-such-program: No such file"):
        await Pipe.start(["no-such-program"])


async def test_closing_from_two_sides() -> None:
    pipe = await python("input()")
    statuses = await asyncio.gather(pipe.close(soon()), pipe.close(soon()))
    assert statuses[0] == statuses[1]

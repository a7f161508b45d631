"""Snapshots that cannot be put back, and the reasons: nothing is done to the process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from past import Open, look, run, run_to_end
from processes import copies, soon, until_gone

from crdebug.base.errors import BadInput, GdbError, Refused
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import TargetState


async def expect_refused(target: GdbTarget, what: str) -> None:
    """It is refused for this reason, and nothing has changed."""
    before = await look(target)
    told = await target.put_back_obstacles("here", soon())
    assert any(what in each for each in told), told
    with pytest.raises(Refused, match="cannot go back in memory") as refused:
        await target.put_back("here", soon())
    assert all(each in str(refused.value) for each in told)
    before.expect_same(await look(target))
    assert target.state is TargetState.STOPPED


async def test_a_file_goes_back_unless_others_wrote_to_it(open_past: Open, tmp_path: Path) -> None:
    target, _ = await open_past(f"file={tmp_path / 'out'}", "kernel=3", "steps=9")
    await target.keep("here", (), soon())
    await run(target)
    await target.put_back("here", soon())
    await run(target, 2)
    await expect_refused(target, f"({tmp_path / 'out'}) is new")
    await target.keep("here", (), soon())
    assert await target.put_back_obstacles("here", soon()) == ()
    here = await look(target)
    written = (tmp_path / "out").read_bytes()
    for _ in range(2):
        await run(target)
        assert len((tmp_path / "out").read_bytes()) > len(written)
        await target.put_back("here", soon())
        assert (tmp_path / "out").read_bytes() == written
        here.expect_same(await look(target))
    with (tmp_path / "out").open("a") as file:
        file.write("somebody else's")
        file.flush()
        await expect_refused(target, "was written to")
        await run(target)
        await expect_refused(target, "was written to, and not by this process alone")
    assert (await run_to_end(target)).detail == "0"


async def test_refused_when_there_is_another_thread(open_past: Open) -> None:
    target, _ = await open_past("kernel=3", "steps=9")
    await target.keep("here", (), soon())
    await run(target, 2)
    await expect_refused(target, "is new")
    assert (await run_to_end(target)).detail == "0"


async def test_refused_when_a_thread_had_not_set_itself_up_yet(open_past: Open) -> None:
    """Like a new thread that has just begun; glibc ends a process in which this happens twice."""
    target, _ = await open_past("robust", "kernel=3", "steps=9")
    await target.keep("here", (), soon())
    await run(target)
    await target.put_back("here", soon())
    await run(target, 2)
    await expect_refused(target, "has set itself up since")
    assert (await run_to_end(target)).detail == "0"


async def test_no_snapshot_at_the_entry_of_a_system_call(open_past: Open) -> None:
    target, _ = await open_past("calls", "steps=9")
    await target.console("delete", soon())
    await target.console("catch syscall nanosleep clock_nanosleep", soon())
    await run(target)
    with pytest.raises(GdbError, match="enters a system call"):
        await target.keep("here", (), soon())
    assert (await run_to_end(target)).detail == "0"


async def test_refused_when_a_new_signal_is_pending(open_past: Open) -> None:
    target, process = await open_past()
    await target.keep("here", (), soon())
    process.signal(signal.SIGUSR1)  # which the program blocks
    await expect_refused(target, "other signals are pending")


async def test_refused_after_a_signal_from_elsewhere_that_would_be_lost(open_past: Open) -> None:
    target, process = await open_past("steps=9")
    await target.keep("here", (), soon())
    process.signal(signal.SIGUSR2)
    stop = await run(target)
    assert stop.detail == "SIGUSR2"
    await expect_refused(target, "was sent SIGUSR2")


async def test_a_snapshot_ends_with_the_gdbs_hold_of_the_process(open_past: Open) -> None:
    target, process = await open_past("steps=1000000000000")
    await target.keep("here", (), soon())
    before = copies(target)
    assert before
    await target.detach(soon())
    await until_gone(before)
    with pytest.raises(Refused, match="not attached"):
        await target.put_back("here", soon())
    await target.attach(process.pid, soon())
    with pytest.raises(BadInput, match="no snapshot 'here' of this process"):
        await target.put_back("here", soon())
    with pytest.raises(BadInput, match="not a name"):
        await target.keep("a b", (), soon())
    await target.keep("b", (), soon())
    await target.console("delete", soon())
    await target.resume(soon())
    with pytest.raises(Refused, match="running"):
        await target.put_back("b", soon())
    await target.interrupt(soon())
    await target.put_back("b", soon())

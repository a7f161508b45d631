"""Snapshots as frozen copies of the process: exact, unnoticed, and gone when they should be."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest
import pytest_asyncio
from past import PARTS, Look, Open, look, run, run_to_end, step_number
from processes import Process, compiled, copies, kill_gdb, number, soon, until_gone

from crdebug.base.errors import GdbDied, GdbError, Refused
from crdebug.base.events import StopReason
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.target import BreakpointRequest, TargetState
from crdebug.node import proc
from harness.nobody import become, needs_root, public  # noqa: F401

PAGES = "python import crdebug_gdb.snapshot.pages as pages"
PICTURE = "python import crdebug_gdb.snapshot.picture as picture"
# The view of a user without privileges, that of kernels before Linux 6.7, and no copy at all.
WAYS = {
    "numbers": (),
    "no numbers": (PAGES, "python pages.sees_numbers = lambda: False"),
    "no scan": (
        *(PAGES, PICTURE),
        "python pages.own_pages_scanned = picture.own_pages_scanned = lambda *_, **__: None",
    ),
    "copied": (
        PICTURE,
        "python def refuse(*_): raise OSError(12, 'no memory for it')",
        "python picture.make = refuse",
    ),
}

OpenMoves = Callable[..., Awaitable[GdbTarget]]


@pytest.fixture(scope="session")
def moves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/moves.c, compiled; and a file for it."""
    executable = compiled("moves", tmp_path_factory, "-O1")
    (executable.parent / "content").write_bytes(random.Random(1).randbytes(64 * 4096))
    return executable


@pytest.fixture(scope="session")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/blocks.c, compiled."""
    return compiled("blocks", tmp_path_factory, "-O1")


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/kinds.c, compiled."""
    return compiled("kinds", tmp_path_factory, "-O1")


@pytest.fixture
def huge_pages() -> Iterator[None]:
    """The machine has one that is free; a snapshot needs none."""
    told = Path("/proc/sys/vm/nr_hugepages")
    before = told.read_text()
    told.write_text(str(int(before) + 1))
    if told.read_text() == before:
        pytest.skip("the kernel has no free memory in one piece for a huge page")
    yield
    told.write_text(before)


@pytest_asyncio.fixture
async def open_moves(moves: Path, past_processes: list[Process]) -> AsyncIterator[OpenMoves]:
    """Start moves.c under a GDB, at its first step."""
    targets: list[GdbTarget] = []
    home = resources.files("crdebug.gdbscripts")

    async def start(
        seed: int,
        way: str = "numbers",
        reserve: int = 0,
        user: Callable[[], None] | None = None,
        program: Path | None = None,
    ) -> GdbTarget:
        content = (program or moves).parent / "content"
        arguments = (str(seed), "1000", str(reserve), str(content))
        process = Process(program or moves, *arguments, user=user)
        past_processes.append(process)
        scripts = program.parent / "gdbscripts" if user and program else Path(str(home))
        target = await GdbTarget.launch(0, soon(), scripts=[scripts / "load.py"])
        targets.append(target)
        for command in (PARTS, *WAYS[way]):
            await target.console(command, soon())
        await target.attach(process.pid, soon())
        process.signal(signal.SIGUSR1)
        await target.insert_breakpoint(BreakpointRequest("tick"), soon())
        await run(target)
        return target

    yield start
    for target in targets:
        await target.close(soon())


# ---- exact ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [1, *(pytest.param(s, marks=pytest.mark.sweep) for s in (2, 3))])
async def test_however_memory_changes_every_snapshot_is_put_back_whole(
    open_moves: OpenMoves, seed: int, way: str
) -> None:
    target, chance = await open_moves(seed, way), random.Random(seed)
    kept: dict[str, tuple[int, Look]] = {}
    sums: dict[int, int] = {}

    async def forward(count: int) -> None:
        for _ in range(count):
            await run(target)
            now, found = await step_number(target), await number(target, "sum")
            assert sums.setdefault(now, found) == found, f"step {now} is another one now"

    for turn in range(18):
        if len(kept) < 5 and chance.random() < 0.5:
            told = await target.keep(name := f"s{turn}", (), soon())
            assert told.frozen is (way != "copied")
            kept[name] = (await step_number(target), await look(target))
        elif kept:
            name = chance.choice(list(kept))
            step, before = kept[name]
            assert await target.put_back_obstacles(name, soon()) == ()
            await target.put_back(name, soon())
            assert await step_number(target) == step
            before.expect_same(await look(target))
            if chance.random() < 0.2:
                await target.forget(name, soon())
                del kept[name]
        await forward(chance.randrange(1, 9))
    assert (await run_to_end(target)).detail == "0"  # it never saw a child


# ---- unseen -----------------------------------------------------------------------------------


async def test_neither_the_program_nor_a_look_at_its_processes_sees_the_copies(
    open_past: Open,
) -> None:
    target, process = await open_past("calls", "steps=9")
    maps, files = proc.maps_text(process.pid), sorted(os.listdir(f"/proc/{process.pid}/fd"))
    for name in "abc":
        assert (await target.keep(name, (), soon())).frozen
    assert len(copies(target)) == 3
    for tid in proc.tids(process.pid):
        assert not Path(f"/proc/{process.pid}/task/{tid}/children").read_text()
    assert proc.maps_text(process.pid) == maps
    assert sorted(os.listdir(f"/proc/{process.pid}/fd")) == files
    for pid in copies(target):
        assert proc.status(pid)["PPid"] != str(process.pid)
        assert not proc.is_alive(pid)
        assert not os.listdir(f"/proc/{thread_of(pid)}/fd")
        assert Path(f"/proc/{thread_of(pid)}/oom_score_adj").read_text() == "1000\n"
    assert not set(copies(target)) & set(proc.processes_in_namespace_of(process.pid))
    assert (await run_to_end(target)).detail == "0"


async def test_a_call_that_is_interrupted_for_a_copy_goes_on_as_if_it_had_not_been(
    blocks: Path, past_processes: list[Process]
) -> None:
    process, chance = Process(blocks, "40"), random.Random(7)
    past_processes.append(process)
    home = resources.files("crdebug.gdbscripts")
    target = await GdbTarget.launch(0, soon(), scripts=[Path(str(home / "load.py"))])
    try:
        await target.console(PARTS, soon())
        await target.attach(process.pid, soon())
        process.signal(signal.SIGUSR1)
        interrupted = set()
        while target.state is not TargetState.EXITED:
            await target.resume(soon())
            await asyncio.sleep(chance.uniform(0.001, 0.02))  # anywhere in its calls
            stop = await target.interrupt(soon())
            if stop.reason is StopReason.EXITED:
                break
            interrupted.add(await target.evaluate("$orig_rax", soon()))
            await target.keep("a", (), soon())
        assert target.last_stop is not None
        assert target.last_stop.detail == "0"
        assert len(interrupted) > 5
    finally:
        await target.close(soon())


def thread_of(pid: int) -> int:
    (found,) = (tid for tid in proc.tids(pid) if tid != pid)
    return found


# ---- their end --------------------------------------------------------------------------------


async def test_a_copy_ends_when_it_is_forgotten_with_a_detach_and_with_the_process(
    open_past: Open,
) -> None:
    target, process = await open_past("steps=1000000000000")
    for name in "abcd":
        await target.keep(name, (), soon())
    await target.keep("d", (), soon())  # instead of the other
    await soon().until(lambda: len(copies(target)) == 4, "the one that was replaced to be gone")
    before = copies(target)
    await target.forget("b", soon())
    await soon().until(lambda: len(copies(target)) == 3, "one copy to be gone")
    await target.put_back("a", soon())
    await target.detach(soon())
    await until_gone(before)
    await target.attach(process.pid, soon())
    await target.keep("here", (), soon())
    before = copies(target)
    await target.console("delete", soon())
    await target.resume(soon())
    process.signal(signal.SIGKILL)
    await soon().wait(target.stopped(), "its end")
    await until_gone(before)


async def test_the_copies_end_with_their_gdb_and_the_process_goes_on(open_past: Open) -> None:
    target, process = await open_past("steps=1000000000000")
    await target.keep("a", (), soon())
    await target.keep("b", (), soon())
    before = copies(target)
    assert len(before) == 2
    kill_gdb(target)
    await until_gone(before)
    await soon().until(lambda: process.fields()["TracerPid"] == "0", "the process to be let go")
    assert not proc.is_zombie(process.pid)


async def test_a_killed_copy_is_reported_and_the_others_still_lead_back(
    open_past: Open,
) -> None:
    target, _ = await open_past("steps=20")
    await target.keep("first", (), soon())
    (first,) = copies(target)
    await run(target, 2)
    await target.keep("second", (), soon())
    before = await look(target)
    os.kill(first, signal.SIGKILL)
    await until_gone([first])
    await run(target, 2)
    told = await target.put_back_obstacles("first", soon())
    assert told == ("its frozen copy was ended, as happens first when memory is short",)
    with pytest.raises(Refused, match="when memory is short"):
        await target.put_back("first", soon())
    assert (await target.kept_sizes(soon()))["first"] == 0
    await target.put_back("second", soon())
    before.expect_same(await look(target))
    await target.forget("first", soon())
    assert (await run_to_end(target)).detail == "0"


# Between the first instruction that is not the program's and the return from the last system call.
DIES = """python
import os, crdebug_gdb.snapshot.frozen as frozen, crdebug_gdb.snapshot.kernel as kernel
frozen.code.SECONDS, made, ptrace, cloned = 1, [], kernel.ptrace, frozen.cloned
def counted(*words):
    made.append(words)
    if len(made) == {at}:
        os.kill(os.getpid(), 9)
    ptrace(*words)
def with_counts(*words):
    frozen.ptrace = kernel.ptrace = counted
    try:
        return cloned(*words)
    finally:
        frozen.ptrace = kernel.ptrace = ptrace
frozen.cloned = with_counts
end"""


async def test_wherever_a_gdb_dies_as_it_makes_a_copy_the_process_goes_on_and_no_copy_is_left(
    open_past: Open, tmp_path: Path
) -> None:
    """At each step in which the process executes code that is not its own."""
    # It waits for the one at first, and blocks the other in every second step.
    program_may_block = 1 << (signal.SIGUSR1 - 1) | 1 << (signal.SIGRTMIN + 3 - 1)
    for at in range(1, 100):
        target, process = await open_past("mib=8", "steps=1000000000000")
        (tmp_path / "dies").write_text(DIES.format(at=at))
        await target.console(f"source {tmp_path / 'dies'}", soon())
        try:
            await target.keep("a", (), soon())
        except GdbDied:
            pass
        else:
            break
        await soon().until(lambda: process.fields()["TracerPid"] == "0", "it to be let go")  # noqa: B023
        again = await GdbTarget.launch(0, soon())
        try:
            await again.attach(process.pid, soon())
            step = await step_number(again)
            await again.insert_breakpoint(BreakpointRequest("tick"), soon())
            await run(again, 3)
            assert await step_number(again) in range(step + 2, step + 4)
            still = int(process.fields()["SigBlk"], 16)
            assert still & ~program_may_block == 0, f"{still:x} after death {at}"
            await soon().until(lambda: not forgotten(process.pid), "the copy to end by itself")  # noqa: B023
        finally:
            await again.close(soon())
        process.end()
    assert at > 8


def forgotten(pid: int) -> list[int]:
    """Copies of a process's memory that no GDB holds: they have its program."""
    found = []
    for other in proc.pids():
        try:
            same = os.readlink(f"/proc/{other}/exe") == os.readlink(f"/proc/{pid}/exe")
        except OSError:
            continue
        if same and other != pid and not proc.is_zombie(other):
            found.append(other)
    return found


# ---- without a copy ----------------------------------------------------------------------------


async def test_without_a_frozen_copy_no_more_is_copied_than_the_bound(
    open_moves: OpenMoves,
) -> None:
    target = await open_moves(1, "copied")
    held = await target.keep("a", (), soon())
    assert not held.frozen
    with pytest.raises(GdbError, match=r"more than 4 MiB, and .* no memory for it") as refused:
        await target.keep("b", (), soon(), most=4 << 20)
    assert "cannot be kept" in str(refused.value)
    assert list(await target.kept_sizes(soon())) == ["a"]
    assert (await target.keep("b", (), soon(), most=64 << 20)).changed < held.bytes / 4


async def test_little_is_copied_beside_a_frozen_copy(open_moves: OpenMoves) -> None:
    target = await open_moves(1)
    for _ in range(3):
        told = await target.keep("a", (), soon(), most=1 << 20)
        assert told.frozen
        assert told.bytes > 8 << 20
        await run(target, 5)


# ---- what it costs ------------------------------------------------------------------------------


async def test_a_reservation_of_terabytes_takes_no_time_in_proportion(
    open_moves: OpenMoves,
) -> None:
    """Compared with the same without it, by turns."""
    both = [await open_moves(1), await open_moves(1, reserve=2 << 20)]
    taken: list[list[float]] = [[], []]
    for turn in range(7):
        for target, times in zip(both, taken, strict=True):
            begun = time.monotonic()
            await target.keep("a", (), soon())
            await run(target, 2)
            await target.put_back("a", soon())
            times.append(time.monotonic() - begun)
            await run(target, turn + 1)
    assert sorted(taken[1])[3] < 3 * sorted(taken[0])[3] + 0.1, taken


async def test_a_snapshot_holds_only_the_pages_changed_since(open_past: Open) -> None:
    target, _ = await open_past("mib=64")
    told = await target.keep("a", (), soon())
    assert min(told.bytes, told.changed) > 64 << 20
    first = (await target.kept_sizes(soon()))["a"]
    assert first < 2 << 20
    await run(target, 3)
    later = await target.kept_sizes(soon())
    assert first <= later["a"] < 8 << 20


# ---- another user -------------------------------------------------------------------------------


@needs_root
async def test_a_user_without_privileges_goes_back_as_exactly(
    moves: Path,
    open_moves: OpenMoves,
    public: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gdb = shutil.which("gdb")
    (public / "gdb").write_text(
        f'#!/bin/sh\nexec setpriv --reuid=nobody --regid=nogroup --clear-groups {gdb} "$@"\n'
    )
    (public / "gdb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{public}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(public))
    for path in (moves, moves.parent / "content"):
        shutil.copy(path, public)
    shutil.copytree(str(resources.files("crdebug.gdbscripts")), public / "gdbscripts")
    target = await open_moves(5, user=become, program=public / "moves")
    assert proc.status(target.gdb_pid)["Uid"].split()[0] != "0"
    kept = {}
    for name in "abc":
        assert (await target.keep(name, (), soon())).frozen
        kept[name] = (await step_number(target), await look(target))
        await run(target, 6)
    for name in "bacab":
        await target.put_back(name, soon())
        step, before = kept[name]
        assert await step_number(target) == step
        before.expect_same(await look(target))
        await run(target, 4)
    assert (await run_to_end(target)).detail == "0"


# ---- what only the kernel has, and memory of another kind ----------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (0, "its child processes have run since"),
        (1, "parts of the heap have another protection"),
        (2, "its user, groups, umask or system call filter have changed"),
        (3, "(anon_inode:[timerfd])"),
    ],
)
async def test_what_only_the_kernel_has_is_compared(
    open_moves: OpenMoves, kinds: Path, kind: int, words: str
) -> None:
    target = await open_moves(kind, program=kinds)
    await target.keep("here", (), soon())
    assert await target.put_back_obstacles("here", soon()) == ()
    await run(target, 2)
    told = await target.put_back_obstacles("here", soon())
    assert any(words in each for each in told), told
    assert (await run_to_end(target)).detail == "0"


@needs_root
async def test_private_huge_pages_are_put_back_too(
    open_moves: OpenMoves, kinds: Path, huge_pages: None
) -> None:
    target = await open_moves(4, program=kinds)
    await run(target)
    assert (await target.keep("here", (), soon())).frozen
    await run(target, 3)
    await target.put_back("here", soon())
    assert await step_number(target) == 2
    assert (await run_to_end(target)).detail == "0"  # it compares all of it in each step

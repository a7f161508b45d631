"""Core files of a job, opened as its ranks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from processes import compiled

from crdebug.acquire.core_ranks import find_cores
from crdebug.base.errors import BadInput, CrdebugError, Refused
from crdebug.base.events import Event, GroupStopped, JobSays, StopReason
from crdebug.session import Session
from harness.cli import crdebug
from harness.cores import by_gdb
from harness.talk import Talk

RANKS = 3


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranks' core files, whose names are in another order, one of them with a blank."""
    program = compiled("crashes", tmp_path_factory)
    place = tmp_path_factory.mktemp("cores")
    for rank in range(RANKS):
        name = "core 9" if rank == 1 else f"core.{RANKS - rank}"
        by_gdb(program, place / name, {"PMIX_RANK": str(rank)}, str(rank))
    return place


@pytest_asyncio.fixture
async def job(directory: Path) -> AsyncIterator[tuple[Session, list[Event]]]:
    told: list[Event] = []
    session = await Session.of_core_files([directory], subscriber=told.append)
    yield session, told
    await session.close()


async def test_how_each_rank_ended(job: tuple[Session, list[Event]]) -> None:
    session, told = job
    assert session.ranks.words == "ranks 0-2"
    assert told[1] == JobSays("core files of ranks 0-2, by PMIX_RANK in their environment")
    stops = {s.rank: s for each in told if isinstance(each, GroupStopped) for s in each.cause}
    assert {rank: (s.reason, s.detail) for rank, s in stops.items()} == {
        0: (StopReason.SIGNAL, "SIGSEGV"),
        1: (StopReason.SIGNAL, "SIGFPE"),
        2: (StopReason.SIGNAL, "SIGSEGV"),
    }
    assert [s.location and s.location.function for s in stops.values()] == [
        "store",
        "divide",
        "store",
    ]
    await session.close()
    assert len(told) == 3  # GDB's own words are of no use


async def test_the_commands_that_look(job: tuple[Session, list[Event]]) -> None:
    talk = Talk(job[0])
    assert await talk("print cells[0].values") == "[0-2] = {0.5, 1.5, 2.5}"
    assert "[0,2]\n  #0   store (...) at " in await talk("backtrace")
    tree = await talk("stack")
    assert tree.startswith("[0-2] 3 ranks\n  main at ") and "├ [0,2] 2 ranks" in tree
    compared = await talk("compare my_rank / 2 + (my_rank == 1) * 5")
    assert "[1]" in compared
    assert "42" in await talk("info table my_rank, step")
    assert "[1] = 8" in await talk("[where my_rank == 1] print cells[1].step")
    assert "core file core 9" in await talk("info ranks")
    assert "0-2 are not in MPI" in await talk("why-blocked")
    assert "work (step=41)" in await talk("[1] up")
    assert "my_rank" in await talk("list work")


async def test_what_needs_a_process_is_refused_in_words(job: tuple[Session, list[Event]]) -> None:
    talk = Talk(job[0])
    for line in (
        *("continue", "step", "finish", "until", "interrupt", "barrier work", "wait", "pybt"),
        *("break work", "watch my_rank", "catch throw", "call abort()", "set var my_rank = 3"),
        *("checkpoint", "restart", "reverse-step", "goto tick 3", "last my_rank", "timeline"),
        *("kill", "detach", "send x", "check"),
    ):
        with pytest.raises(Refused, match="needs a process, and a core file cannot run"):
            await talk(line)


async def test_so_it_is_by_the_verbs_and_by_gdb(job: tuple[Session, list[Event]]) -> None:
    session, _ = job
    with pytest.raises(Refused, match="a core file cannot run"):
        await session.resume(session.ranks)
    for line in ("run", "start", "attach 1", "detach", "core-file", "kill", "file"):
        with pytest.raises(Refused, match=f"cannot {line}: a core file cannot run"):
            await session.gdb(session.ranks, line)
    for line in ("continue", "stepi", "call divide(3)"):
        assert len((await session.gdb(session.ranks, line)).errors) == RANKS
    with pytest.raises(CrdebugError, match="without a process"):
        await Talk(session)("print divide(3)")
    assert await Talk(session)("print my_rank == 0") == "[1-2] = 0\n[0] = 1"


async def test_one_that_gdb_cannot_read_does_not_spoil_the_others(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executable of one is not a program any more."""
    found = find_cores([directory])
    broken = replace(found, program={**found.program, 1: "/etc/passwd"})
    monkeypatch.setattr("crdebug.session.session.find_cores", lambda *_: broken)
    told: list[Event] = []
    session = await Session.of_core_files([directory], subscriber=told.append)
    try:
        assert any(isinstance(each, JobSays) and "rank 1: " in each.text for each in told)
        shown = await Talk(session)("print cells[0].step")
        assert shown == "[0,2] = 7\n[1] can show nothing without a process"
    finally:
        await session.close()


async def test_in_the_shell(directory: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("stack --function-only\nprint my_rank\n")
    ran = await crdebug("core", "--batch", "-x", script, directory)
    first, second, *_ = ran.stdout.splitlines()
    assert first == "core files of ranks 0-2, by PMIX_RANK in their environment"
    assert second.startswith("ranks 0,2 got SIGSEGV: store at ")
    assert "[0] = 0" in ran.stdout and "killed" not in ran.stdout
    refused = await crdebug("core", "--batch", "-x", script, tmp_path, status=1)
    assert f"there is no core file in {tmp_path}" in refused.stderr.splitlines()[-1]


async def test_the_files_are_as_before(directory: Path) -> None:
    before = {each: each.stat().st_mtime_ns for each in directory.iterdir()}
    session = await Session.of_core_files(list(before))
    await session.close()
    assert {each: each.stat().st_mtime_ns for each in directory.iterdir()} == before
    with pytest.raises(BadInput, match="there is no file"):
        await Session.of_core_files([directory / "none"])

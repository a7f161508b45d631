"""Checkpoints of jobs that crdebug did not start: they have no container, and get the shim
later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable, Refused
from crdebug.base.events import JobSays
from crdebug.detached import jobs
from crdebug.node import proc
from crdebug.session import Session
from harness import plain
from harness.exact import Look, look, look_at_strangers
from harness.jobs import Heard
from harness.mpis import MPIS, Mpi
from harness.network import own_network
from harness.programs import CompileFailed, build
from harness.registers import register_differences
from harness.terminals import own_terminals

OUTPUT = "rank 0: quiet ok\nrank 1: quiet ok\n"


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    """Keep the test's ports and pseudo-terminals free: a job without a container gets its own back
    in a restart, so nobody else may take them."""
    with own_network(), own_terminals():
        yield


def differences(before: Look, after: Look, rank: int) -> list[str]:
    """The differences in the registers of a rank."""
    old, new = before.ranks[rank], after.ranks[rank]
    return list(register_differences(old.registers, new.registers))


async def ended(job: plain.Plain, pid: int) -> str:
    """The job's output, once it has ended; after a restart it is nobody's child."""
    await Deadline(60).until(lambda: not proc.is_alive(pid), "the job to end")
    return job.output.read_text()


async def test_a_job_goes_there_and_back_with_a_debugger_and_without(tmp_path: Path) -> None:
    async with plain.quiet(tmp_path) as (job, _):
        heard = Heard()
        session = await Session.attach(str(job.pid), subscriber=heard)
        before = await look_at_strangers(session)
        taken = await session.checkpoint("one")
        # The shim is in the ranks by now, and nothing shows it but the memory that it takes.
        after = await look(session)
        for rank in session.ranks:
            assert not differences(before, after, rank)
            assert before.ranks[rank].signals == after.ranks[rank].signals
        name = session.job
        assert JobSays(f"from now on this is job {name}") in heard.events
        await session.restart(taken.number)
        again = await look(session)
        assert not after.differences_after_restart(again)
        await session.checkpoint("two")
        again.expect_same(await look(session), "a checkpoint")
        await session.detach()

        # Without a debugger, by the PID too; and with somebody in the way.
        third = await jobs.take_checkpoint(str(job.pid), "three", True, heard)
        assert (third.job, third.number, third.debugger) == (name, 3, False)
        assert job.output.read_text() == ""
        for handle in (f"{name}:3", f"{name}:1"):
            await jobs.restart(handle, heard)
            assert {t.tracer for t in proc.threads(job.pid)} == {0}
        plain.let_end(tmp_path)
        assert await ended(job, job.pid) == OUTPUT


# Debian's MPICH, linked statically: with the archives of UCX and hwloc; libudev has none.
STATIC = ("-static",)
UDEV = ("new", "unref", "device_unref", "device_get_property_value")
LIBRARIES = (
    *(f"-Wl,--defsym=udev_{name}=sched_yield" for name in UDEV),
    "-Wl,--defsym=udev_device_new_from_subsystem_sysname=sched_yield",  # which returns 0
    *("-Wl,--start-group", "-lmpich", "-lhwloc", "-Wl,--whole-archive"),
    *("-lucp", "-luct", "-lucs", "-lucm", "-Wl,--no-whole-archive", "-lnuma", "-ldl", "-lrt"),
    *("-lpthread", "-lm", "-Wl,--end-group"),
)


def static_program() -> tuple[Mpi, Path]:
    mpi = next((each for each in MPIS if each.origin == "Debian's mpich"), None)
    if mpi is None:
        pytest.skip("there is no MPICH of Debian's here")
    try:
        built = build("quiet", compiler=mpi.tool("mpicc"), flags=STATIC, libraries=LIBRARIES)
    except CompileFailed as error:
        pytest.skip(f"no MPI program can be linked statically here: {error}")
    return mpi, built


@pytest.mark.parametrize("reason", ["seccomp", "static"])
async def test_a_rank_without_a_way_in_is_held_by_sigstop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    mpi, program, locked = None, None, {1}
    if reason == "static":
        (mpi, program), locked = static_program(), {0, 1}
        monkeypatch.setenv("UCX_TLS", "^sysv")  # what it shares otherwise only a container can save
        with pytest.raises(NotAvailable, match="is linked statically"):
            await Session.run([*mpi.launch(2), str(program)])
    async with plain.quiet(tmp_path, locked=1, mpi=mpi, program=program) as (job, _):
        heard = Heard()
        session = await Session.attach(str(job.pid), subscriber=heard)
        before = await look_at_strangers(session)
        taken = await session.checkpoint()
        said = [event.text for event in heard.events if isinstance(event, JobSays)]
        lost = [text for text in said if "it cannot get a shim" in text]
        assert {int(text.split()[1].rstrip(":")) for text in lost} == locked
        assert any(reason in text for text in lost) and all("SIGSTOP" in text for text in lost)
        after = await look_at_strangers(session)
        for rank in session.ranks:
            changed = {line.split()[2] for line in differences(before, after, rank)}
            assert changed <= (
                {"rip", "rax", "orig_rax", "rcx", "r11"} if rank in locked else set()
            )
        with pytest.raises(Refused, match="is under a debugger"):
            await jobs.restart(taken.handle, heard)
        await session.restart(taken.number)
        await session.detach()
        with pytest.raises(Refused, match=f"rank {min(locked)}: no shim is in it"):
            await jobs.take_checkpoint(str(job.pid), "", False, heard)
        plain.let_end(tmp_path)
        lines = (await ended(job, job.pid)).splitlines()
        # UCX itself, from 1.18 on, warns of being in no library.
        assert sorted(each for each in lines if " UCX  WARN " not in each) == OUTPUT.splitlines()

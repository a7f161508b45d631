"""Breakpoints at lines of Python after a restart and after ways back; and without a debugger."""

from __future__ import annotations

from crdebug.acquire.symbols import find_symbols
from crdebug.base.deadline import Deadline
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.gdbscripts.wire import PYTHON_OFF, PYTHON_TRACING
from crdebug.node import proc
from crdebug.session import Session
from harness import looks, mpirun
from harness.jobs import JOB, Heard, run_to_end
from harness.solves import CALL, WHEELS, at, command, needs_mpi4py
from harness.talk import Talk

pytestmark = needs_mpi4py


async def step_at(talk: Talk, line: str, place: str) -> str:
    said = await talk(line)
    assert place in said, said
    return await talk("[0] pyprint step")


async def test_there_and_back() -> None:
    heard = Heard()
    expected = sorted(mpirun.run(command(WHEELS[0], 12)).stdout.splitlines())
    job = await Session.run(
        command(WHEELS[0], 12), name=JOB, settings=Settings(record=True), subscriber=heard
    )
    try:
        talk = Talk(job)
        await talk("barrier MPI_Barrier")
        taken = await job.checkpoint()  # there are no such breakpoints yet
        await talk(f"[0] break {CALL}")
        for step in range(4):
            assert await step_at(talk, "continue", CALL) == f"[0] = {step}"
        for step in (2, 1):
            assert await step_at(talk, "[0] reverse-continue", f"main at {CALL}") == f"[0] = {step}"
        assert await step_at(talk, "continue", f"main at {CALL}") == "[0] = 2"
        # from where steps have led, and where the breakpoint is gone
        assert "Solver.relax" in await talk("[0] step")
        assert "Solver.relax" in await talk("[0] next")
        assert await step_at(talk, "[0] reverse-continue", f"main at {CALL}") == "[0] = 2"
        assert await step_at(talk, "[0] reverse-continue", f"main at {CALL}") == "[0] = 1"
        await talk("delete")
        await talk(f"[0] break {CALL}")
        assert await step_at(talk, "[0] reverse-continue", f"main at {CALL}") == "[0] = 0"
        assert await step_at(talk, "continue", f"main at {CALL}") == "[0] = 1"
        # a step goes on from there, also in a process that was brought back
        second = await job.checkpoint()
        assert "Solver.relax" in await talk("[0] step")
        await job.restart(second.number)
        assert "Solver.relax" in await talk("[0] step")
        await job.restart(taken.number)
        assert await step_at(talk, "continue", f"main at {CALL}") == "[0] = 0"
        assert await run_to_end(job) == 0
    finally:
        await job.close()
    assert sorted(heard.text().splitlines())[-2:] == expected


async def test_back_by_lines() -> None:
    """The program as it runs, read backwards: over a call of MPI, out of a function that an
    exception has left, and to its caller."""
    job = await Session.run(command(WHEELS[0], 12), name=JOB, settings=Settings(record=True))
    try:
        talk = Talk(job)
        await talk("barrier MPI_Barrier")
        await talk("delete")
        await talk(f"[0] break {at('last += 0')} if step == 1")
        await talk("continue")
        for kind, function, line in (
            ("next", "main", "except ValueError:"),
            ("step", "fails", "raise ValueError(step)"),
            ("finish", "main", "fails(step)"),
            ("next", "main", "try:"),
            ("next", "main", "last = solver.relax(step)"),
            ("next", "main", "for step in range(steps):"),
            ("next 2", "main", "last += 0"),
        ):
            said = await talk(f"[0] reverse-{kind}")
            assert f"[0] {function} at {at(line)}" in said, (kind, said)
        assert await talk("[0] pyprint step") == "[0] = 0"
        # and on from there
        assert f"main at {at('last += sum(halves(2))')}" in await talk("[0] next")
        assert f"hit breakpoint 2: main at {at('last += 0')}" in await talk("continue")
    finally:
        await job.close()


def state(pid: int) -> int:
    """Whether lines are traced, by the shim in a rank."""
    found = find_symbols(pid, ["crdebug_python"], in_file=lambda path: path.endswith("/shim.so"))
    return int.from_bytes(proc.read_memory(pid, found["crdebug_python"], 4), "little")


async def test_without_the_debugger_nothing_is_traced_any_more() -> None:
    job = await Session.run(command(WHEELS[0], 10**9), name=JOB, settings=Settings(record=False))
    try:
        talk = Talk(job)
        await talk(f"break {CALL} if step == 3")
        assert "hit breakpoint 1" in await talk("continue")
        pids = [each.pid for each in looks.shims()]
        assert [state(pid) for pid in pids] == [PYTHON_TRACING] * 2
        taken = await job.checkpoint()
        await job.detach()
        none = [PYTHON_OFF] * 2
        await Deadline(60).until(lambda: [state(pid) for pid in pids] == none, "the tracing to end")
    finally:
        await job.close()
    await jobs.kill(JOB)
    await jobs.restart(taken.handle, lambda event: None)
    pids = [each.pid for each in looks.shims()]
    await Deadline(60).until(lambda: [state(pid) for pid in pids] == none, "the tracing to end")
    await jobs.kill(JOB)
    await jobs.delete(taken.handle)

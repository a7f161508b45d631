"""Every installed MPI, with every language that it has: one session each, from the start to the
end, back, and to the end again; its launchers; jobs of it that crdebug did not start.

Other tests marked `every_mpi` show the same for checkpoints; docs/mpis.md reports on all of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from crdebug.acquire.discovery import find_job
from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, Refused
from crdebug.base.events import JobSays
from crdebug.detached import jobs
from crdebug.node import proc
from crdebug.session import Session
from harness import mpirun, plain, programs
from harness.cli import crdebug
from harness.exact import Look, look_at_strangers
from harness.groups import attach_all
from harness.jobs import JOB, Heard
from harness.mpirun import starts_many_programs
from harness.mpis import Mpi
from harness.procstate import patched_code

_TO_END = ("delete", "continue --to-end", "restart 1", "continue --to-end")
_SESSIONS = {
    "C": (
        *("break took", "continue", "[0] print value", "checkpoint", "continue"),
        *(
            "info launch",
            "[0] goto-sender",
            "delete",
            "restart 1",
            "[0] next",
            "[0] reverse-next",
            *_TO_END,
        ),
    ),
    "Fortran": (
        *("break hear", "continue", "[0] print a(1:3)", "[0] print grid(2,3)", "checkpoint"),
        *(
            "continue",
            "[0] goto-sender",
            "delete",
            "restart 1",
            "[0] next",
            "[0] next",
            "[0] reverse-next",
        ),
        *("[0] backtrace", *_TO_END),
    ),
    "mpi4py": (
        *("break MPI_Mrecv", "continue", "checkpoint", "continue", "when", "[0] goto-sender"),
        *("pybt", "delete", "restart 1", "pybt", *_TO_END),
    ),
}


def _program(mpi: Mpi, language: str) -> list[str | Path | int]:
    if language == "mpi4py":
        return [mpi.python, Path(programs.__file__).parents[1] / "programs" / "anyone.py", 3]
    if language == "C":
        return [programs.build("wildcard", flags=("-O0",)), "--rounds", 2]
    return [programs.build("field", flags=programs.BINDINGS["mpi_f08"]), 3]


@pytest.mark.every_mpi("", up_to=2)  # the others take their turns in other files
async def test_there_and_back(tmp_path: Path, mpi: Mpi, language: str) -> None:
    script = tmp_path / "script"
    script.write_text("\n".join(_SESSIONS[language]))
    arguments = ("run", "--record", "--batch", "-x", script, "--name", "job", "--")
    # Who waits in MPICH does not let others have the processor meanwhile.
    ranks = 2 if "MPICH" in mpi.name and language == "C" else 3
    ran = await crdebug(*arguments, *mpi.launch(ranks), *_program(mpi, language))
    said = ran.stdout
    assert said.count("the job ended with status 0") == 2, said
    ends = re.findall(r"^out\| .*(?:heard|rank 0:).*$", said, re.M)
    # What MPI leaves open is as the first time; values of the clock are not all recorded.
    assert len(ends) == 2 and len({end.split(" after")[0] for end in ends}) == 1, said
    assert re.search(r"message of \d+ bytes from rank [12] to rank 0, tag [1-7]", said), said
    if language == "C":
        assert "UCX_TLS=self,posix,cma,tcp: transports" in said, said
        assert re.search(r"\[0\] = [12]000\n", said), said
        assert re.search(r"\[[12]\] main at .*wildcard.c:90\n +90\s+MPI_Send", said), said
        assert re.search(r"reverse-next\n(.*\n)*? +\[0\] took at .*wildcard.c:8\n", said), said
    if language == "mpi4py":  # in the past, and restarted
        assert len(re.findall(r"^ +py0  <module> \(\) at anyone.py:\d+$", said, re.M)) >= 2, said
    if language == "Fortran":
        assert "[0] = (0.5, 1.5, 2.5)\n" in said and "[0] = 23\n" in said, said
        assert "another way" not in said, said  # an array's element is no call
        assert re.search(r"\[0-2\] field at .*field.F90:", said), said  # not at C's main
        assert re.search(r"\[[12]\] field at .*\n +\d+\s+call mpi_send\(", said), said
        assert re.search(r"reverse-next\n(.*\n)*? +\[0\] .*\n +\d+\s+call hear\(", said), said
        assert re.search(r"#0 +field::gather_any \(.*\n +#1 +field \(\) at", said), said


# ---- launchers -----------------------------------------------------------------------------------


@pytest.mark.every_mpi("launchers", up_to=1)
async def test_mpiexec_with_two_programs_and_a_hostfile(mpi: Mpi, tmp_path: Path) -> None:
    """All others use mpirun."""
    hosts, script = tmp_path / "hosts", tmp_path / "script"
    hosts.write_text("localhost\n")
    script.write_text(
        "break took\ncontinue\ninfo ranks\n[0] print value\ncheckpoint\ndelete\n"
        "continue --to-end\nrestart 1\ninfo ranks\ncontinue --to-end\n"
    )
    one, others = (programs.build("wildcard", flags=(flag,)) for flag in ("-O0", "-O2"))
    file = "-f" if "MPICH" in mpi.name else "--hostfile"
    line: list[object] = [mpi.tool("mpiexec"), file, hosts, *mpi.crowded]
    if starts_many_programs():
        line += ["-n", 1, one, "--rounds", 2, ":", "-n", 2, others, "--rounds", 2]
    else:  # it crashes without crdebug, too (docs/mpis.md)
        one = others
        line += ["-n", 3, one, "--rounds", 2]
    said = (await crdebug("run", "--batch", "-x", script, "--name", JOB, "--", *line)).stdout
    assert said.count("the job ended with status 0") == 2, said
    assert re.search(r"\[0\] = [12]000\n", said), said
    ran = re.findall(r"^(\d) +stopped .* (\S+/wildcard) ", said, re.M)
    assert ran == 2 * [("0", str(one)), ("1", str(others)), ("2", str(others))], said
    await jobs.delete(f"{JOB}:1")


# ---- jobs that crdebug did not start -------------------------------------------------------------


def threads(pids: list[int]) -> set[tuple[int, int]]:
    """Every thread with its tracer."""
    return {(thread.tid, thread.tracer) for pid in pids for thread in proc.threads(pid)}


def different(before: Look, after: Look) -> list[str]:
    """The differences. After a stop the kernel continues a call like poll by restart_syscall."""
    lines = before.differences(after)
    return [line for line in lines if not line.endswith("orig_rax was 0x7, is 0xdb")]


def are_asleep(pids: list[int]) -> bool:
    tids = [(pid, thread.tid) for pid in pids for thread in proc.threads(pid)]
    return all(proc.status(pid, tid)["State"].startswith("S") for pid, tid in tids)


def open_files(pids: list[int]) -> list[tuple[str, str]]:
    """Every descriptor, with its file."""
    paths = sorted(path for pid in pids for path in Path(f"/proc/{pid}/fd").iterdir())
    return [(str(path), os.readlink(path)) for path in paths]


@pytest.mark.every_mpi("attach", up_to=2)
async def test_a_job_survives_many_attaches_and_detaches_unchanged(
    mpi: Mpi, tmp_path: Path, thorough: bool
) -> None:
    async with plain.quiet(tmp_path) as (job, found):
        table = "MPIR process table of mpirun" in found.how
        assert found.root == job.pid and table == (mpi.name == "Open MPI 4.1"), found
        pids = [entry.pid for entry in found.entries]
        files = open_files(pids)
        free = threads(pids)
        assert {tracer for _, tracer in free} == {0}
        # The launcher, a rank, and the process that started them: all the same job.
        for pid in (job.pid, proc.parent(pids[0]), pids[1]):
            assert find_job(pid) == found
        heard = Heard()
        session = await Session.attach(str(job.pid), subscriber=heard)
        before = await look_at_strangers(session)
        for _ in range(8 if thorough else 2):
            assert not (await session.group.detach_all()).errors
            assert threads(pids) == free
            # A thread whose call was interrupted stands in front of it until it runs.
            await Deadline(60).until(lambda: are_asleep(pids), "the threads to be in their calls")
            await attach_all(session.group, {entry.rank: entry.pid for entry in found.entries})
        assert not different(before, await look_at_strangers(session))
        await session.detach()
        assert threads(pids) == free
        assert not any(patched_code(pid) for pid in pids)
        assert open_files(pids) == files
        session = await Session.attach(str(pids[0]), subscriber=heard)  # by other GDBs
        assert not different(before, await look_at_strangers(session))
        await session.detach()
        assert JobSays(f"the ranks are those of {found.how}") in heard.events

        # A part: the other rank is not touched, and a part has no checkpoints.
        part = await Session.attach(str(pids[0]), "1", subscriber=heard)
        assert part.ranks.first == 1 and len(part.ranks) == 1
        assert {t.tracer for t in proc.threads(pids[0])} == {0}
        assert (await part.evaluate(part.ranks, "my_rank")).values == {1: "1"}
        root = os.geteuid() == 0
        said = "rank 0: cannot checkpoint a part of a job" if root else "only root can take check"
        with pytest.raises(CrdebugError, match=said):
            await part.checkpoint()
        with pytest.raises(Refused, match=r"rank 1: process .* traces it"):
            await Session.attach(str(job.pid))
        await part.detach()
        with pytest.raises(BadInput, match="there is no rank 2"):
            await Session.attach(str(job.pid), "0,2")
        plain.let_end(tmp_path)
        assert await job.ended() == "rank 0: quiet ok\nrank 1: quiet ok\n"


# ---- and besides ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "told", "status"),
    [
        ("bounds", "Fortran runtime error: Index '12' of dimension 1 of array 'a' above", 2),
        ("stop", "ERROR STOP rank 1 gives up", 1),
    ],
)
async def test_a_fortran_error_is_reported_as_one(
    tmp_path: Path, how: str, told: str, status: int
) -> None:
    script = tmp_path / "script"
    by = "_gfortran_runtime_error_at" if how == "bounds" else "_gfortran_error_stop_string"
    script.write_text("continue\n")
    program = programs.build("field", flags=programs.BINDINGS["mpi_f08"])
    arguments = ("run", "--no-record", "--batch", "-x", script, "--")
    said = (await crdebug(*arguments, *mpirun.command(program, 1, how, ranks=2))).stdout
    place = rf"exit\({status}\) without MPI_Finalize, by {by}, from field at .*field.F90:\d+"
    assert re.search(rf"rank 1 is about to end: {place}", said), said
    assert f"err| {told}" in said, said

"""Jobs without a debugger, by the command line, as operators and batch scripts use them."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import DeadlineExpired, StoreError
from crdebug.base.events import RankRestored
from crdebug.base.settings import Settings, state_home
from crdebug.checkpoint.manifest import NAME
from crdebug.checkpoint.open_files import SavedFile
from crdebug.detached import jobs
from crdebug.detached.checkpoint import Undisturbed
from crdebug.job import clocks, imaging
from crdebug.job.directory import JobDirectory
from crdebug.job.holds import await_held
from crdebug.node import proc, ptrace, signals
from crdebug.session import Session
from harness import looks, mpirun
from harness.cli import complaint, crdebug, finish, started
from harness.faults import half_checkpoints
from harness.jobs import JOB, Heard, bare_job, session, there
from harness.mpirun import reference
from harness.programs import build

RANKS = 2
THREADS = ("--steps", 400, "--delay-us", 4000)
HANDLE = f"{JOB}:1"
SIGNAL_OFFSET = 12  # in the shim's struct, behind its version, its size and the rank


def everything() -> dict[str, str]:
    """All files of all jobs, by their hashes."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in state_home().rglob("*")
        if path.is_file()
    }


# ---- a job's life ------------------------------------------------------------------------------


async def test_a_life_with_two_checkpoints_whose_printed_handle_can_be_used_directly(
    tmp_path: Path,
) -> None:
    program = build("threads")
    command = mpirun.command(program, "--steps", 10**6, "--delay-us", 40000, ranks=RANKS)
    with started("run", "--no-debugger", "--name", JOB, "--", *command) as running:
        await there()
        await looks.reach(20)
        (info,) = json.loads((await crdebug("jobs", "--json")).stdout)
        assert (info["name"], info["state"], info["ranks"]) == (JOB, "running", RANKS)
        assert (info["argv"], info["checkpoints"], info["status"]) == (command, 0, None)
        assert proc.is_alive(info["pid"])

        # Far enough off for a command to start on a busy machine.
        last = looks.end_soon(more=120)
        first = await crdebug("checkpoint", JOB, "--note", "one", "--json")
        handle = re.search(r"^MPIR_checkpoint_handle\) (.*)$", first.stderr, re.M)
        assert handle is not None and handle[1] == HANDLE
        told = json.loads(first.stdout)
        assert (told["handle"], told["note"], told["debugger"]) == (HANDLE, "one", False)
        status, stdout, stderr = await finish(running)
        expected = reference(program, "--steps", last, ranks=RANKS)
        assert (status, stdout) == (0, expected), stderr

    listed = json.loads((await crdebug("checkpoints", JOB, "--json")).stdout)
    assert [each["handle"] for each in listed] == [handle[1]]
    again = await crdebug("restart", "--no-debugger", handle[1])
    assert again.stdout == expected

    script = tmp_path / "script"
    script.write_text("checkpoint two\nprint step\ncontinue --to-end\n")
    debugged = await crdebug("restart", "--batch", "-x", script, handle[1])
    hosts = re.findall(r"^MPIR_debug_info\) (.*):(\d+)$", debugged.stderr, re.M)
    assert [host for host, _ in hosts] == [socket.gethostname()] * RANKS
    assert len({int(pid) for _, pid in hosts}) == RANKS
    for line in expected.splitlines():
        assert f"out| {line}" in debugged.stdout
    (info,) = json.loads((await crdebug("jobs", "--json")).stdout)
    assert (info["state"], info["status"]) == ("ended", 0)
    assert (info["checkpoints"], info["incarnation"]) == (2, 3)

    for number in (1, 2):
        await crdebug("delete", f"{JOB}:{number}")
    assert json.loads((await crdebug("jobs", "--json")).stdout) == []


async def test_a_checkpoint_that_is_cancelled_leaves_no_draft(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example if the job of a batch run ends while its files are being copied."""
    copying, go_on = threading.Event(), threading.Event()

    def copy_ahead(files: Iterable[SavedFile], target: Path) -> dict[str, Path]:
        for number in itertools.count():
            (target / f"ahead-{number}").touch()
            copying.set()
            if go_on.is_set():
                return {}
        raise AssertionError

    monkeypatch.setattr(imaging, "copy_ahead", copy_ahead)
    async with bare_job(build("threads"), *THREADS, ranks=RANKS):
        await looks.reach(5)
        taking = asyncio.create_task(jobs.take_checkpoint(JOB, "", False, Heard()))
        await Deadline(60).until(copying.is_set, "the copying to begin")
        taking.cancel()
        for _ in range(10):  # turns of the loop: a call that does not wait for the copying is done
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait({taking})
        assert taking.cancelled() and half_checkpoints() == []
        heard = Heard()
        assert await jobs.follow(JOB, heard) == 0
        assert heard.text() == reference(build("threads"), *THREADS, ranks=RANKS)


async def test_an_image_that_is_not_published_is_discarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def publish(actions: Undisturbed) -> None:
        raise StoreError("no")

    monkeypatch.setattr(Undisturbed, "publish", publish)
    async with bare_job(build("threads"), *THREADS, ranks=RANKS):
        await looks.reach(5)
        with pytest.raises(StoreError, match="no"):
            await jobs.take_checkpoint(JOB, "", False, Heard())
        assert half_checkpoints() == []
        assert await jobs.follow(JOB, Heard()) == 0


async def test_a_restart_is_announced_when_every_thread_waits_and_nobody_traces() -> None:
    """So that another debugger may attach by MPIR_debug_info."""
    endless = ("--steps", 10**6, *THREADS[2:])  # a busy machine takes long to freeze it
    async with bare_job(build("threads"), *endless, ranks=RANKS):
        await looks.reach(20)
        await jobs.take_checkpoint(JOB, "", False, Heard())
    seen = []

    def look(event: object) -> None:
        if isinstance(event, RankRestored):
            ranks = looks.shims()
            assert (event.host, event.pid) in {(r.entry.host, r.pid) for r in ranks}
            assert not {t.tracer for rank in ranks for t in proc.threads(rank.pid)} - {0}
            seen.append(looks.look(ranks))

    job = await Session.restart_from(HANDLE, subscriber=look)
    await job.close()
    assert seen == [looks.Row(1, 0, True)] * RANKS
    await jobs.delete(HANDLE)


KILLED = (
    "\ncrdebug: the launcher was killed by SIGKILL: its ranks cannot go on without it, and end\n"
)


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [("exit 0", 0, ""), ("exit 7", 7, ""), ("kill -9 $$", 128 + 9, KILLED)],
)
async def test_run_without_a_debugger_is_the_launcher(command: str, status: int, said: str) -> None:
    """Its output, on the stream where it belongs, and its status."""
    both = "printf out; printf err >&2; "
    ran = await crdebug("run", "--no-debugger", "--", "sh", "-c", both + command, status=status)
    assert ran.stdout == "out"
    assert ran.stderr.endswith(f"\nerr{said}")
    assert json.loads((await crdebug("jobs", "--json")).stdout) == []


async def test_kill_ends_the_job_and_its_followers() -> None:
    command = mpirun.command(build("threads"), "--steps", 10**9, ranks=RANKS)
    with started("run", "--no-debugger", "--name", JOB, "--", *command) as running:
        await there()
        await looks.reach(5)
        await crdebug("checkpoint", JOB)
        await crdebug("kill", JOB)
        status, stdout, _ = await finish(running)
        assert (status, stdout) == (jobs.EXIT_KILLED, "")
    (info,) = json.loads((await crdebug("jobs", "--json")).stdout)
    assert (info["state"], info["status"], info["checkpoints"]) == ("ended", None, 1)
    await jobs.delete(HANDLE)


async def test_an_attached_session_takes_the_checkpoint_and_ends_when_the_job_is_killed() -> None:
    async with session(build("threads"), *THREADS, ranks=RANKS) as job:
        (info,) = json.loads((await crdebug("jobs", "--json")).stdout)
        assert info["state"] == "debugged"
        taken = await crdebug("checkpoint", JOB, "--json")
        assert json.loads(taken.stdout)["debugger"] is True
        assert [each.number for each in job.checkpoints()] == [1]
        await crdebug("checkpoint", JOB, "--kill")
        assert job.ended is not None
    (info,) = json.loads((await crdebug("jobs", "--json")).stdout)
    assert (info["state"], info["checkpoints"]) == ("ended", 2)
    for number in (1, 2):
        await jobs.delete(f"{JOB}:{number}")


# ---- bad input ---------------------------------------------------------------------------------


async def says(words: str, *arguments: object) -> None:
    """Expect one clear line with a hint, status 1, and nothing lost."""
    before = everything()
    said = complaint(await crdebug(*arguments, status=1))
    assert re.search(words, said), said
    assert said.endswith(")"), f"no word of what to do: {said}"
    assert everything() == before


async def test_unknown_jobs_and_bad_handles() -> None:
    named = ("checkpoint", "checkpoints", "kill", "release", "attach")
    asked = [*((verb, "nothing") for verb in named), ("restart", "nothing:1"), ("delete", "no:1")]
    said = [(r"there is no job '(nothing|no)' \(jobs here: none\)", *each) for each in asked]
    for handle in ("nothing", ":1", "a:b", "a:-1", "a:²"):
        said.append((r"is not a (handle|job name)", "delete", handle))
    said.append((r"is not a job name", "kill", "../x"))
    await asyncio.gather(*(says(*each) for each in said))


async def test_a_job_that_has_ended() -> None:
    async with bare_job(build("threads"), *THREADS, ranks=RANKS):
        await looks.reach(5)
        await jobs.take_checkpoint(JOB, "", True, Heard())
    ended = rf"job '{JOB}' has ended \('crdebug restart {HANDLE}' brings it"
    await asyncio.gather(
        *(says(ended, verb, JOB) for verb in ("checkpoint", "attach", "release")),
        says(rf"job '{JOB}' has ended already \('crdebug delete", "kill", JOB),
        says(rf"there is no checkpoint {JOB}:9 \(.*: 1\)", "restart", f"{JOB}:9"),
    )
    await says(rf"there is no checkpoint {JOB}:9 \(.*: 1\)", "delete", f"{JOB}:9")
    command = mpirun.command(build("threads"), ranks=RANKS)
    await says(
        rf"job '{JOB}' has 1 checkpoint", "run", "--no-debugger", "--name", JOB, "--", *command
    )
    home = JobDirectory(JOB).store.path(1)
    for name in ("images/inventory.img", "run/stdout"):
        os.rename(home / name, home / "away")
        await says(rf"{HANDLE} is damaged: {name} is missing", "restart", "--no-debugger", HANDLE)
        os.rename(home / "away", home / name)
    (home / NAME).chmod(0o600)
    whole = (home / NAME).read_bytes()
    (home / NAME).write_bytes(whole[:100])
    await says(rf"{NAME} cannot be read", "restart", "--no-debugger", HANDLE)
    (home / NAME).write_bytes(whole)
    assert (await crdebug("restart", "--no-debugger", HANDLE)).stdout == reference(
        build("threads"), *THREADS, ranks=RANKS
    )
    await jobs.delete(HANDLE)
    # brought back, it came to its own end
    forgotten = rf"job '{JOB}' has ended with status 0 \(it left no checkpoint"
    await asyncio.gather(*(says(forgotten, verb, JOB) for verb in ("attach", "kill", "checkpoint")))


# ---- odd states --------------------------------------------------------------------------------


def state_of(name: str, listed: tuple[jobs.JobInfo, ...]) -> str:
    (found,) = (each.state for each in listed if each.name == name)
    return found


async def test_every_job_is_listed_whatever_has_become_of_it() -> None:
    program = build("threads")
    endless = ("--steps", 10**9, "--delay-us", 1000)
    async with bare_job(Path("/bin/sleep"), 600, name="no-ranks", ranks=1):
        assert state_of("no-ranks", await jobs.list_jobs()) == "running"
        async with bare_job(program, *endless, ranks=RANKS):
            await looks.reach(1)
            await jobs.take_checkpoint(JOB, "", False, Heard())
            assert state_of(JOB, await jobs.list_jobs()) == "running"
            record = JobDirectory(JOB).read()

            special = shutil.ignore_patterns("starter", "asks", "door")  # sockets, FIFOs
            for what, path, data in (
                ("half", "job.json", (JobDirectory(JOB).path / "job.json").read_bytes()[:40]),
                ("empty", "job.json", b""),
                ("foreign", "job.json", b"[]"),
            ):
                shutil.copytree(JobDirectory(JOB).path, JobDirectory(what).path, ignore=special)
                (JobDirectory(what).path / path).write_bytes(data)
                listed = await jobs.list_jobs()
                assert state_of(what, listed) == "damaged"
                assert state_of(JOB, listed) == "running"
                assert complaint(await crdebug("kill", what, status=1))
                shutil.rmtree(JobDirectory(what).path)

            # Another run of the machine: its PIDs mean nothing now.
            data = (JobDirectory(JOB).path / "job.json").read_bytes()
            old = data.replace(record.boot.encode(), b"00000000-0000-4000-8000-000000000000")
            (JobDirectory(JOB).path / "job.json").write_bytes(old)
            assert state_of(JOB, await jobs.list_jobs()) == "ended"
            (JobDirectory(JOB).path / "job.json").write_bytes(data)

            shutil.move(JobDirectory(JOB).run(1), "away")
            assert state_of(JOB, await jobs.list_jobs()) == "running"
            shutil.move("away", JobDirectory(JOB).run(1))

            rank = looks.shims()[0].pid
            signals.kill(rank, None, signal.SIGSTOP)
            await Deadline(30).until(lambda: proc.is_stopped(rank), "the rank to be stopped")
            assert state_of(JOB, await jobs.list_jobs()) == "held"
            signals.kill(rank, None, signal.SIGKILL)
            assert state_of(JOB, await jobs.list_jobs()) in ("running", "ended")
            signals.kill(record.pid, record.start)
            await signals.ended(record.pid, Deadline(30), "the job to end")
            assert state_of(JOB, await jobs.list_jobs()) == "ended"
        assert "no-ranks" in (await crdebug("jobs")).stdout
    await jobs.delete(HANDLE)


async def test_a_job_that_is_listed_as_ended_has_no_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it ended while the jobs were listed."""
    list_one = jobs._info_or_damage

    async def just_ended(directory: JobDirectory) -> jobs.JobInfo:
        os.kill(directory.read().pid, signal.SIGKILL)
        await signals.ended(directory.read().pid, Deadline(60), "the job's end")
        return await list_one(directory)

    async with bare_job(build("threads"), "--steps", 10**9, "--delay-us", 1000):
        taken = await jobs.take_checkpoint(JOB, "", False, lambda event: None)
        (JobDirectory(JOB).store.root / ".draft-2").mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "_info_or_damage", just_ended)
            (info,) = await jobs.list_jobs()
        assert (info.state, half_checkpoints()) == ("ended", [])
        await jobs.delete(taken.handle)


async def test_a_job_that_waits_for_a_debugger_is_listed_as_held_until_it_is_released() -> None:
    # No list of system calls to restart is passed here: there are none but MPI's.
    program, arguments = build("threads"), (*THREADS, "--rest-us", 0)
    async with bare_job(program, *arguments, ranks=RANKS):
        await looks.reach(5)
        for rank in looks.shims():
            async with ptrace.held(rank.pid, Deadline(30)):
                rank.close_gate({thread.inner: -1 for thread in proc.threads(rank.pid)})
                rank.queue_signal()
            await await_held(rank, Deadline(30))
        assert state_of(JOB, await jobs.list_jobs()) == "held"
        await says(rf"threads wait for a debugger .*'crdebug release {JOB}'", "checkpoint", JOB)
        count = len(proc.threads(looks.shims()[0].pid))
        released = await crdebug("release", JOB)
        lines = [f"rank {rank}: {count} threads let go" for rank in range(RANKS)]
        assert released.stdout.splitlines() == lines
        heard = Heard()
        assert await jobs.follow(JOB, heard) == 0
        assert heard.text() == reference(program, *arguments, ranks=RANKS)


async def test_a_checkpoint_waits_for_a_rank_that_has_registered_and_has_no_handler_yet() -> None:
    async with bare_job(build("memory"), "--steps", 10**9, ranks=RANKS):
        await looks.reach(5)
        last, place = looks.shims()[1], looks.shims()[1].struct + SIGNAL_OFFSET
        number = proc.read_memory(last.pid, place, 4)
        assert int.from_bytes(number, "little") == last.shim().signal
        proc.write_memory(last.pid, place, bytes(4))
        with pytest.raises(DeadlineExpired, match=r"rank 1.* the shim to install its handler"):
            await jobs.take_checkpoint(JOB, "", False, Heard(), Settings(launch=0.2))
        taking = asyncio.create_task(jobs.take_checkpoint(JOB, "", False, Heard()))
        proc.write_memory(last.pid, place, number)
        assert (await taking).number == 1


async def test_a_rank_that_holds_in_the_past_is_listed_as_held_until_it_is_released() -> None:
    """A crdebug that was killed there leaves it like that."""
    settings = Settings(record=True)
    async with bare_job(build("memory"), "--steps", 10**9, ranks=RANKS, settings=settings):
        await looks.reach(5)
        first = clocks.find(looks.shims(), JobDirectory(JOB).read().layer)[0]
        assert state_of(JOB, await jobs.list_jobs()) == "running"
        first.set_stop(first.read().now.back(-1000))
        await Deadline(60).until(lambda: bool(first.read().held), "the rank to hold")
        assert state_of(JOB, await jobs.list_jobs()) == "held"
        listed = await crdebug("jobs")
        assert f"'crdebug attach {JOB}' or 'crdebug release {JOB}'" in listed.stdout
        assert await jobs.release(JOB) == ("rank 0 let go",)
        await Deadline(60).until(lambda: not first.read().held, "the rank to go on")
        assert state_of(JOB, await jobs.list_jobs()) == "running"

"""Bad input on a real job: one clear line, status 1 in batch, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from crdebug.base.errors import CrdebugError
from crdebug.detached import jobs
from crdebug.job.directory import JobDirectory
from crdebug.native.shim import layout
from harness import looks, mpirun
from harness.cli import argv, complaint, crdebug
from harness.jobs import JOB, Heard, bare_job, run_to_end, session
from harness.mpirun import Finished, reference
from harness.nobody import needs_root
from harness.programs import build

RANKS = 2
ENDLESS = ("--steps", 10**9, "--delay-us", 5000)
HANDLE = f"{JOB}:1"
ABOUT_PROGRESS = ("attach: ", "checkpoint: ", "restart: ", "run: ")


def last_words(ran: Finished, script: Path) -> str:
    """A script's failure: one line that names the script's line, besides progress."""
    (said,) = [
        line for line in ran.stderr.splitlines() if not line.startswith((*ABOUT_PROGRESS, "MPIR_"))
    ]
    assert said.startswith(f"{script}:2: "), said
    return said.removeprefix(f"{script}:2: ")


async def state() -> str:
    (job,) = await jobs.list_jobs()
    return job.state


BAD_LINES: dict[str, str | tuple[str, ...]] = {
    "[7] print 1": "there is no rank 7 (the job has ranks 0-1)",
    "[a] print 1": "there is no rank set 'a' ('info sets' lists them; write 0,2-3, all, ",
    "frobnicate": "there is no command 'frobnicate' ('help' lists them; ",
    "print nosuch": "ranks 0-1: No symbol \"nosuch\" in current context. ('backtrace' shows where",
    "print 1 +": (
        "ranks 0-1: A syntax error in expression, near `'.",
        "ranks 0-1: A syntax error in expression, near the end of `1 +'.",  # from GDB 16 on
    ),
    "[1] print *(int*)0": "rank 1: Cannot access memory at address 0x0",
    "delete 9": "there is no breakpoint 9 ('info breakpoints' lists them)",
    "restart": "there is no checkpoint yet (take one with 'checkpoint')",
    "restart 9": f"there is no checkpoint {JOB}:9 (the job's checkpoints are: none)",
    "restart other:1": f"other:1 is a checkpoint of another job, and this session is on {JOB} (",
    "step x": "N is a whole number from 1, not 'x'",
}


async def at_the_console(lines: Iterable[str]) -> Finished:
    """Lines that come from a pipe instead of a keyboard."""
    ran = await asyncio.to_thread(
        subprocess.run,
        argv("attach", JOB),
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    return Finished(tuple(ran.args), ran.returncode, ran.stdout, ran.stderr)


async def test_a_bad_line_is_reported_and_the_job_runs_on(tmp_path: Path) -> None:
    """All of them on the same job, which then ends as if nothing had happened."""
    script = tmp_path / "script"
    async with bare_job(build("threads"), *ENDLESS, ranks=RANKS):
        await looks.reach(1)
        said = (await at_the_console(BAD_LINES)).stderr.splitlines()
        told = [line for line in said if not line.startswith(ABOUT_PROGRESS)]
        assert len(told) == len(BAD_LINES), said
        for line, words in zip(told, BAD_LINES.values(), strict=True):
            assert line.startswith(words)
        for line in ("[7] print 1", "print nosuch", "restart 9"):
            await looks.reach(max(looks.steps()) + 1)
            script.write_text(f"echo before\n{line}\necho after\n")
            ran = await crdebug("attach", "--batch", "-x", script, JOB, status=1)
            assert last_words(ran, script).startswith(BAD_LINES[line]), ran.stderr
            assert "before" in ran.stdout and "after" not in ran.stdout
            assert await state() == "running"
        steps = looks.end_soon()
        heard = Heard()
        assert await jobs.follow(JOB, heard) == 0
    expected = reference(build("threads"), "--steps", steps, ranks=RANKS)
    assert heard.text() == expected


async def test_a_job_that_has_ended_has_no_more_checkpoints_but_those_it_has(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script"
    script.write_text("continue --to-end\ncheckpoint\n")
    command = mpirun.command(build("threads"), "--steps", 5, ranks=RANKS)
    ran = await crdebug("run", "--batch", "-x", script, "--name", JOB, "--", *command, status=1)
    assert last_words(ran, script) == (
        f"'checkpoint' needs a live job, and {JOB} has ended "
        "('restart' brings it back from a checkpoint, 'quit' leaves)"
    )
    assert "the job ended with status 0" in ran.stdout


async def test_a_touched_image_and_a_missing_criu_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the prompt and from the shell: the job runs on, and a checkpoint that is put back is
    usable."""
    script = tmp_path / "script"
    no_criu = "there is no CRIU that works on this kernel ('crdebug doctor' says why; "
    async with bare_job(build("threads"), *ENDLESS, ranks=RANKS):
        await looks.reach(2)
        await jobs.take_checkpoint(JOB, "", False, Heard())
        home = JobDirectory(JOB).store.path(1)

        async def fails(line: str, words: str) -> None:
            script.write_text(f"echo\n{line}\n")
            ran = await crdebug("attach", "--batch", "-x", script, JOB, status=1)
            said = last_words(ran, script)
            assert words in said and said.endswith(")"), said
            await looks.reach(max(looks.steps()) + 2)

        image = home / "images" / "inventory.img"
        whole = image.read_bytes()
        image.chmod(0o600)
        image.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        touched = f"checkpoint {HANDLE} is damaged: images/inventory.img was changed"
        await fails("restart", touched)
        assert touched in complaint(await crdebug("restart", "--no-debugger", HANDLE, status=1))
        await looks.reach(max(looks.steps()) + 2)
        image.write_bytes(whole)

        with monkeypatch.context() as patch:
            patch.setenv("CRDEBUG_CRIU", str(tmp_path / "nothing"))
            await fails("checkpoint", no_criu)
            ran = await crdebug("restart", "--no-debugger", HANDLE, status=1)
            assert no_criu in complaint(ran)
            await looks.reach(max(looks.steps()) + 2)
        assert [each.handle for each in await jobs.list_checkpoints(JOB)] == [HANDLE]
        await jobs.kill(JOB)
    await jobs.restart(HANDLE, Heard())
    looks.end_soon()
    assert await jobs.follow(JOB, Heard()) == 0
    await jobs.delete(HANDLE)


@pytest.mark.parametrize("number", [62, 40])
async def test_a_signal_that_the_program_uses_itself(number: int) -> None:
    """crdebug refuses its own signal in words, and accepts any other; both ways each signal is
    delivered."""
    options = ("--signal", number, "--steps", 20)
    heard = Heard()
    async with session(build("catcher"), *options, ranks=RANKS, heard=heard) as job:
        await job.add_breakpoint(job.ranks, "work_step")
        await job.resume(job.ranks)
        if number == layout.DEFAULT_SIGNAL:
            with pytest.raises(CrdebugError, match=r"application uses SIGRTMAX-2 .*--signal'\)$"):
                await job.checkpoint()
            assert job.checkpoints() == ()
        else:
            await job.checkpoint()
            await job.restart()
        assert await run_to_end(job) == 0
    assert heard.text() == reference(build("catcher"), *options, ranks=RANKS)


# ---- another user ------------------------------------------------------------------------------

# Python and crdebug may be where only root can read, so all of it is imported before. Each line of
# its input, [arguments, variables], it runs in a child that is nobody's, and answers [status, out,
# err].
AS_NOBODY = """
import importlib, json, os, pkgutil, pwd, sys, tempfile
import email.parser, rich.console, rich.table, rich.filesize
import crdebug
for module in pkgutil.walk_packages(crdebug.__path__, "crdebug."):
    if not module.name.startswith(("crdebug.gdbscripts", "crdebug.__main__")):
        importlib.import_module(module.name)
from crdebug.cli import main
nobody = pwd.getpwnam("nobody")
for line in sys.stdin:
    arguments, variables = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            for number, file in enumerate((open(os.devnull), out, err)):
                os.dup2(file.fileno(), number)
            os.environ.update(variables)
            os.setgroups([])
            os.setresgid(*[nobody.pw_gid] * 3)
            os.setresuid(*[nobody.pw_uid] * 3)
            main(arguments, prog_name="crdebug")
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = [os.pread(file.fileno(), 1 << 20, 0).decode() for file in (out, err)]
    print(json.dumps([status, *said]), flush=True)
"""


class Nobody:
    """The command line for a user without any permissions. home: that user's directory."""

    def __init__(self, process: subprocess.Popen[str], home: Path) -> None:
        self.home = home
        self._process = process

    def crdebug(self, *arguments: object, status: int = 1, **variables: object) -> Finished:
        words = [str(argument) for argument in arguments]
        extra = {"HOME": self.home, "CRDEBUG_CACHE": self.home / "cache", **variables}
        assert self._process.stdin and self._process.stdout
        said = json.dumps([words, {name: str(value) for name, value in extra.items()}])
        self._process.stdin.write(f"{said}\n")
        self._process.stdin.flush()
        ended, out, err = json.loads(self._process.stdout.readline())
        return Finished(tuple(words), ended, out, err).expect(status)


@pytest.fixture
def nobody() -> Iterator[Nobody]:
    # pytest's own directories are its user's only
    with tempfile.TemporaryDirectory() as path:
        shutil.chown(path, "nobody")
        with subprocess.Popen(
            [sys.executable, "-c", AS_NOBODY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=mpirun.environment(),
        ) as process:
            yield Nobody(process, Path(path))


@needs_root
async def test_another_user_is_refused_in_words_and_disturbs_nobody(
    nobody: Nobody, home: Path
) -> None:
    script = nobody.home / "script"
    script.write_text("print 1\n")
    async with bare_job(build("threads"), *ENDLESS, ranks=RANKS) as info:
        await looks.reach(1)
        for verb in (
            ("attach", "--batch", "-x", script, JOB),
            ("checkpoint", JOB),
            ("kill", JOB),
            ("restart", HANDLE),
            ("jobs",),
        ):
            said = complaint(nobody.crdebug(*verb))
            assert (
                "permission denied (run crdebug as its owner" in said and str(home / "jobs") in said
            )
        own = nobody.home / "own"
        attach = nobody.crdebug("attach", "--batch", "-x", script, info.pid, CRDEBUG_HOME=own)
        assert "it is somebody else's (attach as its owner, or as root)" in complaint(attach)
        told = nobody.crdebug("doctor", CRDEBUG_HOME=own)
        report = told.stdout
        assert "Traceback" not in report and "root" in report, told
        await looks.reach(max(looks.steps()) + 2)
        assert await state() == "running"

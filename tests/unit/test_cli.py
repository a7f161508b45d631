"""argv: the calls to sessions and jobs, the output on each stream, and the exit status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result
from fake_session import FakeSession, a_checkpoint

import crdebug
import crdebug.detached.batch
import crdebug.session
import crdebug.ui.detached
from crdebug.base.errors import BadInput, StoreError
from crdebug.base.events import Event, JobOutput, Progress, RankRestored
from crdebug.base.settings import Settings
from crdebug.checkpoint.store import Checkpoint
from crdebug.cli import main
from crdebug.job.given import Given
from crdebug.job.over_hosts import Named

pytestmark = pytest.mark.unit


@dataclass(frozen=True, slots=True)
class JobInfo:
    name: str = "heat"
    state: str = "running"
    ranks: int = 4
    incarnation: int = 1
    pid: int = 99
    argv: tuple[str, ...] = ("mpirun", "-n", "4", "./my heat")
    started: float = 1_700_000_000.0
    checkpoints: int = 2
    status: int | None = None


@dataclass
class World:
    """What the command line finds instead of sessions and jobs."""

    session: FakeSession = field(default_factory=FakeSession)
    asked: list[tuple[object, ...]] = field(default_factory=list)
    fail: Exception | None = None
    status: int = 0
    interrupted: bool = False
    given: list[Given] = field(default_factory=list)
    hosts: Named = field(default_factory=Named)

    def _note(self, *what: object) -> None:
        self.asked.append(what)
        if self.fail is not None:
            raise self.fail

    # ---- crdebug.session.Session

    async def run(
        self,
        argv: Sequence[str],
        *,
        name: str | None,
        stop_at_main: bool,
        env: Mapping[str, str],
        cwd: Path | None,
        stdin: Path | int | None,
        hosts: Named,
        settings: Settings,
        subscriber: Callable[[Event], None],
    ) -> FakeSession:
        self.given = [Given(env, cwd, stdin)]
        self.hosts = hosts
        subscriber(Progress("run", "launch"))
        self.session.subscribe(subscriber)
        self._note("run", tuple(argv), name, stop_at_main, settings.signal)
        return self.session

    async def attach(
        self, job: str, ranks: str, *, settings: Settings, subscriber: Callable[[Event], None]
    ) -> FakeSession:
        self._note("attach", job, ranks)
        return self.session

    async def restart_from(
        self, handle: str, *, settings: Settings, subscriber: Callable[[Event], None]
    ) -> FakeSession:
        self._note("restart_from", handle)
        subscriber(RankRestored(0, "node1", 100))
        return self.session

    # ---- crdebug.detached.jobs

    async def run_detached(
        self, argv: Sequence[str], name: str | None, settings: Settings, given: Given
    ) -> JobInfo:
        self.given = [given]
        self._note("run_detached", tuple(argv), name, settings.signal)
        return JobInfo()

    def followed(self, job: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def follow(
        self,
        job: str,
        subscriber: Callable[[Event], None],
        since: Path | None = None,
        *,
        told_before: Mapping[Path, int] | None = None,
    ) -> int:
        self._note("follow", job, *([] if told_before is None else [True]))
        subscriber(JobOutput("stdout", "half"))
        subscriber(JobOutput("stderr", "oops\n"))
        if self.interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        return self.status

    async def restart(
        self, handle: str, progress: Callable[[Event], None], settings: Settings
    ) -> JobInfo:
        self._note("restart", handle)
        progress(Progress("restart", "restore"))
        return JobInfo(incarnation=2)

    async def take_checkpoint(
        self,
        job: str,
        note: str,
        kill: bool,
        progress: Callable[[Event], None],
        settings: Settings,
        *,
        stop: bool = False,
        held: bool = False,
    ) -> Checkpoint:
        self._note("take_checkpoint", job, note, kill, stop)
        progress(Progress("checkpoint", "dump"))
        return a_checkpoint(3, job, note)

    async def list_jobs(self) -> tuple[JobInfo, ...]:
        self._note("list_jobs")
        return (JobInfo(), JobInfo(name="old", state="ended", status=3))

    async def list_checkpoints(self, job: str | None) -> tuple[Checkpoint, ...]:
        self._note("list_checkpoints", job)
        return (a_checkpoint(1), a_checkpoint(2))

    async def delete(self, handle: str) -> None:
        self._note("delete", handle)

    async def kill(self, job: str, settings: Settings | None = None) -> None:
        self._note("kill", job)

    async def release(self, job: str, settings: Settings) -> tuple[str, ...]:
        self._note("release", job)
        return ("rank 0: gate opened", "rank 1: gate opened")


_JOB_VERBS = (
    "followed",
    *("run_detached", "follow", "restart", "take_checkpoint", "list_jobs", "list_checkpoints"),
    *("delete", "kill", "release"),
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    jobs_module = ModuleType("crdebug.detached.jobs")
    for name in _JOB_VERBS:
        setattr(jobs_module, name, getattr(world, name))
    monkeypatch.setattr(crdebug.session, "Session", world)
    monkeypatch.setitem(sys.modules, "crdebug.detached.jobs", jobs_module)
    monkeypatch.setattr(crdebug.detached, "jobs", jobs_module)
    monkeypatch.setattr(crdebug.detached.batch, "jobs", jobs_module)
    monkeypatch.setattr(crdebug.ui.detached, "jobs", jobs_module)
    return world


def crdebug_(*argv: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, argv, input=typed)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        (tmp_path / "heat.crdebug").write_text(text)
        return str(tmp_path / "heat.crdebug")

    return write


Script = Callable[[str], str]


# ---- under the debugger -----------------------------------------------------------------------


def test_run_batch(world: World, script: Script) -> None:
    world.session.values["x"] = ["5"] * 4
    file = script("print x\n")
    result = crdebug_(
        *("run", "-x", file, "--batch", "--name", "heat", "--signal", "tstp", "--stop-at", "none"),
        *("--", "mpirun", "-n", "4", "./heat", "--batch"),
    )
    assert result.exit_code == 0, result.output
    assert world.asked == [
        ("run", ("mpirun", "-n", "4", "./heat", "--batch"), "heat", False, signal.SIGTSTP)
    ]
    assert "[0-3] = 5" in result.stdout
    assert result.stderr == "run: launch\n"
    assert world.session.closed


def test_the_launchers_options_are_its_own_without_the_dashes_too(
    world: World, script: Script
) -> None:
    assert crdebug_("run", "-x", script(""), "--batch", "mpirun", "-x", "A=1").exit_code == 0
    assert world.asked[0][1] == ("mpirun", "-x", "A=1")


def test_without_batch_the_console_reads_a_pipe_to_its_end(world: World, script: Script) -> None:
    result = crdebug_("run", "-x", script("echo one\n"), "--", "m", typed="frob\n\necho two\n")
    assert result.exit_code == 0
    assert [line for line in result.stdout.splitlines() if line in ("one", "two")] == ["one", "two"]
    assert "there is no command 'frob'" in result.stderr
    assert world.session.closed


def test_an_echo_without_a_text_is_an_empty_line(world: World, script: Script) -> None:
    file = script("echo one\necho\n\necho two\n")
    result = crdebug_("run", "--batch", "-x", file, "--", "mpirun", "./heat")
    assert "one\n\ntwo\n" in result.stdout


def test_a_script_that_cannot_be_read_starts_nothing(world: World) -> None:
    result = crdebug_("run", "--batch", "-x", "nosuch.crdebug", "--", "mpirun", "./heat")
    assert (result.exit_code, world.asked) == (1, [])
    assert result.stderr == (
        "crdebug: script nosuch.crdebug cannot be read: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run"], "Missing argument"),
        (["run", "--batch", "--", "mpirun"], "--batch needs a script: -x SCRIPT"),
        (["run", "--no-debugger", "-x", "a", "--", "mpirun"], "leave --no-debugger out"),
        (["restart", "--no-debugger", "--batch", "heat:1"], "leave --no-debugger out"),
        (["run", "--every", "10m", "--", "m"], "--every is for --no-debugger"),
        (["restart", "--keep", "2", "heat"], "--keep is for --no-debugger"),
        (["run", "--stage", "d", "--", "m"], "--stage is for --no-debugger"),
        (["run", "--resume", "--name", "heat", "--", "m"], "--resume is for --no-debugger"),
        (["run", "--resume", "--no-debugger", "--", "m"], "--resume needs the job's name"),
        (["run", "--every", "soon", "--no-debugger", "--", "m"], "'soon' is not a time"),
        (["run", "--signal", "SIGNONE", "--", "m"], "'SIGNONE' is not a signal"),
        (["run", "--signal", "RTMIN+99", "--", "m"], "'RTMIN+99' is not a signal"),
        (["run", "--signal", "0", "--", "m"], "'0' is not a signal"),
        (["run", "--stop-at", "end", "--", "m"], "'end' is not one of 'main', 'none'"),
        (["attach"], "Missing argument"),
        (["frobnicate"], "No such command"),
    ],
)
def test_usage_errors_are_status_2(world: World, argv: list[str], words: str) -> None:
    result = crdebug_(*argv)
    assert result.exit_code == 2
    assert words in result.stderr
    assert world.asked == []


@pytest.mark.parametrize(
    ("text", "number"),
    [("40", 40), ("SIGTSTP", signal.SIGTSTP), ("rtmin+3", signal.SIGRTMIN + 3)],
)
def test_signals_by_number_and_name(world: World, script: Script, text: str, number: int) -> None:
    crdebug_("run", "--batch", "-x", script(""), "--signal", text, "--", "m")
    assert world.asked[0][-1] == number


def test_attach_detaches_at_the_end(world: World, script: Script) -> None:
    result = crdebug_("attach", "--ranks", "0,3-5", "--batch", "-x", script("bt\n"), "heat")
    assert result.exit_code == 0
    assert world.asked == [("attach", "heat", "0,3-5")]
    assert ("detach",) in world.session.asked


def test_restart_announces_ranks_as_debuggers_expect(world: World, script: Script) -> None:
    result = crdebug_("restart", "--batch", "-x", script("bt\n"), "heat:1")
    assert result.exit_code == 0
    assert world.asked == [("restart_from", "heat:1")]
    assert "MPIR_debug_info) node1:100" in result.stderr.splitlines()
    # a user at a console attaches to nothing
    result = crdebug_("restart", "heat:1", typed="quit\n")
    assert "MPIR_debug_info" not in result.output + result.stderr


# ---- errors -----------------------------------------------------------------------------------


def test_an_expected_error_is_one_sentence(world: World) -> None:
    world.fail = BadInput("there is no job 'nosuch'", hint="'crdebug jobs' lists them")
    for argv in (["attach", "nosuch"], ["kill", "nosuch"], ["checkpoints", "nosuch"], ["jobs"]):
        result = crdebug_(*argv)
        assert result.exit_code == 1
        assert result.stderr == "crdebug: there is no job 'nosuch' ('crdebug jobs' lists them)\n"


def test_a_bug_is_status_70(world: World) -> None:
    world.fail = KeyError("x")
    result = crdebug_("attach", "heat")
    assert result.exit_code == 70
    assert result.stderr.startswith("crdebug: this is a bug in crdebug, please report it: KeyError")
    assert "Traceback" in result.stderr


# ---- jobs without the debugger ----------------------------------------------------------------


def test_run_without_a_debugger_replaces_the_launcher(world: World) -> None:
    world.status = 3
    result = crdebug_("run", "--no-debugger", "--name", "heat", "--", "mpirun", "./heat")
    assert result.exit_code == 3
    assert world.asked == [("run_detached", ("mpirun", "./heat"), "heat", 0), ("follow", "heat")]
    assert (result.stdout, result.stderr) == ("half", "crdebug: job heat\noops\n")


def test_what_a_job_is_given_besides_its_command_line(world: World, tmp_path: Path) -> None:
    options = ("--env", "A=1=2", "--env", "B=", "--cwd", str(tmp_path))
    start = ("--", "mpirun", "./heat")
    file = tmp_path / "in put"
    file.write_text("echo x\n")
    given = Given({"A": "1=2", "B": ""}, tmp_path)
    assert crdebug_("run", *options, "--stdin", str(file), *start).exit_code == 0
    assert world.given == [replace(given, stdin=file)]
    assert crdebug_("run", "--batch", "-x", str(file), "--stdin", "-", *start).exit_code == 0
    assert world.given == [Given(stdin=0)]
    assert crdebug_("run", "--no-debugger", *options, "--stdin", str(file), *start).exit_code == 0
    assert world.given == [replace(given, stdin=file)]


def test_the_hosts_that_a_job_is_to_run_on(world: World, tmp_path: Path) -> None:
    start = ("--", "mpirun", "./heat")
    file = tmp_path / "hosts"
    file.write_text("n1\n")
    assert crdebug_("run", "--hosts", "n1,n2:8", *start).exit_code == 0
    assert world.hosts == Named("n1,n2:8")
    assert crdebug_("run", "--hostfile", str(file), *start).exit_code == 0
    assert world.hosts == Named(file=file)
    assert crdebug_("run", "--no-debugger", "--hosts", "n1", *start).exit_code == 0
    assert [each.hosts for each in world.given] == [Named("n1")]
    refused = crdebug_("run", "--no-debugger", "--front", "3", "--hosts", "n1", *start)
    assert "--hosts and --hostfile are not for a job that a tool starts" in refused.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--env", "A"), "'A' is not NAME=VALUE"),
        (("--env", "=1"), "'=1' is not NAME=VALUE"),
        (("--cwd", "/nowhere"), "'/nowhere' does not exist"),
        (("--stdin", "/nowhere"), "'/nowhere' does not exist"),
        (("--stdin", "-"), "'--stdin -' is the console's: give a file, or --batch"),
    ],
)
def test_what_a_job_cannot_be_given(world: World, options: tuple[str, ...], said: str) -> None:
    result = crdebug_("run", *options, "--", "mpirun", "./heat")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not world.asked


def test_ctrl_c_ends_the_job_it_waits_for(world: World) -> None:
    world.interrupted = True
    result = crdebug_("run", "--no-debugger", "--", "mpirun", "./heat")
    assert result.exit_code == 130
    assert world.asked[-1] == ("kill", "heat")


def test_restart_without_a_debugger(world: World) -> None:
    result = crdebug_("restart", "--no-debugger", "heat:2")
    assert result.exit_code == 0
    assert world.asked == [("restart", "heat:2"), ("follow", "heat")]
    assert "restart: restore" in result.stderr


def test_checkpoint_prints_the_handle_that_debuggers_look_for(world: World) -> None:
    result = crdebug_("checkpoint", "heat", "--note", "a note", "--kill")
    assert result.exit_code == 0
    assert world.asked == [("take_checkpoint", "heat", "a note", True, False)]
    assert result.stderr == "checkpoint: dump\nMPIR_checkpoint_handle) heat:3\n"
    assert result.stdout == "checkpoint heat:3 taken (12.3 MB)\n"
    found = json.loads(crdebug_("checkpoint", "heat", "--json").stdout)
    assert (found["handle"], found["size"]) == ("heat:3", 12_345_678)


def test_lists_for_people_and_for_programs(world: World) -> None:
    found = json.loads(crdebug_("checkpoints", "--json").stdout)
    assert [each["handle"] for each in found] == ["heat:1", "heat:2"]
    assert found[0]["locations"] == ["relax at heat.c:41"] * 4
    assert "heat:2" in crdebug_("checkpoints", "heat").stdout
    assert world.asked == [("list_checkpoints", None), ("list_checkpoints", "heat")]
    table = crdebug_("jobs").stdout.splitlines()
    assert table[0].split()[:3] == ["job", "state", "ranks"]
    assert table[1].endswith("mpirun -n 4 './my heat'")
    assert table[2].split()[:3] == ["old", "ended", "(3)"]
    jobs = json.loads(crdebug_("jobs", "--json").stdout)
    assert jobs[0]["argv"] == ["mpirun", "-n", "4", "./my heat"]
    assert jobs[1]["status"] == 3


def test_small_verbs_say_what_they_did(world: World) -> None:
    assert crdebug_("delete", "heat:1").stdout == "checkpoint heat:1 deleted\n"
    assert crdebug_("kill", "heat").stdout == "job heat was killed; its checkpoints stay\n"
    assert crdebug_("release", "heat").stdout == "rank 0: gate opened\nrank 1: gate opened\n"
    assert world.asked == [("delete", "heat:1"), ("kill", "heat"), ("release", "heat")]
    world.fail = StoreError(
        "there is no checkpoint heat:9", hint="'crdebug checkpoints' lists them"
    )
    assert crdebug_("delete", "heat:9").exit_code == 1


# ---- the program ------------------------------------------------------------------------------


def test_help_loads_only_the_modules_it_uses() -> None:
    code = (
        "import sys, crdebug.cli\n"
        "heavy = {'rich', 'prompt_toolkit', 'asyncio', 'psutil', 'crdebug.session'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_it_runs_as_a_module() -> None:
    out = subprocess.check_output([sys.executable, "-m", "crdebug", "--help"], text=True)
    assert out.startswith("Usage: crdebug [OPTIONS] COMMAND")


def test_the_config_file_is_followed_and_a_bad_one_stops_everything(
    world: World, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    monkeypatch.setenv("CRDEBUG_CONFIG", str(file))
    file.write_text('signal = "SIGTSTP"\npager = false\n')
    show = script("show signal\nshow pager\n")
    result = crdebug_("run", "--batch", "-x", show, "--", "mpirun", "x")
    assert world.asked[0] == ("run", ("mpirun", "x"), None, True, signal.SIGTSTP)
    assert f"pager: off ({file}:2)" in result.stdout
    crdebug_("run", "--signal", "40", "--batch", "-x", show, "--", "mpirun", "x")
    assert world.asked[-1][-1] == 40
    file.write_text("pager = perhaps\n")
    asked = len(world.asked)
    result = crdebug_("run", "--", "mpirun", "x")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"crdebug: {file}:1: invalid value")
    assert len(world.asked) == asked

"""Starting a job: its environment, refusals before anything is started, and reasons why it failed
to start."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from test_record import OVER, a_job, a_record, with_checkpoint

from crdebug.acquire.binaries import is_static_mpi
from crdebug.base.deadline import Deadline
from crdebug.base.errors import (
    BadInput,
    CrdebugError,
    DeadlineExpired,
    NotAvailable,
    Refused,
    StoreError,
)
from crdebug.base.settings import Settings
from crdebug.job import launch as launching
from crdebug.job import standard_input
from crdebug.job.directory import JobDirectory
from crdebug.job.given import Given
from crdebug.job.launch import launch
from crdebug.job.launch_environment import added_to, why_added
from crdebug.job.ranks_there import await_ranks, why_ended
from crdebug.native.build import Native, build
from crdebug.node import bare
from crdebug.node import container as containers

pytestmark = pytest.mark.unit

ARGV = ("mpirun", "-n", "2", "./heat")
EVERYTHING = {
    "OMPI_MCA_orte_tmpdir_base": "/dev/shm",
    "PRTE_MCA_prte_tmpdir_base": "/dev/shm",
    "PMIX_SYSTEM_TMPDIR": "/dev/shm",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,vader,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "UCX_TLS": "self,posix,cma,tcp",
    "HWLOC_PLUGINS_BLACKLIST": "hwloc_gl.so,hwloc_opencl.so,hwloc_cuda.so,hwloc_nvml.so,"
    "hwloc_rsmi.so,hwloc_levelzero.so",
    "HYDRA_LAUNCHER": "fork",
    "PRTE_MCA_schizo_proxy": "ompi",
}
AS_ROOT = {
    f"{who}_ALLOW_RUN_AS_ROOT{sure}": "1" for who in ("OMPI", "PRTE") for sure in ("", "_CONFIRM")
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRDEBUG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


# ---- environment -------------------------------------------------------------------------------


@pytest.mark.parametrize(("uid", "more"), [(0, AS_ROOT), (1000, {})])
def test_a_job_gets_the_settings_it_needs_and_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch, uid: int, more: Mapping[str, str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert added_to({"HOME": "/x"}) == {**EVERYTHING, **more}
    debugged = added_to({"HOME": "/x"}, debugged=True)
    assert debugged == {**EVERYTHING, **more, "LSAN_OPTIONS": "detect_leaks=0"}
    recorded = added_to({"HOME": "/x"}, recorded=True)
    assert recorded == {**EVERYTHING, **more, "PYTHONHASHSEED": "0"}
    assert added_to({"PYTHONHASHSEED": "random"}, recorded=True) == {**EVERYTHING, **more}


@pytest.mark.parametrize("name", [*EVERYTHING, *AS_ROOT])
@pytest.mark.parametrize("value", ["", "mine"])
def test_the_users_own_settings_win(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    every = {**EVERYTHING, **AS_ROOT}
    assert added_to({name: value}) == {other: every[other] for other in every if other != name}


# ---- before anything is started ----------------------------------------------------------------


class Container:
    """Replaces the job container: notes the requests, and fails on demand."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, object]] = []
        self.error: BaseException | None = None

    async def start(
        self, *programs: object, register: Callable[[int, int], None], **options: object
    ) -> None:
        self.asked.append(options)
        if self.error is not None:
            raise self.error
        register(1, os.getpid())


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Container:
    made = Container()
    cache = tmp_path / "cache"
    cache.mkdir()

    async def build(compiler: str, deadline: Deadline) -> Native:
        names = ("starter", "shim.so", "stepper.so", "matcher.so", "xstate.so")
        for name in names:
            (cache / name).write_text(name)
        return Native(*(cache / name for name in names))

    monkeypatch.setattr(launching, "build", build)
    monkeypatch.setattr(containers, "start", made.start)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return made


async def start(name: str | None = "heat", **settings: object) -> JobDirectory:
    chosen = Settings(**settings)  # type: ignore[arg-type]
    directory, _ = await launch(ARGV, name=name, hold=True, settings=chosen)
    return directory


@pytest.mark.root
async def test_a_job_that_was_started_is_on_record(home: Path, container: Container) -> None:
    directory = await start()
    record = directory.read()
    assert (record.name, record.argv, record.pid) == ("heat", ARGV, os.getpid())
    assert (record.signal, record.incarnation) == (62, 1)
    assert record.directory == os.getcwd()
    assert container.asked[0]["directory"] == directory.run(1)
    assert (directory.path / "run" / "1").is_dir()


@pytest.mark.root
async def test_what_the_job_is_given_is_on_record_and_its_input_in_place(
    container: Container, tmp_path: Path
) -> None:
    file = tmp_path / "in"
    file.write_bytes(b"1\n2")
    variables = {"A": "1", "OMPI_MCA_pml": "mine"}
    given = Given(variables, tmp_path, file)
    directory, record = await launch(ARGV, name="heat", hold=True, settings=Settings(), given=given)
    assert (record.environment, record.directory) == (variables, str(tmp_path))
    assert record.stdin == str(file)
    assert "OMPI_MCA_pml" not in record.added
    assert container.asked[0]["working_directory"] == tmp_path
    environment = container.asked[0]["environment"]
    assert isinstance(environment, dict)
    assert environment.items() >= {**variables, "PATH": os.environ["PATH"]}.items()
    assert standard_input.is_over(directory.run(1))
    assert (directory.run(1) / "input").read_bytes() == b"\x03\0\0\x001\n2" + bytes(4)


@pytest.mark.parametrize("given", [Given(stdin=Path("/nowhere")), Given(directory=Path("/none"))])
async def test_what_is_not_there_cannot_be_given(container: Container, given: Given) -> None:
    with pytest.raises(BadInput, match="/no"):
        await launch(ARGV, name="heat", hold=True, settings=Settings(), given=given)
    assert not container.asked and not JobDirectory("heat").exists()


@pytest.mark.root
async def test_the_signal_is_the_users(container: Container) -> None:
    directory = await start(signal=40)
    assert directory.read().signal == 40
    assert container.asked[0]["signal"] == 40


@pytest.mark.root
async def test_a_job_of_that_name_that_runs_is_refused(container: Container) -> None:
    a_job()
    with pytest.raises(Refused) as caught:
        await start()
    assert str(caught.value) == (
        "job 'heat' is running (choose another --name, or 'crdebug kill heat')"
    )
    assert not container.asked


@pytest.mark.root
async def test_one_that_left_checkpoints_is_refused(container: Container) -> None:
    with_checkpoint(a_job(**OVER))
    with pytest.raises(Refused, match="job 'heat' has 1 checkpoint: heat:1 "):
        await start()
    with_checkpoint(a_job(**OVER), 2)
    with pytest.raises(Refused, match="job 'heat' has 2 checkpoints: heat:1, heat:2 "):
        await start()
    assert not container.asked


@pytest.mark.root
async def test_one_that_is_over_makes_room(container: Container) -> None:
    old = a_job(**OVER)
    (old.new_run(1) / "stdout").write_text("old")
    directory = await start()
    assert not (directory.run(1) / "stdout").exists()
    assert directory.read() != a_record(**OVER)


@pytest.mark.root
async def test_two_at_once_with_the_same_name(container: Container) -> None:
    with JobDirectory("heat").lock("start it"), pytest.raises(Refused, match="cannot start it"):
        await start()
    assert not container.asked


@pytest.mark.parametrize("error", [NotAvailable("no namespaces"), KeyboardInterrupt()])
@pytest.mark.root
async def test_a_container_that_cannot_be_made_leaves_nothing(
    container: Container, error: BaseException
) -> None:
    container.error = error
    with pytest.raises(type(error)):
        await start()
    assert not JobDirectory("heat").path.exists()


class TestWithoutAContainer:
    """Its job gets another form of the starter, and tells its processes where its directory is."""

    @pytest.fixture(autouse=True)
    def none_can_be_made(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        async def why_not(starter: Path, deadline: Deadline) -> str:
            return "none can be made here"

        monkeypatch.setattr(bare, "why_no_container", why_not)
        monkeypatch.setattr(bare, "new_mark", lambda: "test-launch-0123456789")
        yield
        shutil.rmtree(bare.scratch_of("test-launch-0123456789"), ignore_errors=True)

    async def test_what_it_gets(self, container: Container) -> None:
        directory = await start()
        record = directory.read()
        (asked,) = container.asked
        scratch = str(bare.scratch_of("test-launch-0123456789"))
        assert asked["form"] == ("--bare", scratch)
        environment, run = asked["environment"], directory.run(1)
        assert isinstance(environment, dict)
        assert environment["CRDEBUG_DIR"] == str(run)
        assert environment["CRDEBUG_TIME"] == str(run / "time")
        assert environment["CRDEBUG_JOB"] == record.mark == "test-launch-0123456789"
        assert environment["OMPI_MCA_orte_tmpdir_base"] == scratch
        assert (record.container, record.no_container) == ("none", "none can be made here")
        assert all(map(why_added, record.added))  # 'info launch' can say why

    async def test_a_job_that_cannot_be_started_leaves_nothing(self, container: Container) -> None:
        container.error = NotAvailable("no process")
        with pytest.raises(NotAvailable):
            await start()
        assert not bare.scratch_of("test-launch-0123456789").exists()
        assert not JobDirectory("heat").path.exists()

    async def test_what_the_user_has_set_stays(
        self, container: Container, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OMPI_MCA_orte_tmpdir_base", "/mine")
        await start()
        environment = container.asked[0]["environment"]
        assert isinstance(environment, dict)
        assert environment["OMPI_MCA_orte_tmpdir_base"] == "/mine"

    @pytest.mark.parametrize(("scope", "named"), [(0, False), (1, True)])
    async def test_where_yama_wants_it_the_ranks_name_who_may_debug_them(
        self, container: Container, monkeypatch: pytest.MonkeyPatch, scope: int, named: bool
    ) -> None:
        monkeypatch.setattr(bare, "yama_scope", lambda: scope)
        await start()
        environment = container.asked[0]["environment"]
        assert isinstance(environment, dict)
        assert environment.get("CRDEBUG_TRACER") == (str(os.getpid()) if named else None)


@pytest.mark.root
async def test_a_job_started_within_another_one_is_no_part_of_it(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in bare.VARIABLES:
        monkeypatch.setenv(name, "the other job's")
    record = (await start()).read()
    environment = container.asked[0]["environment"]
    assert isinstance(environment, dict)
    assert "the other job's" not in environment.values()
    assert record.mark == ""


async def test_nobody_can_debug_where_yama_forbids_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare, "yama_scope", lambda: 3)
    with pytest.raises(NotAvailable, match="ptrace_scope is 3"):
        await start()
    assert not home.exists()


async def test_a_signal_that_cannot_lead_threads_is_refused(home: Path) -> None:
    with pytest.raises(BadInput, match="signal SIGKILL cannot be the waitpoint signal"):
        await start(signal=9)
    assert not home.exists()


@pytest.mark.root
async def test_an_mpi_program_that_is_linked_statically_is_refused(home: Path) -> None:
    """Not so a static one without MPI: it may start the program, and hands on what is preloaded."""
    source = home.parent / "program.c"
    for name, options in (("own", ("-static",)), ("dynamic", ())):
        source.write_text("int PMPI_Init(void) { return 0; }\nint main(void) { return 0; }\n")
        subprocess.run(["cc", *options, "-o", name, source], check=True)
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", "-o", "shell", source], check=True)
    settings = Settings(record=False)
    with pytest.raises(NotAvailable, match=r"^\./own is linked statically.*'crdebug attach'"):
        await launch(("mpirun", "./own"), name=None, hold=True, settings=settings)
    assert not home.exists()
    os.mkfifo("fifo")  # which nobody opens for writing
    assert [is_static_mpi(name) for name in ("own", "dynamic", "shell", "none", ".", "fifo")] == [
        *(True, False, False, False, False, False)
    ]


async def test_srun_is_refused_since_its_ranks_are_elsewhere(home: Path) -> None:
    with pytest.raises(NotAvailable, match=r"srun has Slurm's daemon .*'crdebug attach'"):
        await launch(("/opt/bin/srun", "./a"), name=None, hold=True, settings=Settings())
    assert not home.exists()


async def test_a_missing_command_is_reported() -> None:
    with pytest.raises(BadInput, match="there is no command to run"):
        await launch((), name=None, hold=True, settings=Settings())


# ---- why it did not come -----------------------------------------------------------------------


def ended(events: str, stderr: str = "") -> tuple[JobDirectory, CrdebugError]:
    directory = a_job()
    run = directory.new_run(1)
    (run / "events").write_text(events)
    (run / "stderr").write_text(stderr)
    return directory, why_ended(directory, directory.read())


def test_a_launcher_that_is_not_there() -> None:
    _, error = ended("failed mprun: No such file or directory\nexit 127\n")
    assert isinstance(error, NotAvailable)
    assert str(error) == "the job could not be started: mprun: No such file or directory"


def test_a_launcher_that_ended_says_its_last_words_and_not_all_of_them() -> None:
    words = [f"line {n}" for n in range(80)]
    _, error = ended("exit 213\n", "\n".join(words) + "\n\n")
    tail = "\n".join(words[-30:])
    assert str(error) == f"the launcher ended with status 213 before all ranks were there:\n{tail}"


def test_the_error_for_a_command_that_is_no_mpi_job_says_how_to_start_one() -> None:
    _, error = ended("exit 0\n", "some words")
    assert str(error) == (
        "the command has ended, and none of its processes was a rank of MPI "
        "(name a launcher and an MPI program: crdebug run -- mpirun -n 4 PROGRAM)"
    )


NO_PROGRAM = (
    "the launcher could not start the ranks: the program cannot be run; it ended with status 1 "
    "(is it there, and executable? a relative path is looked for where mpirun runs):\n"
)
NO_SLOTS = (
    "the launcher could not start the ranks: there are more of them than slots; it ended with "
    "status 1 (with Open MPI 'mpirun --oversubscribe' starts more ranks than there are "
    "processors):\n"
)
RANK_ENDED = "a rank ended, and so the launcher ended with status 1 before all ranks were there:\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("mpirun was unable to launch ... could not access\nor execute an executable:", NO_PROGRAM),
        ("[proxy:0:0@vm] HYDU_create_process: execvp error on file ./missing (...)", NO_PROGRAM),
        ("There are not enough slots available in the system", NO_SLOTS),
        ("mpirun noticed that process rank 1 with PID 7 on node vm exited on signal 9", RANK_ENDED),
        ("one or more processes exited with non-zero status, thus causing", RANK_ENDED),
        ("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", RANK_ENDED),
    ],
)
def test_a_launcher_that_cannot_start_is_no_rank_that_ends(words: str, sentence: str) -> None:
    _, error = ended("exit 1\n", words)
    assert str(error) == sentence + words


def test_one_that_ended_without_a_word() -> None:
    _, error = ended("exit 1\n")
    assert str(error) == "the launcher ended with status 1 before all ranks were there"
    _, error = ended("")
    assert str(error) == "the launcher ended before all ranks were there"


@pytest.mark.parametrize("events", ["exit 1\n", "failed x: no\n"])
async def test_waiting_for_the_ranks_fails_with_the_reason(events: str) -> None:
    directory, error = ended(events)
    with pytest.raises(type(error)) as caught:
        await await_ranks(directory, directory.read(), Deadline(30.0))
    assert str(caught.value) == str(error)


async def test_a_job_that_ends_once_all_ranks_were_there_has_ended() -> None:
    """Its launcher was killed, say: attaching just then fails with that reason."""
    directory, _ = ended("ranks 2\n")
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(Refused, match=f"job '{directory.name}' has ended"):
        record = replace(directory.read(), pid=gone.pid)
        await await_ranks(directory, record, Deadline(30.0))


async def test_the_wait_for_the_ranks_has_an_end() -> None:
    directory, _ = ended("")
    with pytest.raises(DeadlineExpired, match=r"waited 0\.05 s for all ranks to start"):
        await await_ranks(directory, directory.read(), Deadline(0.05))


async def test_an_incarnation_without_its_directory_is_reported() -> None:
    directory = a_job()
    with pytest.raises(StoreError, match=f"{directory.run(1)} is missing"):
        await await_ranks(directory, directory.read(), Deadline(30.0))


async def test_four_at_once_with_an_empty_cache_get_four_names(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler takes longer than it takes the others to look for a name."""
    all_wait, built = asyncio.Barrier(4), build

    async def slow(compiler: str, deadline: Deadline) -> Native:
        await all_wait.wait()
        return await built(compiler, deadline)

    monkeypatch.setattr(launching, "build", slow)
    found = await asyncio.gather(*(start(None) for _ in range(4)))
    assert sorted(each.name for each in found) == [f"job-{number}" for number in range(1, 5)]

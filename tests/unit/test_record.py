"""A job's directory: its name, its record, its lock, its starter's events, and the job's end."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from crdebug.base.errors import BadInput, NotAvailable, Refused, StoreError
from crdebug.base.settings import Settings
from crdebug.detached.check import checked
from crdebug.job import clocks
from crdebug.job.directory import (
    JobDirectory,
    JobRecord,
    all_jobs,
    has_ended,
    is_alive,
    unused,
)
from crdebug.job.starter_events import StarterEvents, starter_events
from crdebug.node import proc

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("CRDEBUG_HOME", str(path))
    return path


def a_record(name: str = "heat", **changes: object) -> JobRecord:
    """Of a job whose PID 1 is this process: it is alive."""
    record = JobRecord(
        name=name,
        argv=("mpirun", "-n", "2", "./a b"),
        directory="/home/me",
        created=1_700_000_000.5,
        signal=62,
        starter="/cache/starter",
        shim="/cache/shim.so",
        incarnation=1,
        pid=os.getpid(),
        start=proc.started(os.getpid()),
        boot=proc.boot_id(),
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def a_job(name: str = "heat", **changes: object) -> JobDirectory:
    directory = JobDirectory(name)
    directory.create()
    directory.write(a_record(name, **changes))
    return directory


def with_checkpoint(directory: JobDirectory, number: int = 1) -> JobDirectory:
    path = directory.store.path(number)
    path.mkdir(parents=True)
    (path / "manifest.json").write_text("{}")
    return directory


OVER = {"boot": "another"}


# ---- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "heat-1", "A.b_c-9", "0", "x" * 100])
def test_names(name: str) -> None:
    assert JobDirectory(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "-x",
        ".hidden",
        "_x",
        "a b",
        "a:1",
        "ü",
        "a\n",
        "a\0",
        "²",
        "x" * 101,
    ],
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        JobDirectory(name)
    assert str(caught.value) == f"'{name}' is not a job name (use letters, digits, '.', '_', '-')"


def unused_name(argv: tuple[str, ...]) -> str:
    with unused(argv, "start it") as directory:
        name = directory.name
        directory.remove()
    return name


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with programs and other files."""
    monkeypatch.chdir(tmp_path)
    for name in ("heat", "my prog", ".dotted", "data.bin", "hosts"):
        (tmp_path / name).write_text("")
    for name in ("heat", "my prog", ".dotted"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]))
    (tmp_path / "bin").mkdir()
    for name in ("mpirun", "node", "lmp"):
        (tmp_path / "bin" / name).write_text("")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ("mpirun -n 4 ./heat", "heat-1"),
        ("mpirun -n 4 ./heat data.bin", "heat-1"),
        ("mpirun -n 4 ./heat --in ./data.bin", "heat-1"),
        ("mpirun --hostfile ./hosts --map-by node -n 4 ./heat", "heat-1"),
        ("mpirun --oversubscribe ./heat node", "heat-1"),
        ("mpirun --map-by node -n 4 lmp -in data.bin", "lmp-1"),
        ("mpirun --oversubscribe lmp", "lmp-1"),
        ("mpirun -n 2 sh -c ./heat", "heat-1"),
        ("mpirun -n 1 ./heat : -n 2 ./.dotted", "heat-1"),
        ("mpirun -n 1 ./.dotted", "dotted-1"),
        ("mpirun -n 4 ./missing", "job-1"),
        ("mpirun", "job-1"),
        ("./heat", "job-1"),
    ],
)
def test_a_job_without_a_name_gets_its_programs(here: Path, argv: str, name: str) -> None:
    assert unused_name(tuple(argv.split())) == name


def test_the_name_is_one_that_is_allowed(here: Path) -> None:
    assert unused_name(("mpirun", "./my prog")) == "myprog-1"


def test_a_long_program_gets_a_name_that_is_allowed(here: Path) -> None:
    program = here / ("p" * 200)
    program.write_text("")
    program.chmod(0o755)
    assert unused_name(("mpirun", str(program))) == "p" * 90 + "-1"


def test_the_first_number_that_is_free(here: Path) -> None:
    argv = ("mpirun", "./heat")
    a_job("heat-1")
    a_job("heat-3")
    assert unused_name(argv) == "heat-2"
    a_job("heat-2")
    assert unused_name(argv) == "heat-4"


def test_two_at_once_get_two_names(here: Path) -> None:
    argv = ("mpirun", "./heat")
    with unused(argv, "start it") as one, unused(argv, "start it") as other:
        assert (one.name, other.name) == ("heat-1", "heat-2")
        with pytest.raises(Refused, match="another crdebug works on job 'heat-1'"), one.lock("x"):
            pass


def test_a_lock_whose_job_was_forgotten_meanwhile_is_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`kill` and a follower of the job may both find that it has ended."""
    directory = JobDirectory("heat")
    real, left = open, ["opened", "made"]

    def forgotten(path: Path, mode: str) -> object:
        """Once before it is opened, and once between that and the lock."""
        if left and left.pop() == "made":
            directory.remove()
            return real(path, mode)
        file = real(path, mode)
        if len(left) == 0 and not hasattr(forgotten, "done"):
            directory.remove()
            forgotten.done = True  # type: ignore[attr-defined]
        return file

    monkeypatch.setattr("builtins.open", forgotten)
    with directory.lock("kill it"):
        assert (directory.path / "lock").exists()
        with pytest.raises(Refused), JobDirectory("heat").lock("start it"):
            pass


# ---- the record --------------------------------------------------------------------------------


def test_a_written_record_is_read_back_unchanged(home: Path) -> None:
    directory = a_job()
    assert directory.exists() and directory.read() == a_record()
    changed = replace(a_record(), incarnation=7)
    directory.write(changed)
    assert JobDirectory("heat").read() == changed
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700


def test_the_error_for_an_unknown_job_lists_the_jobs(home: Path) -> None:
    with pytest.raises(BadInput) as caught:
        JobDirectory("heat").read()
    assert str(caught.value) == "there is no job 'heat' (jobs here: none)"
    a_job("b")
    a_job("a")
    with pytest.raises(BadInput) as caught:
        JobDirectory("heat").read()
    assert str(caught.value) == "there is no job 'heat' (jobs here: a, b)"
    assert not JobDirectory("heat").path.exists()


@pytest.mark.parametrize("data", ["", "{", "[]", '{"name": "heat"}', '{"pid": "x"}'])
def test_a_record_that_cannot_be_read_is_one_sentence(data: str) -> None:
    directory = a_job()
    (directory.path / "job.json").write_text(data)
    with pytest.raises(StoreError, match=r"job\.json cannot be read: .*; otherwise remove "):
        directory.read()


def test_all_jobs_by_name(home: Path) -> None:
    assert all_jobs() == ()
    for name in ("c", "a", "b"):
        a_job(name)
    JobDirectory("empty").create()
    (home / "jobs" / ".odd").mkdir()
    (home / "jobs" / "file").write_text("")
    assert [job.name for job in all_jobs()] == ["a", "b", "c"]


def test_each_incarnation_has_a_directory_of_its_own_empty_at_first() -> None:
    directory = a_job()
    for number in (1, 2):
        run = directory.new_run(number)
        assert run == directory.run(number) and stat.S_IMODE(run.stat().st_mode) == 0o700
        (run / "stdout").write_text("x")
    first, second = directory.run(1), directory.new_run(2)
    assert {path.name for path in first.iterdir()} == {"stdout", "asks", "door"}
    # Who reads the first one's is there for the second one.
    for name in ("asks", "door"):
        assert (first / name).is_fifo() and (first / name).samefile(second / name)
    assert len(list(second.iterdir())) == 2


# ---- alive -------------------------------------------------------------------------------------


def test_alive_is_the_process_of_that_start_in_this_run_of_the_machine() -> None:
    assert is_alive(a_record())
    assert not is_alive(a_record(start=proc.started(os.getpid()) - 1))  # another with its PID
    assert not is_alive(a_record(**OVER))  # before the machine was started again
    assert not is_alive(a_record(pid=1 << 22))  # above what the kernel gives


def test_an_ended_process_that_nobody_has_waited_for_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    with child:
        record = a_record(pid=child.pid, start=proc.started(child.pid))
        assert child.stdout is not None and child.stdout.read() == b""  # the end
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(record)


def test_the_error_for_an_ended_job_names_its_last_checkpoint() -> None:
    directory = a_job(**OVER)
    assert str(has_ended(directory)) == "job 'heat' has ended"
    with_checkpoint(with_checkpoint(directory, 2), 3)
    assert (
        str(has_ended(directory))
        == "job 'heat' has ended ('crdebug restart heat:3' brings it back)"
    )


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ("ranks 4\nexit 3\n", "has ended with status 3"),
        ("ranks 4\n", "has ended"),  # it was killed from outside
        ("killed\nexit 137\n", "was ended by 'crdebug kill'"),
    ],
)
def test_the_end_of_a_job_is_reported_even_once_it_is_forgotten(
    home: Path, events: str, said: str
) -> None:
    directory = a_job(**OVER)
    (directory.new_run(1) / "events").write_text(events)
    assert str(has_ended(directory)) == f"job 'heat' {said}"
    directory.forget_if_over()
    assert not directory.path.exists()
    for _ in range(2):
        with pytest.raises(BadInput) as caught:
            JobDirectory("heat").read()
        assert (
            str(caught.value) == f"job 'heat' {said} (it left no checkpoint to bring it back from)"
        )
    assert a_job().read() == a_record()


async def test_check_says_that_no_record_of_it_is_kept(home: Path) -> None:
    directory = a_job(**OVER)
    (directory.new_run(1) / "events").write_text("ranks 4\nexit 3\n")
    directory.forget_if_over()
    says = r"no record is kept of job 'heat', which has ended with status 3 \(.*256 MiB"
    with pytest.raises(NotAvailable, match=says):
        await checked("heat", Settings())
    with pytest.raises(BadInput, match="there is no job 'other'"):
        await checked("other", Settings())


def test_so_many_ends_are_remembered_and_no_more(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdebug.job.directory._REMEMBERED", 3)
    for number in range(5):
        a_job(f"job{number}", **OVER).forget_if_over()
        os.utime(home / "ended" / f"job{number}", (number, number))
    assert sorted(os.listdir(home / "ended")) == ["job2", "job3", "job4"]


@pytest.mark.parametrize(
    ("layer", "logs", "kept"),
    [("pmpi.so", True, b"new"), ("pmpi.so", False, b"old"), ("", False, None)],
)
def test_the_record_of_the_last_job_of_a_name_is_kept(
    layer: str, logs: bool, kept: bytes | None
) -> None:
    """Also if a crdebug was killed between moving it and forgetting the job."""
    directory = a_job(layer=layer, **OVER)
    directory.last_record.mkdir(parents=True)
    (directory.last_record / "0").write_bytes(b"old")
    if logs:
        directory.new_run(1)
        clocks.make_room(directory.run(1))
        (clocks.logs(directory.run(1)) / "0").write_bytes(b"new")
    directory.forget_if_over()
    assert not directory.exists()
    found = directory.last_record / "0"
    assert (found.read_bytes() if found.exists() else None) == kept


# ---- the lock ----------------------------------------------------------------------------------


def test_one_at_a_time() -> None:
    directory = a_job()
    with directory.lock("checkpoint"):
        with pytest.raises(Refused) as caught, JobDirectory("heat").lock("restart"):
            raise AssertionError("two have the lock")
        with JobDirectory("other").lock("restart"):
            pass
    assert str(caught.value) == (
        "cannot restart: another crdebug works on job 'heat' (try again when it is done)"
    )
    with JobDirectory("heat").lock("restart"):
        pass


def test_an_error_or_the_end_of_the_process_gives_the_lock_back() -> None:
    directory = a_job()
    with pytest.raises(ZeroDivisionError), directory.lock("checkpoint"):
        raise ZeroDivisionError
    code = (
        "from crdebug.job.directory import JobDirectory\n"
        "import os\n"
        "with JobDirectory('heat').lock('die'): os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    with directory.lock("go on"):
        pass


# ---- being over --------------------------------------------------------------------------------


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("checkpoints", [True, False])
def test_only_a_job_that_is_over_and_left_nothing_is_forgotten(
    home: Path, alive: bool, checkpoints: bool
) -> None:
    directory = a_job(**({} if alive else OVER))
    directory.new_run(1)
    if checkpoints:
        with_checkpoint(directory)
    directory.forget_if_over()
    assert directory.exists() is (alive or checkpoints)
    assert directory.path.exists() is (alive or checkpoints)


def test_a_job_is_not_forgotten_while_somebody_works_on_it() -> None:
    directory = a_job(**OVER)
    with JobDirectory("heat").lock("start it"):
        directory.forget_if_over()
        assert directory.exists()
        directory.forget_while_locked()
        assert not directory.path.exists()


def test_one_that_never_began_is_forgotten(home: Path) -> None:
    directory = JobDirectory("heat")
    with directory.lock("start it"):
        directory.new_run(1)
        directory.forget_while_locked()
    assert not directory.path.exists()


# ---- the starter's events ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, StarterEvents(None, None, None)),
        ("", StarterEvents(None, None, None)),
        ("ranks 4\n", StarterEvents(4, None, None)),
        ("ranks 4\nexit 0\n", StarterEvents(4, 0, None)),
        ("exit 143\n", StarterEvents(None, 143, None)),
        ("failed ./x: No such file\nexit 127\n", StarterEvents(None, 127, "./x: No such file")),
        ("odd\nranks x\nexit\nexit -1\n", StarterEvents(None, None, None)),
        ("  exit 1\n", StarterEvents(None, None, None)),
    ],
)
def test_starter_events(tmp_path: Path, text: str | None, wanted: StarterEvents) -> None:
    events = tmp_path / "events"
    if text is not None:
        events.write_text(text)
    assert starter_events(events) == wanted


def test_starter_events_of_a_late_rank(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("ranks 2\nlate 1 /bin/a b\nlate 0 /bin/c\n")
    late = starter_events(tmp_path / "events").said
    assert [text.partition(" starts only now")[0] for text in late] == [
        "rank 1: /bin/a b",
        "rank 0: /bin/c",
    ]


def test_a_starter_event_that_output_waits(tmp_path: Path) -> None:
    events = "ranks 2\nwaits error No space left on device\nlate 0 /bin/c\nflows error\nwaits x \n"
    (tmp_path / "events").write_text(events)
    waits, late, flows, why = starter_events(tmp_path / "events").said
    assert waits.startswith("the job's output to standard error waits: no space left on dev")
    assert late.startswith("rank 0: /bin/c")
    assert flows == "the job's output to standard error goes on"
    assert "waits:  (" in why


def test_starter_events_survive_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "events").write_bytes(b"failed \xff\xfe: No such file\nexit 127\n")
    assert starter_events(tmp_path / "events").status == 127


def test_a_starter_event_that_the_launcher_was_killed(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("ranks 2\ndied 9\nexit 137\n")
    said = starter_events(tmp_path / "events")
    assert said.status == 137
    assert said.said == (
        "the launcher was killed by SIGKILL: its ranks cannot go on without it, and end",
    )

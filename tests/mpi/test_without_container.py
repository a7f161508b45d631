"""Where namespaces are refused, an ordinary user's job runs, goes back, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crdebug.node import bare, proc
from harness import advect, leaks, nobody, users
from harness.advect import answers
from harness.mpirun import command, reference

pytestmark = nobody.needs_root

RUN = ".local/state/crdebug/jobs/example/run/1"  # in his home
FOREVER = (100_000_000, 100_000_000, 1000)  # steps, before the bug, and between two reports
# The name of a job's process that is to be killed, or how its command line begins.
VICTIMS = ("crdebug", "starter", "keeper", "launcher", "gdb", "rank")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """His home: what crdebug compiles at its first use stays for all tests."""
    with users.clean_home() as path:
        yield path


@pytest.fixture(scope="module")
def program(home: Path) -> Path:
    return advect.make(home)


def _refused() -> None:
    users.expose()
    users.refuse_namespaces()


def _filtered() -> None:
    users.expose()
    users.refuse("unshare")()


def crdebug(
    home: Path, *argv: object, first: Callable[[], None] = _refused
) -> subprocess.CompletedProcess[str]:
    mark = {leaks.MARK: os.environ[leaks.MARK], "CRDEBUG_STRICT": "1"}
    words = (sys.executable, "-m", "crdebug", *argv)
    return users.run(home, *words, first=first, env=_environment(mark), patience=500)


def _environment(more: dict[str, str]) -> dict[str, str]:
    calm = ("OMPI_MCA_mpi_yield_when_idle", "MPIR_CVAR_POLLS_BEFORE_YIELD")
    return {name: os.environ[name] for name in calm} | more | {"PYTHONPATH": str(users.CHECKOUT)}


def play(
    home: Path,
    script: str | Path,
    program: Path,
    *arguments: object,
    first: Callable[[], None] = _refused,
) -> str:
    options = ("--record", "--batch", "-x", advect.EXAMPLE / script, "--name", "example")
    ran = crdebug(home, "run", *options, "--", *command(program, *arguments), first=first)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def written(home: Path, text: str) -> Path:
    path = home / "script.crdebug"
    path.write_text(text)
    path.chmod(0o644)
    return path


@contextmanager
def begun(
    home: Path, *argv: object, first: Callable[[], None] = _refused
) -> Iterator[subprocess.Popen[str]]:
    """crdebug in the background."""

    def become() -> None:
        first()
        users.become()

    with subprocess.Popen(
        [sys.executable, "-m", "crdebug", *map(str, argv)],
        preexec_fn=become,
        cwd=home,
        env=users.environment(home) | _environment({leaks.MARK: os.environ[leaks.MARK]}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 300
    while not true():
        assert process.poll() is None and time.monotonic() < end, process.poll()
        time.sleep(0.05)


# ---- the stories -------------------------------------------------------------------------------


def test_a_bug_is_traced_to_its_line(home: Path, program: Path) -> None:
    advect.traced(advect.parts(play(home, "trace.crdebug", program)))


def test_to_ticks_and_a_mark(home: Path, program: Path) -> None:
    part = advect.parts(play(home, "goto.crdebug", program, 200))
    advect.went_to(part, reference(program, 200))


@pytest.mark.sweep  # of test_travel_examples
def test_from_one_end_of_a_message_to_the_other(home: Path, program: Path) -> None:
    advect.followed_messages(advect.parts(play(home, "messages.crdebug", program, 200)))


@pytest.mark.sweep  # of test_travel_examples
def test_since_when(home: Path, program: Path) -> None:
    advect.bisected(advect.parts(play(home, "bisect.crdebug", program, 400)))


@pytest.mark.sweep  # of test_travel_examples
def test_backwards_like_forwards(home: Path, program: Path) -> None:
    advect.went_backwards(advect.parts(play(home, "reverse.crdebug", program, 200)))


def test_what_if(home: Path, program: Path) -> None:
    """Both futures are there, but not at once."""
    text = (advect.EXAMPLE / "branches.crdebug").read_text()
    there_again = "switch branch-1\n[0] print total\nwhen\n"
    script = written(home, text.replace("compare total main branch-1\n", "") + there_again)
    part = advect.parts(play(home, script, program, 400))
    (was,), (other,) = (answers(part[n], "[0] print total") for n in (0, 1))
    assert was != other
    assert answers(part[3], "[0] print total") == [was, other]
    assert "* main" in answers(part[3], "info branches")[0]


# ---- in words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "why"),
    [(_refused, "user.max_user_namespaces is 0"), (_filtered, "a seccomp filter")],
    ids=["switched off", "seccomp"],
)
def test_what_is_lost_is_said_once(
    home: Path, program: Path, first: Callable[[], None], why: str
) -> None:
    script = written(home, "[0] tbreak report\ncontinue\n[0] print own\n")
    said = play(home, script, program, 200, first=first)
    (line,) = re.findall(r"^this job has no container.*", said, re.M)
    assert why in line and "'restart'" in line and "MPI_Init" in line


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("checkpoint", "cannot take a checkpoint: the job has no container"),
        ("restart", "cannot restart: the job has no container"),
        ("compare own main main", "cannot compare branches: the job has no container"),
    ],
)
def test_what_cannot_be_done_says_why_and_what_to_do(
    home: Path, program: Path, typed: str, says: str
) -> None:
    script = written(home, f"[0] tbreak report\ncontinue\n{typed}\n")
    argv = ("run", "--batch", "-x", script, "--name", "example")
    ran = crdebug(home, *argv, "--", *command(program, 200))
    assert ran.returncode == 1
    said = ran.stdout + ran.stderr
    assert says in said, said
    (line,) = re.findall(rf".*{says}.*", said)
    assert "max_user_namespaces is 0" in line and "reverse commands use snapshots" in line


def test_before_mpi_init_there_is_no_way_back(home: Path, program: Path) -> None:
    script = written(
        home, "[0] tbreak report\ncontinue\nwhen\n[0] break main\n[0] reverse-continue\n"
    )
    said = play(home, script, program, 200)
    assert "history begins in call 1, a snapshot in memory" in said
    assert "this is the start of history" in said


def test_a_checkpoint_from_outside_is_refused_too(home: Path, program: Path) -> None:
    # A name of its own: the events of an earlier job of the same name say "ranks 4" as well.
    argv = ("run", "--no-debugger", "--name", "outside", "--", *command(program, *FOREVER))
    events = home / RUN.replace("example", "outside") / "events"
    with begun(home, *argv) as job:
        until(events.exists, job)
        until(lambda: "ranks 4" in events.read_text(), job)
        taken = crdebug(home, "checkpoint", "outside")
        assert taken.returncode == 1
        assert "cannot take a checkpoint: the job has no container" in taken.stderr
        assert crdebug(home, "kill", "outside").returncode == 0
        said, _ = job.communicate(timeout=200)
        assert len(re.findall("this job has no container", said)) == 1


# ---- nothing is left ---------------------------------------------------------------------------


def test_the_end_waits_until_the_user_has_seen_it(home: Path, program: Path) -> None:
    script = written(home, "continue\n[0] reverse-continue\ncontinue\ncontinue\n")
    said = play(home, script, program, 200)
    assert said.count("all ranks are about to call MPI_Finalize") == 2
    assert f"out| {reference(program, 200)}" in said
    assert "ranks 0-3 exited with status 0" in said


def _processes() -> dict[int, list[str]]:
    """His processes of this test, with their command lines."""
    marked = f"{leaks.MARK}={os.environ[leaks.MARK]}".encode()
    found = {}
    for pid in proc.pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            if marked in environment.split(b"\0") and proc.is_alive(pid) and pid != os.getpid():
                found[pid] = list(proc.command_line(pid))
        except OSError:
            continue
    return found


def _is(victim: str, words: list[str]) -> bool:
    name = Path(words[0]).name if words else ""
    return {
        "crdebug": "crdebug" in words,
        "launcher": name == "mpirun" or name.startswith("mpirun."),
        "gdb": name == "gdb",
        "rank": name == "advect",
    }.get(victim, name == "starter")


def _victim(name: str) -> int:
    found = sorted(pid for pid, words in _processes().items() if _is(name, words))
    starters = [pid for pid in found if proc.parent(pid) not in found]
    if name == "keeper":
        return starters[0]
    return next(pid for pid in found if pid not in starters) if name == "starter" else found[0]


@contextmanager
def debugged(
    home: Path, program: Path, first: Callable[[], None] = _refused
) -> Iterator[subprocess.Popen[str]]:
    """A session in which the job runs, and its history has begun."""
    script = written(home, "continue\n")
    argv = ("run", "--record", "--batch", "-x", script, "--name", "example")
    with begun(home, *argv, "--", *command(program, *FOREVER), first=first) as session:
        log = home / RUN / "time/0"
        until(lambda: log.exists() and log.stat().st_blocks > 2048, session)  # some hundred calls
        yield session


@pytest.mark.parametrize("victim", VICTIMS)
def test_whoever_is_killed_nothing_is_left(home: Path, program: Path, victim: str) -> None:
    with debugged(home, program) as session:
        scratch = _scratch(home)
        os.kill(_victim(victim), signal.SIGKILL)
        if victim in ("keeper", "gdb"):  # the session goes on
            session.send_signal(signal.SIGTERM)
        session.communicate(timeout=200)
    crdebug(home, "kill", "example")
    end = time.monotonic() + 60
    while (left := _processes()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left
    assert not scratch.exists()
    assert not (home / ".local/state/crdebug/jobs/example").exists()


def _scratch(home: Path) -> Path:
    """Where the job's MPI has its files."""
    record = json.loads((home / ".local/state/crdebug/jobs/example/job.json").read_text())
    place = bare.scratch_of(record["added"][bare.MARK])
    assert place.exists()
    return place


def test_the_next_crdebug_ends_what_somebody_has_left(home: Path, program: Path) -> None:
    # Not in user namespaces of their own, as by `_refused`: from one, nobody may look into another.
    with debugged(home, program, _filtered) as session:
        scratch = _scratch(home)
        keeper = _victim("keeper")
        os.kill(keeper, signal.SIGSTOP)
        for pid in (_victim("crdebug"), _victim("starter"), keeper):
            os.kill(pid, signal.SIGKILL)
        session.communicate(timeout=200)
    assert crdebug(home, "jobs", first=_filtered).returncode == 0
    assert not _processes()
    assert not scratch.exists()

"""The command lines of CRIU, the treatment of its results, and which of its many messages are
shown."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrsFailed, DeadlineExpired, StoreError
from crdebug.checkpoint.criu import Criu
from crdebug.node import container
from crdebug.node.container import Container
from crdebug.node.criu_program import CriuProgram
from crdebug.node.criu_trial import errors_in
from harness.scripts import BY_PATH

pytestmark = pytest.mark.unit

ME = os.getpid()

# Replaces CRIU: notes its command line, runs the action script as CRIU does, ends as configured.
PROGRAM = (
    BY_PATH
    + """import json, os, pathlib, subprocess, sys
plan = json.loads(pathlib.Path({plan!r}).read_text())
arguments = dict(zip(sys.argv, sys.argv[1:]))
work = pathlib.Path(arguments["--work-dir"])
note = {{"argv": sys.argv[1:], "work": sorted(os.listdir(work)), "actions": []}}
note["entered"] = [os.environ["ENTERED"]]
for action in plan["actions"]:
    environment = {{**os.environ, "CRTOOLS_SCRIPT_ACTION": action, "CRTOOLS_INIT_PID": "4711"}}
    status = subprocess.run([arguments["--action-script"]], env=environment).returncode
    note["actions"].append([action, status])
pathlib.Path({note!r}).write_text(json.dumps(note))
pathlib.Path(arguments["--log-file"]).write_text(plan["log"])
sys.stderr.write(plan["err"])
if plan["hang"]:
    sys.stdin.close()
    os.read(os.pipe()[0], 1)
sys.exit(plan["status"])
"""
)

# Stands in for our starter, but enters no container, and its action script carries plans out:
# `starter --enter KEEPER --serve SERVER -- PROGRAM...`, `starter --crs-action SOCKET SERVER`.
HELPER = (
    BY_PATH
    + """import os, socket, sys
if sys.argv[1] == "--enter":
    os.environ["ENTERED"] = sys.argv[2]
    try:
        os.execv(sys.argv[6], sys.argv[6:])
    except OSError as error:
        sys.exit(f"{{sys.argv[6]}}: {{error.strerror}}")
assert sys.argv[1] == "--crs-action"
channel = socket.socket(socket.AF_UNIX)
channel.connect(sys.argv[2])
line = f"{{os.environ['CRTOOLS_SCRIPT_ACTION']}} {{os.environ['CRTOOLS_INIT_PID']}}\\n"
channel.send(line.encode())
answer = channel.makefile().readline()
if answer.startswith("carry out "):
    said = open(answer[len("carry out "):-1]).read()
    channel.send(said.encode() + b"\\n")
    sys.exit(0 if said == "done" else 1)
sys.exit(0 if answer == "go\\n" else 1)
"""
)


@dataclass
class World:
    """A CRIU that does what a test says."""

    home: Path

    def criu(
        self,
        *,
        actions: tuple[str, ...] = (),
        status: int = 0,
        log: str = "",
        err: str = "",
        hang: bool = False,
    ) -> Criu:
        plan = {"actions": actions, "status": status, "log": log, "err": err, "hang": hang}
        (self.home / "plan").write_text(json.dumps(plan))
        words = {"plan": str(self.home / "plan"), "note": str(self.home / "note")}
        for name, text in (("criu", PROGRAM), ("the starter", HELPER)):
            path = self.home / name
            path.write_text(text.format(**words))
            path.chmod(0o700)
        program = CriuProgram(str(self.home / "criu"), "4.2", "", True)
        return Criu(program, self.home / "the starter")

    @property
    def images(self) -> Path:
        return self.home / "images"

    def note(self) -> dict[str, list[object]]:
        noted: dict[str, list[object]] = json.loads((self.home / "note").read_text())
        return noted

    def argv(self) -> list[str]:
        return [str(word) for word in self.note()["argv"]]

    def after(self, option: str) -> list[str]:
        """The values that an option was given."""
        words = self.argv()
        return [value for name, value in itertools.pairwise(words) if name == option]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the directory for temporary files: a short one, for sockets are made in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield
        assert not os.listdir(path)


def soon() -> Deadline:
    return Deadline(60.0)


class Called:
    """Notes what it is called with, or fails."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.pids: list[int] = []
        self.error = error

    def noted(self, pid: int) -> int:
        self.pids.append(pid)
        if self.error is not None:
            raise self.error
        return pid


class Frozen(Called):
    """Actions for the time when the job is frozen."""

    async def __call__(self, pid: int) -> int:
        return self.noted(pid)


class Whole(Called):
    """Actions for the moment when a restored job is complete.

    said: by the action script, about the plan.
    """

    def __init__(self, plan: Path, said: str = "done", error: BaseException | None = None) -> None:
        super().__init__(error)
        self.plan = plan
        plan.write_text(said)

    async def __call__(self, pid: int) -> tuple[Path, int]:
        return self.plan, self.noted(pid)


async def restored(
    criu: Criu,
    world: World,
    whole: Whole,
    deadline: Deadline | None = None,
    instead: Mapping[str, int] | None = None,
) -> int:
    deadline = deadline or soon()
    return await criu.restore(world.images, whole, deadline, container=None, instead=instead)


async def test_a_dump(world: World) -> None:
    criu, frozen = world.criu(actions=("post-dump",)), Frozen()
    assert await criu.dump(ME, world.images, frozen, soon(), container=Container(7)) == ME
    assert criu.name == "criu 4.2"
    assert frozen.pids == [ME]
    assert world.argv()[:3] == ["dump", "--tree", str(ME)]
    assert world.note()["entered"] == ["7"] and "--shell-job" not in world.argv()
    assert world.after("--images-dir") == [str(world.images)]
    assert world.note()["actions"] == [["post-dump", 0]]
    for option in ("--leave-running", "--tcp-established", "--link-remap", "--file-locks"):
        assert option in world.argv(), option
    assert world.after("--network-lock") == ["skip"]
    for option in ("--restore-detached", "--track-mem", "--prev-images-dir", "--unprivileged"):
        assert option not in world.argv()


async def test_without_a_container_it_dumps_and_restores_where_it_is(world: World) -> None:
    await world.criu(actions=("post-dump",)).dump(
        ME, world.images, Frozen(), soon(), container=None
    )
    assert world.note()["entered"] == ["0"] and "--shell-job" in world.argv()
    criu, whole = world.criu(actions=("post-restore",)), Whole(world.home / "final")
    assert await restored(criu, world, whole, instead={"pipe:[12]": 1}) == 4711
    assert world.note()["entered"] == ["0"] and "--shell-job" in world.argv()
    assert world.after("--inherit-fd") == ["fd[1]:pipe:[12]"]


async def test_who_is_not_root_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    criu = world.criu(actions=("post-dump",))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(container, "crs_at_work", lambda images: ())
    await criu.dump(ME, world.images, Frozen(), soon(), container=None)
    assert "--unprivileged" in world.argv()


async def test_a_dump_of_the_changed_pages(world: World) -> None:
    criu, images = world.criu(actions=("post-dump",)), world.home / ".draft-4" / "images"
    await criu.dump(ME, images, Frozen(), soon(), container=None, track=True)
    assert "--track-mem" in world.argv() and not world.after("--prev-images-dir")
    base = world.home / "3" / "images"
    await criu.dump(ME, images, Frozen(), soon(), container=None, track=True, base=base)
    assert "--track-mem" in world.argv()
    assert world.after("--prev-images-dir") == ["../../3/images"]  # also when 4 has its name


async def test_a_restore(world: World) -> None:
    actions = ("setup-namespaces", "post-setup-namespaces", "post-restore", "pre-resume")
    criu, whole = world.criu(actions=actions), Whole(world.home / "final")
    assert await restored(criu, world, whole) == 4711
    assert whole.pids == [4711]
    asked = [[action, 0] for action in actions]
    assert world.note()["actions"] == asked
    assert world.argv()[0] == "restore" and "--restore-detached" in world.argv()
    for option in ("--tree", "--leave-running", "--network-lock"):
        assert option not in world.argv(), option


async def test_a_plan_that_cannot_be_carried_out_is_the_error(world: World) -> None:
    criu = world.criu(actions=("post-restore",), status=1, log="Error (x.c:1): action failed\n")
    whole = Whole(world.home / "final", "cannot roll back /x: No space left on device")
    with pytest.raises(StoreError, match=r"^cannot roll back /x: No space left on device$"):
        await restored(criu, world, whole)


@pytest.mark.parametrize("end", ["cancelled", "expired"])
async def test_what_makes_it_final_is_not_broken_off(world: World, end: str) -> None:
    """Until then both end it."""
    hangs = world.criu(actions=("post-restore",), hang=True)
    slow, begun = Whole(world.home / "final"), asyncio.Event()

    class Hanging(Whole):
        async def __call__(self, pid: int) -> tuple[Path, int]:
            begun.set()
            await asyncio.sleep(3600)
            raise AssertionError

    async def start(whole: Whole, seconds: float) -> asyncio.Task[int]:
        return asyncio.create_task(restored(hangs, world, whole, Deadline(seconds)))

    seconds = 2.0 if end == "expired" else 60.0
    early = await start(Hanging(world.home / "x"), seconds)
    await begun.wait()
    if end == "cancelled":
        early.cancel()
    with pytest.raises(asyncio.CancelledError if end == "cancelled" else DeadlineExpired):
        await early
    late = await start(slow, seconds)
    await soon().until((world.home / "note").exists, "the plan to be carried out")
    if end == "cancelled":
        late.cancel()
    done, _ = await asyncio.wait([late], timeout=2.5)
    assert not done
    for process in psutil.Process().children():
        process.send_signal(signal.SIGTERM)
    with pytest.raises(CrsFailed, match="killed by signal 15"):
        await late


def kill_criu(world: World) -> None:
    for pid in container.crs_at_work(world.images):
        os.kill(pid, signal.SIGKILL)


async def test_a_plan_is_completed_even_if_criu_is_killed(world: World) -> None:
    """Before the error is raised: another attempt would find it at work on the same files."""
    criu, whole = world.criu(actions=("post-restore",)), Whole(world.home / "unused")
    whole.plan = world.home / "final"
    os.mkfifo(whole.plan)
    restore = asyncio.create_task(restored(criu, world, whole))
    plan = -1

    def read() -> bool:
        nonlocal plan
        with contextlib.suppress(OSError):  # nobody has it open
            plan = os.open(whole.plan, os.O_WRONLY | os.O_NONBLOCK)
        return plan >= 0

    await soon().until(read, "the plan to be read")
    kill_criu(world)
    done, _ = await asyncio.wait([restore], timeout=1.0)
    assert not done
    assert len(container.scripts_at_work(world.images)) == 1
    assert not container.scripts_at_work(world.home / "other")
    os.write(plan, b"done")
    os.close(plan)
    with pytest.raises(CrsFailed, match="killed by signal 9"):
        await restore
    await soon().until(lambda: not container.scripts_at_work(world.images), "the script to end")


async def test_no_plan_is_given_once_criu_is_killed(world: World) -> None:
    begun, given_up = asyncio.Event(), False

    class Hanging(Whole):
        async def __call__(self, pid: int) -> tuple[Path, int]:
            nonlocal given_up
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                given_up = True
            raise AssertionError

    criu, whole = world.criu(actions=("post-restore",)), Hanging(world.home / "final")
    restore = asyncio.create_task(restored(criu, world, whole))
    await begun.wait()
    kill_criu(world)
    with pytest.raises(CrsFailed, match="killed by signal 9"):
        await restore
    assert given_up


async def test_only_the_action_that_is_waited_for_counts(world: World) -> None:
    others = ("pre-dump", "network-lock", "post-dump", "network-unlock")
    frozen = Frozen()
    await world.criu(actions=others).dump(ME, world.images, frozen, soon(), container=None)
    assert frozen.pids == [ME]
    assert world.note()["actions"] == [[action, 0] for action in others]


@pytest.mark.parametrize("verb", ["dump", "restore"])
@pytest.mark.parametrize("status", [0, 1, 137])
async def test_without_the_meeting_it_is_a_failure_whatever_it_ends_with(
    world: World, verb: str, status: int
) -> None:
    with pytest.raises(CrsFailed, match=f"criu {verb} failed \\(exit status {status}\\)"):
        await _ask(world.criu(status=status), verb, world, Frozen())


async def _ask(criu: Criu, verb: str, world: World, frozen: Frozen) -> None:
    if verb == "dump":
        await criu.dump(ME, world.images, frozen, soon(), container=None)
    else:
        whole = Whole(world.home / "final", error=frozen.error)
        await restored(criu, world, whole)


ACTION = {"dump": "post-dump", "restore": "post-restore"}


@pytest.mark.parametrize("verb", ACTION)
@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (StoreError("the disk is full"), StoreError, "the disk is full"),
        (PermissionError(13, "not yours"), PermissionError, "not yours"),
        (ZeroDivisionError("oops"), Exception, "internal error while the job was frozen: ZeroDiv"),
    ],
)
async def test_an_error_while_it_is_frozen_is_reported_and_stops_the_crs(
    world: World, verb: str, error: BaseException, raised: type[BaseException], words: str
) -> None:
    criu = world.criu(actions=(ACTION[verb],), status=1, log="Error (x.c:1): action failed\n")
    with pytest.raises(raised, match=words):
        await _ask(criu, verb, world, Frozen(error))
    assert world.note()["actions"] == [[ACTION[verb], 1]]


@pytest.mark.parametrize("verb", ACTION)
async def test_a_failure_names_the_causes_in_the_log(world: World, verb: str) -> None:
    log = "Warn  (criu/a.c:1): hm\n(00.1) Error (criu/b.c:2): no room\nError (criu/c.c:3): FAILED\n"
    criu = world.criu(actions=(ACTION[verb],), status=1, log=log)
    with pytest.raises(CrsFailed) as caught:
        await _ask(criu, verb, world, Frozen())
    assert caught.value.log == ("no room", "FAILED")
    assert str(caught.value) == f"criu {verb} failed (exit status 1): no room | FAILED"


@pytest.mark.parametrize(
    ("err", "said"),
    [
        ("Error (criu/x.c:1): unknown option\n", ("unknown option",)),
        ("one\ntwo\nsegmentation fault\n", ("two", "segmentation fault")),
        ("", ()),
    ],
)
async def test_without_a_log_the_error_is_crius_output(
    world: World, err: str, said: tuple[str, ...]
) -> None:
    with pytest.raises(CrsFailed) as caught:
        await _ask(world.criu(status=2, err=err), "dump", world, Frozen())
    assert caught.value.log == said


async def test_a_hanging_one_is_killed_and_reported(world: World) -> None:
    criu, frozen = world.criu(actions=("post-dump",), hang=True), Frozen()
    with pytest.raises(DeadlineExpired, match="waited 1 s for the CRS to dump"):
        await criu.dump(ME, world.images, frozen, Deadline(1.0), container=None)


async def test_cancelling_ends_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that does not end by itself within the time that it gets."""
    monkeypatch.setattr("crdebug.checkpoint.criu._TO_END", 1.0)
    criu, frozen = world.criu(actions=("post-dump",), hang=True), Frozen()
    dump = asyncio.create_task(criu.dump(ME, world.images, frozen, soon(), container=None))
    await soon().until(lambda: bool(frozen.pids), "the meeting")
    dump.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dump


async def test_a_program_that_has_been_removed_is_reported(world: World) -> None:
    criu = world.criu()
    os.unlink(world.home / "criu")
    with pytest.raises(CrsFailed, match=r"/criu: No such file"):
        await _ask(criu, "dump", world, Frozen())


# ---- the log -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("Error (criu/cr-dump.c:1): Dumping FAILED.", "Dumping FAILED."),
        ("(00.012345) Error (criu/mount.c:2): mnt: no root", "mnt: no root"),
        ("(00.0)      7: Error (criu/files-reg.c:9): File x has bad size 9", None),
        ("    12: Error (criu/pie/restorer.c:9): Can't fork", "Can't fork"),
        ("Error (compel/src/lib/infect.c:5): Unable (x) to: y", "Unable (x) to: y"),
        ("Error (criu/rlimit.c:1): rlimit: Can't setup RLIMIT_NOFILE for self", ""),
        ("Warn  (criu/cr-dump.c:1): Error (x): y", ""),
        ("Error: something else", ""),
        ("", ""),
    ],
)
def test_an_error_line_is_shown_without_its_position(line: str, cause: str | None) -> None:
    wanted = "File x has bad size 9" if cause is None else cause
    assert errors_in(f"noise\n{line}\n") == ((wanted,) if wanted else ())


def test_only_the_first_causes_are_shown() -> None:
    log = "".join(f"Error (x.c:{n}): cause {n}\n" for n in range(100))
    assert errors_in(log) == ("cause 0", "cause 1", "cause 2", "cause 3")

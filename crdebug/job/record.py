"""A job's directory, and the record of what runs in it.

STATE/jobs/NAME/
  job.json        the record
  lock            held while the job is changed
  session         the attached session's socket, see crdebug.job.control
  points.json     the breakpoints and displays of the last session
  herd.json       where the threads were, while they are in their waitpoints
  run/N/          the N-th incarnation's stdout, stderr and events, and its input, see
                  crdebug.job.inputs
  asks, door      FIFOs, in run/N/ too, so that ranks see who reads them: see crdebug.job.app
  run/N/base      see crdebug.job.bases
  run/N/time/     its ranks' logs of MPI calls, see crdebug.timeline.log
  undo-N/         while the N-th incarnation is being replaced: what its files held
  checkpoints/N/  see crdebug.checkpoint.store
  stage           the second place for checkpoints: its path, see crdebug.checkpoint.staging
  history/N/      checkpoints that crdebug takes of itself, to go back in time from
  branches/       the branches of its history, and the logs of those that it is not on
  beside/         a second job, while branches are compared
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec

from crdebug.checkpoint.staging import numbers
from crdebug.checkpoint.store import CheckpointStore
from crdebug.config import state_home
from crdebug.deadline import Deadline
from crdebug.errors import BadInput, DeadlineExpired, Refused, StoreError
from crdebug.node import family, proc
from crdebug.timeline.branches import MAIN

BESIDE = "beside"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_EXIT = re.compile(r"^exit (\d+)$", re.M)
_FAILED = re.compile(r"^failed (.*)$", re.M)
_LATE = re.compile(r"^late (\d+) (.*)$", re.M)
_RANKS = re.compile(r"^ranks (\d+)$", re.M)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a job was started with, and which process it is now.

    pid, start: PID 1 of its container as numbered here, and when that process started (see
    proc.started); boot: of which run of the machine.  layer: the library that records its MPI
    calls, empty if they are not recorded.  branch: of its history, see crdebug.timeline.branches.
    added: what crdebug has set in the launcher's environment.  environment: what the user has set
    for it.  stdin: what it reads from its standard input, for people.
    adopted: crdebug did not start it; it has no container, and pid is its launcher's.
    """

    name: str
    argv: tuple[str, ...]
    directory: str
    created: float
    signal: int
    starter: str
    shim: str
    incarnation: int
    pid: int
    start: int
    boot: str
    layer: str = ""
    branch: str = MAIN
    adopted: bool = False
    added: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    stdin: str = ""


class JobDirectory:
    """The files of one job."""

    def __init__(self, name: str) -> None:
        if not _NAME.match(name):
            raise BadInput(f"'{name}' is no job name", hint="use letters, digits, '.', '_', '-'")
        self.name = name
        self.path = state_home() / "jobs" / name
        self.store = CheckpointStore(name, self.path / "checkpoints")
        self.history = CheckpointStore(name, self.path / "history")

    def create(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def exists(self) -> bool:
        return _is_there(self.path / "job.json")

    def run(self, incarnation: int) -> Path:
        return self.path / "run" / str(incarnation)

    def new_run(self, incarnation: int) -> Path:
        """An empty directory for an incarnation."""
        path = self.run(incarnation)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700, parents=True)
        for fifo in (self.asks, self.door):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(fifo, 0o600)
            os.link(fifo, path / fifo.name)  # all incarnations have the same
        return path

    def forget_runs(self, incarnation: int) -> None:
        """Only this incarnation is of interest any more."""
        for path in (*self.path.glob("run/*"), *self.path.glob("undo-*")):
            if path.name != str(incarnation):
                shutil.rmtree(path, ignore_errors=True)

    @property
    def branches(self) -> Path:
        return self.path / "branches"

    @property
    def files(self) -> Path:
        """What files held that were rolled back for as long as the job is there."""
        return self.path / "files"

    def undo(self, record: JobRecord) -> Path:
        """Where files are kept that a restart is about to roll back; of this incarnation only."""
        return self.path / f"undo-{record.incarnation}"

    @property
    def session_socket(self) -> Path:
        return self.path / "session"

    @property
    def asks(self) -> Path:
        return self.path / "asks"

    @property
    def door(self) -> Path:
        return self.path / "door"

    @property
    def herd(self) -> Path:
        return self.path / "herd.json"

    @property
    def points(self) -> Path:
        return self.path / "points.json"

    @property
    def stage(self) -> Path | None:
        """The second place for checkpoints, if there is one."""
        try:
            return Path((self.path / "stage").read_text())
        except FileNotFoundError:
            return None

    def set_stage(self, place: Path) -> None:
        """From now on there is one. Raises BadInput when it is no directory that can be."""
        try:
            (place / self.name).mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copyfile(self.path / "job.json", place / self.name / "job.json")
        except OSError as error:
            raise BadInput(f"cannot stage to {place}: {error.strerror}") from None
        (self.path / "stage").write_text(str(place.resolve()))

    def adopt(self, place: Path) -> None:
        """A job that is not known here and was staged there, by another machine perhaps."""
        there = place / self.name / "job.json"
        if not self.exists() and there.exists():
            self.create()
            shutil.copyfile(there, self.path / "job.json")
            self.set_stage(place)

    def write(self, record: JobRecord) -> None:
        """Raises StoreError; the record is what it was then."""
        unfinished = self.path / ".job.json"
        try:
            unfinished.write_bytes(msgspec.json.encode(record))
            unfinished.rename(self.path / "job.json")
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise StoreError(f"cannot write {self.path / 'job.json'}: {error.strerror}") from None

    def read(self) -> JobRecord:
        """Raises BadInput when there is no such job, StoreError when its record is unreadable."""
        try:
            data = (self.path / "job.json").read_bytes()
            return msgspec.json.decode(data, type=JobRecord)
        except FileNotFoundError:
            known = ", ".join(job.name for job in all_jobs()) or "none"
            raise BadInput(f"there is no job '{self.name}'", hint=f"jobs here: {known}") from None
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"{self.path / 'job.json'} cannot be read: {error}",
                hint=f"remove {self.path} unless you know how to repair it",
            ) from None

    @contextlib.contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """While the job is changed. Raises Refused when somebody else does just that."""
        self.create()
        with open(self.path / "lock", "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(
                    f"cannot {what}: another crdebug works on job '{self.name}'",
                    hint="try again when it is done",
                ) from None
            yield

    @contextlib.asynccontextmanager
    async def lock_within(self, what: str, deadline: Deadline) -> AsyncIterator[None]:
        """`lock`, when others have it for a while only, as for a checkpoint at an interval."""
        refused: list[Refused] = []
        with contextlib.ExitStack() as stack:

            def is_ours() -> bool:
                try:
                    stack.enter_context(self.lock(what))
                except Refused as error:
                    refused.append(error)
                    return False
                return True

            try:
                await deadline.until(is_ours, f"job '{self.name}' to be free")
            except DeadlineExpired:
                raise refused[-1] from None
            yield

    def forget_if_over(self) -> None:
        """Remove all of a job that has ended and left no checkpoint to bring it back from; not
        while somebody works on it."""
        with contextlib.suppress(Refused), self.lock("forget it"):
            self.forget_while_locked()

    def forget_while_locked(self) -> None:
        """`forget_if_over`, also of a job that never began, by who has the lock."""
        staged = numbers(self.name, self.stage) if self.stage else ()
        if not self.store.numbers() and not staged and not self._is_alive():
            self.remove()

    def remove(self) -> None:
        """All of it. Callers hold the lock."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _is_alive(self) -> bool:
        return self.exists() and is_alive(self.read())


def all_jobs() -> tuple[JobDirectory, ...]:
    """Every job that left something here, by name. Raises PermissionError."""
    try:
        names = sorted(filter(_NAME.match, os.listdir(state_home() / "jobs")))
    except FileNotFoundError:
        return ()
    return tuple(job for job in map(JobDirectory, names) if job.exists())


def _is_there(path: Path) -> bool:
    """Path.exists; but what one may not look at is an error, also from Python 3.14 on."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_alive(record: JobRecord) -> bool:
    return record.boot == proc.boot_id() and proc.is_alive(record.pid, record.start)


def attended_already(directory: JobDirectory) -> Refused:
    """The error for what needs a job without a session."""
    return Refused(
        f"job '{directory.name}' is under another session already", hint="end that one first"
    )


def has_ended(directory: JobDirectory) -> Refused:
    """The error for what needs a job that runs."""
    numbers = directory.store.numbers()
    hint = f"'crdebug restart {directory.name}:{numbers[-1]}' brings it back" if numbers else None
    return Refused(f"job '{directory.name}' has ended", hint=hint)


@dataclass(frozen=True, slots=True)
class Told:
    """What a starter has written to its events so far. late: sentences for the user."""

    ranks: int | None
    status: int | None
    failure: str | None
    late: tuple[str, ...] = ()


def told(events: Path) -> Told:
    text = events.read_text(errors="replace") if events.exists() else ""
    ranks, status, failed = _RANKS.search(text), _EXIT.search(text), _FAILED.search(text)
    return Told(
        int(ranks[1]) if ranks else None,
        int(status[1]) if status else None,
        failed[1] if failed else None,
        tuple(
            f"rank {rank}: {program} starts now, and another process was taken for the rank; "
            "it runs without a debugger (let the launcher start it, or a shell script)"
            for rank, program in _LATE.findall(text)
        ),
    )


def unused_name(argv: tuple[str, ...]) -> str:
    """A name for a job that got none: the program's, with the first number that is free."""
    base = re.sub(r"[^A-Za-z0-9._-]", "", Path(_program(argv)).name).lstrip("._-")[:90] or "job"
    taken = {job.name for job in all_jobs()}
    number = 1
    while f"{base}-{number}" in taken:
        number += 1
    return f"{base}-{number}"


def _program(argv: tuple[str, ...]) -> str:
    """Which word of a launcher's command is the program? The likeliest, for a name to read.

    One that says where it is; else one that is no option's value, as far as that can be seen.
    """
    words = [(before, word) for before, word in pairwise(argv) if shutil.which(word)]
    by_path = [word for _, word in words if "/" in word]
    no_value = [word for before, word in words if not before.startswith("-")]
    return next(iter([*by_path, *no_value, *(word for _, word in words)]), "")


def is_of(directory: JobDirectory, pid: int) -> bool:
    """Is this process one of the job's?"""
    with contextlib.suppress(StoreError, OSError):
        record = directory.read()
        return is_alive(record) and pid in family.of_job(record.pid)
    return False


def parse_handle(handle: str) -> tuple[JobDirectory, int]:
    """JOB:N. Raises BadInput."""
    name, colon, number = handle.rpartition(":")
    if not colon or not _NUMBER.match(number):
        raise BadInput(f"'{handle}' is no handle", hint="write JOB:N; 'crdebug checkpoints'")
    return JobDirectory(name), int(number)

"""A job's directory, and its record.

STATE/jobs/NAME/
  job.json        the record
  lock            held while the job is changed; `followed` while its output is read to the end
  session         the attached session's socket, see crdebug.job.control_socket
  points.json     the breakpoints and displays of the last session
  herd.json       the threads' places, while they are in their waitpoints
  run/N/          the N-th incarnation's stdout, stderr and events, and its input, see
                  crdebug.job.standard_input
  asks, door      FIFOs, in run/N/ too, so that ranks see who reads them: see job/app_requests.py
  run/N/base      see crdebug.job.incremental_parent
  run/N/time/     its ranks' logs of MPI calls, see crdebug.timeline.log
  run/N/made      during a restart: the missing files that it has created
  run/N/half-back see crdebug.job.half_back
  checkpoints/N/  see crdebug.checkpoint.store
  native/         crdebug's own parts that it runs with, see crdebug.job.native_parts
  stage           the path of the second place for checkpoints, see crdebug.job.second_place;
                  `staging` is held while they are copied there
  history/N/      automatic checkpoints, for going back in time
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
from itertools import count, pairwise
from pathlib import Path

import msgspec

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput, CrdebugError, DeadlineExpired, Refused, StoreError
from crdebug.base.settings import state_home
from crdebug.checkpoint import staging
from crdebug.checkpoint.store import CheckpointStore
from crdebug.job.starter_events import starter_events
from crdebug.node import bare, owners, proc, process_tree
from crdebug.timeline.branches import MAIN

BESIDE = "beside"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_REMEMBERED = 100
RECORDS = 256 << 20  # bytes of the logs that are kept of jobs that are forgotten


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job's command line and settings, and its present process.

    pid, start: its starter as numbered outside the container, and the time when it started (see
    proc.started).
    boot: identifies the boot of the machine to which these belong.
    layer: the library that records its MPI calls; empty if they are not recorded.
    branch: of its history, see crdebug.timeline.branches.
    added: the variables that crdebug has set for the launcher.
    environment: the variables that the user has set for it.
    stdin: the source of its standard input, for people.
    parts: crdebug's own parts that it runs with, the SHA-256 of each by its path, see native_parts.
    adopted: crdebug did not start it; it has no container, and pid is its launcher's.
    keeper: PID 1 of its container, see crdebug.node.container; 0 if it has none.
    labelled: the launcher was asked to mark each line of output with its rank.
    container: "own"; or "none", for the reason `no_container`, a clause: then pid is the starter's.
    hosts: of a job over several, see crdebug.job.over_hosts: the hosts that it may have ranks on.
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
    keeper: int = 0
    added: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    parts: dict[str, str] = field(default_factory=dict)
    container: str = "own"
    no_container: str = ""
    labelled: bool = False
    hosts: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """Of a job without a container: by it its processes are known, see crdebug.node.bare."""
        return self.added.get(bare.MARK, "") if self.container == "none" else ""

    @property
    def last(self) -> int:
        """The process that ends after all others of the job."""
        return self.keeper or self.pid


class JobDirectory:
    """The files of one job."""

    def __init__(self, name: str) -> None:
        if not _NAME.match(name):
            raise BadInput(f"'{name}' is not a job name", hint="use letters, digits, '.', '_', '-'")
        self.name = name
        self.path = state_home() / "jobs" / name
        self.native = self.path / "native"
        self.store = CheckpointStore(name, self.path / "checkpoints")
        self.history = CheckpointStore(name, self.path / "history")

    def create(self) -> None:
        """Raises Refused if somebody else owns the home, OSError."""
        owners.require_own_state()
        owners.make_private(self.path)

    def exists(self) -> bool:
        return _is_there(self.path / "job.json")

    def run(self, incarnation: int) -> Path:
        return self.path / "run" / str(incarnation)

    def new_run(self, incarnation: int) -> Path:
        """An empty directory for an incarnation."""
        path = self.run(incarnation)
        shutil.rmtree(path, ignore_errors=True)
        owners.make_private(path)
        for fifo in (self.asks, self.door):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(fifo, 0o600)
            os.link(fifo, path / fifo.name)  # all incarnations have the same
        return path

    def forget_runs(self, incarnation: int) -> None:
        """Remove the directories of all other incarnations."""
        for path in self.path.glob("run/*"):
            if path.name != str(incarnation):
                shutil.rmtree(path, ignore_errors=True)

    @property
    def branches(self) -> Path:
        return self.path / "branches"

    @property
    def has_own_files(self) -> bool:
        """Does the job write to copies of its open files instead of the files themselves?"""
        return False

    def made(self, incarnation: int) -> Path:
        """The file in which a restart notes the files that it creates, see
        crdebug.checkpoint.open_files."""
        return self.run(incarnation) / "made"

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

    def write_next(self, record: JobRecord) -> tuple[Path, Path]:
        """Write a record that is not the job's yet. It becomes that when the first of the returned
        paths is renamed to the second. Raises StoreError."""
        path = self.run(record.incarnation) / "job.json"
        try:
            path.write_bytes(msgspec.json.encode(record))
            path.chmod(0o600)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from None
        return path, self.path / "job.json"

    def write(self, record: JobRecord) -> None:
        """Raises StoreError; then the record is unchanged."""
        unfinished = self.path / ".job.json"
        try:
            unfinished.write_bytes(msgspec.json.encode(record))
            unfinished.chmod(0o600)
            unfinished.rename(self.path / "job.json")
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise StoreError(f"cannot write {self.path / 'job.json'}: {error.strerror}") from None

    def read(self) -> JobRecord:
        """Raises BadInput if there is no such job, StoreError if its record is unreadable."""
        owners.require_own_state()
        try:
            return decode((self.path / "job.json").read_bytes(), self.path / "job.json")
        except FileNotFoundError:
            if (end := self.last_end) is not None:
                raise BadInput(
                    f"job '{self.name}' {end}", hint="it left no checkpoint to bring it back from"
                ) from None
            known = ", ".join(job.name for job in all_jobs()) or "none"
            raise BadInput(f"there is no job '{self.name}'", hint=f"jobs here: {known}") from None

    @contextlib.contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """The lock to hold while changing the job. Raises Refused if another crdebug holds it."""
        with contextlib.ExitStack() as stack:
            while True:
                self.create()
                try:
                    file = stack.enter_context(open(self.path / "lock", "a+"))
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                        break
                except FileNotFoundError:
                    pass  # its last holder has just forgotten the job, and the lock with it
                except BlockingIOError:
                    raise Refused(
                        f"cannot {what}: another crdebug works on job '{self.name}'",
                        hint="try again when it is done",
                    ) from None
                stack.close()
            yield

    @contextlib.asynccontextmanager
    async def lock_within(self, what: str, deadline: Deadline) -> AsyncIterator[None]:
        """`lock`, waiting for others that hold it briefly, for a periodic checkpoint, say."""
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

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Keep the job from being forgotten for the block, which reads its output to the end."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):  # it was forgotten already
                file = stack.enter_context(open(self.path / "followed", "a"))
                fcntl.flock(file, fcntl.LOCK_SH)
            yield

    def _is_followed(self) -> bool:
        try:
            with open(self.path / "followed") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (FileNotFoundError, BlockingIOError) as error:
            return isinstance(error, BlockingIOError)
        return False

    def forget_if_over(self) -> None:
        """Remove a job that has ended and left no checkpoint to bring it back from; not while
        another crdebug works on it, or follows it."""
        with contextlib.suppress(Refused), self.lock("forget it"):
            if not self._is_followed():
                self.forget_while_locked()

    def forget_while_locked(self) -> None:
        """`forget_if_over`, for holders of the lock; also a job that never began."""
        staged = staging.numbers(self.name, self.stage) if self.stage else ()
        if not self.store.numbers() and not staged and not self._is_alive():
            if self.exists():
                self._end_remains()
                self._remember_its_end()
                self._keep_its_record()
            self.remove()

    def sweep_if_over(self) -> None:
        """Remove what a crdebug that was killed has left of checkpoints, now that the job has ended
        and nobody else will; not while another crdebug works on it."""
        with contextlib.suppress(Refused, StoreError, OSError):
            if not self._is_alive() and self.store.has_remains():
                with self.lock("remove its drafts"):
                    self.store.sweep()
            if not self._is_alive() and self.read().mark:
                with self.lock("end what is left of it"):
                    self._end_remains()

    def _end_remains(self) -> None:
        """End the processes of a job without a container that has ended. Callers hold the lock."""
        if mark := self.read().mark:
            bare.end_remains(mark)

    def how_it_ended(self) -> str:
        """The job's end as the predicate of a sentence about it."""
        said = starter_events(self.run(self.read().incarnation) / "events")
        if said.killed:
            return "was ended by 'crdebug kill'"
        return "has ended" + (f" with status {said.status}" if said.status is not None else "")

    @property
    def _epitaph(self) -> Path:
        return state_home() / "ended" / self.name

    @property
    def last_end(self) -> str | None:
        """How the last job of this name has ended, once it is forgotten, as `how_it_ended` says it;
        None if nobody knows any more."""
        return _read_if_there(self._epitaph)

    def _remember_its_end(self) -> None:
        """Keep the way it ended, in case somebody asks once the job is forgotten; only for the
        newest jobs."""
        with contextlib.suppress(OSError, CrdebugError):
            owners.make_private(self._epitaph.parent)
            self._epitaph.write_text(self.how_it_ended())
            known = sorted(self._epitaph.parent.iterdir(), key=lambda each: each.stat().st_mtime)
            for path in known[:-_REMEMBERED]:
                path.unlink()

    @property
    def last_record(self) -> Path:
        """Where the logs of its MPI calls are once it is forgotten, if they were kept."""
        return state_home() / "records" / self.name

    def _keep_its_record(self) -> None:
        """Keep the logs, for `check`; those of the newest jobs, as long as they are not large."""
        place = self.last_record
        with contextlib.suppress(OSError, CrdebugError):
            record = self.read()
            logs = self.run(record.incarnation) / "time"
            if record.layer and not logs.is_dir() and not record.hosts:
                return  # kept already, by a crdebug that was killed before it forgot the job
            shutil.rmtree(place, ignore_errors=True)
            if not logs.is_dir() or _allocated(logs) > RECORDS:
                return
            owners.make_private(place.parent)
            logs.rename(place)
            known = sorted(place.parent.iterdir(), key=lambda each: each.stat().st_mtime)
            room = RECORDS
            for path in reversed(known):
                room -= _allocated(path)
                if room < 0:
                    shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Remove all of it. Callers hold the lock."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _is_alive(self) -> bool:
        return self.exists() and is_alive(self.read())


def decode(data: bytes, path: Path) -> JobRecord:
    """Decode a record, which is at this path. Raises StoreError."""
    try:
        return msgspec.json.decode(data, type=JobRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}",
            hint="if another version of crdebug wrote it, use that version; "
            f"otherwise remove {path.parent}",
        ) from None


def all_jobs() -> tuple[JobDirectory, ...]:
    """Every job with a directory here, by name. Raises PermissionError, Refused."""
    owners.require_own_state()
    try:
        names = sorted(filter(_NAME.match, os.listdir(state_home() / "jobs")))
    except FileNotFoundError:
        return ()
    return tuple(job for job in map(JobDirectory, names) if job.exists())


def sweep_ended_jobs() -> None:
    """Remove what no job that has ended needs. Raises PermissionError, Refused."""
    for directory in all_jobs():
        directory.sweep_if_over()


def _read_if_there(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _allocated(directory: Path) -> int:
    """The bytes that its files take on the disk, which may be less than their sizes; files may go
    meanwhile."""
    found = 0
    for each in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += 512 * each.stat().st_blocks
    return found


def _is_there(path: Path) -> bool:
    """Like Path.exists, but raises PermissionError, also from Python 3.14 on."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_alive(record: JobRecord) -> bool:
    return record.boot == proc.boot_id() and proc.is_alive(record.pid, record.start)


def attended_already(directory: JobDirectory) -> Refused:
    """The error for an operation that needs a job without a session."""
    return Refused(
        f"job '{directory.name}' is under another session already", hint="end that one first"
    )


def has_ended(directory: JobDirectory) -> Refused:
    """The error for an operation that needs a running job."""
    numbers = directory.store.numbers()
    hint = f"'crdebug restart {directory.name}:{numbers[-1]}' brings it back" if numbers else None
    return Refused(f"job '{directory.name}' {directory.how_it_ended()}", hint=hint)


@contextlib.contextmanager
def unused(argv: tuple[str, ...], what: str) -> Iterator[JobDirectory]:
    """A locked directory, under a free name, for a job that was not given a name.

    The name is the program's, with the first free number. what: for `JobDirectory.lock`.
    """
    base = re.sub(r"[^A-Za-z0-9._-]", "", Path(_program(argv)).name).lstrip("._-")[:90] or "job"
    for number in count(1):
        directory = JobDirectory(f"{base}-{number}")
        with contextlib.ExitStack() as stack:
            if directory.exists():
                continue
            try:
                stack.enter_context(directory.lock(what))
            except Refused:
                continue  # another crdebug takes this name just now
            if not directory.exists():
                yield directory
                return


def _program(argv: tuple[str, ...]) -> str:
    """The word of a launcher's command that is most likely the program, as a name for people.

    A word with a path; else one that does not seem to be the value of an option.
    """
    words = [(before, word) for before, word in pairwise(argv) if shutil.which(word)]
    by_path = [word for _, word in words if "/" in word]
    no_value = [word for before, word in words if not before.startswith("-")]
    return next(iter([*by_path, *no_value, *(word for _, word in words)]), "")


def is_of(directory: JobDirectory, pid: int) -> bool:
    """Is this process one of the job's?"""
    with contextlib.suppress(StoreError, OSError):
        record = directory.read()
        return is_alive(record) and pid in process_tree.of_job(record.pid)
    return False


def parse_handle(handle: str) -> tuple[JobDirectory, int]:
    """JOB:N. Raises BadInput."""
    name, colon, number = handle.rpartition(":")
    if not colon or not _NUMBER.match(number):
        raise BadInput(
            f"'{handle}' is not a handle", hint="write JOB:N; 'crdebug checkpoints' lists them"
        )
    return JobDirectory(name), int(number)

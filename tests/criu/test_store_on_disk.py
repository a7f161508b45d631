"""Checkpoints of a real job on disk: whole and private, and refused when anything was touched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from crdebug.acquire.binaries import build_id
from crdebug.base.errors import CrdebugError, StoreError
from crdebug.base.settings import Settings, cache_home
from crdebug.checkpoint import manifest as manifests
from crdebug.checkpoint.manifest import NAME, VERSION
from crdebug.checkpoint.store import CheckpointStore
from crdebug.detached import batch, jobs
from crdebug.job.directory import JobDirectory
from crdebug.session import Session
from harness import looks
from harness.cli import crdebug
from harness.jobs import JOB, Heard, bare_job, session
from harness.mpirun import reference
from harness.nobody import does, needs_root
from harness.programs import build
from harness.travel import history, run_to

HANDLE = f"{JOB}:1"
RANKS = 2


@pytest_asyncio.fixture
async def program(tmp_path: Path) -> Path:
    """A program of our own to change."""
    return Path(shutil.copy(build("files"), tmp_path / "mine"))


@pytest_asyncio.fixture
async def store(program: Path) -> AsyncIterator[CheckpointStore]:
    """The store of a job that has ended and left one checkpoint."""
    async with bare_job(program, "--steps", 10**9, "--delay-us", 2000, ranks=RANKS):
        await looks.reach(5)
        await jobs.take_checkpoint(JOB, "by hand", True, Heard())
    yield JobDirectory(JOB).store
    for checkpoint in await jobs.list_checkpoints(JOB):
        await jobs.delete(checkpoint.handle)


def files(store: CheckpointStore) -> list[Path]:
    return sorted(path for path in store.path(1).rglob("*") if path.is_file())


async def refused(words: str) -> CrdebugError:
    """Both kinds of restart fail with these words, and change nothing."""
    before = await jobs.list_jobs()
    for begin in (lambda: jobs.restart(HANDLE, Heard()), lambda: Session.restart_from(HANDLE)):
        with pytest.raises(StoreError, match=words) as caught:
            await begin()
        assert caught.value.hint
    assert await jobs.list_jobs() == before
    return caught.value


async def restarts() -> None:
    """The checkpoint is usable after all."""
    info = await jobs.restart(HANDLE, Heard())
    looks.end_soon()
    assert await jobs.follow(JOB, Heard()) == 0, looks.output(stream="stderr")
    assert info.state == "running"


async def test_the_manifest_names_every_file_with_its_hash(
    store: CheckpointStore, program: Path
) -> None:
    manifest = store.load(1)
    home = store.path(1)
    there = {str(path.relative_to(home)) for path in files(store)} - {NAME}
    assert there == set(manifest.files)
    for name, stamp in manifest.files.items():
        data = (home / name).read_bytes()
        assert (stamp.sha256, stamp.size) == (hashlib.sha256(data).hexdigest(), len(data)), name
    assert {"run/stdout", "run/stderr", "run/events"} <= there
    assert manifest.note == "by hand" and not manifest.debugger
    assert manifest.argv[-5:] == (str(program), "--steps", str(10**9), "--delay-us", "2000")
    assert manifest.directory == os.getcwd()
    assert manifest.host == os.uname().nodename and manifest.kernel == os.uname().release
    assert manifest.crs.startswith("criu ")
    assert [rank.executable for rank in manifest.ranks] == [str(program)] * RANKS
    assert {binary.path: binary.build_id for binary in manifest.binaries}[str(program)] == build_id(
        str(program)
    )
    names = {Path(saved.path).name for saved in manifest.saved}
    own = {f"{kind}.{rank}" for kind in ("append", "table", "mapped") for rank in range(RANKS)}
    # The file that each step rewrites may be open at that moment.
    assert own <= names <= own | {f"latest.{rank}" for rank in range(RANKS)}


async def test_nobody_else_may_look(store: CheckpointStore) -> None:
    for path in (store.root, *store.root.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600) or path.name == "last", path


@needs_root
async def test_another_user_gets_nothing_of_a_job_that_runs(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the umask. Its sockets, logs and images are in a place that he can come to."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        home, scratch = Path(place, "home"), Path(place, "scratch")
        scratch.mkdir(mode=0o1777)
        monkeypatch.setenv("CRDEBUG_HOME", str(home))
        monkeypatch.setenv("TMPDIR", str(scratch))
        monkeypatch.setattr(tempfile, "tempdir", None)
        before = os.umask(0)
        try:
            arguments = ("--steps", 10**9, "--delay-us", 2000)
            async with session(program, *arguments, ranks=RANKS) as job:
                await job.checkpoint()
                made = [*home.rglob("*"), *scratch.iterdir()]
                does('! ls "$1" && ! cat "$1/jobs"/*/job.json && ! ls "$1/jobs"', home)
                sockets = [path for path in made if path.is_socket()]
                for path in sockets:
                    does('! test -w "$1"', path)
                for path in (home, *made):
                    details = path.lstat()
                    mode = stat.S_IMODE(details.st_mode)
                    assert details.st_uid == os.geteuid(), path
                    if path.is_dir():
                        assert mode == 0o700, path
                    elif path in sockets:
                        assert mode == 0o600, path
                assert len(sockets) == 2, sockets  # the session's, and the starter's
        finally:
            os.umask(before)


def change(path: Path) -> None:
    """Change one bit, and put the time back."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (change, "was changed"),
        pytest.param(cut, "was changed", marks=pytest.mark.sweep),
        pytest.param(Path.unlink, "is missing", marks=pytest.mark.sweep),
    ],
)
async def test_a_change_in_any_file_is_named(
    store: CheckpointStore, tmp_path: Path, harm: Callable[[Path], None], word: str
) -> None:
    """In each of them, and nothing is lost: put back, it is a checkpoint again."""
    kept = tmp_path / "kept"
    swept = 0
    for path in files(store):
        if path.name == NAME or path.stat().st_size == 0:
            continue
        shutil.copy2(path, kept)
        harm(path)
        name = str(path.relative_to(store.path(1)))
        with pytest.raises(StoreError) as caught:
            await jobs.restart(HANDLE, Heard())
        assert f"checkpoint {HANDLE} is damaged: {name} {word}" in str(caught.value)
        shutil.copy2(kept, path)
        swept += 1
    assert swept > 30
    await restarts()


def _of_version_9(manifest: bytes) -> bytes:
    now = b'"version": %d' % VERSION
    assert now in manifest
    return manifest.replace(now, b'"version": 9')


async def test_a_manifest_that_cannot_be_read_hides_only_its_checkpoint(
    store: CheckpointStore, tmp_path: Path
) -> None:
    path = store.path(1) / NAME
    whole = path.read_bytes()
    for spoilt in (b"", b"{", whole[:-20], _of_version_9(whole)):
        path.write_bytes(spoilt)
        await refused("manifest.json")
        (listed,) = await jobs.list_checkpoints(None)
        assert listed.handle == HANDLE and "manifest.json" in listed.problem
    victim = tmp_path / "victim"
    victim.write_text("of somebody else\n")
    document = json.loads(whole)
    document["saved"][0]["path"] = str(victim)
    path.write_bytes(manifests.seal(document))  # by someone who knows how it is sealed
    await refused(f"the image has no {victim} open")
    path.chmod(0o666)
    await refused(f"{path} can be changed by other users")
    assert victim.read_text() == "of somebody else\n"
    path.chmod(0o600)
    path.write_bytes(whole)
    await restarts()


async def test_a_program_that_has_changed_is_named(store: CheckpointStore, program: Path) -> None:
    kept = program.with_suffix(".kept")
    program.rename(kept)
    await refused(f"{program} is missing")
    shutil.copy(build("threads"), program)
    await refused(f"{program} has changed since the checkpoint")
    program.unlink()
    kept.rename(program)
    await restarts()


async def test_a_checkpoint_that_is_deleted_takes_no_space(store: CheckpointStore) -> None:
    def taken() -> int:
        return sum(path.stat().st_blocks * 512 for path in store.root.rglob("*"))

    size = (await jobs.list_checkpoints(JOB))[0].size
    assert taken() > size > 1 << 20
    await jobs.restart(HANDLE, Heard())
    second = await jobs.take_checkpoint(JOB, "", True, Heard())
    both = taken()
    await jobs.delete(HANDLE)
    assert second.handle == f"{JOB}:2"
    assert both - taken() > size * 0.9
    assert [path.name for path in store.root.iterdir() if path.is_dir()] == ["2"]


async def test_a_cache_that_was_cleaned_is_no_loss(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint contains crdebug's own parts that the job runs with."""
    cache, made = tmp_path / "cache", cache_home() / "native"
    shutil.copytree(made, cache / "native", ignore=shutil.ignore_patterns("tmp*"))
    monkeypatch.setenv("CRDEBUG_CACHE", str(cache))
    options = ("--steps", 10**9, "--delay-us", 2000)
    async with bare_job(program, *options, ranks=RANKS, settings=Settings(record=True)):
        await looks.reach(5)
        await jobs.take_checkpoint(JOB, "", True, Heard())
    shutil.rmtree(cache)
    await restarts()
    await jobs.delete(HANDLE)


async def test_a_recorded_job_comes_back_into_an_empty_home(tmp_path: Path) -> None:
    """With its past, and to the result that it would have had; a sentence names checkpoints that
    were staged without the record of MPI calls."""
    place, directory = tmp_path / "place", JobDirectory(JOB)
    options = ("--mib", 1, "--steps", 10**9, "--delay-us", 2000)
    recorded = Settings(record=True)
    async with bare_job(build("memory"), *options, ranks=RANKS, settings=recorded):
        await looks.reach(5)
        await jobs.take_checkpoint(JOB, "", False, Heard())
        await crdebug("checkpoint", JOB, "--kill", "--stage", place)
        await batch.stage(HANDLE, place)
    shutil.rmtree(directory.path)
    handle = await batch.handle_of(f"{JOB}:2", place)
    session = await Session.restart_from(handle)
    try:
        past = history(session)
        assert not past.traveller.recorded.unrecorded()
        start = past.now(0)
        assert 1 < start.tick <= start.recorded
        await run_to(session, 0, "work_step", f"step == {max(looks.steps()) + 3}")
        assert past.now(0).tick > start.tick
        await past.goto_tick(0, start.tick + 2)
        assert past.now(0).tick == start.tick + 2
    finally:
        await session.close()
    await jobs.restart(handle, Heard())
    last = looks.end_soon()
    assert await jobs.follow(JOB, Heard()) == 0, looks.output(stream="stderr")
    assert looks.output() == reference(build("memory"), "--mib", 1, "--steps", last, ranks=RANKS)

    shutil.rmtree(directory.path)
    handle = await batch.handle_of(HANDLE, place)
    with pytest.raises(StoreError, match="the record of MPI calls of rank 0 is missing"):
        await jobs.restart(handle, Heard())
    await batch.handle_of(f"{JOB}:2", place)
    for each in await jobs.list_checkpoints(JOB):
        await jobs.delete(each.handle)

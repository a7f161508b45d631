"""Another user of the machine tries to have root run, believe or overwrite what he likes."""

from __future__ import annotations

import functools
import os
import stat
import subprocess
from pathlib import Path

import pytest
from test_record import a_record
from test_staging import take

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused, StoreError
from crdebug.base.settings import cache_home
from crdebug.checkpoint import staging
from crdebug.checkpoint.store import CheckpointStore
from crdebug.detached import batch
from crdebug.job import native_parts, second_place
from crdebug.job.directory import JobDirectory, all_jobs
from crdebug.native import build
from crdebug.node import container, owners, proc
from harness.nobody import become, does, needs_root, public  # noqa: F401

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"CRDEBUG_{name}", str(tmp_path / name.lower()))
    return tmp_path / "home"


def a_job(home: Path) -> JobDirectory:
    """One that has ended and left a checkpoint, with a starter in the cache."""
    directory = JobDirectory("heat")
    starter = cache_home() / "native" / "0123" / "starter"
    owners.make_readable(starter.parent)
    starter.touch(0o755)
    starter.chmod(0o755)
    starter.write_text("#!/bin/sh\n")
    directory.create()
    kept = native_parts.keep(directory, [starter])
    directory.write(a_record(starter=str(starter), parts=kept, boot="another"))
    take(CheckpointStore("heat", directory.path / "checkpoints"))
    return directory


# ---- images and their restorers are programs ---------------------------------------------------


@needs_root
async def test_a_second_place_of_anothers_is_not_believed(
    home: Path,
    public: Path,  # noqa: F811
) -> None:
    """He has copied one of root's, or made it up: its starter would be run as root."""
    job = a_job(home)
    good = home.parent / "good"
    await batch.stage("heat:1", good)
    job.remove()
    for path in (good, *good.rglob("*")):
        path.chmod(0o755)
    os.chmod(home.parent, 0o755)
    for above in home.parent.parents:
        if stat.S_IMODE(above.stat().st_mode) & 0o5 != 0o5:
            break  # he cannot even read it there
    else:
        does('cp -r "$1"/* "$2"', good, public)
    does('mkdir -p "$1/heat"; echo "{}" > "$1/heat/job.json"', public)
    with pytest.raises(StoreError, match=r"belongs to nobody.*take it only from a place of yours"):
        await batch.handle_of("heat", public)
    assert not JobDirectory("heat").exists()


@pytest.mark.parametrize("harmed", ["", "heat", "heat/1", "heat/1/images", "heat/job.json"])
async def test_a_second_place_that_others_may_write_to_is_not_believed(
    home: Path, tmp_path: Path, harmed: str
) -> None:
    job = a_job(home)
    await batch.stage("heat:1", tmp_path / "second")
    job.remove()
    path = tmp_path / "second" / harmed
    before = path.stat().st_mode
    path.chmod(0o777)
    with pytest.raises(StoreError, match=f"{path} can be changed by other users"):
        await batch.handle_of("heat", tmp_path / "second")
    assert not JobDirectory("heat").store.numbers()
    path.chmod(before)
    assert await batch.handle_of("heat", tmp_path / "second") == "heat:1"


@pytest.mark.parametrize("harmed", ["", "heat"])
async def test_a_second_place_that_others_may_write_to_by_now_gets_no_copy(
    home: Path, tmp_path: Path, harmed: str
) -> None:
    job = a_job(home)
    await batch.stage("heat:1", tmp_path / "second")
    path = tmp_path / "second" / harmed
    path.chmod(0o777)
    for work in (staging.stage, lambda store, *to: staging.forget(store.job, *to)):
        with pytest.raises(StoreError, match=f"{path} can be changed by other users"):
            work(job.store, 1, tmp_path / "second")


def _has_word(pid: int, word: str) -> bool:
    return word in proc.command_line(pid)


@needs_root
async def test_a_process_of_anothers_with_the_arguments_of_criu_or_of_its_script_is_none(
    tmp_path: Path,
) -> None:
    """crdebug would wait for it, or kill it."""
    place = tmp_path / "run"
    argv = ["sh", "-c", "read line", "--crs-action", "--images-dir", str(place / "images")]
    environment = {**os.environ, container.SCRIPT_OF: str(place / "images")}

    def found() -> tuple[int, ...]:
        return container.crs_at_work(place) + container.scripts_at_work(place)

    for user, count in ((become, 0), (None, 2)):
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, env=environment, cwd="/", preexec_fn=user
        ) as process:
            begun = functools.partial(_has_word, process.pid, "--crs-action")
            await Deadline(60).until(begun, "its start")
            assert found() == (process.pid,) * count
            process.communicate()


async def test_only_the_starter_that_the_job_was_started_with_is_run(
    home: Path, tmp_path: Path
) -> None:
    """Whatever path a record names: crdebug runs the copy in the job's directory, checked by its
    hash."""
    job = a_job(home)
    record = job.read()
    assert native_parts.starter(job, record) == job.native / "starter"
    (job.native / "starter").write_text("#!/bin/sh\ntouch /evil\n")
    with pytest.raises(StoreError, match="is not what the job was started with"):
        native_parts.starter(job, record)
    (job.native / "starter").unlink()
    with pytest.raises(StoreError, match="starter is missing"):
        native_parts.starter(job, record)
    with pytest.raises(StoreError, match="is missing"):
        native_parts.starter(job, a_record(starter="/tmp/evil"))


def test_parts_are_put_back_into_ones_own_cache_only(home: Path, tmp_path: Path) -> None:
    job = a_job(home)
    record = job.read()
    starter = Path(record.starter)
    starter.unlink()
    starter.parent.rmdir()
    native_parts.put_back(job, record)
    assert starter.read_text() == "#!/bin/sh\n"
    assert stat.S_IMODE(starter.stat().st_mode) == 0o755
    elsewhere = tmp_path / "bin" / "starter"
    foreign = a_record(parts={str(elsewhere): record.parts[record.starter]})
    with pytest.raises(StoreError, match=r"belongs to another cache than yours .*CRDEBUG_CACHE"):
        native_parts.put_back(job, foreign)
    assert not elsewhere.exists()


async def test_a_staged_checkpoint_contains_the_programs_it_runs_with(
    home: Path, tmp_path: Path
) -> None:
    """Home and cache are empty, all is in the second place; damage there is an error."""
    job = a_job(home)
    record = job.read()
    await batch.stage("heat:1", tmp_path / "second")
    job.remove()
    Path(record.starter).unlink()
    second_place.import_staged(job, tmp_path / "second")
    native_parts.put_back(job, job.read())
    assert Path(record.starter).exists()
    job.remove()
    (tmp_path / "second" / "heat" / "native" / "starter").write_text("#!/bin/sh\nexit\n")
    with pytest.raises(StoreError, match="starter is not what the job was started with"):
        second_place.import_staged(job, tmp_path / "second")
    assert not job.exists()


# ---- homes --------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("name", ["HOME", "CACHE", "DATA", "CONFIG"])
def test_a_home_of_anothers_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    public: Path,  # noqa: F811
    name: str,
) -> None:
    """As with `sudo -E`, or where he was there first."""
    owners.require_own_homes()
    monkeypatch.setenv(f"CRDEBUG_{name}", str(public / "his"))
    said = rf"^{public} belongs to nobody, and not to you \(choose a .* of your own with .*{name}\)"
    with pytest.raises(Refused, match=said):
        owners.require_own_homes()
    does('mkdir -m 777 "$1/his"', public)
    with pytest.raises(Refused, match=said):
        owners.require_own_homes()


@needs_root
async def test_no_job_and_no_program_is_taken_from_anothers_home(
    monkeypatch: pytest.MonkeyPatch,
    public: Path,  # noqa: F811
) -> None:
    does('mkdir -p "$1/jobs/heat"; echo "{}" > "$1/jobs/heat/job.json"', public)
    monkeypatch.setenv("CRDEBUG_HOME", str(public))
    monkeypatch.setenv("CRDEBUG_CACHE", str(public))
    for use in (JobDirectory("heat").read, JobDirectory("heat").create, all_jobs):
        with pytest.raises(Refused, match="belongs to nobody"):
            use()
    with pytest.raises(Refused, match="belongs to nobody"):
        await build.build("cc", Deadline(60.0))


async def test_nothing_that_is_made_may_be_written_by_others_whatever_the_umask(
    home: Path, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        await build.build("cc", Deadline(250.0))
        await batch.stage(f"{a_job(home).name}:1", tmp_path / "second")
        JobDirectory("heat").new_run(2)
        staging.fetch(JobDirectory("heat").store, 1, tmp_path / "second")
    finally:
        os.umask(before)
    made = [path for place in ("home", "cache", "second") for path in (tmp_path / place).rglob("*")]
    assert {"starter", "shim.so", "manifest.json", "staged.json"} <= {path.name for path in made}
    for path in made:
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.is_relative_to(tmp_path / "cache"):
            assert not mode & 0o022, path  # others may read what was compiled
        else:
            assert mode == 0o700 if path.is_dir() else True, path  # and nobody can reach its files

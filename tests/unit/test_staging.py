"""Copies of checkpoints in a second place: compressed where that pays, verified both ways."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_record import a_record
from test_store import a_manifest

from crdebug.base.errors import StoreError
from crdebug.base.events import JobSays
from crdebug.checkpoint import staging
from crdebug.checkpoint.retention import Upkeep
from crdebug.checkpoint.staging import fetch, numbers, stage
from crdebug.checkpoint.store import CheckpointStore
from crdebug.detached import batch, jobs
from crdebug.detached.batch import Stager
from crdebug.job.directory import JobDirectory
from crdebug.node import proc

pytestmark = pytest.mark.unit

FILES = {
    "images/pages-1.img": b"the same again " * 100_000,
    "images/pages-2.img": os.urandom(1 << 20),
    "images/core-1.img": b"small",
    "files/empty": b"",
}
PLACES = {"images/pages-1.img.zst", "images/pages-2.img", "images/core-1.img", "files/empty"}


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    store = CheckpointStore("heat", tmp_path / "local")
    take(store)
    return store


def take(store: CheckpointStore) -> None:
    draft = store.begin()
    for name, data in FILES.items():
        (draft.path / name).write_bytes(data)
    store.publish(draft, a_manifest(draft.number))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "second"


def names(place: Path) -> set[str]:
    home = place / "heat" / "1"
    found = (path for path in home.rglob("*") if path.is_file())
    return {str(path.relative_to(home)) for path in found} - {"manifest.json", "staged.json"}


@pytest.mark.parametrize("compress", [True, False])
def test_there_and_back(store: CheckpointStore, place: Path, compress: bool) -> None:
    size = stage(store, 1, place, compress=compress)
    assert names(place) == (PLACES if compress else set(FILES))
    assert (size < 1_200_000) == compress
    assert numbers("heat", place) == (1,)
    assert [each.places for each in staging.everywhere(store, place)] == [("local", "staged")]
    store.delete(1)
    assert [each.places for each in staging.everywhere(store, place)] == [("staged",)]
    fetch(store, 1, place)
    store.verify(store.load(1))
    assert {name: (store.path(1) / name).read_bytes() for name in FILES} == FILES
    staging.forget("heat", 1, place)
    assert [each.places for each in staging.everywhere(store, place)] == [("local",)]


def test_nothing_that_is_not_whole_is_staged(store: CheckpointStore, place: Path) -> None:
    (store.path(1) / "images" / "core-1.img").write_bytes(b"SMALL")
    with pytest.raises(StoreError, match=r"core-1.img was changed since the checkpoint"):
        stage(store, 1, place)
    assert numbers("heat", place) == ()
    assert list((place / "heat").iterdir()) == []


@pytest.mark.parametrize("name", sorted(PLACES - {"files/empty"}))
@pytest.mark.parametrize("harm", ["change", "cut", "remove"])
def test_a_copy_that_was_harmed_is_not_fetched(
    store: CheckpointStore, place: Path, name: str, harm: str
) -> None:
    stage(store, 1, place)
    path = place / "heat" / "1" / name
    data = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        middle = len(data) // 2
        path.write_bytes(data[:middle] + (b"?" + data[middle + 1 :] if harm == "change" else b""))
    store.delete(1)
    with pytest.raises(StoreError, match=r"was changed since it was staged|cannot fetch heat:1"):
        fetch(store, 1, place)
    assert store.numbers() == ()
    assert not [path for path in store.root.iterdir() if path.name != "last"]


def test_a_copy_without_its_proof_is_none(store: CheckpointStore, place: Path) -> None:
    stage(store, 1, place)
    (place / "heat" / "1" / "staged.json").unlink()
    assert numbers("heat", place) == ()
    with pytest.raises(StoreError, match="is not whole in"):
        fetch(store, 1, place)
    stage(store, 1, place)  # what was left is in nobody's way
    assert numbers("heat", place) == (1,)


async def test_a_checkpoint_is_staged_even_if_its_taker_died_before_it_began(
    store: CheckpointStore, place: Path
) -> None:
    """Nothing else is: the first was there before."""
    with Stager(store, Upkeep(stage=place), lambda event: None) as stager:
        take(store)
        await stager.all_done()
    assert numbers("heat", place) == (2,)


# ---- left by a crdebug that was killed -----------------------------------------------------------


def leave_a_draft(parent: Path) -> Path:
    draft = parent / ".draft-7"
    (draft / "images").mkdir(parents=True)
    (draft / "images" / "pages-1.img").write_bytes(b"half")
    return draft


def test_half_a_copy_is_removed_with_the_next_one(store: CheckpointStore, place: Path) -> None:
    draft = leave_a_draft(place / "heat")
    stage(store, 1, place)
    assert not draft.exists()
    assert numbers("heat", place) == (1,)


async def test_drafts_of_a_job_that_has_ended_are_removed_once_jobs_are_listed(
    job: JobDirectory, place: Path
) -> None:
    """Not those in the second place, where another machine may be at work."""
    await batch.stage("heat:1", place)
    local, staged = leave_a_draft(job.store.root), leave_a_draft(place / "heat")
    with job.lock("work on it"):
        await jobs.list_jobs()
        assert local.exists()
    await jobs.list_jobs()
    assert not local.exists()
    assert staged.exists()
    assert [each.number for each in await jobs.list_checkpoints("heat")] == [1, 2, 3]


async def test_drafts_of_a_job_that_runs_are_left_alone(job: JobDirectory) -> None:
    draft = leave_a_draft(job.store.root)
    alive = a_record(pid=os.getpid(), start=proc.started(os.getpid()), boot=proc.boot_id())
    job.write(alive)
    job.sweep_if_over()
    assert draft.exists()


async def test_half_a_deleted_checkpoint_is_removed(job: JobDirectory) -> None:
    (job.store.path(2) / "manifest.json").unlink()
    await jobs.list_jobs()
    assert not job.store.path(2).exists()


# ---- the newest that is whole -------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    """One that has ended; of its checkpoints, 1 and 2 are staged, and 3 is not."""
    monkeypatch.setenv("CRDEBUG_HOME", str(tmp_path / "home"))
    directory = JobDirectory("heat")
    directory.create()
    directory.write(a_record(boot="another"))
    for _ in range(3):
        take(directory.store)
    return directory


def damage(home: Path) -> None:
    (home / "images" / "core-1.img").write_bytes(b"LARGE")


async def test_the_newest_that_is_whole_anywhere_is_found(job: JobDirectory, place: Path) -> None:
    """And each that is passed over is named, with why."""
    for number in (1, 2):
        await batch.stage(f"heat:{number}", place)
    heard: list[object] = []
    assert await batch.handle_of("heat", tell=heard.append) == "heat:3" and not heard
    damage(job.store.path(3))
    damage(job.store.path(2))
    assert await batch.handle_of("heat", tell=heard.append) == "heat:2"
    job.store.verify(job.store.load(2))  # it was fetched
    damage(job.store.path(2))
    damage(place / "heat" / "2")
    heard.clear()
    assert await batch.handle_of("heat", tell=heard.append) == "heat:1"
    said = [each.text for each in heard if isinstance(each, JobSays)]
    assert [text[:29] for text in said] == [
        f"checkpoint heat:{n} is passed over"[:29] for n in (3, 2)
    ]
    assert "core-1.img was changed since it was staged" in said[1]
    assert job.store.path(2).exists()  # nothing was removed of the damaged one


async def test_an_empty_home_gets_the_newest_whole_copy(job: JobDirectory, place: Path) -> None:
    for number in (1, 2, 3):
        await batch.stage(f"heat:{number}", place)
    damage(place / "heat" / "3")
    job.remove()
    heard: list[object] = []
    assert await batch.handle_of("heat", place, heard.append) == "heat:2"
    assert len(heard) == 1
    with pytest.raises(StoreError, match=r"core-1.img was changed since it was staged"):
        await batch.handle_of("heat:3")


async def test_without_any_that_is_whole_the_newest_says_why(
    job: JobDirectory, place: Path
) -> None:
    for number in (1, 2, 3):
        damage(job.store.path(number))
    with pytest.raises(StoreError, match=r"checkpoint heat:3 is damaged"):
        await batch.handle_of("heat")

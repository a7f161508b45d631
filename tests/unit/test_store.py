"""Checkpoints on disk: whole, or not there."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crdebug.base.errors import StoreError
from crdebug.checkpoint import store as stores
from crdebug.checkpoint.manifest import NAME, VERSION, Manifest, RankRecord
from crdebug.checkpoint.retention import Keep, expendable
from crdebug.checkpoint.staging import everywhere, stage
from crdebug.checkpoint.store import Checkpoint, CheckpointStore, Draft
from crdebug.ui.listing import checkpoint_table

pytestmark = pytest.mark.unit

FILES = {"images/core-1.img": b"core", "images/pages-1.img": b"\0" * 5000, "run/stdout": b"hi\n"}


def a_manifest(number: int = 1, job: str = "heat", note: str = "") -> Manifest:
    ranks = (RankRecord(0, 7, "/bin/heat", "relax at heat.c:41", (), 7, 0),)
    return Manifest(
        version=VERSION,
        job=job,
        number=number,
        time=1_700_000_000.0,
        note=note,
        debugger=True,
        incarnation=3,
        argv=("mpirun", "heat"),
        directory="/home/me",
        host="node1",
        kernel="6.1",
        crs="criu 4.2",
        shim="/cache/shim.so",
        layer="/cache/pmpi.so",
        branch="main",
        signal=62,
        added={"UCX_TLS": "self,posix,cma,tcp"},
        first=20001,
        mounts={"/": "ext4"},
        ranks=ranks,
        binaries=(),
        saved=(),
        files={},
        bases=(),
        memory=4096,
        paused=0.25,
        latency=1.5,
    )


def drafted(store: CheckpointStore) -> Draft:
    """A draft with the files of a dump."""
    draft = store.begin()
    for name, data in FILES.items():
        (draft.path / name).write_bytes(data)
    return draft


def taken(store: CheckpointStore, note: str = "") -> Checkpoint:
    draft = drafted(store)
    return store.publish(draft, a_manifest(draft.number, note=note))


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore("heat", tmp_path / "checkpoints")


# ---- taking ------------------------------------------------------------------------------------


def test_a_published_checkpoint_lists_loads_and_verifies(store: CheckpointStore) -> None:
    first, second = taken(store, "one"), taken(store, "two")
    assert [each.handle for each in store.list()] == ["heat:1", "heat:2"]
    assert store.list() == (first, second)
    assert (first.note, first.incarnation, first.debugger) == ("one", 3, True)
    assert first.locations == ("relax at heat.c:41",)
    assert first.size == sum(map(len, FILES.values()))
    manifest = store.load(2)
    assert set(manifest.files) == set(FILES)
    store.verify(manifest)


def test_its_latency_lasts_until_all_but_the_manifest_is_on_the_disk(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def sync(path: Path) -> None:
        synced.append(path)
        real(path)

    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + len(synced))
    real = stores.sync
    monkeypatch.setattr(stores, "sync", sync)
    draft = drafted(store)
    known = store.publish(draft, a_manifest(draft.number), began=990.0)
    assert known.latency == 10.0 + len(FILES)
    assert (known.paused, known) == (0.25, store.list()[0])


def test_an_empty_store_has_none_and_makes_no_directory(store: CheckpointStore) -> None:
    assert store.numbers() == () and store.list() == ()
    assert not store.root.exists()


def test_only_the_owner_may_look(store: CheckpointStore) -> None:
    taken(store)
    for path in (store.root, *store.root.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        if path.name != "last":  # a number, in a directory that nobody else may enter
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path


class Crash(BaseException):
    """The machine goes down: nothing of ours runs any more."""


# What publish does to the disk, and how often.
CALLS = {"chmod": 4, "fsync": 9, "write_bytes": 1, "write_text": 1, "rename": 2, "replace": 1}
STEPS = [(call, number) for call, count in CALLS.items() for number in range(1, count + 1)]


def failing(
    monkeypatch: pytest.MonkeyPatch, call: str, number: int, error: BaseException
) -> Callable[[], bool]:
    """Let the number-th call of that kind fail; returns whether it came to that."""
    owner = os if call == "fsync" else Path
    real, calls = getattr(owner, call), []

    def count(*arguments: object, **options: object) -> object:
        calls.append(call)
        if len(calls) == number:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(owner, call, count)
    return lambda: len(calls) >= number


@pytest.mark.parametrize(("call", "number"), STEPS)
def test_a_crash_at_any_step_leaves_a_whole_checkpoint_or_none(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    taken(store)
    draft = drafted(store)
    with monkeypatch.context() as patch:
        happened = failing(patch, call, number, Crash())
        with pytest.raises(Crash):
            store.publish(draft, a_manifest(2))
    assert happened()
    after = CheckpointStore("heat", store.root)
    for each in after.list():
        after.verify(after.load(each.number))
    assert after.numbers() in ((1,), (1, 2))
    if after.numbers() == (1,):
        with pytest.raises(StoreError, match="there is no checkpoint heat:2"):
            after.load(2)
    later = taken(after)
    assert later.number > max(after.numbers()[:-1])
    assert not list(store.root.glob(".draft-*"))


def test_the_steps_that_the_sweep_counts_are_all_that_there_are(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call, count in CALLS.items():
        draft = drafted(store)
        with monkeypatch.context() as patch:
            happened = failing(patch, call, count + 1, Crash())
            store.publish(draft, a_manifest(draft.number))
            assert not happened(), call


@pytest.mark.parametrize(("call", "number"), STEPS)
def test_a_full_disk_at_any_step_is_one_sentence_and_no_checkpoint(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    taken(store)
    draft = drafted(store)
    with monkeypatch.context() as patch:
        failing(patch, call, number, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(StoreError, match=r"cannot publish the checkpoint: .*No space left"):
            store.publish(draft, a_manifest(2))
    assert store.numbers() == (1,)
    assert not draft.path.exists()


def test_a_draft_that_nobody_published_is_removed_by_the_next(store: CheckpointStore) -> None:
    left = drafted(store)
    half_deleted = store.root / "4"
    (half_deleted / "images").mkdir(parents=True)
    assert store.numbers() == ()
    draft = store.begin()
    assert draft.path.exists() and not list(draft.images.iterdir())
    assert left.path == draft.path and not half_deleted.exists()
    store.discard(draft)
    assert not draft.path.exists()


def test_no_number_is_given_twice(store: CheckpointStore) -> None:
    assert [taken(store).number for _ in range(3)] == [1, 2, 3]
    store.delete(3)
    store.delete(2)
    assert taken(store).number == 4
    store.delete(4)
    store.delete(1)
    assert store.numbers() == ()
    assert taken(CheckpointStore("heat", store.root)).number == 5


@pytest.mark.parametrize("noted", ["", "x", "\0"])
def test_a_spoilt_note_of_the_last_number_is_no_obstacle(
    store: CheckpointStore, noted: str
) -> None:
    taken(store)
    (store.root / "last").write_text(noted)
    assert taken(store).number == 2


def test_what_is_no_number_is_no_checkpoint(store: CheckpointStore) -> None:
    taken(store)
    for name in ("²", "01", "0", "-1", "2x", "x"):
        shutil.copytree(store.path(1), store.root / name)
    assert store.numbers() == (1,)


def test_an_unwritable_store_is_reported(store: CheckpointStore) -> None:
    store.root.write_text("")  # a file where the directory should be
    with pytest.raises(StoreError, match=f"cannot write to {store.root}: File exists"):
        store.begin()


# ---- looking at it again -----------------------------------------------------------------------


def _change_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _keep_the_time(change: Callable[[Path], None]) -> Callable[[Path], None]:
    def changed(path: Path) -> None:
        before = path.stat()
        change(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return changed


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a byte": (_change_a_byte, "was changed"),
    "a byte, and the time put back": (_keep_the_time(_change_a_byte), "was changed"),
    "cut off": (lambda path: os.truncate(path, path.stat().st_size - 1), "was changed"),
    "emptied": (lambda path: os.truncate(path, 0), "was changed"),
    "longer": (lambda path: os.truncate(path, path.stat().st_size + 1), "was changed"),
    "gone": (Path.unlink, "is missing"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_in_one_sentence(
    store: CheckpointStore, name: str, damage: str
) -> None:
    taken(store)
    harm, word = DAMAGES[damage]
    harm(store.path(1) / name)
    with pytest.raises(StoreError) as caught:
        store.verify(store.load(1))
    assert str(caught.value) == (
        f"checkpoint heat:1 is damaged: {name} {word} (use another one, or 'crdebug delete heat:1')"
    )


def test_a_directory_in_place_of_a_file_is_reported(store: CheckpointStore) -> None:
    taken(store)
    path = store.path(1) / "run" / "stdout"
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match=f"cannot read {path}: Is a directory"):
        store.verify(store.load(1))


@pytest.mark.parametrize("name", FILES)
def test_another_time_and_place_of_the_same_content_is_the_same_file(
    store: CheckpointStore, name: str
) -> None:
    taken(store)
    path = store.path(1) / name
    os.utime(path, ns=(1, 1))
    store.verify(store.load(1))
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.rename(path)  # as a restored backup
    store.verify(store.load(1))


def test_an_untouched_file_is_not_read_again(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(store)
    read: list[Path] = []
    real = stores._hash

    def noted(path: Path) -> str:
        read.append(path)
        return real(path)

    monkeypatch.setattr(stores, "_hash", noted)
    store.verify(store.load(1))
    assert read == []
    os.utime(store.path(1) / "run/stdout")
    store.verify(store.load(1))
    assert read == [store.path(1) / "run/stdout"]


@pytest.mark.parametrize("number", [0, 2, 99])
def test_the_error_for_an_unknown_number_lists_the_numbers(
    store: CheckpointStore, number: int
) -> None:
    taken(store)
    taken(store)
    store.delete(2)
    for verb in (store.load, store.delete):
        with pytest.raises(StoreError) as caught:
            verb(number)
        assert str(caught.value) == (
            f"there is no checkpoint heat:{number} (the job's checkpoints are: 1)"
        )


def test_a_manifest_in_another_place_is_refused_and_listed_as_that(store: CheckpointStore) -> None:
    taken(store)
    shutil.copytree(store.path(1), store.root / "5")
    with pytest.raises(StoreError, match="holds heat:1"):
        store.load(5)
    good, bad = store.list()
    assert (good.number, good.problem, bad.number) == (1, "", 5)
    assert "holds heat:1" in bad.problem


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        (lambda text: "{", "cannot be read"),
        (lambda text: text.replace(f"{VERSION}", "99", 1), "has version 99"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_listed_with_the_reason_and_can_be_deleted(
    store: CheckpointStore, tmp_path: Path, spoilt: Callable[[str], str], words: str
) -> None:
    for _ in range(3):
        taken(store)
    stage(store, 2, tmp_path / "stage")
    for home in (store.path(1), tmp_path / "stage" / "heat" / "2"):
        (home / NAME).write_text(spoilt((home / NAME).read_text()))
    store.delete(2)
    good = taken(store)
    first, second, third, last = everywhere(store, tmp_path / "stage")
    for bad, places in ((first, ("local",)), (second, ("staged",))):
        assert words in bad.problem and bad.places == places
        assert bad.size > len(FILES["images/core-1.img"]) and bad.time > 0
    assert (third.problem, last) == ("", good)
    # No limit deletes what another crdebug may be able to use.
    assert expendable([first, second, third, last], Keep(count=1), 4, 0.0) == (3,)
    store.delete(1)
    assert not store.path(1).exists()
    assert [each.number for each in store.list()] == [3, 4]


def test_delete_takes_the_manifest_first(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(store)

    def crash(*arguments: object, **options: object) -> None:
        raise Crash

    monkeypatch.setattr(shutil, "rmtree", crash)
    with pytest.raises(Crash):
        store.delete(1)
    assert store.numbers() == ()


def test_delete_says_why_it_cannot(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(store)
    failing(monkeypatch, "unlink", 1, OSError(errno.EROFS, "Read-only file system"))
    with pytest.raises(StoreError, match="cannot delete checkpoint heat:1: Read-only file system"):
        store.delete(1)
    assert store.numbers() == (1,)


# ---- space -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("free", "fits"), [(164, True), (163, False), (0, False), (10**6, True)])
def test_space_is_asked_for_before_a_dump(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, free: int, fits: bool
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, free << 20))
    if fits:
        store.require_space(100 << 20)
        return
    with pytest.raises(StoreError) as caught:
        store.require_space(100 << 20)
    assert str(caught.value) == (
        f"a checkpoint needs about 100 MiB and 64 MiB to spare, {free} MiB are free "
        "(delete checkpoints ('crdebug delete'), or set $CRDEBUG_HOME)"
    )


def test_a_manifest_of_another_job_is_refused(store: CheckpointStore) -> None:
    draft = drafted(store)
    store.publish(draft, replace(a_manifest(draft.number), job="cold"))
    with pytest.raises(StoreError, match="holds cold:1"):
        store.load(1)


def test_the_long_list_says_how_long_each_stopped_the_job(store: CheckpointStore) -> None:
    first = taken(store)
    table = checkpoint_table(
        (replace(first, latency=12.345), replace(first, paused=0.0)), long=True
    )
    head, one, other = table.splitlines()
    assert "stopped for" in head and "safe after" in head
    assert ("0.25 s" in one and "12.35 s" in one) or "12.34 s" in one
    assert " - " in other
    assert "stopped for" not in checkpoint_table((first,))

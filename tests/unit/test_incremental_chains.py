"""Checkpoints that build on earlier ones: whole for as long as they are there, in both places."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_store import Crash, a_manifest, failing

from crdebug.base.errors import StoreError
from crdebug.checkpoint import incremental, staging
from crdebug.checkpoint import manifest as manifests
from crdebug.checkpoint.manifest import NAME, Base, Manifest
from crdebug.checkpoint.retention import Keep, expendable
from crdebug.checkpoint.store import Checkpoint, CheckpointStore
from crdebug.job import incremental_parent

pytestmark = pytest.mark.unit

SHARED = ("images/inventory.img", "images/pages-1.img", "images/pagemap-1.img")
OWN = ("images/core-1.img", "files/0", "run/stdout")
NUMBERS = (1, 2, 3, 4)
ORDERS = tuple(itertools.permutations(NUMBERS))


def take(store: CheckpointStore, on: Manifest | None = None) -> Manifest:
    """A checkpoint whose files are unlike any other's."""
    draft = store.begin()
    for name in SHARED + OWN:
        (draft.path / name).write_bytes(f"{draft.number} {name}".encode() * 300)
    chain = (Base(on.number, on.identity), *on.bases) if on is not None else ()
    if on is not None:
        incremental.link(draft.path, on.number)
    store.publish(draft, replace(a_manifest(draft.number), bases=chain))
    return store.load(draft.number)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """A full one, and three more, each on the one before it."""
    made = CheckpointStore("heat", tmp_path / "checkpoints")
    last = None
    for _ in NUMBERS:
        last = take(made, last)
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "second"


def directories(root: Path) -> set[int]:
    return {int(path.name) for path in root.iterdir() if path.name.isdigit()}


def is_whole(store: CheckpointStore) -> None:
    """All that are listed can be restarted, and no more is there than they need."""
    for number in store.numbers():
        store.verify(store.load(number))
    needed = {base for number in store.numbers() for base in incremental.chain(store.root, number)}
    deleted = needed - set(store.numbers())
    assert directories(store.root) == set(store.numbers()) | deleted
    for number in deleted:
        home = store.path(number)
        found = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
        assert found == {*SHARED, incremental.BASE}


def test_each_is_listed_with_its_parent(store: CheckpointStore) -> None:
    assert [each.bases for each in store.list()] == [(), (1,), (2, 1), (3, 2, 1)]
    assert store.newest_good() == 4
    is_whole(store)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_deleted_in_any_order_the_others_stay_whole(
    store: CheckpointStore, order: tuple[int, ...]
) -> None:
    for done, number in enumerate(order, 1):
        store.delete(number)
        left = sorted(order[done:])
        assert list(store.numbers()) == left
        is_whole(store)
        # the list agrees with the disk, except for proofs
        files = [path for path in store.root.glob("*/*/*") if not path.is_symlink()]
        proofs = [path.stat().st_size for path in store.root.glob(f"*/{incremental.BASE}")]
        taken = sum(path.stat().st_size for path in files) + sum(proofs)
        assert sum(each.size for each in store.list()) == taken
    assert not directories(store.root)


# How often each is called while the second of the chain, and then the last two, are deleted.
STEPS = [("rename", 1), *(("unlink", n) for n in range(1, 6)), *(("rmtree", n) for n in (1, 2, 3))]


@pytest.mark.parametrize(("call", "number"), STEPS)
def test_a_crash_at_any_step_of_a_deletion_leaves_the_others_whole(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    with monkeypatch.context() as patch:
        if call == "rmtree":
            happened = _failing_rmtree(patch, number)
        else:
            happened = failing(patch, call, number, Crash())
        with pytest.raises(Crash):
            for each in (2, 4, 3):
                store.delete(each)
    assert happened()
    after = CheckpointStore("heat", store.root)
    for each in after.numbers():
        after.verify(after.load(each))
    take(after)  # sweeps
    is_whole(after)
    assert (2 in after.numbers()) == (call == "rename")


def _failing_rmtree(patch: pytest.MonkeyPatch, number: int) -> Callable[[], bool]:
    """A crash in the middle of it."""
    real, calls = shutil.rmtree, []

    def count(path: Path, *arguments: object, **options: object) -> None:
        calls.append(path)
        if len(calls) == number:
            next(each for each in sorted(Path(path).rglob("*")) if each.is_file()).unlink()
            raise Crash
        real(path)

    patch.setattr(shutil, "rmtree", count)
    return lambda: len(calls) >= number


def test_the_steps_that_the_sweep_counts_are_all_that_there_are(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[str, int] = {}
    for owner, call in ((Path, "rename"), (Path, "unlink"), (shutil, "rmtree")):
        real = getattr(owner, call)

        def counted(
            *arguments: object, call: str = call, real: Callable[..., object] = real, **more: object
        ) -> object:
            counts[call] = counts.get(call, 0) + 1
            return real(*arguments, **more)

        monkeypatch.setattr(owner, call, counted)
    for each in (2, 4, 3):
        store.delete(each)
    assert counts == {call: max(n for name, n in STEPS if name == call) for call, _ in STEPS}


# ---- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("name", SHARED)
def test_what_others_need_and_is_damaged_is_named_with_where_it_is(
    store: CheckpointStore, name: str, deleted: bool
) -> None:
    if deleted:
        store.delete(2)
    (store.path(2) / name).write_bytes(b"?")
    for number in (3, 4):
        with pytest.raises(StoreError) as caught:
            store.verify(store.load(number))
        handle = f"heat:{number}"
        assert str(caught.value) == (
            f"checkpoint {handle} builds on heat:2: {name} was changed "
            f"(use another one, or 'crdebug delete {handle}')"
        )
    store.verify(store.load(1))
    assert store.newest_good() == 1


@pytest.mark.parametrize("name", OWN)
def test_damage_that_no_later_checkpoint_depends_on_does_not_matter(
    store: CheckpointStore, name: str
) -> None:
    (store.path(2) / name).unlink()
    store.verify(store.load(3))
    with pytest.raises(StoreError, match=f"heat:2 is damaged: {name} is missing"):
        store.verify(store.load(2))


def test_a_missing_or_different_parent_is_reported(store: CheckpointStore) -> None:
    home = store.path(2)
    home.rename(store.root / "away")
    with pytest.raises(StoreError, match="checkpoint heat:4 builds on heat:2: it is missing"):
        store.verify(store.load(4))
    other = CheckpointStore("heat", store.root.with_name("other"))
    take(other, take(other))
    (other.path(2) / "run" / "stdout").write_bytes(b"another")
    shutil.rmtree(other.path(2))
    take(other, other.load(1))
    other.path(3).rename(home)
    document = json.loads((home / NAME).read_bytes()) | {"number": 2}
    (home / NAME).write_bytes(manifests.seal(document))
    with pytest.raises(
        StoreError, match=r"heat:4 builds on heat:2: it was replaced by another checkpoint"
    ):
        store.verify(store.load(4))


@pytest.mark.parametrize("harm", ["remove", "elsewhere"])
def test_a_link_that_was_changed_is_damage(store: CheckpointStore, harm: str) -> None:
    link = store.path(4) / "images" / "parent"
    link.unlink()
    if harm == "elsewhere":
        link.symlink_to("../../2/images")
    with pytest.raises(StoreError, match="heat:4 is damaged: images/parent was changed"):
        store.verify(store.load(4))
    incremental.link(store.path(1), 7)
    with pytest.raises(StoreError, match="heat:2 builds on heat:1: images/parent was changed"):
        store.verify(store.load(2))


def test_links_that_lead_in_a_circle_end(store: CheckpointStore) -> None:
    incremental.link(store.path(1), 4)
    assert incremental.chain(store.root, 4) == (3, 2, 1)
    os.unlink(store.path(1) / "images" / "parent")
    is_whole(store)


def test_what_an_unreadable_one_builds_on_stays(store: CheckpointStore) -> None:
    (store.path(4) / NAME).write_text("{")
    for number in (1, 2, 3):
        store.delete(number)
    (last,) = store.list()
    assert last.problem and last.bases == (3, 2, 1)
    assert directories(store.root) == {1, 2, 3, 4}


# ---- which goes ---------------------------------------------------------------------------------


def in_chains(*chains_: tuple[int, ...], note: int = 0) -> list[Checkpoint]:
    """One checkpoint of 10 bytes for each number; those of a tuple build on each other."""
    return [
        replace(
            Checkpoint("heat", number, float(number), "", 10, False, 1, ()),
            bases=tuple(reversed(chain[:at])),
            note="mine" if number == note else "",
        )
        for chain in chains_
        for at, number in enumerate(chain)
    ]


@pytest.mark.parametrize(
    ("keep", "note", "gone"),
    [
        (Keep(count=2), 0, (1, 2, 3, 4, 5)),  # what 6 and 7 need of 4 and 5 stays, in hiding
        (Keep(count=5), 0, (1, 2)),
        (Keep(seconds=2.5), 0, (1, 2, 3, 4)),
        (Keep(size=69), 0, (1, 2, 3)),  # for the disk only a chain as a whole makes room
        (Keep(size=1), 0, (1, 2, 3)),
        (Keep(size=70), 0, ()),
        (Keep(size=1), 2, ()),
        (Keep(count=4, size=1), 0, (1, 2, 3)),
        (Keep(count=5, size=65), 2, (1,)),
    ],
)
def test_which_go(keep: Keep, note: int, gone: tuple[int, ...]) -> None:
    found = in_chains((1, 2, 3), (4, 5, 6, 7), note=note)
    assert expendable(found, keep, 7, 7.0) == gone


# ---- the second place ---------------------------------------------------------------------------


def lose(store: CheckpointStore) -> None:
    for path in store.root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)


def test_what_it_builds_on_is_staged_and_fetched_with_it(
    store: CheckpointStore, place: Path
) -> None:
    store.delete(2)
    staging.stage(store, 4, place)
    assert staging.numbers("heat", place) == (1, 3, 4)
    assert directories(place / "heat") == {1, 2, 3, 4}
    lose(store)
    assert [each.bases for each in staging.everywhere(store, place)] == [(), (2, 1), (3, 2, 1)]
    staging.fetch(store, 4, place)
    assert store.numbers() == (1, 3, 4)
    is_whole(store)


def test_only_missing_or_damaged_files_are_fetched(store: CheckpointStore, place: Path) -> None:
    staging.stage(store, 4, place)
    for path in (store.path(2) / SHARED[1], store.path(4) / OWN[0]):
        path.write_bytes(b"?")
    shutil.rmtree(place / "heat" / "1")
    staging.fetch(store, 4, place)
    is_whole(store)
    shutil.rmtree(store.path(1))
    with pytest.raises(StoreError, match=r"heat:1 is not whole in .*second"):
        staging.fetch(store, 4, place)


@pytest.mark.parametrize("order", tuple(itertools.permutations((1, 2, 3))), ids=str)
def test_copies_are_forgotten_in_any_order(
    store: CheckpointStore, place: Path, order: tuple[int, ...]
) -> None:
    staging.stage(store, 3, place)
    lose(store)
    for done, number in enumerate(order, 1):
        staging.forget("heat", number, place)
        assert list(staging.numbers("heat", place)) == sorted(order[done:])
        for each in staging.numbers("heat", place):
            staging.fetch(store, each, place)
        is_whole(store)
        lose(store)
    assert not directories(place / "heat")


def test_a_base_that_was_forgotten_while_it_was_copied_is_copied_again(
    store: CheckpointStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = staging._stage_one

    def meanwhile(store: CheckpointStore, manifest: Manifest, *more: object) -> int:
        if manifest.number == 4:
            for number in (1, 2, 3):
                staging.forget("heat", number, place)
        return real(store, manifest, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(staging, "_stage_one", meanwhile)
    staging.stage(store, 4, place)
    lose(store)
    staging.fetch(store, 4, place)
    store.verify(store.load(4))


# ---- what the next one builds on ----------------------------------------------------------------


def test_the_next_builds_on_the_last_until_a_dump_fails(
    store: CheckpointStore, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    assert incremental_parent.find(run, store, 10) is None
    incremental_parent.note(run, 4)
    assert incremental_parent.find(run, store, 10) == store.load(4)
    incremental_parent.forget(run)
    assert incremental_parent.find(run, store, 10) is None
    incremental_parent.forget(run)


@pytest.mark.parametrize(("number", "full_every", "found"), [(1, 1, 0), (1, 2, 1), (2, 2, 0)])
def test_a_full_one_every_so_often(
    store: CheckpointStore, tmp_path: Path, number: int, full_every: int, found: int
) -> None:
    incremental_parent.note(tmp_path, number)
    base = incremental_parent.find(tmp_path, store, full_every)
    assert (base.number if base else 0) == found


@pytest.mark.parametrize("harm", ["deleted", "damaged", "its base", "unreadable"])
def test_an_unusable_image_is_no_parent(store: CheckpointStore, tmp_path: Path, harm: str) -> None:
    incremental_parent.note(tmp_path, 4)
    match harm:
        case "deleted":
            store.delete(4)
        case "damaged":
            (store.path(4) / SHARED[0]).write_bytes(b"?")
        case "its base":
            (store.path(1) / SHARED[0]).unlink()
        case "unreadable":
            (tmp_path / "base").write_text("x")
    assert incremental_parent.find(tmp_path, store, 10) is None

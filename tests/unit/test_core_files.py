"""Core files: whose they are, what ended them, and which rank each one is."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from crdebug.acquire.binaries import build_id
from crdebug.acquire.core_files import in_order, is_core, read_core
from crdebug.acquire.core_ranks import find_cores
from crdebug.acquire.discovery import rank_in
from crdebug.base.errors import BadInput
from harness.cores import made_up

pytestmark = pytest.mark.unit

PROGRAM = os.path.realpath(shutil.which("true") or "/bin/true")
BUILD = build_id(PROGRAM)


def rank(number: int, name: str = "OMPI_COMM_WORLD_RANK") -> dict[str, str]:
    return {"PATH": "/bin", name: str(number), "LAST": "a=b"}


def cores(directory: Path, **environments: Mapping[str, str]) -> Path:
    """A directory of core files of PROGRAM, by name."""
    for name, environment in environments.items():
        made_up(directory / name, environment, program=PROGRAM, build=BUILD)
    return directory


# ---- one -----------------------------------------------------------------------------------------


def test_what_a_core_file_says(tmp_path: Path) -> None:
    made_up(tmp_path / "core", rank(3), program="/opt/heat", build="ab" * 20, signal=6)
    core = read_core(tmp_path / "core")
    assert (core.program, core.build, core.pid, core.signal) == ("/opt/heat", "ab" * 20, 4711, 6)
    assert core.environment == rank(3)


def test_an_argument_is_not_taken_for_a_variable(tmp_path: Path) -> None:
    made_up(tmp_path / "core", {}, arguments=("./heat", "no variable"))
    assert read_core(tmp_path / "core").environment == {}


def test_a_program_that_was_removed_meanwhile_has_its_name(tmp_path: Path) -> None:
    made_up(tmp_path / "core", {}, program="/opt/heat (deleted)")
    assert read_core(tmp_path / "core").program == "/opt/heat"


def test_other_files_are_no_core_files(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("core" * 100)
    os.mkfifo(tmp_path / "fifo")
    for path in (Path(PROGRAM), tmp_path, *tmp_path.iterdir(), tmp_path / "none"):
        assert not is_core(path)
    for name in ("text", "fifo"):
        with pytest.raises(BadInput, match=f"{name} is not a core file"):
            find_cores([tmp_path / name])


def test_cut_off_anywhere_it_is_refused_in_words(tmp_path: Path) -> None:
    whole = made_up(tmp_path / "core", rank(0), build="ab" * 20).read_bytes()
    cut = tmp_path / "cut"
    for size in (*range(0, 400, 7), *range(400, len(whole), 501), len(whole) - 1):
        cut.write_bytes(whole[:size])
        with pytest.raises(BadInput, match=r"truncated|not a core file|damaged"):
            read_core(cut)


def test_damaged_anywhere_it_is_read_or_refused_in_words(tmp_path: Path) -> None:
    whole = made_up(tmp_path / "core", rank(0), build="ab" * 20).read_bytes()
    bad = tmp_path / "bad"
    for at in range(16, 1500, 3):
        for byte in (0, 0x7F, 0xFF):
            bad.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            try:
                read_core(bad)
            except BadInput as error:
                assert str(bad) in str(error)


def test_one_that_says_of_itself_what_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    whole = made_up(tmp_path / "core", rank(0), build="ab" * 20).read_bytes()
    for at, form, value in (
        (54, "<H", 0),  # the size of a segment's entry, with very many of them
        (32, "<Q", 2**64 - 1),  # where the entries are
        (40, "<Q", 2**64 - 8),  # where the number of entries is
        (64 + 32, "<Q", 2**63),  # the size of the notes
    ):
        bad = bytearray(whole)
        struct.pack_into(form, bad, at, value)
        if at != 64 + 32:
            struct.pack_into("<H", bad, 56, 0xFFFF)
        (tmp_path / "core").write_bytes(bad)
        with pytest.raises(BadInput, match=r"damaged|truncated"):
            read_core(tmp_path / "core")


def test_of_another_kind_of_machine(tmp_path: Path) -> None:
    made_up(tmp_path / "core", {}, machine=183)
    with pytest.raises(BadInput, match="another kind of machine"):
        read_core(tmp_path / "core")


# ---- several -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"])
def test_the_environment_says_which_rank_it_is(tmp_path: Path, name: str) -> None:
    found = find_cores([cores(tmp_path, a=rank(1, name), b=rank(0, name))])
    assert {r: core.path.name for r, core in found.cores.items()} == {0: "b", 1: "a"}
    assert found.program == {0: PROGRAM, 1: PROGRAM}
    assert found.said == (f"core files of ranks 0-1, by {name} in their environment",)


def test_the_mpi_s_own_variable_comes_first() -> None:
    both = {"SLURM_PROCID": "7", "OMPI_COMM_WORLD_RANK": "2"}
    assert rank_in(both) == ("OMPI_COMM_WORLD_RANK", 2, 0)
    for text in ("many", "", "1" * 5000, "-1", "\u0663"):
        assert rank_in({"PMI_RANK": text}) is None


def test_without_that_they_are_numbered_by_their_names(tmp_path: Path) -> None:
    environments: dict[str, Mapping[str, str]] = {f"core.{n}": {"A": "b"} for n in (10, 9, 101)}
    found = find_cores([cores(tmp_path, **environments)])
    assert [core.path.name for core in found.cores.values()] == ["core.9", "core.10", "core.101"]
    assert "numbered in the order of their names" in found.said[0]
    assert sorted([Path("core.b"), Path("core.1"), Path("core")], key=in_order)[0] == Path("core")


def test_what_is_no_rank_is_left_out_in_words(tmp_path: Path) -> None:
    cores(tmp_path, a=rank(0), b=rank(1))
    made_up(tmp_path / "c", {"A": "b"}, program="/usr/bin/mpirun")
    found = find_cores([tmp_path])
    assert list(found.cores) == [0, 1]
    assert found.said[1] == f"left out: {tmp_path}/c is of /usr/bin/mpirun, which is no rank"


def test_one_that_is_truncated_is_left_out_in_words(tmp_path: Path) -> None:
    cores(tmp_path, a=rank(0), b=rank(1))
    os.truncate(tmp_path / "a", 3000)
    found = find_cores([tmp_path])
    assert list(found.cores) == [1]
    assert found.said[1].startswith(f"left out: {tmp_path}/a is truncated: it has 3000 of ")
    (tmp_path / "b").unlink()
    with pytest.raises(BadInput, match="a is truncated"):
        find_cores([tmp_path])


def test_slurm_s_variable_does_not_make_a_rank_of_a_daemon(tmp_path: Path) -> None:
    cores(tmp_path, a=rank(1) | rank(0, "SLURM_PROCID"))
    made_up(tmp_path / "b", rank(0, "SLURM_PROCID"), program="/usr/bin/orted")
    found = find_cores([tmp_path])
    assert list(found.cores) == [1]
    assert found.said[1] == f"left out: {tmp_path}/b is of /usr/bin/orted, which is no rank"


def test_what_a_rank_has_started_is_no_rank(tmp_path: Path) -> None:
    cores(tmp_path, b=rank(0), c=rank(1))
    made_up(tmp_path / "a", rank(1), program="/bin/sh")
    found = find_cores([tmp_path])
    assert [core.path.name for core in found.cores.values()] == ["b", "c"]
    assert found.said[1] == f"left out: {tmp_path}/a is of /bin/sh, which rank 1 has started"


def test_of_several_runs_the_newest_is_taken(tmp_path: Path) -> None:
    for run, name in enumerate("ab"):
        for number in range(2):
            environment = rank(number) | {"PMIX_NAMESPACE": name}
            path = made_up(tmp_path / f"{name}{number}", environment, program=PROGRAM, build=BUILD)
            os.utime(path, (9 - run, 9 - run))
    found = find_cores([tmp_path])
    assert [core.path.name for core in found.cores.values()] == ["a0", "a1"]
    assert found.said[1].endswith(f": {tmp_path}/b0, {tmp_path}/b1")


def test_ranks_without_a_file_are_named(tmp_path: Path) -> None:
    of_four = {"OMPI_COMM_WORLD_SIZE": "4"}
    cores(tmp_path, a=rank(0) | of_four, b=rank(2) | of_four)
    assert find_cores([tmp_path]).said[0].endswith("environment; ranks 1,3 have none")
    for size in ("0", "9" * 8):  # there is none such
        made_up(tmp_path / "a", rank(0) | {"OMPI_COMM_WORLD_SIZE": size}, program=PROGRAM)
        assert find_cores([tmp_path / "a"]).said[0].endswith("environment")


def test_a_file_with_several_names_is_one_file(tmp_path: Path) -> None:
    made_up(tmp_path / "core.7", rank(0), program=PROGRAM, build=BUILD)
    (tmp_path / "core").symlink_to("core.7")
    os.link(tmp_path / "core.7", tmp_path / "latest")
    found = find_cores([tmp_path, tmp_path / "core.7"])
    assert (list(found.cores), len(found.said)) == ([0], 1)


def test_a_name_that_gdb_would_not_get_is_refused(tmp_path: Path) -> None:
    cores(tmp_path, good=rank(0))
    for name in (b"a\nquit", b"\xff", b"\x1b[2J"):
        made_up(tmp_path / os.fsdecode(name), rank(1), program=PROGRAM, build=BUILD)
        found = find_cores([tmp_path])
        assert list(found.cores) == [0]
        assert "its name or in that of its program: '" in found.said[1]
        assert found.said[1].isprintable()
        (tmp_path / os.fsdecode(name)).unlink()
    made_up(tmp_path / "good", rank(0), program="/bin/heat\x1b[2J")
    with pytest.raises(BadInput, match=r"heat\\x1b"):
        find_cores([tmp_path])


def test_those_of_another_user_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores(tmp_path, a=rank(0), b=rank(1))
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "b")  # root may read all
    assert find_cores([tmp_path]).said[1] == (
        f"left out, because you may not read it: {tmp_path}/b"
    )
    (tmp_path / "a").unlink()
    monkeypatch.setattr("crdebug.acquire.core_ranks.is_core", lambda path: False)
    with pytest.raises(BadInput, match=r"that you may read \(not .*/b\)"):
        find_cores([tmp_path])


def test_two_of_one_rank_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"a and .*b are both of rank 1"):
        find_cores([cores(tmp_path, a=rank(1), b=rank(1))])


def test_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no core file in .*ulimit -c unlimited"):
        find_cores([tmp_path])
    with pytest.raises(BadInput, match="there is no file"):
        find_cores([tmp_path / "core"])
    with pytest.raises(BadInput, match="no core file is named"):
        find_cores([])


def test_compressed_ones_are_to_be_unpacked_first(tmp_path: Path) -> None:
    (tmp_path / "core.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    with pytest.raises(BadInput, match=r"core\.zst is compressed \(unpack it first: zstd -d "):
        find_cores([tmp_path / "core.zst"])
    with pytest.raises(BadInput, match=r"no core file in .*unpack core\.zst"):
        find_cores([tmp_path])


def test_the_program_must_be_there_and_the_one_that_ran(tmp_path: Path) -> None:
    made_up(tmp_path / "core", rank(0), build="ab" * 20)
    with pytest.raises(BadInput, match="is of /nowhere/heat, and that is not here"):
        find_cores([tmp_path])
    with pytest.raises(BadInput, match=f"is of /nowhere/heat, not of {PROGRAM}"):
        find_cores([tmp_path], [Path(PROGRAM)])
    made_up(tmp_path / "core", rank(0), program=PROGRAM, build="ab" * 20)
    assert "rank 0: " in find_cores([tmp_path]).said[1]
    assert "has been rebuilt since" in find_cores([tmp_path]).said[1]
    # the same program in another place
    made_up(tmp_path / "core", rank(0), build=BUILD)
    found = find_cores([tmp_path / "core"], [Path(PROGRAM)])
    assert (found.program, len(found.said)) == ({0: PROGRAM}, 1)


def test_of_two_programs_each_is_named(tmp_path: Path) -> None:
    other = os.path.realpath(shutil.which("false") or "/bin/false")
    made_up(tmp_path / "a", rank(0), program="/nowhere/heat", build=BUILD)
    made_up(tmp_path / "b", rank(1), program="/nowhere/false")
    found = find_cores([tmp_path], [Path(PROGRAM), Path(other)])
    assert found.program == {0: PROGRAM, 1: other}
    made_up(tmp_path / "b", rank(1), program="/nowhere/false", build="ab" * 20)
    with pytest.raises(BadInput, match=r"b is of /nowhere/false, not of .*true \(name its program"):
        find_cores([tmp_path], [Path(PROGRAM)])


def test_libraries_that_are_not_here_or_not_the_same(tmp_path: Path) -> None:
    library = tmp_path / "libmpi.so.40"
    for number in range(2):
        place = tmp_path / f"core.{number}"
        made_up(place, rank(number), program=PROGRAM, build=BUILD, library=str(library))
    said = find_cores([tmp_path]).said
    assert said[1].startswith(f"ranks 0-1: not here are the libraries {library}, so stacks may end")
    shutil.copy(PROGRAM, library)
    assert len(find_cores([tmp_path]).said) == 1
    shutil.copy(os.path.realpath(shutil.which("false") or "/bin/false"), library)
    said = find_cores([tmp_path]).said
    assert said[1].startswith(f"ranks 0-1: not those that ran are the libraries {library}, so func")

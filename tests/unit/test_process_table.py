"""Process tables that others wrote are checked before they are used."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.acquire.discovery import find_job
from crdebug.acquire.mpir import is_here
from crdebug.base.errors import CrdebugError, Refused
from crdebug.node import process_tree
from harness import nobody
from harness.nobody import needs_root, public  # noqa: F401

pytestmark = pytest.mark.unit

SOURCE = Path(__file__).parents[1] / "programs" / "launcher.c"
HERE = os.uname().nodename


@pytest.fixture
def program(tmp_path: Path) -> Path:
    made = tmp_path / "launcher"
    command: list[str | Path]
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", made, SOURCE]
    subprocess.run(command, check=True, timeout=60)
    return made


@contextlib.contextmanager
def launched(argv: list[object], *, by_nobody: bool = False) -> Iterator[int]:
    """The PID of a launcher that has a table."""
    with subprocess.Popen(
        list(map(str, argv)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=nobody.become if by_nobody else None,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.communicate(timeout=60)


def test_what_the_launcher_has_started_is_its_rank(program: Path) -> None:
    with launched([program, 1, f"{HERE}:0"]) as pid:
        found = find_job(pid)
        assert [entry.pid for entry in found.entries] == list(process_tree.descendants(pid))
        assert found.only("") == found


@needs_root
def test_no_process_of_another_user_is_taken_for_a_rank(
    program: Path,
    public: Path,  # noqa: F811
) -> None:
    """Root's attach would stop it."""
    theirs = public / "launcher"
    theirs.write_bytes(program.read_bytes())
    theirs.chmod(0o755)
    with launched([theirs, 1, f"{HERE}:0"], by_nobody=True) as pid:
        assert len(find_job(pid).entries) == 1  # root may attach to his job
    with launched([theirs, 1, f"{HERE}:{os.getpid()}"], by_nobody=True) as pid:
        said = rf"names process {os.getpid()} as rank 0, which belongs to another user"
        with pytest.raises(Refused, match=said):
            find_job(pid)


def test_no_process_that_it_did_not_start_is_taken_for_a_rank(program: Path) -> None:
    """A PID that was reused, say; a rank below another daemon says its number itself."""
    strange = {**os.environ, "PMI_RANK": "1"}
    with subprocess.Popen(["sleep", "1000"], env=strange) as other:
        try:
            with launched([program, 1, f"{HERE}:{other.pid}"]) as pid:
                with pytest.raises(
                    Refused, match=rf"names process {other.pid} as rank 0, which was"
                ):
                    find_job(pid)
            with launched([program, 2, f"{HERE}:0", f"{HERE}:{other.pid}"]) as pid:
                assert find_job(pid).entries[1].pid == other.pid
        finally:
            other.kill()


def test_ranks_on_other_machines_are_named_and_never_looked_for_here(program: Path) -> None:
    """Whatever has their numbers here: nothing, or somebody else."""
    away = [f"nodeb.cluster:{2**22 + 5}", f"nodeb.cluster:{os.getpid()}", "nodec:1"]
    with launched([program, 4, f"{HERE}:0", *away]) as pid:
        found = find_job(pid)
        assert [(entry.rank, entry.pid) for entry in found.entries] == [
            (0, process_tree.descendants(pid)[0])
        ]
        assert [(entry.rank, entry.host) for entry in found.elsewhere] == [
            (1, "nodeb.cluster"),
            (2, "nodeb.cluster"),
            (3, "nodec"),
        ]
        assert found.only("") == found
        assert found.only("0").elsewhere == ()
        assert [entry.rank for entry in found.only("2-3").everywhere] == [2, 3]
        with pytest.raises(Refused, match=r"cannot checkpoint: .*\(nodeb\.cluster, nodec\)"):
            found.require_here("checkpoint")
        found.only("0").require_here("checkpoint")


@pytest.mark.parametrize(
    ("own", "name", "here"),
    [
        ("a", "a", True),
        ("a", "a.cluster", True),
        ("a.cluster", "a", True),
        ("a.cluster", "a.cluster", True),
        ("a.cluster", "a.other", False),
        ("a", "b", False),
        ("a", "localhost", True),
        ("a", "", False),
    ],
)
def test_which_names_are_this_machines(
    monkeypatch: pytest.MonkeyPatch, own: str, name: str, here: bool
) -> None:
    uname = os.uname()
    named = os.uname_result((uname.sysname, own, *uname[2:]))
    monkeypatch.setattr(os, "uname", lambda: named)
    assert is_here(name) == here


@pytest.mark.parametrize("size", ["0x7fffffff", "1000000", "0x80000000", "3", "0"])
def test_a_table_that_cannot_be_right_is_refused_in_one_sentence(program: Path, size: str) -> None:
    """2**31 entries, say: nothing of that size is asked for."""
    with launched([program, size, f"{HERE}:0"]) as pid:
        with pytest.raises(CrdebugError) as caught:
            find_job(pid)
        assert "\n" not in str(caught.value)

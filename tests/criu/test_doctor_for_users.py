"""How far an ordinary user gets, on this machine and where something is refused to him."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crdebug.node.criu_program import find_criu
from harness import users
from harness.nobody import needs_root
from harness.users import home as home

pytestmark = needs_root


@pytest.fixture
def criu(home: Path) -> Path:
    found = find_criu()
    assert found is not None
    return users.give_criu(home, found.path)


def doctor(home: Path, first: Callable[[], None] | None = None, **env: str) -> tuple[int, Any]:
    """Its status, and its answer."""

    def prepare() -> None:
        users.expose()
        if first is not None:
            first()

    ran = users.run(
        home, sys.executable, "-m", "crdebug", "doctor", "--json", first=prepare, env=env
    )
    assert not ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def finding(answer: Any, name: str) -> Any:
    (found,) = (each for each in answer["findings"] if each["name"] == name)
    return found


def test_he_can_do_all_that_root_can_on_one_machine(home: Path, criu: Path) -> None:
    status, answer = doctor(home, CRDEBUG_CRIU=str(criu))
    assert (status, answer["ready"], answer["level"]) == (0, True, "checkpoint"), answer
    assert finding(answer, "privileges")["status"] == "ok"


def test_with_a_criu_that_does_not_work(home: Path) -> None:
    status, answer = doctor(home, CRDEBUG_CRIU="/bin/true")
    assert (status, answer["level"]) == (0, "go back"), answer
    assert "no restored process" in finding(answer, "criu")["detail"]


@pytest.mark.parametrize(
    ("refused", "against", "to_do"),
    [
        ("user.max_user_namespaces", users.refuse_namespaces, "sysctl user.max_user_namespaces="),
        ("seccomp", users.refuse("unshare"), "a seccomp profile that allows user namespaces"),
    ],
    ids=["switch", "seccomp"],
)
def test_where_he_may_make_no_namespaces(
    refused: str, against: Callable[[], None], to_do: str, home: Path, criu: Path
) -> None:
    status, answer = doctor(home, against, CRDEBUG_CRIU=str(criu))
    assert (status, answer["ready"], answer["level"]) == (0, True, "go back"), answer
    found = finding(answer, "namespaces")
    assert found["status"] == "missing" and refused in found["detail"]
    assert to_do in found["what_to_do"]
    assert finding(answer, "criu")["status"] == "missing"


def test_where_he_may_trace_nothing(home: Path, criu: Path) -> None:
    status, answer = doctor(home, users.refuse("ptrace"), CRDEBUG_CRIU=str(criu))
    assert (status, answer["ready"], answer["level"]) == (1, False, None), answer
    found = finding(answer, "ptrace")
    assert found["status"] == "missing" and "Operation not permitted" in found["detail"]


def test_without_gdb_mpi_or_a_compiler(home: Path, criu: Path) -> None:
    """Only what a bare system has is in PATH."""
    bare = home / "bin"
    bare.mkdir()
    for name in ("sh", "cat", "dirname", "readlink"):
        (bare / name).symlink_to(f"/bin/{name}")
    status, answer = doctor(home, CRDEBUG_CRIU=str(criu), PATH=str(bare))
    assert (status, answer["level"]) == (1, None), answer
    lacking = {each["name"] for each in answer["findings"] if each["status"] == "missing"}
    assert lacking == {"gdb", "cc", "mpi", "mpicc"}
    for name in lacking:
        assert "crdebug setup" in finding(answer, name)["what_to_do"]


def test_it_leaves_nothing_in_his_home_but_its_cache(home: Path, criu: Path) -> None:
    before = {path.name for path in home.iterdir()}
    doctor(home, CRDEBUG_CRIU=str(criu))
    assert {path.name for path in home.iterdir()} - before <= {".cache"}
    assert os.listdir(home / "tmp") == []

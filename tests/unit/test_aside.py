"""Shared memory keeps a name, crdebug/native/shim/aside.c: tests/programs/shared.c checks it by
itself, in a /dev/shm of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from crdebug.native import build as building
from harness import programs

pytestmark = pytest.mark.unit

NATIVE = Path(building.__file__).parent
SHIM = NATIVE / "shim"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-z,now")
OWN = 'mount -t tmpfs -o size=128m tmpfs /dev/shm && cd / && exec "$@"'
# Root may write anywhere, and an ordinary user is root only in a user namespace of his own.
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the program and the shim."""
    home = tmp_path_factory.mktemp("aside")
    program = [str(programs.source("shared")), "-o", f"{home}/shared"]
    subprocess.run(["cc", *programs.FLAGS, *program], check=True)
    shim = [*map(str, sorted(SHIM.glob("*.c"))), "-o", f"{home}/shim.so"]
    libraries = ["-I", f"{NATIVE}/applib", "-pthread", "-ldl"]
    subprocess.run(["cc", *FLAGS, *shim, *libraries], check=True)
    return home


def checked(built: Path, check: str, *before: str, on: bool = True) -> str:
    """What a check prints that passes."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    switch = ["env", f"LD_PRELOAD={built}/shim.so", *(["CRDEBUG_ASIDE=1"] if on else [])]
    inside = [*before, *switch, str(built / "shared"), check]
    ran = subprocess.run(
        ["unshare", "--mount", *own, "sh", "-c", OWN, "sh", *inside],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("check", ["reuse", "anonymous", "semaphore", "limited", "vforked"])
def test_what_is_mapped_has_a_name_after_the_program_has_removed_it(
    built: Path, check: str
) -> None:
    checked(built, check)


def test_errors_are_those_of_the_calls_themselves(built: Path) -> None:
    assert checked(built, "errors") == checked(built, "errors", on=False)


@pytest.mark.parametrize("on", [True, False])
def test_nothing_moves_that_the_program_may_not_remove(built: Path, on: bool) -> None:
    checked(built, "forbidden", *WITHOUT_RIGHTS, on=on)


def test_files_that_nobody_uses_do_not_fill_the_memory(built: Path) -> None:
    checked(built, "rounds")


def test_threads_processes_and_handlers_do_it_at_once(built: Path) -> None:
    checked(built, "together")


def test_without_the_variable_all_is_as_ever(built: Path) -> None:
    checked(built, "off", on=False)

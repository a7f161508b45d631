"""Places for crdebug's files that will not do: one sentence says so, and what to do."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness import mpirun
from harness.cli import argv
from harness.nobody import needs_root
from harness.programs import build

Mount = Callable[[str], Path]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts a tmpfs with these options; all are empty and unmounted afterwards."""
    with ExitStack() as stack:

        def new(options: str) -> Path:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            mounting = ("mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", place)
            subprocess.run(mounting, check=True)
            stack.callback(lambda: subprocess.run(["umount", place], check=True))
            return place

        yield new


def run(tmp_path: Path, **places: Path) -> mpirun.Finished:
    script = tmp_path / "script"
    script.write_text("print my_rank\nkill\n")
    job = mpirun.command(build("alone"), ranks=2)
    where = {f"CRDEBUG_{name}": str(path) for name, path in places.items()}
    return mpirun.run(argv("run", "--batch", "-x", script, "--", *job), extra=where)


def left(place: Path) -> list[str]:
    return [str(path) for path in place.rglob("*") if not path.is_dir()]


@needs_root
@pytest.mark.parametrize("name", ["CACHE", "HOME"])
def test_where_no_program_may_be_run(name: str, mount: Mount, tmp_path: Path) -> None:
    place = mount("noexec")
    ran = run(tmp_path, **{name: place / "crdebug"})
    assert ran.status == 1
    said = ran.stderr.splitlines()[-1]
    assert said.startswith("crdebug: no program may be run below ") and "mounted noexec" in said
    assert "(choose " in said and said.endswith(f" with $CRDEBUG_{name})")
    assert left(place) == []


@needs_root
@pytest.mark.parametrize(
    ("name", "to_do"),
    [
        ("CACHE", "choose another place with $CRDEBUG_CACHE"),
        ("HOME", "make room, or set CRDEBUG_HOME to a directory elsewhere"),
    ],
)
def test_where_there_is_no_space(name: str, to_do: str, mount: Mount, tmp_path: Path) -> None:
    place = mount("size=64k")
    ran = run(tmp_path, **{name: place / "crdebug"})
    assert ran.status == 1
    said = ran.stderr.splitlines()[-1]
    assert "no space left on device" in said and said.endswith(f"({to_do})")
    assert "Traceback" not in ran.stderr and "ld:" not in ran.stderr
    assert left(place) == []


def test_a_path_longer_than_a_sockets_may_be_will_do(tmp_path: Path) -> None:
    """The name of a Unix socket has 108 bytes at most (unix(7))."""
    home = tmp_path / ("long" * 50) / ("longer" * 20)
    home.mkdir(parents=True)
    ran = run(tmp_path, HOME=home / "state")
    assert ran.status == 0, ran.stderr
    assert "print my_rank" in ran.stdout
    assert os.listdir(home) == ["state"]

"""Compiling the native part: once for each content, with the compiler's own words when it fails."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable
from crdebug.base.settings import Settings
from crdebug.native import build as building
from crdebug.native.build import build
from crdebug.native.matcher.loading import load

pytestmark = pytest.mark.unit

# Stands in for a compiler: notes each call, writes the target, or fails on request.
COMPILER = """#!/bin/sh
for last; do :; done
if [ "$last" = --version ]; then cat "{home}/version"; exit 0; fi
echo "$@" >> "{home}/calls"
if [ -e "{home}/broken" ]; then echo "$last:3:1: error: no way" >&2; exit 1; fi
while [ "$1" != -o ]; do shift; done
echo "compiled from $last" > "$2"
"""


class Machine:
    """A compiler and a cache of the test's own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.compiler = home / "mycc"
        self.compiler.write_text(COMPILER.format(home=home))
        self.compiler.chmod(0o755)
        (home / "version").write_text("mycc 1.0\n")

    @property
    def calls(self) -> list[str]:
        noted = self.home / "calls"
        return noted.read_text().splitlines() if noted.exists() else []

    async def build(self, compiler: str = "") -> building.Native:
        return await build(compiler or str(self.compiler), Deadline(60.0))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("CRDEBUG_CACHE", str(tmp_path / "cache"))
    return Machine(tmp_path)


def left_over(machine: Machine) -> list[str]:
    """Directories of the cache that are no result."""
    directories = (machine.home / "cache" / "native").iterdir()
    return [each.name for each in directories if len(each.name) != 16]


PARTS = 5  # the starter, the shim, the stepper, the matcher, the one for GDBs


async def test_all_parts_are_compiled_once(machine: Machine) -> None:
    native = await machine.build()
    assert native.starter.read_text().endswith("sweep.c\n")
    assert native.shim.read_text().endswith("-ldl\n")  # the last word of its command
    assert native.stepper.read_text().endswith("walk_wait.c\n")
    assert native.starter.parent == native.shim.parent == native.stepper.parent
    assert len(machine.calls) == PARTS
    assert await machine.build() == native
    assert len(machine.calls) == PARTS
    assert left_over(machine) == []


@pytest.mark.parametrize("ours", [True, False])
async def test_warnings_are_errors_for_us_only_and_nothing_is_bound_late(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, ours: bool
) -> None:
    """A user's compiler may be newer, with warnings that do not exist today."""
    if not ours:
        monkeypatch.delenv("CRDEBUG_STRICT")
    await machine.build()
    for call in machine.calls:
        assert {"-std=c11", "-Wall", "-Wextra"} <= set(call.split())
        assert ("-Werror" in call.split()) == ours
    assert "-Wl,-z,now" in machine.calls[1].split()


async def test_a_warning_keeps_no_user_from_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the native part, by a compiler that warns of everything it can."""
    monkeypatch.setenv("CRDEBUG_CACHE", str(tmp_path / "cache"))
    compiler = "cc -O0 -Wsystem-headers -Wtraditional -Wconversion -Wpadded"
    with pytest.raises(NotAvailable, match="-Werror"):
        await build(compiler, Deadline(250))
    monkeypatch.delenv("CRDEBUG_STRICT")
    native = await build(compiler, Deadline(250))
    assert native.starter.exists() and native.matcher.exists()


@pytest.mark.parametrize("what", ["version", "source", "flags", "options"])
async def test_another_content_is_compiled_beside_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    first = await machine.build()
    compiler = str(machine.compiler)
    match what:
        case "version":
            (machine.home / "version").write_text("mycc 1.1\n")
        case "source":
            copy = machine.home / "native"
            shutil.copytree(building._HERE, copy)
            monkeypatch.setattr(building, "_HERE", copy)
            (copy / "shim" / "crdebug.h").write_text("/* changed */")
        case "flags":
            monkeypatch.setattr(building, "_FLAGS", ("-std=c11", "-O0"))
        case "options":
            compiler += " -march=native"
    second = await machine.build(compiler)
    assert second.starter != first.starter
    assert len(machine.calls) == 2 * PARTS
    assert first.starter.exists() and first.shim.exists()


async def test_a_cache_that_was_emptied_in_part_is_filled_again(machine: Machine) -> None:
    first = await machine.build()
    first.stepper.unlink()
    again = await machine.build()
    assert again == first and again.stepper.exists()
    assert len(machine.calls) == 2 * PARTS
    assert left_over(machine) == []


async def test_an_older_cache_stays_beside_the_new_one(machine: Machine) -> None:
    older = machine.home / "cache" / "native" / "0123456789abcdef"
    older.mkdir(parents=True)
    (older / "starter").write_text("of a job that runs\n")
    native = await machine.build()
    assert native.starter.exists() and native.starter.parent != older
    assert (older / "starter").read_text() == "of a job that runs\n"


async def test_a_compile_error_is_shown_with_its_command_and_tried_again(machine: Machine) -> None:
    (machine.home / "broken").touch()
    with pytest.raises(NotAvailable) as caught:
        await machine.build()
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(f"the native part does not compile: {machine.compiler} -Werror ")
    assert shlex.split(first)[-1].endswith("sweep.c")  # as one would type it
    assert rest == [f"{building._HERE / 'starter' / 'sweep.c'}:3:1: error: no way"]
    assert left_over(machine) == []
    (machine.home / "broken").unlink()
    native = await machine.build()
    assert native.starter.exists()


async def test_many_at_once_get_the_same_files(machine: Machine) -> None:
    natives = await asyncio.gather(*(machine.build() for _ in range(8)))
    assert len(set(natives)) == 1
    assert left_over(machine) == []


async def test_files_that_a_job_runs_are_not_replaced_by_a_slower_builder(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = await machine.build()
    inodes = (native.starter.stat().st_ino, native.shim.stat().st_ino)
    await building._compile([str(machine.compiler)], native.starter.parent, Deadline(60.0))
    assert len(machine.calls) == 2 * PARTS  # it did compile
    assert (native.starter.stat().st_ino, native.shim.stat().st_ino) == inodes
    assert left_over(machine) == []


@pytest.mark.parametrize("compiler", ["nocc", "nocc -O1", "'unbalanced", "/nowhere/cc"])
async def test_a_missing_compiler_is_reported(machine: Machine, compiler: str) -> None:
    with pytest.raises(NotAvailable) as caught:
        await machine.build(compiler)
    assert str(caught.value) == (
        f"there is no C compiler '{compiler}' (install gcc, or name one with $CC)"
    )


@pytest.mark.parametrize("name", ["my cache", "a:b"])
async def test_a_cache_that_the_loader_could_not_name_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("CRDEBUG_CACHE", str(machine.home / name))
    with pytest.raises(NotAvailable, match=r"LD_PRELOAD does not allow \(choose another place"):
        await machine.build()


async def test_an_unwritable_cache_is_reported(machine: Machine) -> None:
    (machine.home / "cache").write_text("")
    with pytest.raises(NotAvailable, match=r"cannot write to .*cache/native: .*CRDEBUG_CACHE"):
        await machine.build()


@pytest.mark.parametrize(
    ("value", "compiler"), [(None, "cc"), ("", "cc"), ("clang -m64", "clang -m64")]
)
def test_the_compiler_is_the_users(
    monkeypatch: pytest.MonkeyPatch, value: str | None, compiler: str
) -> None:
    monkeypatch.delenv("CC", raising=False)
    if value is not None:
        monkeypatch.setenv("CC", value)
    assert Settings().compiler == compiler


# The real compiler, but it waits first: somebody has to write to a pipe.
WAITING = """#!/bin/sh
for last; do :; done
if [ "$last" != --version ]; then : > "{home}/called"; cat "{home}/pipe"; fi
exec cc "$@"
"""


async def test_the_event_loop_goes_on_while_the_matcher_is_compiled(machine: Machine) -> None:
    machine.compiler.write_text(WAITING.format(home=machine.home))
    os.mkfifo(machine.home / "pipe")
    called = machine.home / "called"

    async def let_it_compile() -> None:
        for _ in range(PARTS):
            await Deadline(60.0).until(called.exists, "the compiler to be called")
            called.unlink()
            with open(machine.home / "pipe", "w"):  # returns when the compiler reads
                pass

    library, _ = await asyncio.gather(load(str(machine.compiler)), let_it_compile())
    needs = library.needs_new()
    library.needs_add(needs, 3, 5)
    assert library.needs_needed_by(needs, 5) == 3
    library.needs_free(needs)
    assert await load(str(machine.compiler)) is library

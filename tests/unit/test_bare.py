"""Jobs without a container: why there is none, and that nothing of them stays."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.native.build import build
from crdebug.node import bare, container, proc, process_tree, signals
from harness import nobody, users

pytestmark = pytest.mark.unit

FREE = {"CapEff": "0", "Seccomp": "0"}
FILTERED = {"CapEff": "0", "Seccomp": "2"}


def sysctl(tmp_path: Path, **values: int) -> Path:
    for name, value in values.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return tmp_path


class TestWhy:
    """The reason is named by what the user, or an administrator, finds when looking for it."""

    @pytest.mark.parametrize(
        ("values", "error", "status", "says"),
        [
            ({"user__max_user_namespaces": 0}, errno.ENOSPC, FREE, "max_user_namespaces is 0"),
            ({"user__max_user_namespaces": 9}, errno.ENOSPC, FREE, "as this machine allows"),
            ({}, errno.EPERM, FILTERED, "a seccomp filter"),
            ({"kernel__unprivileged_userns_clone": 0}, errno.EPERM, FREE, "root's only"),
            ({"kernel__apparmor_restrict_unprivileged_userns": 1}, errno.EACCES, FREE, "AppArmor"),
            ({}, errno.EPERM, FREE, "does not let it mount /proc: Operation not permitted"),
        ],
    )
    def test_in_words(
        self, tmp_path: Path, values: dict[str, int], error: int, status: dict[str, str], says: str
    ) -> None:
        system = sysctl(tmp_path, **values)
        assert says in bare.in_words(error, "mount /proc", status, root=False, system=system)

    def test_root_needs_no_user_namespace(self, tmp_path: Path) -> None:
        system = sysctl(tmp_path, user__max_user_namespaces=0)
        said = bare.in_words(errno.EPERM, "make namespaces", FREE, root=True, system=system)
        assert said == "the kernel does not let it make namespaces: Operation not permitted"


_ASKS = """
import asyncio
import contextlib, sys
from pathlib import Path
from crdebug.base.deadline import Deadline
from crdebug.node import bare
print(asyncio.run(bare.why_no_container(Path(sys.argv[1]), Deadline(60))))
"""


@nobody.needs_root
@pytest.mark.parametrize("filtered", [True, False])
async def test_even_root_has_none_where_a_filter_refuses_it(filtered: bool) -> None:
    native = await build("cc", Deadline(120))
    argv = [sys.executable, "-c", _ASKS, str(native.starter)]
    first = users.refuse("unshare") if filtered else None
    ran = subprocess.run(argv, preexec_fn=first, capture_output=True, text=True, check=True)
    filter_ = "a seccomp filter, as containers have one, does not allow it to make namespaces"
    assert ran.stdout.strip() == (filter_ if filtered else "")


class TestYama:
    @pytest.mark.parametrize("scope", [0, 1, 2, 3])
    def test_its_scope_is_read(self, tmp_path: Path, scope: int) -> None:
        assert bare.yama_scope(sysctl(tmp_path, kernel__yama__ptrace_scope=scope)) == scope

    def test_a_kernel_without_it_restricts_nothing(self, tmp_path: Path) -> None:
        assert bare.yama_scope(tmp_path) == 0

    @pytest.mark.parametrize(
        ("scope", "root", "says"),
        [(0, False, ""), (1, False, ""), (2, True, ""), (2, False, "only root"), (3, True, "nobo")],
    )
    def test_what_it_forbids(self, scope: int, root: bool, says: str) -> None:
        assert (says in bare.why_no_tracing(scope, root=root)) and (
            bool(says) == bool(bare.why_no_tracing(scope, root=root))
        )


# ---- its processes -------------------------------------------------------------------------------

# Processes with another session and another parent; one has thrown its environment away.
_STRAYS = """
(setsid sh -c 'touch strays.1; exec sleep 600' &)
(setsid env -i sh -c 'touch strays.2; exec sleep 600' &)
"""


@asynccontextmanager
async def started(tmp_path: Path, script: str) -> AsyncIterator[tuple[int, str]]:
    """A launcher without a container, which is a shell script; its starter's PID, and its mark."""
    deadline, mark = Deadline(120), bare.new_mark()
    native = await build("cc", deadline)
    run = tmp_path / ("a long name " * 15)  # for the address of a socket
    run.mkdir()
    scratch = bare.scratch_of(mark)
    scratch.mkdir(mode=0o700)
    (scratch / "of-the-mpi").mkdir()
    (scratch / "of-the-mpi" / "file").touch()
    pids: list[int] = []
    await container.start(
        native.starter,
        [],
        ["sh", "-c", script],
        job="bare",
        directory=run,
        hold=False,
        signal=62,
        environment={**os.environ, bare.MARK: mark, bare.DIRECTORY: str(run)},
        working_directory=tmp_path,
        deadline=deadline,
        register=lambda keeper, pid: pids.append(pid),
        form=("--bare", str(scratch)),
    )
    try:
        yield pids[0], mark
    finally:
        bare.end_remains(mark)


async def all_ended(processes: list[tuple[int, int]], scratch: Path) -> None:
    def gone() -> bool:
        return not any(proc.is_alive(pid, start) for pid, start in processes)

    await Deadline(60).until(lambda: gone() and not scratch.exists(), "all of it to be gone")


async def strays_of(tmp_path: Path, starter: int) -> list[tuple[int, int]]:
    """All processes of the job, once the strays are there, with their starts."""
    there = [tmp_path / "strays.1", tmp_path / "strays.2"]
    await Deadline(60).until(lambda: all(path.exists() for path in there), "the strays")
    found = []
    for pid in process_tree.of_job(starter):
        with contextlib.suppress(ProcessLookupError):  # a command of the shell's, which has ended
            found.append((pid, proc.started(pid)))
    return found


async def test_strays_end_with_the_launcher(tmp_path: Path) -> None:
    async with started(tmp_path, f"{_STRAYS} until test -e strays.end; do :; done") as (pid, mark):
        processes = await strays_of(tmp_path, pid)
        assert len(processes) >= 4  # the starter, the launcher, two strays
        (tmp_path / "strays.end").touch()
        await all_ended(processes, bare.scratch_of(mark))
    (run,) = tmp_path.glob("a long*")
    assert (run / "events").read_text().splitlines() == ["exit 0"]


@pytest.mark.parametrize("victim", ["starter", "launcher"])
async def test_strays_end_with_whom_somebody_kills(tmp_path: Path, victim: str) -> None:
    async with started(tmp_path, f"{_STRAYS} exec sleep 600") as (pid, mark):
        processes = await strays_of(tmp_path, pid)
        launcher = next(each for each, _ in processes if proc.parent(each) == pid)
        os.kill(pid if victim == "starter" else launcher, signal.SIGKILL)
        await all_ended(processes, bare.scratch_of(mark))


async def test_without_its_keeper_a_job_goes_on_and_leaves_no_process(tmp_path: Path) -> None:
    script = f"{_STRAYS} until test -e strays.end; do sleep 0.01; done; touch strays.went-on"
    async with started(tmp_path, script) as (pid, _):
        processes = await strays_of(tmp_path, pid)
        os.kill(proc.parent(pid), signal.SIGKILL)
        (tmp_path / "strays.end").touch()
        for each, _ in processes:
            await signals.ended(each, Deadline(60), "the job's end")
        assert (tmp_path / "strays.went-on").exists()


async def test_what_is_left_when_both_were_killed_is_known_by_its_mark(tmp_path: Path) -> None:
    async with started(tmp_path, "(setsid sleep 600 &); exec sleep 600") as (pid, mark):
        processes = [(each, proc.started(each)) for each in bare.processes_of(mark)]
        keeper = proc.parent(pid)
        os.kill(keeper, signal.SIGSTOP)  # so that it does nothing meanwhile, or little
        os.kill(pid, signal.SIGKILL)
        os.kill(keeper, signal.SIGKILL)
        bare.end_remains(mark)
        assert bare.processes_of(mark) == ()
        await all_ended(processes, bare.scratch_of(mark))


async def test_a_job_that_crdebug_did_not_register_never_begins(tmp_path: Path) -> None:
    class Dies(Exception):
        pass

    def register(keeper: int, pid: int) -> None:
        raise Dies

    mark = bare.new_mark()
    bare.scratch_of(mark).mkdir(mode=0o700)
    native = await build("cc", Deadline(120))
    with pytest.raises(Dies):
        await container.start(
            native.starter,
            [],
            ["touch", "it-ran"],
            job="bare",
            directory=tmp_path,
            hold=False,
            signal=62,
            environment={**os.environ, bare.MARK: mark, bare.DIRECTORY: str(tmp_path)},
            working_directory=tmp_path,
            deadline=Deadline(60),
            register=register,
            form=("--bare", str(bare.scratch_of(mark))),
        )
    end = Deadline(60)
    await end.until(lambda: not bare.scratch_of(mark).exists(), "the keeper to end")
    assert not (tmp_path / "it-ran").exists()


# ---- what the job's processes do themselves ------------------------------------------------------

_PLACES = Path(container.__file__).parents[1] / "native" / "shim"
_PROGRAM = r"""
#include "places.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/prctl.h>
#include <unistd.h>

int prctl(int option, ...) {
    va_list arguments;
    va_start(arguments, option);
    if (option == PR_SET_PTRACER) printf("tracer %lu\n", va_arg(arguments, unsigned long));
    va_end(arguments);
    return 0;
}

int main(void) {
    char place[PATH_MAX];
    struct sockaddr_un address = {0};
    int through = crdebug_address(&address), channel = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    printf("%s\n", crdebug_place(place, "asks"));
    if (connect(channel, (const struct sockaddr *)&address, sizeof address) == 0)
        printf("connected\n");
    if (through >= 0) close(through);
    return 0;
}
"""


def says(tmp_path: Path, **environment: str) -> list[str]:
    source, program = tmp_path / "places_test.c", tmp_path / "places_test"
    source.write_text(_PROGRAM)
    argv = ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", f"-I{_PLACES}", "-o"]
    subprocess.run([*argv, program, source, _PLACES / "places.c"], check=True)
    ran = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_who_may_debug_it_is_whom_the_environment_names(tmp_path: Path) -> None:
    assert says(tmp_path, CRDEBUG_TRACER="4711")[0] == "tracer 4711"
    assert not any(line.startswith("tracer") for line in says(tmp_path))


@pytest.mark.parametrize("length", [10, 200])
def test_the_starter_is_found_however_long_the_path_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    home = tmp_path / ("x" * length)
    home.mkdir()
    monkeypatch.chdir(home)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind("starter")
        server.listen()
        assert says(tmp_path, CRDEBUG_DIR=str(home)) == [f"{home}/asks", "connected"]


def test_in_a_container_its_place_is_known(tmp_path: Path) -> None:
    assert says(tmp_path) == [f"{container.JOB_DIRECTORY}/asks"]

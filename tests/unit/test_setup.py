"""`crdebug setup`: programs are unpacked beside the system's, whatever an earlier setup has left.

apt-get is a stub that serves a Debian archive with one package; the rest is the machine's.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from crdebug.node import setup
from crdebug.node.criu_program import find_criu
from harness import users
from harness.nobody import needs_root
from harness.users import home as home

pytestmark = pytest.mark.unit

HERE = Path(setup.__file__).parent

# `update` and `install` wait for a writer of the FIFO `gate`, if it exists.
APT_GET = """#!/bin/sh
for word; do
    case "$word" in
    Dir::Cache::archives=*) archives="${word#*=}" ;;
    indextargets) echo 'Debian|Debian|main|bookworm|/nowhere/debian.sources:1'; exit ;;
    install) cp "$STUBS/gdb.deb" "$archives/gdb_1_all.deb" && echo unpacked >>"$STUBS/log"; exit ;;
    esac
done
[ ! -e "$STUBS/gate" ] || cat "$STUBS/gate"
[ ! -e "$STUBS/no-network" ]
"""
# A program, and the dynamic loader that it is started by.
GDB = "#!/bin/sh\ncase \"$*\" in *--version*) echo 'GNU gdb 99' ;; *) echo works ;; esac\n"
LOADER = '#!/bin/sh\nshift 2\nexec "$@"\n'
BROKEN = "#!/bin/sh\necho 'cannot open shared object file' >&2\nexit 127\n"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine whose apt-get is the stub. data: $CRDEBUG_DATA."""

    stubs: Path
    data: Path

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.stubs / 'bin'}:{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "STUBS": str(self.stubs),
            "TMPDIR": str(self.stubs),
            "CRDEBUG_DATA": str(self.data),
            "CRDEBUG_CRIU": str(self.stubs / "criu"),  # none: not this test's subject
            "CRDEBUG_PYTHON": sys.executable,
        }

    def start(self, script: str = "install-gdb", *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(HERE / script), *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def play(self, script: str = "install-gdb", *arguments: str) -> tuple[int, list[str]]:
        """Exit status, and the lines of output."""
        said, _ = (started := self.start(script, *arguments)).communicate()
        return started.returncode, said.splitlines()

    def close_gate(self) -> None:
        """apt-get waits from now on."""
        os.mkfifo(self.stubs / "gate")

    def open_gate(self) -> None:
        """Let the apt-get go on that waits, and all later ones."""
        with open(self.stubs / "gate", "w"):  # as soon as it is there
            (self.stubs / "gate").unlink()

    def installed(self) -> list[str]:
        return sorted(path.name for path in self.data.iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return make_machine(tmp_path)


def make_machine(place: Path) -> Machine:
    stubs = place / "stubs"
    package = place / "package"
    program(stubs / "bin" / "apt-get", APT_GET)
    program(package / "usr" / "bin" / "gdb", GDB)
    program(package / "lib64" / "ld-linux-x86-64.so.2", LOADER)
    (package / "DEBIAN").mkdir()
    control = "Package: gdb\nVersion: 1\nArchitecture: all\nMaintainer: x <x@y>\nDescription: x\n"
    (package / "DEBIAN" / "control").write_text(control)
    made = stubs / "gdb.deb"
    subprocess.run(["dpkg-deb", "-b", package, made], check=True, stdout=subprocess.DEVNULL)
    return Machine(stubs, place / "data")


@pytest.fixture
def interrupted(machine: Machine) -> Iterator[Machine]:
    """A setup was killed while it downloaded: its directory is half filled."""
    machine.close_gate()
    killed = machine.start()
    assert killed.stdout is not None
    assert "installing the gdb of Debian" in killed.stdout.readline()
    while not list(machine.data.glob("gdb.new.*")):
        assert killed.poll() is None
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    (machine.stubs / "gate").unlink()
    yield machine


def test_a_program_is_put_where_it_works(machine: Machine) -> None:
    status, said = machine.play()
    private = machine.data / "gdb"
    assert (status, said[-1]) == (0, f"install-gdb: GNU gdb 99 in {private} works")
    assert machine.installed() == ["gdb", "gdb.lock"]
    assert machine.play() == (0, [f"install-gdb: the gdb in {private} works"])


def test_after_one_that_was_killed_it_begins_again(interrupted: Machine) -> None:
    (half,) = interrupted.data.glob("gdb.new.*")
    status, said = interrupted.play()
    assert status == 0
    assert said[0] == f"install-gdb: removing {half}, which an interrupted setup left"
    assert interrupted.installed() == ["gdb", "gdb.lock"]


def test_what_does_not_work_is_replaced(machine: Machine) -> None:
    private = machine.data / "gdb"
    program(private / "bin" / "gdb", BROKEN)
    status, said = machine.play()
    assert status == 0
    why = "cannot open shared object file"
    assert said[0] == f"install-gdb: the gdb in {private} does not work and will be replaced: {why}"
    assert machine.play() == (0, [f"install-gdb: the gdb in {private} works"])


def test_what_does_not_work_stays_until_there_is_another(machine: Machine) -> None:
    private = machine.data / "gdb" / "bin" / "gdb"
    program(private, BROKEN)
    (machine.stubs / "no-network").touch()
    status, said = machine.play()
    assert (status, said[-1]) == (1, "install-gdb: there is no newer GDB for this machine")
    assert private.read_text() == BROKEN
    assert machine.installed() == ["gdb", "gdb.lock"]


def test_the_second_of_two_waits_and_finds_it_done(machine: Machine) -> None:
    machine.close_gate()
    first = machine.start()
    assert first.stdout is not None
    assert "installing the gdb of Debian" in first.stdout.readline()
    second = machine.start()
    assert second.stdout is not None
    private = machine.data / "gdb"
    waits = f"install-gdb: another setup is at work on {private}; waiting for it\n"
    assert second.stdout.readline() == waits
    machine.open_gate()
    assert first.communicate()[0].endswith(f"GNU gdb 99 in {private} works\n")
    assert second.communicate()[0] == f"install-gdb: the gdb in {private} works\n"
    assert (first.returncode, second.returncode) == (0, 0)
    assert (machine.stubs / "log").read_text() == "unpacked\n"
    assert machine.installed() == ["gdb", "gdb.lock"]


def test_what_an_administrator_must_install_is_one_line(machine: Machine) -> None:
    program(machine.stubs / "bin" / "mpicc", BROKEN)
    program(machine.stubs / "bin" / "cc", BROKEN)
    status, said = machine.play("setup", "--gdb")
    assert status == 1
    packages = "gcc libc6-dev libopenmpi-dev openmpi-bin"
    line = f"setup: for an administrator: apt-get install --no-install-recommends {packages}"
    assert said.count(line) == 1
    assert said[-1] == "setup: something is missing (above); 'crdebug doctor' says more"
    assert (machine.data / "gdb" / "bin" / "gdb").exists()


def test_the_command_is_the_script(machine: Machine) -> None:
    command = [sys.executable, "-m", "crdebug", "setup", "--gdb"]
    ran = subprocess.run(
        command, env=machine.environment, capture_output=True, text=True, check=False
    )
    assert f"install-gdb: GNU gdb 99 in {machine.data / 'gdb'} works" in ran.stdout


# ---- an ordinary user ---------------------------------------------------------------------------

SETUP = HERE / "setup"
CHECKOUTS_SETUP = users.CHECKOUT / "scripts" / "setup"
NO_GDB = "#!/bin/sh\necho 'Python scripting is not supported in this copy of GDB.'\n"


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A user with a clean home, on a machine whose apt-get is the stub."""

    home: Path
    machine: Machine

    def plays(
        self, script: Path, first: Callable[[], None] | None = None, **env: str
    ) -> tuple[int, list[str]]:
        """Exit status, and the lines that were said."""

        def prepare() -> None:
            users.expose()
            if first is not None:
                first()

        # with the Python that the checkout's setup was run with
        path = (self.machine.stubs / "bin", Path(sys.base_prefix) / "bin")
        usual = users.environment(self.home)["PATH"]
        more = {"PATH": f"{path[0]}:{path[1]}:{usual}", "STUBS": str(self.machine.stubs), **env}
        ran = users.run(self.home, "bash", script, first=prepare, env=more)
        return ran.returncode, (ran.stdout + ran.stderr).splitlines()

    @property
    def installed(self) -> list[str]:
        data = self.home / ".local" / "share" / "crdebug"
        return sorted(path.name for path in data.iterdir()) if data.exists() else []


@pytest.fixture
def newcomer(home: Path) -> Newcomer:
    place = home / "machine"
    place.mkdir()
    machine = make_machine(place)
    shutil.chown(machine.stubs, users.NAME)  # the stub keeps its log there
    return Newcomer(home, machine)


@needs_root
@pytest.mark.parametrize("script", [SETUP, CHECKOUTS_SETUP], ids=["command", "script"])
def test_a_user_gets_a_gdb_of_his_own(script: Path, newcomer: Newcomer) -> None:
    """Where the machine's has no Python."""
    program(newcomer.machine.stubs / "bin" / "gdb", NO_GDB)
    _, said = newcomer.plays(script, CRDEBUG_CRIU="/bin/true")
    private = newcomer.home / ".local" / "share" / "crdebug" / "gdb"
    assert f"install-gdb: GNU gdb 99 in {private} works" in said
    assert any(line.endswith(f'config file: gdb = "{private}/bin/gdb"') for line in said)
    assert newcomer.installed == ["gdb", "gdb.lock"]


@needs_root
@pytest.mark.parametrize("script", [SETUP, CHECKOUTS_SETUP], ids=["command", "script"])
def test_a_user_gets_one_line_for_the_administrator(script: Path, newcomer: Newcomer) -> None:
    for name in ("mpicc", "cc"):
        program(newcomer.machine.stubs / "bin" / name, BROKEN)
    status, said = newcomer.plays(script, CRDEBUG_CRIU="/bin/true")
    packages = "gcc libc6-dev libopenmpi-dev openmpi-bin"
    line = f"setup: for an administrator: apt-get install --no-install-recommends {packages}"
    assert status == 1 and said.count(line) == 1
    assert not (newcomer.machine.stubs / "log").exists()


@needs_root
@pytest.mark.parametrize("script", [SETUP, CHECKOUTS_SETUP], ids=["command", "script"])
def test_where_no_criu_could_work_none_is_looked_for(script: Path, newcomer: Newcomer) -> None:
    _, said = newcomer.plays(script, users.refuse_namespaces)
    why = "cannot make a container: namespaces of a user: No space left on device"
    assert f"setup: going on without checkpoints: {why}" in said
    assert newcomer.installed == []


@needs_root
def test_apts_lists_are_the_administrators(newcomer: Newcomer) -> None:
    program(newcomer.machine.stubs / "bin" / "gdb", NO_GDB)
    program(newcomer.machine.stubs / "bin" / "apt-get", "#!/bin/sh\n")  # it knows no archive
    status, said = newcomer.plays(SETUP, CRDEBUG_CRIU="/bin/true")
    no_list = "apt has no list of packages yet; for an administrator: apt-get update"
    assert f"install-gdb: {no_list}" in said and status == 1


@needs_root
def test_in_a_checkout_that_is_set_up_a_user_has_nothing_to_do(newcomer: Newcomer) -> None:
    """The README's two commands begin with it."""
    found = find_criu()
    if found is None:
        pytest.skip("no CRIU works here")
    (newcomer.machine.stubs / "bin" / "apt-get").unlink()
    criu = users.give_criu(newcomer.home, found.path)
    assert newcomer.plays(CHECKOUTS_SETUP, CRDEBUG_CRIU=str(criu)) == (0, [])

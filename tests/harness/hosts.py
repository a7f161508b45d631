"""Several hosts on one machine, for one test.

    with hosts.cluster(3, home) as cluster:
        cluster.hosts[0].run(["ssh", "n2", "hostname"])

A host is a set of namespaces (network, UTS, mount, PID, IPC), which a process of the test's holds:
it has a name, a network, processes, /run, /dev/shm and an sshd of its own. The rest of the file
system is the machine's, as on a cluster whose homes are shared. The hosts' links meet in a bridge,
which is in one more network namespace: the machine's own network is not touched, and any number of
clusters can be there at a time.

It takes root, and Debian's openssh-server, iproute2 and openssh-client. No server of the machine's
is used or changed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.settings import cache_home, data_home
from crdebug.node import proc
from harness import mpirun, mpis, users
from harness.leaks import MARK
from harness.mpis import Mpi
from harness.programs import build, source

PATIENCE = 30.0  # seconds: for hosts to be ready, and for one that is killed to be gone
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_NETWORK = "10.77.0"
_LINK = "eth0"
# On a host's own file system, as a cluster's hosts have it.
SCRATCH = "/run/tmp"

# Both end when their input does: if the tests are killed, nothing is left.
_SWITCH = """\
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true
ip link add name switch type bridge stp_state 0 forward_delay 0
ip link set switch up
echo ready
read end || true
"""
# It is its PID namespace's first process, and so waits for what nobody else waits for.
_HOST = f"""\
name="$1" address="$2" directory="$3" sshd="$4"
exec 3<&0 </dev/null
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p /run/sshd /run/lock
mkdir -m 1777 {SCRATCH}
for each in hosts passwd shadow; do
    mount --bind "$directory/$each" "/etc/$each"
done
echo "$name" > /proc/sys/kernel/hostname
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true
ip link set lo up
echo waiting
read go <&3
ip address add "$address/24" dev {_LINK}
ip link set {_LINK} up
NOTIFY_SOCKET="$directory/$name.ready" "$sshd" -D -e -f "$directory/$name.sshd" 3<&- >/dev/null &
(read end <&3 || true) >/dev/null &
echo ready
wait "$!"
"""
# No PAM: its modules are the machine's, and some want what is not in a namespace.
_SSHD = """\
HostKey {key}
AuthorizedKeysFile {directory}/authorized_keys
StrictModes no
PidFile none
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
PrintLastLog no
MaxStartups 1000
MaxSessions 1000
AcceptEnv LANG LC_*
SetEnv {environment}
Subsystem sftp internal-sftp
"""
# The default key exchange takes 0.1 s of each side's processor.
_SSH = """\
Host n*
    IdentityFile ~/.ssh/id_ed25519
    UserKnownHostsFile ~/.ssh/known_hosts
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
    KexAlgorithms curve25519-sha256
"""


def require() -> None:
    """Skip the test, with a reason, where there can be no hosts."""
    if os.geteuid() != 0:
        pytest.skip("only root can make hosts")
    missing = [each for each in ("sshd", "ssh", "ssh-keygen", "ip") if _program(each) is None]
    if missing:
        pytest.skip(f"there can be no hosts: {', '.join(missing)} (scripts/setup --test)")


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:{_SBIN}")


@dataclass(frozen=True, slots=True)
class Host:
    """One of a cluster's.

    first: the PID of its first process.  namespace: of its processes' numbers.
    environment: for a program in it, of whom the cluster is for.
    """

    name: str
    address: str
    first: int
    namespace: str
    environment: Mapping[str, str]
    user: bool
    holder: subprocess.Popen[bytes]
    switch: int

    def argv(self, words: Sequence[object], user: bool | None = None) -> list[str]:
        """A command line that runs a program there, with the streams, the status and the signals of
        whoever runs it; but SIGSTOP and SIGKILL are better sent to the `program` itself.

        It begins in the present directory if that user may enter it, else in his home. It should
        get the host's `environment`.
        user: the ordinary user, or root; by default the one whom the cluster is for.
        """
        who = users.NAME if (self.user if user is None else user) else "root"
        return [_entrance(), str(self.first), who, *map(str, words)]

    def run(
        self,
        words: Sequence[object],
        *,
        user: bool | None = None,
        seconds: float = 60.0,
        extra: Mapping[str, str] | None = None,
    ) -> mpirun.Finished:
        """Run a program there to its end. Raises AssertionError after `seconds`."""
        argv = self.argv(words, user)
        try:
            ran = subprocess.run(
                argv,
                env={**self.environment, **(extra or {})},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = f"{late.stdout!r}\n{late.stderr!r}"
            raise AssertionError(f"{words} has not ended in {seconds:g} s\n{said}") from None
        return mpirun.Finished(tuple(argv), ran.returncode, ran.stdout, ran.stderr)

    @contextlib.contextmanager
    def started(
        self, words: Sequence[object], *, user: bool | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a program there, with pipes; stdout has both of its streams of output. It is gone
        afterwards."""
        with subprocess.Popen(
            self.argv(words, user),
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        ) as process:
            try:
                yield process
            finally:
                end(process)

    def pids(self) -> tuple[int, ...]:
        """Its processes, those in containers there included, as this machine numbers them."""
        found: set[int] = set()
        for pid in proc.pids():
            with contextlib.suppress(OSError):
                if proc.namespace(pid, "pid") == self.namespace:
                    found.add(pid)
        for pid in tuple(found):
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {each.pid for each in psutil.Process(pid).children(recursive=True)}
        return tuple(sorted(found))

    def kill(self) -> None:
        """As if its power had failed: all of its processes are gone, and others hear nothing."""
        if self.holder.poll() is None:
            _in_network(self.switch, f"link delete {self.name}")
            self._end()

    def cut(self) -> None:
        """Its link is down until `mend`."""
        _in_network(self.switch, f"link set {self.name} down")

    def mend(self) -> None:
        _in_network(self.switch, f"link set {self.name} up")

    def _end(self) -> None:
        if self.holder.poll() is None:
            os.kill(self.first, signal.SIGKILL)
            self.holder.wait(PATIENCE)


@dataclass(frozen=True, slots=True)
class Cluster:
    """directory: what its hosts need is there, and what they complain of.
    home: of the ordinary user, None if the cluster is root's."""

    hosts: tuple[Host, ...]
    directory: Path
    home: Path | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.hosts)


def program(pid: int) -> int:
    """What a running command line of `Host.argv` runs, given the PID of that: its PID here."""
    return psutil.Process(pid).children()[0].pid


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what a command line of `Host.argv` runs; it is gone then.

    If that of the command line itself were killed, the machine's first process would inherit the
    program, and a host ends only when all of its processes were waited for.
    """
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess, IndexError):
        os.kill(program(process.pid), signal.SIGKILL)
        process.wait(PATIENCE)
    process.kill()


def until(predicate: Callable[[], bool], seconds: float, what: str) -> None:
    """`Deadline.until`, where there is no loop to await it in. Raises DeadlineExpired."""
    limit, pause = Deadline(seconds), 0.001
    while not predicate():
        if not limit.left:
            raise limit.expired(what)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _entrance() -> str:
    return str(build("enters", compiler="gcc"))


def _in_network(pid: int, *lines: str) -> None:
    """Have ip do this in the network namespace of a process. Raises AssertionError."""
    words = ["nsenter", "--target", str(pid), "--net", str(_program("ip")), "-batch", "-"]
    text = "".join(f"{line}\n" for line in lines)
    ran = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{lines}: {ran.stderr}"


# ---- its beginning ------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster(count: int = 3, home: Path | None = None) -> Iterator[Cluster]:
    """Hosts n1, n2, ...; each lets the user and root in by ssh. All is gone afterwards.

    home: of `users.clean_home`; the user's configuration of ssh is written into it. Without it the
    cluster is root's, who has a home in its directory then.
    """
    require()
    limit = Deadline(PATIENCE)
    names = [f"n{number}" for number in range(1, count + 1)]
    with contextlib.ExitStack() as stack:
        # Not below TMPDIR: a socket's address has room for a short path.
        made = tempfile.TemporaryDirectory(prefix="crdebug-hosts-", dir="/tmp")
        directory = Path(stack.enter_context(made))
        directory.chmod(0o755)
        _write(directory, names, home)
        environment = _environment(directory, home)
        switch = stack.enter_context(_held(["--net"], _SWITCH, [], directory / "switch.err"))
        holders = []
        for number, name in enumerate(names, 1):
            kinds = [f"--{kind}" for kind in ("net", "uts", "mount", "ipc", "pid")]
            told = [name, f"{_NETWORK}.{number}", directory, _program("sshd")]
            kinds += ["--fork", "--kill-child"]
            holders.append(
                stack.enter_context(
                    _held(kinds, _HOST, told, directory / f"{name}.err", home is not None)
                )
            )
        listening = [stack.enter_context(_notices(directory / f"{name}.ready")) for name in names]
        _await_line(switch, limit, "the switch", directory / "switch.err")
        hosts = []
        for number, (name, holder) in enumerate(zip(names, holders, strict=True), 1):
            _await_line(holder, limit, name, directory / f"{name}.err")
            first = psutil.Process(holder.pid).children()[0].pid
            host = Host(
                name=name,
                address=f"{_NETWORK}.{number}",
                first=first,
                namespace=proc.namespace(first, "pid"),
                environment=environment,
                user=home is not None,
                holder=holder,
                switch=switch.pid,
            )
            stack.callback(host._end)
            hosts.append(host)
        _plug_in(hosts, switch.pid)
        for host in hosts:
            assert host.holder.stdin is not None
            host.holder.stdin.write(b"go\n")
            host.holder.stdin.flush()
        for host, notices in zip(hosts, listening, strict=True):
            log = directory / f"{host.name}.err"
            _await_line(host.holder, limit, host.name, log)
            if not select.select([notices], [], [], limit.left)[0]:
                raise _late(log, limit, f"{host.name}'s sshd")
        yield Cluster(tuple(hosts), directory, home)


def _plug_in(hosts: Sequence[Host], switch: int) -> None:
    lines = []
    for host in hosts:
        lines += [
            f"link add name {host.name} type veth peer name {_LINK} netns {host.first}",
            f"link set {host.name} master switch",
            f"link set {host.name} up",
        ]
    _in_network(switch, *lines)


@contextlib.contextmanager
def _held(
    kinds: Sequence[str], script: str, told: Sequence[object], log: Path, exposed: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A shell in namespaces of its own.

    exposed: what the ordinary user needs of root's is where he can reach it.
    """
    file = log.with_suffix(".sh")
    file.write_text(script)
    argv = ["unshare", *kinds, "sh", "-e", str(file), *map(str, told)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:{_SBIN}"},
            preexec_fn=users.expose if exposed else None,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def _notices(path: Path) -> Iterator[socket.socket]:
    """Where a daemon says that it is ready (sd_notify(3), as Debian's sshd does)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        yield listening


def _await_line(process: subprocess.Popen[bytes], limit: Deadline, what: str, log: Path) -> None:
    assert process.stdout is not None
    ready = select.select([process.stdout], [], [], limit.left)[0]
    if not ready or not os.read(process.stdout.fileno(), 64):
        raise _late(log, limit, what)


def _late(log: Path, limit: Deadline, what: str) -> AssertionError:
    return AssertionError(f"{limit.expired(f'{what} to be ready')}\n{log.read_text()}")


# ---- its files ----------------------------------------------------------------------------------


def _write(directory: Path, names: Sequence[str], home: Path | None) -> None:
    roots = directory / "root"
    roots.mkdir(mode=0o700)
    homes = {"root": roots} | ({users.NAME: home} if home else {})
    addresses = [f"{_NETWORK}.{number} {name}" for number, name in enumerate(names, 1)]
    (directory / "hosts").write_text("\n".join(["127.0.0.1 localhost", *addresses, ""]))
    _write_accounts(directory, homes)
    keys = [_key(directory / f"{name}.key") for name in names]
    known = [
        f"{name},{_NETWORK}.{number} {key}"
        for number, (name, key) in enumerate(zip(names, keys, strict=True), 1)
    ]
    mark = os.environ.get(MARK)
    environment = f"TMPDIR={SCRATCH}" + (f" {MARK}={mark}" if mark else "")
    for name in names:
        own = {"key": directory / f"{name}.key", "directory": directory}
        (directory / f"{name}.sshd").write_text(_SSHD.format(environment=environment, **own))
    allowed = []
    for name, at in homes.items():
        if name == users.NAME:
            users.user()
        ssh = at / ".ssh"
        ssh.mkdir(mode=0o700)
        allowed.append(_key(ssh / "id_ed25519"))
        (ssh / "known_hosts").write_text("\n".join([*known, ""]))
        (ssh / "config").write_text(_SSH)
        for each in (ssh, *ssh.iterdir()):
            shutil.chown(each, name, name)
    (directory / "authorized_keys").write_text("\n".join([*allowed, ""]))


def _key(path: Path) -> str:
    """Make one; returns its public half."""
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path.with_name(f"{path.name}.pub").read_text().strip()


def _write_accounts(directory: Path, homes: Mapping[str, Path]) -> None:
    """The machine's accounts, with these homes. sshd without PAM lets nobody in whose password is
    locked ("!"), but one who merely has none ("*")."""
    for file, change in (("passwd", {5: None, 6: "/bin/sh"}), ("shadow", {1: "*"})):
        lines = []
        for line in Path("/etc", file).read_text().splitlines():
            fields = line.split(":")
            if fields[0] in homes:
                for place, text in change.items():
                    fields[place] = text or str(homes[fields[0]])
            lines.append(":".join(fields))
        written = directory / file
        written.write_text("\n".join([*lines, ""]))
        written.chmod(0o644 if file == "passwd" else 0o600)


def _environment(directory: Path, home: Path | None) -> dict[str, str]:
    # A link that both MPIs find by themselves; Open MPI would try the host's loopback too.
    wanted = {
        "TMPDIR": SCRATCH,
        "OMPI_MCA_btl_tcp_if_include": _LINK,
        "OMPI_MCA_oob_tcp_if_include": _LINK,
    }
    kept = {
        name: text
        for name, text in os.environ.items()
        if name == MARK or name.startswith(("OMPI_MCA_", "MPIR_CVAR_", "HWLOC_"))
    }
    if home is not None:
        return users.environment(home) | kept | wanted
    own = {
        "HOME": str(directory / "root"),
        "CRDEBUG_DATA": str(data_home()),
        "CRDEBUG_CACHE": str(cache_home()),
    }
    return mpirun.environment(own | wanted)


# ---- MPI programs over hosts --------------------------------------------------------------------


def mpi(name: str) -> Mpi:
    """By its name in `mpis.MPIS`; skips the test if it is not there."""
    for each in mpis.MPIS:
        if each.name == name:
            return each
    pytest.skip(f"there is no {name} here")


def give(cluster: Cluster, name: str, mpi: Mpi) -> Path:
    """A program of tests/programs, where whom the cluster is for can run it on all hosts.

    Debian 12's MPICH needs ends.h in it: other programs may hang in MPI_Finalize over hosts.
    """
    header = source("where").with_name("ends.h")
    with mpis.using(mpi):
        built = build(name, flags=("-include", str(header)) if mpi.name == "MPICH 4.0" else ())
    if cluster.home is None:
        return built
    given = cluster.home / f"{name}-{mpi.name.replace(' ', '-')}"
    shutil.copy(built, given)
    given.chmod(0o755)
    return given


def open_mpi(cluster: Cluster, ranks: int, *program: object) -> list[str]:
    """mpirun of Debian's Open MPI, to be run on the first host: it starts its daemons by ssh. Each
    host gets as many ranks, one host after the other.

    program: with its arguments; without it these are the words in front of one.
    """
    return [
        mpi("Open MPI 4.1").tool("mpirun"),
        *("-n", str(ranks), "--host", _places(cluster, ranks), "--bind-to", "none"),
        *map(str, program),
    ]


def mpich(cluster: Cluster, ranks: int, *program: object) -> list[str]:
    """The same of Debian's MPICH."""
    return [
        mpi("MPICH 4.0").tool("mpiexec"),
        *("-n", str(ranks), "-hosts", _places(cluster, ranks), "-launcher", "ssh"),
        *("-iface", _LINK),
        *map(str, program),
    ]


LAUNCHERS: dict[str, Callable[..., list[str]]] = {"Open MPI 4.1": open_mpi, "MPICH 4.0": mpich}


def _places(cluster: Cluster, ranks: int) -> str:
    each = -(-ranks // len(cluster.hosts))
    return ",".join(f"{name}:{each}" for name in cluster.names)

"""An ordinary user of the machine, whom the harness makes: with a name and a home, without rights.

Only root can become one; tests that do are marked `nobody.needs_root`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import pwd
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crdebug.base.settings import cache_home, data_home

NAME = "crdebug-tests"
# Any user may run it; the checkout's may be below root's home: see `expose`.
PYTHON = "/usr/bin/python3"
CHECKOUT = Path(__file__).parents[2]

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_libc = ctypes.CDLL(None, use_errno=True)


def user() -> pwd.struct_passwd:
    """He stays on the machine, for the next run: another one may use him just now."""
    with open("/run/crdebug-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return pwd.getpwnam(NAME)
        except KeyError:
            make = ["useradd", "--system", "--user-group", "--home-dir", "/nonexistent", NAME]
            subprocess.run(make, check=True)
            return pwd.getpwnam(NAME)


@pytest.fixture
def home() -> Iterator[Path]:
    """A clean home of his."""
    with clean_home() as path:
        yield path


@contextlib.contextmanager
def clean_home() -> Iterator[Path]:
    his = user()
    with tempfile.TemporaryDirectory(prefix="crdebug-home-") as path:
        home = Path(path)
        (home / "tmp").mkdir()
        for each in (home, home / "tmp"):
            os.chown(each, his.pw_uid, his.pw_gid)
            each.chmod(0o700)
        with _compiled(home, his):
            yield home


@contextlib.contextmanager
def _compiled(home: Path, his: pwd.struct_passwd) -> Iterator[None]:
    """What crdebug has compiled for another home of his is there: it takes 10 s."""
    kept, there = cache_home() / "native-of-users" / _sources(), home / ".cache/crdebug/native"
    if kept.exists():
        shutil.copytree(kept, there, symlinks=True)
    else:
        there.mkdir(parents=True)
    for each in (home / ".cache", *(home / ".cache").rglob("*")):
        os.chown(each, his.pw_uid, his.pw_gid, follow_symlinks=False)
    yield
    kept.mkdir(parents=True, exist_ok=True)
    # One that was killed as it compiled leaves a working directory, tmp*.
    for new in {each.name for each in there.glob("[!t]*")} - {each.name for each in kept.iterdir()}:
        with tempfile.TemporaryDirectory(dir=kept.parent) as work:
            shutil.copytree(there / new, Path(work, new), symlinks=True)
            with contextlib.suppress(OSError):  # another worker was first
                Path(work, new).rename(kept / new)


@functools.cache
def _sources() -> str:
    """A name for the sources of what is compiled."""
    digest = hashlib.sha256()
    for source in sorted((CHECKOUT / "crdebug/native").glob("*/*.[ch]")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def environment(home: Path) -> dict[str, str]:
    """That of a fresh login."""
    return {
        "HOME": str(home),
        "USER": NAME,
        "TMPDIR": str(home / "tmp"),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
    }


def become() -> None:
    """In a child, before it executes what it was made for."""
    his = pwd.getpwnam(NAME)
    os.initgroups(NAME, his.pw_gid)
    os.setresgid(*[his.pw_gid] * 3)
    os.setresuid(*[his.pw_uid] * 3)
    os.umask(0o022)


def run(
    home: Path,
    *argv: object,
    first: Callable[[], None] | None = None,
    env: dict[str, str] | None = None,
    patience: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Have him run a program in his home. first: done by root in the process that becomes his."""

    def become_him() -> None:
        if first is not None:
            first()
        become()

    return subprocess.run(
        [str(each) for each in argv],
        preexec_fn=become_him,
        cwd=home,
        env=environment(home) | (env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience,
    )


def refuse_namespaces() -> None:
    """For `first`: he may make no user namespace (user.max_user_namespaces is 0 for this process
    and its children)."""
    here = os.getpid()
    go, tell = os.pipe()
    helper = os.fork()
    if helper == 0:
        # Only from outside can all of the machine's numbers be mapped (user_namespaces(7)).
        os.read(go, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{here}/{name}").write_text("0 0 4294967295")
        os._exit(0)
    assert _libc.unshare(_CLONE_NEWUSER) == 0
    os.write(tell, b"!")
    assert os.waitpid(helper, 0)[1] == 0
    for each in (go, tell):
        os.close(each)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def refuse(call: str) -> Callable[[], None]:
    """For `first`: this system call fails with EPERM, as below a container's seccomp filter."""
    numbers = {"x86_64": {"unshare": 272, "ptrace": 101}, "aarch64": {"unshare": 97, "ptrace": 117}}
    number = numbers[platform.machine()][call]
    load, jump_if_equal, give_back = 0x20, 0x15, 0x06
    allow, fail_with_eperm = 0x7FFF0000, 0x00050001
    program = (
        (load, 0, 0, 0),
        (jump_if_equal, 0, 1, number),
        (give_back, 0, 0, fail_with_eperm),
        (give_back, 0, 0, allow),
    )

    def put_filter() -> None:
        text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
        described = struct.pack("HxxxxxxP", len(program), ctypes.addressof(text))
        assert _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described, 0, 0) == 0

    return put_filter


def expose() -> None:
    """For `first`: he can reach this Python, the checkout and root's data directory, even below
    root's home. In a mount namespace of this process, the closed directories above them are new."""
    wanted = [path.resolve() for path in (Path(sys.base_prefix), CHECKOUT, data_home())]
    hidden = {path: closed for path in wanted if path.exists() and (closed := _closed(path))}
    if not hidden:
        return
    assert _libc.unshare(_CLONE_NEWNS) == 0
    _mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    opened = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in hidden}
    for closed in set(hidden.values()):
        _mount(b"tmpfs", os.fsencode(closed), b"tmpfs", 0, b"mode=755")
    for path, directory in opened.items():
        path.mkdir(parents=True, exist_ok=True)
        _mount(b"/proc/self/fd/%d" % directory, os.fsencode(path), None, _MS_BIND, None)
        os.close(directory)


def _closed(path: Path) -> Path | None:
    """The topmost directory on the way that others may not enter."""
    ways = (at for at in (*reversed(path.parents), path) if not at.stat().st_mode & stat.S_IXOTH)
    return next(ways, None)


def _mount(
    what: bytes | None, where: bytes, kind: bytes | None, flags: int, options: bytes | None
) -> None:
    done = _libc.mount(what, where, kind, ctypes.c_ulong(flags), options)
    assert done == 0, (where, os.strerror(ctypes.get_errno()))


def give_heat(home: Path) -> Path:
    """HOME/heat: examples/heat, where he may read it."""
    program = home / "heat"
    source = CHECKOUT / "examples/heat/heat.c"
    subprocess.run(["mpicc", "-g", "-O1", "-o", program, source, "-lm"], check=True)
    program.chmod(0o755)
    return program


def give_script(home: Path, *lines: str) -> Path:
    """HOME/script, of commands for crdebug."""
    script = home / "script"
    script.write_text("".join(f"{line}\n" for line in lines))
    script.chmod(0o644)
    return script


# From a stop in examples/heat there and back, and to an end.
THERE_AND_BACK = (
    *("break relax if step == 20", "continue", "checkpoint", "delete", "restart", "kill"),
)


def give_criu(home: Path, program: str) -> Path:
    """HOME/criu: a CRIU that he may run. Ours may be below root's home."""
    own = home / "criu"
    prefix = Path(program).parent.parent
    if prefix.name == "criu":  # what crdebug/node/setup/install-criu installed finds itself
        shutil.copytree(prefix, home / "criu.prefix", symlinks=True)
        own.symlink_to(home / "criu.prefix" / "bin" / "criu")
    else:
        own.symlink_to(program)
    return own

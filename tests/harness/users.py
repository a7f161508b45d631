"""An ordinary user of the machine, whom the harness makes: with a name and a home, without rights.

Only root can become one; tests that do are marked `nobody.needs_root`.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NAME = "crdebug-tests"
# Any user may run it; the checkout's may be below root's home.
PYTHON = "/usr/bin/python3"

_CLONE_NEWUSER = 0x10000000
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
    his = user()
    with tempfile.TemporaryDirectory(prefix="crdebug-home-") as path:
        home = Path(path)
        (home / "tmp").mkdir()
        for each in (home, home / "tmp"):
            os.chown(each, his.pw_uid, his.pw_gid)
            each.chmod(0o700)
        yield home


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

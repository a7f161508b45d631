"""A file system of a user's whose files root may not open, as on a server with root squash
(exports(5)): fanotify(7) asks us about each that is opened."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import users

# Its argument: a mount point. It says "ready", and after that each path that root has asked for.
_LISTENER = """
import ctypes, os, struct, sys
CLASS_CONTENT, MARK_ADD, MARK_FILESYSTEM = 0x4, 0x1, 0x100
OPEN_PERM, ALLOW, DENY = ctypes.c_uint64(0x10000), 1, 2
libc = ctypes.CDLL(None, use_errno=True)
group = libc.fanotify_init(CLASS_CONTENT, os.O_RDONLY | os.O_LARGEFILE)
place = os.fsencode(sys.argv[1])
if group < 0 or libc.fanotify_mark(group, MARK_ADD | MARK_FILESYSTEM, OPEN_PERM, -1, place):
    sys.exit(os.strerror(ctypes.get_errno()))
print("ready", flush=True)
while True:
    events = os.read(group, 65536)
    while events:
        length, _, _, _, _, file, pid = struct.unpack("IBBHQii", events[:24])
        events = events[length:]
        try:
            with open(f"/proc/{pid}/status") as status:
                (users,) = [line.split() for line in status if line.startswith("Uid:")]
        except OSError:
            users = ["", "0", "0"]
        is_root = users[2] == "0"
        os.write(group, struct.pack("iI", file, DENY if is_root else ALLOW))
        if is_root:
            print(os.readlink(f"/proc/self/fd/{file}"), flush=True)
        os.close(file)
"""


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """A home of the harness's user, on a file system of its own."""
    his = pwd.getpwnam(users.user().pw_name)
    with tempfile.TemporaryDirectory(prefix="crdebug-home-") as place:
        options = f"mode=700,uid={his.pw_uid},gid={his.pw_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
        try:
            (Path(place) / "tmp").mkdir()
            os.chown(Path(place) / "tmp", his.pw_uid, his.pw_gid)
            yield Path(place)
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


@contextlib.contextmanager
def closed_to_root(mount: Path) -> Iterator[list[str]]:
    """While the block runs, root can open no file of this file system; afterwards the list has the
    paths that it has tried."""
    asked: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", _LISTENER, mount], stdout=subprocess.PIPE, text=True
    ) as listener:
        assert listener.stdout is not None
        try:
            assert listener.stdout.readline() == "ready\n"
            yield asked
        finally:
            listener.kill()
            asked += listener.stdout.read().splitlines()

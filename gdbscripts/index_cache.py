"""GDB's index cache ("Index Files Speed Up GDB" in its manual), shared by GDBs that run at once.

GDB gives an index file its name before it has written the end of it: in gdb/dwarf2/index-write.c
index_wip_file::finalize renames the file, and fclose writes the rest later (13.1 and 16.3, seen
with strace). Another GDB that maps the file in between takes the part for the whole and crashes in
mapped_gdb_index::build_name_components. If the writer is killed just then, so does every later GDB.
16.3 writes the file in a separate thread; there this happens in about one of a hundred first
attaches to a new program by several GDBs at once.

So each GDB has a directory of its own, with links to all shared files, and shares the files that it
has written there when it exits. The directory is in memory: on a busy disk hundreds of links take a
second. For a rank's GDB, whose "index-cache directory" is the shared one.
"""

from __future__ import annotations

import contextlib
import os
import time

import gdb

# No shutil and no tempfile: every GDB would import ten more modules at its start.

OWN_INDEX = "crdebug-index-"  # and the GDB's process id
PORTION = 1 << 20  # bytes to copy at a time
MOST_FILES, MOST_BYTES = 300, 1 << 30  # a program that is compiled again leaves its index behind


def begin_own_index(shared: str) -> None:
    """Switch the cache on. If that is impossible, GDB reads the debug information itself."""
    os.makedirs(shared, exist_ok=True)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else os.environ.get("TMPDIR", "/tmp")
    for left in os.listdir(memory):
        owner = left.removeprefix(OWN_INDEX).partition("-")[0]
        if left.startswith(OWN_INDEX) and not os.path.exists(f"/proc/{owner}"):
            remove_index(os.path.join(memory, left))
    own = os.path.join(memory, f"{OWN_INDEX}{os.getpid()}-{time.time_ns():x}")
    os.mkdir(own, 0o700)
    for name in os.listdir(shared):
        os.symlink(os.path.join(shared, name), os.path.join(own, name))
    gdb.execute(f"set index-cache directory {own}")
    gdb.execute("set index-cache enabled on")
    gdb.events.gdb_exiting.connect(lambda event: end_own_index(own, shared))


def end_own_index(own: str, shared: str) -> None:
    with contextlib.suppress(gdb.error):  # older GDBs have no such thread
        gdb.execute("maintenance wait-for-index-cache", to_string=True)
    with contextlib.suppress(OSError):  # a full disk, say
        written = [
            each
            for each in os.scandir(own)
            if each.name.endswith(".gdb-index") and not each.is_symlink()
        ]
        for each in written:
            whole = os.path.join(shared, f"{each.name}-{os.getpid()}")
            copy_file(each.path, whole)
            os.replace(whole, os.path.join(shared, each.name))
        if written:
            thin_out(shared)
    remove_index(own)


def thin_out(shared: str) -> None:
    """Remove what GDBs have read longest ago, as far as it is too much."""
    left = MOST_BYTES
    found = [(each.stat(), each.path) for each in os.scandir(shared)]
    for place, (status, path) in enumerate(sorted(found, key=lambda each: -each[0].st_atime_ns)):
        left -= status.st_size
        if place >= MOST_FILES or left < 0:
            with contextlib.suppress(FileNotFoundError):  # another GDB does the same
                os.unlink(path)


def copy_file(path: str, copy: str) -> None:
    with open(path, "rb") as source, open(copy, "wb") as target:
        while data := source.read(PORTION):
            target.write(data)


def remove_index(own: str) -> None:
    """Remove a GDB's own directory, which contains only files. Others may make one of that name, or
    a link, and exchange it at any time: only what is in a directory of ours is removed."""
    with contextlib.suppress(OSError):
        directory = os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(directory).st_uid != os.geteuid():
                return
            for name in os.listdir(directory):
                os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)
        os.rmdir(own)


with contextlib.suppress(OSError):
    begin_own_index(str(gdb.parameter("index-cache directory")))

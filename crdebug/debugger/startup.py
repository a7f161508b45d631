"""The command line and environment of a rank's GDB."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crdebug.base.settings import cache_home

# Settings that must be in force before anything else happens ("-iex"), each with its reason.
_SETTINGS = (
    "set mi-async on",  # GDB listens while its rank runs
    "set pagination off",
    "set confirm off",  # nobody can answer
    "set width 0",
    "set height 0",
    "set style enabled off",
    "set print thread-events off",
    "set print entry-values no",  # only doubles the arguments in backtraces
    # GDB runs outside the rank's PID namespace: in the rank's memory libthread_db finds the thread
    # ids inside the namespace, and cannot match them with the LWPs that ptrace knows. (An empty
    # search path would mean the default one.)
    "set auto-load libthread-db off",
    "set libthread-db-search-path /dev/null",
    # GDB reads files here, by the names that the rank knows; with the default, target:, it would
    # fetch each through a helper process in the rank's mount namespace, at every attach.
    "set sysroot /",
    "set breakpoint pending on",
    "set debuginfod enabled off",
    # GDB steps a thread over a breakpoint by executing a copy of the instruction elsewhere, with
    # another base register if it addresses memory relative to the PC. When a signal comes first,
    # such as the one that stops the rank, it leaves that register changed (amd64-tdep.c,
    # fixup_riprel; displaced-stepping.c: "Since the instruction didn't complete").
    "set displaced-stepping off",
    "set startup-with-shell off",
    "set history save off",
    # If a function called from GDB is interrupted, it leaves no frame behind.
    "set unwindonsignal on",
    # An internal error ends GDB, and so becomes an error of ours, not a question.
    "maint set internal-error quit yes",
    "maint set internal-error corefile no",
    # The stop that crdebug itself causes; see gdb.GdbTarget.interrupt.
    "handle SIGSTOP nostop noprint nopass",
    # Launchers send it before they end their ranks, and it would hide the reason.
    "handle SIGCONT nostop noprint pass",
)


def index_cache() -> Path:
    """The directory in which GDBs keep indexes of debug information; see
    gdbscripts/index_cache.py."""
    return cache_home() / "gdb-indexes"


def unpacked_debug_files() -> Path:
    """The directory in which GDBs look first for separate debug files; see
    crdebug/acquire/debug_files.py."""
    return cache_home() / "gdb-debug"


# A program, and whoever may write beside it, can bring scripts: PROGRAM-gdb.py, .debug_gdb_scripts.
# GDB runs those of its own installation, such as the C++ library's; this is its default, unless it
# was built with another one.
_SAFE = "$debugdir:$datadir/auto-load"
# GDB has loaded it; what GDB starts (`shell`) loads what the user wants. Of several, ours is first.
_FORGET = (
    "python import os; _, _, kept = os.environ.get('LD_PRELOAD', '').partition(':');"
    " os.environ.update(LD_PRELOAD=kept) if kept else os.environ.pop('LD_PRELOAD', None); del kept"
)


def command_line(
    gdb: str, scripts: Sequence[Path] = (), auto_load: str = "", preload: Path | None = None
) -> tuple[str, ...]:
    """The argument vector. gdb: the program. scripts: files to source, in this order. auto_load:
    directories, separated by colons, whose programs may bring scripts that GDB runs. preload: as in
    `environment`."""
    forget = () if preload is None else ("-iex", _FORGET)
    return (gdb, "-nx", "-q", "--interpreter=mi3", *forget, *_options(scripts, auto_load))


def _options(scripts: Sequence[Path], auto_load: str) -> Iterator[str]:
    # Every rank's GDB reads the libraries' debug information again at every attach; an index of it
    # halves the time of an attach. A script switches the cache on.
    safe = f"set auto-load safe-path {_SAFE}{':' if auto_load else ''}{auto_load}"
    cached = (
        f"set index-cache directory {index_cache()}",
        # before the directories that this GDB was built with
        f"python gdb.execute('set debug-file-directory ' + {str(unpacked_debug_files())!r}"
        " + ':' + gdb.parameter('debug-file-directory'))",
    )
    for setting in (*_SETTINGS, safe, *cached):
        yield from ("-iex", setting)
    for script in scripts:
        yield from ("-x", str(script))


def environment(preload: Path | None = None) -> Mapping[str, str]:
    """Our environment, but with messages in English, and text in UTF-8 whatever the terminal's
    locale. preload: a library that GDB loads before those that the user has it load.

    Containers often set PYTHONUNBUFFERED. The Python in GDB obeys it by taking the buffer from C's
    stdout (Python/initconfig.c, config_init_stdio), which is GDB's too: it would write each byte of
    its answers by a system call of its own, 20,000 of them for an attach.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LC_") and name != "PYTHONUNBUFFERED"
    }
    if preload is not None:
        users = kept.get("LD_PRELOAD")
        kept["LD_PRELOAD"] = f"{preload}:{users}" if users else str(preload)
    return kept | {"LC_ALL": "C.UTF-8", "LANGUAGE": "C"}

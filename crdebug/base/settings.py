"""The directories that crdebug uses, and the settings of a session. Reads only the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


def state_home() -> Path:
    """Jobs and checkpoints: $CRDEBUG_HOME, else $XDG_STATE_HOME/crdebug (XDG base directories)."""
    own = os.environ.get("CRDEBUG_HOME")
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(own) if own else Path(base) / "crdebug"


def data_home() -> Path:
    """Programs installed for crdebug: $CRDEBUG_DATA, else $XDG_DATA_HOME/crdebug."""
    own = os.environ.get("CRDEBUG_DATA")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(own) if own else Path(base) / "crdebug"


def cache_home() -> Path:
    """The compiled native part: $CRDEBUG_CACHE, else $XDG_CACHE_HOME/crdebug."""
    own = os.environ.get("CRDEBUG_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(own) if own else Path(base) / "crdebug"


def config_file() -> Path:
    """The user's settings: $CRDEBUG_CONFIG, else $XDG_CONFIG_HOME/crdebug/config.toml."""
    own = os.environ.get("CRDEBUG_CONFIG")
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(own) if own else Path(base) / "crdebug" / "config.toml"


def hooks_home() -> Path:
    """The operator's programs: $CRDEBUG_HOOKS, else `hooks` in the state's directory."""
    own = os.environ.get("CRDEBUG_HOOKS")
    return Path(own) if own else state_home() / "hooks"


def criu_candidates() -> tuple[str, ...]:
    """Programs to probe as CRIU, best first; $CRDEBUG_CRIU, if set, is the only one."""
    own = os.environ.get("CRDEBUG_CRIU")
    return (own,) if own else (str(data_home() / "criu" / "bin" / "criu"), "criu")


@dataclass(slots=True)
class Settings:
    """The settings that a user can choose for a session.

    All parts of a session share one object, and it is not frozen: `set` changes it.

    gdb: the debugger's program.  compiler: for the native part, $CC or cc; may have options.
    auto_load: the directories, separated by colons, whose programs may bring scripts that GDB runs.
    signal: the number of the waitpoint signal; 0 lets crdebug choose.
    full_every: one of so many checkpoints in a row is full, the others hold only changes; 1: all
    are full, as they are on kernels that do not track changes.
    record: have the ranks record their MPI calls, for going back in time; None: if possible.
    label_output: ask launchers to mark each line of a job's output with its rank.
    Limits in seconds: attach, to attach to all ranks; stop, for a job to stop; command, for one
    answer of GDB; herd, to lead threads to the waitpoint; hook, for one of the operator's programs,
    or the program's callbacks; quiet, for quiet regions to end; dump and restore, for the CRS.
    patience: seconds for which no rank may come further before crdebug says why; 0: for ever.
    host_interval, host_misses: an agent on another host is asked so often, in seconds, whether it
    is there, and is lost if it has not answered for so many times as long.
    host_patience: seconds after which an agent that hears nothing lets its ranks go.
    """

    gdb: str = "gdb"
    compiler: str = field(default_factory=lambda: os.environ.get("CC") or "cc")
    auto_load: str = ""
    signal: int = 0
    record: bool | None = False
    full_every: int = 10
    label_output: bool = False
    launch: float = 120.0
    attach: float = 120.0
    stop: float = 30.0
    command: float = 60.0
    herd: float = 20.0
    hook: float = 60.0
    quiet: float = 60.0
    dump: float = 600.0
    restore: float = 600.0
    patience: float = 60.0
    host_interval: float = 5.0
    host_misses: int = 3
    host_patience: float = 600.0

"""The architecture as a test: the allowed imports, and the modules that may touch the system.

    cli → ui → {commands, detached} → session → {travel, hosts} → attached → job
        → {timeline, charts} → {debugger, checkpoint, acquire, native} → {node, mi} → base

The reasons are in docs/architecture.md. Every check is a function from a module's source to
complaints, and is itself tested with a source that breaks the rule.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from harness.modules import dotted, imported, is_in, proc_paths, strings, unit_of, uses

TOP = Path(__file__).parents[2]

# level 0 is the ground; an import must lead to a lower level, or stay in its own package
LEVELS: dict[str, int] = {
    "base": 0,
    "app": 0,  # it runs in other people's programs, and imports nothing of ours
    "gdbscripts": 0,  # in GDB's Python, which has no crdebug: of this only WIRE can be imported
    **dict.fromkeys(("node", "mi"), 1),
    **dict.fromkeys(("native", "acquire", "checkpoint", "debugger"), 2),
    **dict.fromkeys(("timeline", "charts"), 3),
    "job": 4,  # without a debugger
    "attached": 5,  # under one
    "hosts": 6,  # under debuggers on several hosts
    "travel": 6,
    "session": 7,
    "": 8,  # crdebug/__init__.py: the public API
    "commands": 8,
    "detached": 8,
    "ui": 9,
    "cli": 10,
    "__main__": 11,
}

# what may be reached from the top: they address jobs by verbs, and know values, not machinery
REACH: dict[str, tuple[str, ...]] = {
    "ui": (
        *("crdebug.base", "crdebug.commands", "crdebug.session", "crdebug.detached"),
        *("crdebug.charts", "crdebug.timeline.text", "crdebug.app", "crdebug.__version__"),
    ),
    "commands": ("crdebug.base", "crdebug.session", "crdebug.charts", "crdebug.timeline.text"),
}
# further allowed imports, and why
BEYOND: dict[tuple[str, str], str] = {
    ("crdebug.ui.console", "crdebug.node.owners"): "it makes the directory of its history private",
    ("crdebug.ui.options", "crdebug.job.directory"): "a shell waits for the names at each TAB",
    ("crdebug.ui.installing", "crdebug.node.setup"): "`crdebug setup` is about the machine, no job",
    (
        "crdebug.ui.linking",
        "crdebug.native.applib.build",
    ): "`crdebug app` is about a program, no job",
    ("crdebug.commands.doctor", "crdebug.node.probes"): "it judges the machine, no job",
    ("crdebug.commands.doctor_hosts", "crdebug.node.probes"): "it judges machines, no job",
    ("crdebug.commands.doctor", "crdebug.node.criu_program"): "it judges the machine's CRIU",
    ("crdebug.commands.doctor", "crdebug.job.launch_environment"): "it says what a launch will add",
    ("crdebug.commands.job", "crdebug.node.programs"): "`shell` runs a program that is no job's",
}

# the one module of gdbscripts/ that needs no GDB: the language between both sides
WIRE = "crdebug.gdbscripts.wire"

TALKERS = ("ui", "cli", "__main__")
# run by file name as well, by scripts and as processes of their own: they talk and exit as such
PROGRAMS = ("crdebug.node.criu_trial",)

# modules whose purpose is to touch the operating system's processes
PROCESS_MODULES = ("subprocess", "ctypes", "psutil", "multiprocessing", "pty")
# which load what crdebug has compiled of its own, and call nothing else
LOADERS = ("crdebug.native.matcher.loading", "crdebug.app")
# which describe it, and can load nothing
LIBRARIES = ("crdebug.native.matcher.library",)
LOADING_CALLS = ("CDLL", "PyDLL", "LoadLibrary")
PROCESS_CALLS = re.compile(
    r"os\.(kill|killpg|fork|forkpty|exec\w+|_?spawn\w+|posix_spawnp?|system|popen|wait\w*|setns"
    r"|unshare|pidfd_open|abort)"
    r"|signal\.(raise_signal|pthread_kill|pidfd_send_signal|alarm|setitimer|sigwait\w*"
    r"|sigtimedwait|pthread_sigmask)"
    r"|asyncio\.create_subprocess_(exec|shell)"
)
PRINTING_CALLS = re.compile(r"print|input|sys\.(stdout|stderr|__stdout__|__stderr__)(\..*)?")
PRINTING_MODULES = ("click", "rich", "prompt_toolkit")
EXITING_CALLS = re.compile(r"(sys\.exit|os\._exit|exit|quit|SystemExit)")

LIMIT = 550


# ---- the rules ---------------------------------------------------------------------------------


def upward_imports(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    own = unit_of(module)
    if own == "gdbscripts":
        for line, name in imported(tree, module):
            if name.split(".")[0] == "crdebug" and unit_of(name) != "gdbscripts":
                yield line, f"imports {name}, but runs inside GDB, whose Python has no crdebug"
        return
    for line, name in imported(tree, module):
        if name != "crdebug" and not name.startswith("crdebug."):
            continue
        other = unit_of(name)
        if other == "gdbscripts" and name != WIRE and not name.startswith(f"{WIRE}."):
            yield line, f"imports {name}, which only GDB's Python can: all but {WIRE} needs a GDB"
        if other not in LEVELS:
            other = ""  # a name that the public API has: from crdebug import Session
        if LEVELS[other] >= LEVELS[own] and (own != other or own == ""):
            direction = "beside" if LEVELS[other] == LEVELS[own] else "above"
            what = f"crdebug.{other}" if other else "crdebug's public API"
            yield line, f"imports {name}: {what} is {direction} crdebug.{own}; imports point down"


def beyond_reach(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    own = unit_of(module)
    if own not in REACH:
        return
    but = [other for user, other in BEYOND if user == module]
    for line, name in imported(tree, module):
        known = name.split(".")[0] != "crdebug" or unit_of(name) == own
        if not known and not is_in(name, (*REACH[own], *but)):
            yield (
                line,
                f"imports {name}: crdebug.{own} does not reach it; see REACH in test_layers.py",
            )


def impure_protocol(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if module != "crdebug.checkpoint.protocol":
        return
    for line, name in imported(tree, module):
        if name.startswith("crdebug") and LEVELS.get(unit_of(name)) != 0:
            yield line, f"imports {name}: the protocol is pure, it may use only level 0"
        if name.split(".")[0] in ("asyncio", "os", "time", "socket", "threading"):
            yield line, f"imports {name}: the protocol is pure, it does no I/O and has no clock"
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield node.lineno, "awaits: the protocol is pure, events in and instructions out"


# of native/, what is only layouts and tables; and the matcher's functions, once somebody loaded it
LAYOUTS = (
    "crdebug.native.matcher.library",
    "crdebug.native.recorder.clock",
    "crdebug.native.recorder.doing",
    "crdebug.native.recorder.mpi_calls",
    "crdebug.native.recorder.mpi_errors",
    "crdebug.native.recorder.mpi_types",
)
# modules of timeline/ whose subject is a file: a rank's log, what is kept beside it, the page
OF_FILES = ("crdebug.timeline.log", "crdebug.timeline.kept", "crdebug.timeline.page")
WAITING_MODULES = ("asyncio", "concurrent", "threading", "socket", "selectors")
FILE_MODULES = ("os", "io", "shutil", "tempfile", "mmap")
FILE_CALLS = ("open", "read_bytes", "read_text", "write_bytes", "write_text")


def impure_timeline(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    in_timeline = unit_of(module) == "timeline"
    if not in_timeline and module not in LAYOUTS:
        return
    may = (*LAYOUTS, "crdebug.base", *(("crdebug.timeline",) if in_timeline else ()))
    pure = "timeline/ and the layouts that it reads are pure"
    for line, name in imported(tree, module):
        if name.startswith("crdebug.") and not is_in(name, may):
            yield line, f"imports {name}: {pure}; have it passed in"
        if name.split(".")[0] in WAITING_MODULES:
            yield line, f"imports {name}: {pure}, they wait for nothing"
        if name.split(".")[0] in FILE_MODULES and module not in OF_FILES:
            yield line, f"imports {name}: {pure}, only {', '.join(OF_FILES)} open files"
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield node.lineno, f"awaits: {pure}, they wait for nothing"
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else dotted(called)
        if name in LOADING_CALLS:
            yield node.lineno, f"calls {name}: {pure}, only {', '.join(LOADERS)} load a library"
        if name in FILE_CALLS and module not in OF_FILES:
            yield node.lineno, f"calls {name}: {pure}, only {', '.join(OF_FILES)} open files"


def wire_without_gdb(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if module != WIRE:
        return
    for line, name in imported(tree, module):
        if name.split(".")[0] not in sys.stdlib_module_names:
            yield line, f"imports {name}: both sides import {WIRE}, GDB's Python and one without"


def touches_processes(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    own = unit_of(module)
    if own in ("node", "gdbscripts"):
        return
    hint = "only crdebug.node touches processes, signals and /proc; put a function there"
    for line, name in imported(tree, module):
        loads = name.split(".")[0] == "ctypes" and module in (*LIBRARIES, *LOADERS)
        if name.split(".")[0] in PROCESS_MODULES and not loads:
            yield line, f"imports {name}: {hint}"
    for line, name in uses(tree):
        sets_handler = name == "signal.signal" or name.endswith(".add_signal_handler")
        if PROCESS_CALLS.fullmatch(name) and not sets_handler:
            yield line, f"uses {name}: {hint}"
        if sets_handler and own not in TALKERS:
            yield line, f"uses {name}: {hint} (and Ctrl-C is for cli and ui)"
    for line, value in proc_paths(tree):
        yield line, f"names {value!r}: {hint}"


def prints(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if unit_of(module) in (*TALKERS, "gdbscripts") or module in PROGRAMS:
        return
    hint = "only ui and cli print; return a value"
    for line, name in imported(tree, module):
        if name.split(".")[0] in PRINTING_MODULES:
            yield line, f"imports {name}: {hint}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and PRINTING_CALLS.fullmatch(dotted(node.func)):
            yield node.lineno, f"calls {dotted(node.func)}: {hint}"


def exits(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if unit_of(module) in ("cli", "__main__", "gdbscripts") or module in PROGRAMS:
        return
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        raised = node.exc if isinstance(node, ast.Raise) else None
        name = dotted(called or raised or ast.Pass())
        if EXITING_CALLS.fullmatch(name):
            line = getattr(node, "lineno", 0)
            yield line, f"uses {name}: only cli exits; raise an error of crdebug.base.errors"


def knows_pygdbmi(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if unit_of(module) == "mi":
        return
    for line, name in imported(tree, module):
        if name.split(".")[0] == "pygdbmi":
            yield line, f"imports {name}: only crdebug.mi knows pygdbmi"


# how a command of GDB's machine interface begins; not an option of a compiler
MI_COMMAND = re.compile(
    r"-(break|catch|complete|crdebug|data|dprintf|enable|environment|exec|file|gdb|info|inferior"
    r"|interpreter|list|stack|symbol|target|thread|trace|var)-"
)
# which starts GDBs; everybody else has a Target
LAUNCHES = "crdebug.attached.gdbs"


def speaks_to_gdb(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    if unit_of(module) in ("mi", "debugger", "gdbscripts"):
        return
    hint = "only crdebug.debugger speaks GDB's language; give the rank a typed verb there"
    for node in strings(tree):
        if MI_COMMAND.match(node.value):
            yield node.lineno, f"says {node.value!r}: {hint}"
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute) and each.attr == "mi":
            yield each.lineno, f"uses .mi: {hint}"
    for line, name in imported(tree, module):
        if name == "crdebug.debugger.gdb.GdbTarget" and module != LAUNCHES:
            yield line, f"imports {name}: a rank under a debugger is a Target to all but {LAUNCHES}"


Rule = Callable[[str, ast.AST], Iterator[tuple[int, str]]]
RULES: tuple[Rule, ...] = (
    upward_imports,
    beyond_reach,
    impure_protocol,
    impure_timeline,
    wire_without_gdb,
    touches_processes,
    prints,
    exits,
    knows_pygdbmi,
    speaks_to_gdb,
)


def complaints(module: str, source: str) -> list[str]:
    """Every rule that this source breaks, once for each line."""
    if unit_of(module) not in LEVELS:
        return [f"{module}: has no place in the layers; give it one in LEVELS of test_layers.py"]
    tree = ast.parse(source)
    found = {f"{module}:{line}: {what}" for rule in RULES for line, what in rule(module, tree)}
    return sorted(found)


# ---- the package -------------------------------------------------------------------------------


def sources() -> dict[str, Path]:
    """Module name → file, of all that is installed as crdebug."""
    found: dict[str, Path] = {}
    for root, package in ((TOP / "crdebug", "crdebug"), (TOP / "gdbscripts", "crdebug.gdbscripts")):
        for path in root.rglob("*.py"):
            parts = [*package.split("."), *path.relative_to(root).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@pytest.mark.parametrize("module", sorted(sources()))
def test_layers(module: str) -> None:
    path = sources()[module]
    # in a package's own file a relative import starts one level lower than in a module
    name = f"{module}.__init__" if path.name == "__init__.py" and "." in module else module
    assert not complaints(name, path.read_text())


def unused(beyond: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those exceptions to REACH that nobody needs."""
    reached = {
        (module, name)
        for module, path in sources().items()
        for _, name in imported(ast.parse(path.read_text()), module)
    }
    return [
        (user, other)
        for user, other in beyond
        if not any(user == module and is_in(name, (other,)) for module, name in reached)
    ]


def test_who_reaches_further_needs_to() -> None:
    assert not unused(BEYOND)
    gone = [("crdebug.ui.console", "crdebug.node.proc"), ("crdebug.ui.none", "crdebug.node.owners")]
    assert unused(gone) == gone


def too_long(name: str, text: str) -> list[str]:
    lines = len(text.splitlines())
    return [f"{name}: {lines} lines, and a file stays under {LIMIT}"] if lines >= LIMIT else []


def test_files_stay_short() -> None:
    found: list[str] = []
    for directory in ("crdebug", "gdbscripts", "tests", "examples", "benchmarks", "scripts"):
        for path in sorted((TOP / directory).rglob("*")):
            if path.suffix in (".py", ".c", ".h") and path.is_file():
                found += too_long(str(path.relative_to(TOP)), path.read_text())
    assert not found


def test_each_test_file_has_a_name_of_its_own() -> None:
    """pytest imports them by their names, and refuses a second one of a name, though only when it
    meets both in one run ("pytest import mechanisms", prepend)."""
    names = Counter(path.name for path in (TOP / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


# ---- the rules can fail ------------------------------------------------------------------------

BAD = [
    ("crdebug.node.pipe", "from crdebug.mi.transport import Transport", "beside"),
    ("crdebug.mi.records", "import crdebug.debugger.gdb", "above"),
    ("crdebug.checkpoint.driver", "from crdebug.debugger.group import TargetGroup", "beside"),
    ("crdebug.debugger.gdb", "def f():\n    from crdebug import session", "above"),
    ("crdebug.debugger.gdb", "from ..session import Session", "above"),
    ("crdebug.debugger.gdb", "from crdebug import Session", "public API"),
    ("crdebug.base.ranks", "import crdebug.node.ask", "above"),
    ("crdebug.session", "from crdebug.commands.registry import Registry", "above"),
    ("crdebug.detached.jobs", "from crdebug.ui.screen import Screen", "above"),
    ("crdebug.ui.render", "from crdebug.debugger.target import Frame", "does not reach it"),
    ("crdebug.ui.render", "from crdebug.job.directory import all_jobs", "does not reach it"),
    ("crdebug.ui.console", "from crdebug.node import proc", "does not reach it"),
    ("crdebug.ui.console", "def f():\n    import crdebug.travel.seek", "does not reach it"),
    ("crdebug.commands.job", "from crdebug.attached.job import AttendedJob", "does not reach it"),
    ("crdebug.commands.job", "from crdebug.node.programs_of import run", "does not reach it"),
    ("crdebug.commands.looking", "from crdebug.timeline.log import RankLog", "does not reach it"),
    ("crdebug.gdbscripts.rank_state", "from crdebug.base.ranks import RankSet", "inside GDB"),
    ("crdebug.gdbscripts.wire", "import gdb", "both sides"),
    ("crdebug.gdbscripts.wire", "from .ptrace import WORD", "both sides"),
    ("crdebug.debugger.gdb", "from crdebug.gdbscripts.ptrace import WORD", "needs a GDB"),
    ("crdebug.debugger.gdb", "from crdebug.gdbscripts import ptrace", "needs a GDB"),
    ("crdebug.debugger.gdb", "import crdebug.gdbscripts", "needs a GDB"),
    ("crdebug.base.ranks", "from crdebug.gdbscripts.wire import WORD", "beside"),
    ("crdebug.checkpoint.protocol", "from crdebug.checkpoint.store import Checkpoint", "pure"),
    ("crdebug.checkpoint.protocol", "import crdebug.node.ask", "pure"),
    ("crdebug.checkpoint.protocol", "import asyncio", "pure"),
    ("crdebug.checkpoint.protocol", "async def handle(): ...", "pure"),
    ("crdebug.timeline.cuts", "from crdebug.node import proc", "pure"),
    ("crdebug.timeline.log", "from crdebug.native.build import build", "pure"),
    ("crdebug.timeline.log", "from crdebug.native.matcher.loading import load", "pure"),
    ("crdebug.timeline.log", "from crdebug.native.matcher import loading", "pure"),
    ("crdebug.timeline.cuts", "import asyncio", "pure"),
    ("crdebug.timeline.cuts", "async def latest_cut(): ...", "pure"),
    ("crdebug.timeline.cuts", "import tempfile", "open files"),
    ("crdebug.timeline.recorded", "with path.open('rb') as file: ...", "open files"),
    ("crdebug.timeline.cuts", "open('log')", "open files"),
    ("crdebug.timeline.cuts", "find('log').read_bytes()", "open files"),
    ("crdebug.timeline.cuts", "import ctypes", "only crdebug.node"),
    ("crdebug.native.matcher.library", "import ctypes\nctypes.CDLL('matcher.so')", "pure"),
    ("crdebug.native.matcher.library", "from ctypes import CDLL\nCDLL('a.so')", "pure"),
    ("crdebug.native.matcher.library", "import ctypes\nctypes.cdll.LoadLibrary('a.so')", "pure"),
    ("crdebug.native.recorder.clock", "from crdebug.native.build import build", "pure"),
    ("crdebug.native.recorder.clock", "from crdebug.node import proc", "pure"),
    ("crdebug.acquire.procfs", "import psutil", "only crdebug.node"),
    ("crdebug.native.build", "import subprocess", "only crdebug.node"),
    ("crdebug.session", "import os\nos.kill(1, 9)", "only crdebug.node"),
    ("crdebug.session", "from os import kill", "only crdebug.node"),
    ("crdebug.session", "import signal\nsignal.signal(2, None)", "Ctrl-C"),
    ("crdebug.ui.console", "import signal\nsignal.raise_signal(2)", "only crdebug.node"),
    ("crdebug.mi.transport", "await_ = asyncio.create_subprocess_exec", "only crdebug.node"),
    ("crdebug.session", "loop.add_signal_handler(2, f)", "Ctrl-C"),
    ("crdebug.debugger.gdb", "x = f'/proc/{pid}/status'", "names '/proc/'"),
    ("crdebug.debugger.gdb", "x = Path('/proc') / pid", "names '/proc'"),
    ("crdebug.debugger.gdb", "x = '/proc/' + pid + '/status'", "names '/proc/"),
    ("crdebug.job.directory", "import crdebug.attached.gdbs", "above"),
    ("crdebug.session", "from crdebug.detached.jobs import all_jobs", "above"),
    ("crdebug.session", "print('here')", "only ui and cli print"),
    ("crdebug.commands.looking", "import sys\nsys.stdout.write('x')", "only ui and cli print"),
    ("crdebug.commands.looking", "from rich.console import Console", "only ui and cli print"),
    ("crdebug.commands.looking", "import click", "only ui and cli print"),
    ("crdebug.commands.looking", "raise SystemExit(1)", "only cli exits"),
    ("crdebug.ui.console", "import sys\nsys.exit(1)", "only cli exits"),
    ("crdebug.node.ask", "print('here')", "only ui and cli print"),
    ("crdebug.node.ask", "import os\nos._exit(1)", "only cli exits"),
    ("crdebug.debugger.gdb", "from pygdbmi import gdbmiparser", "only crdebug.mi"),
    ("crdebug.session.looking", "target.mi(command, limit)", "speaks GDB's language"),
    ("crdebug.travel.calls", "ask(f'-stack-list-frames {n}')", "speaks GDB's language"),
    ("crdebug.travel.calls", "x = '-crdebug-sites'", "speaks GDB's language"),
    ("crdebug.session.core", "from crdebug.debugger.gdb import GdbTarget", "is a Target to all"),
    ("crdebug.helpers", "", "no place in the layers"),
]


@pytest.mark.parametrize(("module", "source", "expected"), BAD)
def test_a_broken_rule_is_found(module: str, source: str, expected: str) -> None:
    found = complaints(module, source)
    assert found
    assert all(expected in complaint for complaint in found)


GOOD = [
    ("crdebug.ui.render", "from crdebug.session.values import Frame\nimport rich.text"),
    ("crdebug.ui.render", "from .answers import values\nfrom crdebug.timeline import text"),
    ("crdebug.ui.console", "from crdebug.node import owners"),
    ("crdebug.commands.job", "from crdebug.node.programs import run"),
    ("crdebug.commands.job", "from crdebug.session import Session\nimport crdebug.base.ranks"),
    ("crdebug.base.deadline", "from crdebug.base.errors import DeadlineExpired"),
    ("crdebug.mi.connection", "from crdebug.mi.records import Record\nimport crdebug.base.errors"),
    ("crdebug.mi.__init__", "from .records import Record"),
    ("crdebug.mi.records", "from pygdbmi import gdbmiparser"),
    ("crdebug.native.build", "from crdebug.node.ask import run"),
    ("crdebug.native.matcher.library", "import ctypes\ndef f(loaded: ctypes.CDLL): ..."),
    ("crdebug.native.matcher.loading", "import asyncio, ctypes\nctypes.CDLL('matcher.so')"),
    ("crdebug.timeline.log", "from crdebug.native.matcher.library import Library\nimport os"),
    ("crdebug.timeline.log", "with path.open('rb') as file: ..."),
    ("crdebug.timeline.functions", "from crdebug.native.recorder import mpi_calls"),
    ("crdebug.timeline.cuts", "from crdebug.base.instant import Cut\nis_open(log.open_at(3))"),
    ("crdebug.commands.doctor", "from crdebug.node import probes"),
    ("crdebug.debugger.gdb", "import signal\nname = signal.Signals(9).name"),
    ("crdebug.checkpoint.open_files", "own = path.startswith(('/proc/', '/sys/'))"),
    ("crdebug.debugger.gdb", '"""Reads nothing of /proc."""\ndef f():\n    "/proc/self"'),
    ("crdebug.node.ask", "import subprocess, os\nos.kill(1, 0)\nx = '/proc/self'"),
    ("crdebug.node.criu_trial", "import os\nprint('here')\nos._exit(1)"),
    ("crdebug.session", "async def f(self):\n    await self.kill()\n    self.exit()"),
    ("crdebug.ui.console", "import signal\nsignal.signal(signal.SIGINT, before)"),
    ("crdebug.ui.render", "from rich.console import Console\nprint('x')"),
    ("crdebug.cli", "import sys, click\nloop.add_signal_handler(2, f)\nsys.exit(1)"),
    ("crdebug", "from crdebug.session import Session"),
    ("crdebug.debugger.rank_commands", "target.mi(f'-exec-step {n}', limit)"),
    ("crdebug.attached.gdbs", "from crdebug.debugger.gdb import GdbTarget"),
    ("crdebug.native.applib.build", "x = '-fno-optimize-sibling-calls'"),
    ("crdebug.gdbscripts.rank_state", "import gdb\nprint(gdb.VERSION)"),
    ("crdebug.gdbscripts.rank_state", "from .wire import Command"),
    ("crdebug.gdbscripts.wire", "import signal\nfrom typing import NamedTuple"),
    ("crdebug.debugger.gdb", "from crdebug.gdbscripts.wire import Command"),
    ("crdebug.mi.connection", "from crdebug.gdbscripts import wire"),
]


@pytest.mark.parametrize(("module", "source"), GOOD)
def test_what_the_rules_allow(module: str, source: str) -> None:
    assert not complaints(module, source)


def test_a_long_file_is_found() -> None:
    assert not too_long("a.c", "x\n" * (LIMIT - 1))
    assert too_long("a.c", "x\n" * LIMIT) == ["a.c: 550 lines, and a file stays under 550"]

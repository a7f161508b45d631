"""Compile the native part with the user's own compiler, on first use."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable
from crdebug.base.settings import cache_home
from crdebug.node import owners, programs

_HERE = Path(__file__).parent
# The starter names the shim in LD_PRELOAD, and has the job's directory where the shim has it.
_SHARED = tuple(str(_HERE / "shim" / name) for name in ("places.c", "preload.c"))
_PARTS = ("starter", "shim.so", "stepper.so", "matcher.so", "xstate.so")
_ROOM = 1 << 20  # bytes; with less left, it is the lack of it that a compiler complains of
MADE = "made"  # in a working directory: the part that goes into the cache
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra")
# Everything is bound at start: a call through a lazy binding would change memory in a handler. Code
# for ranks has no line numbers, so that the user's debugger does not step into it.
_SHIM_FLAGS = ("-g0", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,now")


@dataclass(frozen=True, slots=True)
class Native:
    """The compiled parts."""

    starter: Path
    shim: Path
    stepper: Path
    matcher: Path
    xstate: Path


def strict() -> tuple[str, ...]:
    """A newer compiler may warn about this source, which is not the user's fault. In our own tests,
    which set $CRDEBUG_STRICT, a warning is an error."""
    return ("-Werror",) if os.environ.get("CRDEBUG_STRICT") else ()


def _commands(compiler: Sequence[str], target: Path) -> tuple[tuple[str, ...], ...]:
    compiler = (*compiler, *strict())
    starter = (*compiler, *_FLAGS, "-g", "-rdynamic", "-o", str(target / "starter"))
    shim = (*compiler, *_FLAGS, *_SHIM_FLAGS, "-o", str(target / "shim.so"))
    stepper = (*compiler, *_FLAGS, *_SHIM_FLAGS, "-o", str(target / "stepper.so"))
    matcher = (*compiler, *_FLAGS, *_SHIM_FLAGS, "-o", str(target / "matcher.so"))
    xstate = (*compiler, *_FLAGS, *_SHIM_FLAGS, "-o", str(target / "xstate.so"))
    return (
        (*starter, *_include("shim"), *_SHARED, *_sources("starter")),
        (*shim, *_include("applib"), *_sources("shim"), "-pthread", "-ldl"),
        (*stepper, *_sources("stepper")),
        (*matcher, *_include("recorder"), *_sources("matcher")),
        (*xstate, *_sources("xstate"), "-ldl"),
    )


def _sources(part: str) -> list[str]:
    return [str(path) for path in sorted((_HERE / part).glob("*.c"))]


def _include(part: str) -> tuple[str, str]:
    return ("-I", str(_HERE / part))


async def build(compiler: str, deadline: Deadline) -> Native:
    """The native part for this source and compiler, compiled now if it is not in the cache.

    compiler: a program, options may follow. Safe for concurrent callers: all parts appear by one
    rename, and stay the same files for as long as jobs run them.
    Raises NotAvailable with the compiler's own words and its command line.
    """
    words = compiler_words(compiler)
    version = await programs.run([*words, "--version"], deadline, "the compiler's version")
    digest = hashlib.sha256(version.out.encode())
    for source in sorted(_HERE.glob("*/*.[ch]")):
        digest.update(source.read_bytes())
    for command in _commands(words, Path()):
        digest.update("\0".join(command).encode())
    home = place_for(digest.hexdigest()[:16])
    native = Native(*(home / name for name in _PARTS))
    if not is_made(home, _PARTS):
        await _compile(words, home, deadline)
    return native


def compiler_words(
    compiler: str, language: str = "C", hint: str = "install gcc, or name one with $CC"
) -> list[str]:
    """A compiler with its options, the program as a path. Raises NotAvailable with the language and
    the hint."""
    try:
        program, *options = shlex.split(compiler)
    except ValueError:
        program, options = compiler, []
    path = shutil.which(program)
    if path is None:
        raise NotAvailable(f"there is no {language} compiler '{compiler}'", hint=hint)
    return [os.path.abspath(path), *options]


async def _compile(compiler: Sequence[str], home: Path, deadline: Deadline) -> None:
    async def make(work: Path) -> None:
        for command in _commands(compiler, work / MADE):
            await compile_with(command, "the native part", deadline)

    await make_once(home, _PARTS, make)


# ---- for all parts compiled on first use ---------------------------------------------------------


def place_for(name: str) -> Path:
    """The place in the cache for something compiled, by the digest of everything it was made from.

    Raises NotAvailable if LD_PRELOAD cannot name the cache, or nothing can be run there, Refused if
    others could have written to it.
    """
    home = cache_home().absolute() / "native" / name
    owners.require_own(home, owners.CACHE_HINT)
    owners.require_runnable(home, owners.CACHE_HINT)
    if re.search(r"[\s:]", str(home)):
        raise NotAvailable(
            f"{home} has a space or a colon in its name, which LD_PRELOAD does not allow",
            hint="choose another place with $CRDEBUG_CACHE",
        )
    return home


def is_made(home: Path, parts: Sequence[str]) -> bool:
    """Are these files there? A program that cleans caches by age may have removed some."""
    return all((home / part).exists() for part in parts)


async def make_once(
    home: Path, parts: Sequence[str], make: Callable[[Path], Awaitable[None]]
) -> None:
    """Make a directory of the cache: it appears complete, by one rename, and never changes.

    parts: the files of a complete directory; one that lacks any of them is replaced.
    make: gets a working directory, and fills `MADE` in it. Safe for concurrent callers.
    Raises NotAvailable, and the errors of `make`.
    """
    try:
        owners.make_readable(home.parent)
        with tempfile.TemporaryDirectory(dir=home.parent) as work:
            made = Path(work) / MADE
            made.mkdir(mode=0o755)
            try:
                await make(Path(work))
            except NotAvailable:  # a compiler says it in many words
                if shutil.disk_usage(work).free >= _ROOM:
                    raise
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC).lower()) from None
            if home.exists() and not is_made(home, parts):
                home.rename(Path(work) / "incomplete")
            try:
                made.rename(home)
            except OSError:
                if not home.exists():  # otherwise another crdebug was faster
                    raise
    except OSError as error:
        raise NotAvailable(
            f"cannot write to {home.parent}: {error.strerror}",
            hint="choose another place with $CRDEBUG_CACHE",
        ) from None


async def compile_with(command: Sequence[str], what: str, deadline: Deadline) -> None:
    """Run a compiler. Raises NotAvailable with its own words and its command line.

    It always runs in the same directory, which debug information names, so that a second
    compilation gives the same result. Others may read the output and nobody may change it, whatever
    the umask.
    """
    done = await programs.run(command, deadline, "the compiler", directory=_HERE, umask=0o022)
    if done.status != 0:
        said = (done.err or done.out).strip() or f"exit status {done.status}"
        raise NotAvailable(f"{what} does not compile: {shlex.join(command)}\n{said}")

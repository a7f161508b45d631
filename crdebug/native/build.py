"""Compiling the native part with the user's own compiler, on first use."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from crdebug.config import cache_home
from crdebug.deadline import Deadline
from crdebug.errors import NotAvailable
from crdebug.node import programs

_HERE = Path(__file__).parent
_FLAGS = ("-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror")
# Everything is bound at start: a call through a lazy binding would change memory in a handler.
_SHIM_FLAGS = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,now")


@dataclass(frozen=True, slots=True)
class Native:
    """The compiled parts."""

    starter: Path
    shim: Path


def _commands(compiler: str, target: Path) -> tuple[tuple[str, ...], ...]:
    starter = (compiler, *_FLAGS, "-rdynamic", "-o", str(target / "starter"))
    shim = (compiler, *_FLAGS, *_SHIM_FLAGS, "-o", str(target / "shim.so"))
    return ((*starter, str(_HERE / "starter.c")), (*shim, str(_HERE / "shim.c"), "-ldl"))


async def build(compiler: str, deadline: Deadline) -> Native:
    """The native part for this source and compiler, compiled now if it is not in the cache.

    Raises NotAvailable with the compiler's own words and the command that it was.
    """
    path = shutil.which(compiler)
    if path is None:
        raise NotAvailable(
            f"there is no C compiler '{compiler}'", hint="install gcc, or name one with $CC"
        )
    version = await programs.run([path, "--version"], deadline, "the compiler's version")
    digest = hashlib.sha256(version.out.encode())
    for source in sorted(_HERE.glob("*.[ch]")):
        digest.update(source.read_bytes())
    for command in _commands(path, Path()):
        digest.update("\0".join(command).encode())
    home = cache_home() / "native" / digest.hexdigest()[:16]
    native = Native(home / "starter", home / "shim.so")
    if native.starter.exists() and native.shim.exists():
        return native
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        for command in _commands(path, Path(work)):
            done = await programs.run(command, deadline, "the compiler")
            if done.status != 0:
                raise NotAvailable(
                    f"the native part does not compile: {' '.join(command)}\n{done.err.strip()}"
                )
        home.mkdir(exist_ok=True)
        for name in ("starter", "shim.so"):
            os.replace(Path(work) / name, home / name)
    return native

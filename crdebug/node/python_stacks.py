"""The Python stacks of a process, which py-spy reads from its memory.

py-spy needs no debug symbols, no helpers and no thread of the process: with --nonblocking it only
reads (process_vm_readv(2)), which works despite a tracer and namespaces (py-spy's README).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sysconfig

import msgspec

from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable, Refused
from crdebug.node import proc, programs

_INSTALL = "pip install --upgrade py-spy"
_INTERPRETER = re.compile(r"/(lib)?python\d[^/]*\Z")


class Variable(msgspec.Struct, frozen=True):
    """A local variable. arg: it is an argument. repr: None if it could not be read."""

    name: str
    arg: bool
    repr: str | None = None


class PythonFrame(msgspec.Struct, frozen=True):
    """An active function. name: qualified since Python 3.11. short_filename: without the directory
    of the modules. line: 0 if not known.

    is_entry, is_shim_entry: if either is set, C called the interpreter for this function; the same
    C function runs its callees up to the next such one (Python 3.11, "What's New", Cheaper, lazy
    Python frames).
    """

    name: str
    filename: str
    line: int
    short_filename: str | None = None
    locals: tuple[Variable, ...] | None = None
    is_entry: bool = True
    is_shim_entry: bool = False


class PythonThread(msgspec.Struct, frozen=True):
    """A thread that runs Python. thread_id: its pthread_self(3). frames: the innermost
    first."""

    thread_id: int
    frames: tuple[PythonFrame, ...]


async def python_stacks(
    pid: int, deadline: Deadline, *, variables: int = 0
) -> tuple[PythonThread, ...]:
    """The stacks of all threads of a stopped process.

    variables: 0 for none; else with the local variables, with longer texts for higher values.
    Raises Refused if the process does not run Python, or not yet, NotAvailable without py-spy,
    DeadlineExpired.
    """
    argv = [_py_spy(), "dump", "--nonblocking", "--json", "--pid", str(pid)]
    argv += ["--locals"] * variables
    ran = await programs.run(argv, deadline, "py-spy to read its Python stacks")
    if ran.status == 0:
        try:
            return msgspec.json.decode(ran.out, type=tuple[PythonThread, ...])
        except msgspec.MsgspecError as error:
            raise NotAvailable(f"py-spy's answer cannot be read: {error}", hint=_INSTALL) from None
    if not _has_interpreter(pid):
        raise Refused("it runs no Python", hint="'backtrace' shows its stack")
    said = ran.err.partition("\n")[0].removeprefix("Error: ")
    hint = "perhaps its interpreter has not started yet; 'backtrace' shows where it is"
    raise Refused(f"py-spy cannot read its Python stacks: {said}", hint=hint)


def _py_spy() -> str:
    beside = os.path.join(sysconfig.get_path("scripts"), "py-spy")
    found = beside if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if found is None:
        raise NotAvailable("py-spy is not installed", hint=_INSTALL)
    return found


def _has_interpreter(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return any(_INTERPRETER.search(each.path) for each in proc.maps(pid))
    return False

"""The Python stacks of a rank under GDB, alone or with the C frames that run them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crdebug.base.deadline import Deadline
from crdebug.base.errors import Refused
from crdebug.base.events import Location
from crdebug.base.ranks import RankSet
from crdebug.debugger import threads
from crdebug.debugger.in_c import number_in_c
from crdebug.debugger.question import question
from crdebug.debugger.target import Frame, Target
from crdebug.node.python_stacks import PythonFrame, PythonThread, python_stacks

# CPython's loop (Python/ceval.c); compilers append suffixes to the name.
_EVALUATES = re.compile(r"_?PyEval_EvalFrame(Default|Ex)\b")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")
# The thread's own address, which is its pthread_self(3) (System V ABI, x86-64 TLS).
_SELF = "$fs_base"


async def stack(target: Target, deadline: Deadline, *, both: bool = False) -> tuple[Frame, ...]:
    """The Python stack of the selected thread or, if that runs no Python, of the oldest one that
    does; the innermost frame first. both: with the C frames in between.

    Raises the errors of `python_stacks`.
    """
    found = await _read(target, deadline, variables=1)
    if not both:
        return frames((await _chosen(target, found, deadline)).frames)
    if await _self(target, deadline) in found:
        c = await target.backtrace(0, deadline)
    else:
        c = (await _c_stacks(target, deadline))[_oldest(found).thread_id]
    return interleaved(c, await _chosen(target, found, deadline))


async def all_stacks(target: Target, deadline: Deadline, *, both: bool = False) -> threads.Stacks:
    """The stacks of all threads that run Python; both: of all threads, with the C frames."""
    found = await _read(target, deadline)
    if not both:
        return tuple(frames(each.frames) for each in found.values())
    return tuple(
        interleaved(c, found[thread]) if thread in found else c
        for thread, c in (await _c_stacks(target, deadline)).items()
    )


async def variables(
    target: Target, level: int, deadline: Deadline
) -> tuple[tuple[str, dict[str, str]], ...]:
    """The functions on the same stack from a level outwards, each with its local variables.

    Raises Refused if there is none, and the errors of `stack`.
    """
    chosen = await _chosen(target, await _read(target, deadline, variables=3), deadline)
    if level >= len(chosen.frames):
        ranks = RankSet.of([target.rank])
        raise Refused(f"there is no Python frame {level}", ranks=ranks, hint="'pybt' shows them")
    return tuple(
        (each.name, {v.name: _text(v.repr) for v in each.locals or ()})
        for each in chosen.frames[level:]
    )


# ---- as questions --------------------------------------------------------------------------------


@question
async def top(target: Target, limit: int, both: bool, deadline: Deadline) -> tuple[Frame, ...]:
    """At most `limit` frames of `stack` unless it is 0."""
    return (await stack(target, deadline, both=both))[: limit or None]


@question
async def stacks(
    target: Target, all_threads: bool, both: bool, deadline: Deadline
) -> threads.Stacks:
    """`all_stacks`, or only `stack`."""
    if all_threads:
        return await all_stacks(target, deadline, both=both)
    return (await stack(target, deadline, both=both),)


@question
async def variable(target: Target, name: str, level: int, deadline: Deadline) -> str:
    """The value of the first of `variables` with this name. Raises Refused if there is none."""
    for _, there in await variables(target, level, deadline):
        if name in there:
            return there[name]
    raise Refused(
        f"no Python function here has a local variable '{name}'",
        hint="'pyprint' shows those of the innermost; global ones are not searched",
    )


@question
async def innermost_variables(
    target: Target, level: int, deadline: Deadline
) -> tuple[tuple[str, str], ...]:
    """Those of the first function of `variables`."""
    return tuple((await variables(target, level, deadline))[0][1].items())


# --------------------------------------------------------------------------------------------------

_Found = dict[int, PythonThread]


async def _read(target: Target, deadline: Deadline, *, variables: int = 0) -> _Found:
    """Threads by their pthread_self(3). The newest is the first (Python/pystate.c)."""
    pid, ranks = target.pid, RankSet.of([target.rank])
    if pid is None:
        raise Refused(f"it has no Python stack: {target.state.value}", ranks=ranks)
    try:
        found = await python_stacks(pid, deadline, variables=variables)
    except Refused as error:
        error.ranks = ranks
        raise
    return {each.thread_id: each for each in found if each.frames}


async def _chosen(target: Target, found: _Found, deadline: Deadline) -> PythonThread:
    return found.get(await _self(target, deadline)) or _oldest(found)


def _oldest(found: _Found) -> PythonThread:
    return next(reversed(found.values()), PythonThread(0, ()))


async def _c_stacks(target: Target, deadline: Deadline) -> dict[int, tuple[Frame, ...]]:
    """The C stacks of all threads, by their pthread_self(3); without arguments."""
    stacks = await threads.stacks(target, deadline)
    numbers = [each.number for each in await target.threads(deadline)]
    selves = [await _self(target, deadline, f"--thread {n} --frame 0 ") for n in numbers]
    return dict(zip(selves, stacks, strict=True))


async def _self(target: Target, deadline: Deadline, thread: str = "") -> int:
    return await number_in_c(target, _SELF, deadline, thread)


# ---- pure ----------------------------------------------------------------------------------------


def frames(found: Sequence[PythonFrame]) -> tuple[Frame, ...]:
    """Python's frames as `Frame`, with Python's own levels."""
    return tuple(
        Frame(
            level,
            Location(0, each.name, each.short_filename or each.filename, each.line, each.filename),
            ", ".join(f"{v.name}={_text(v.repr)}" for v in each.locals or () if v.arg),
            python=True,
        )
        for level, each in enumerate(found)
    )


def _text(repr: str | None) -> str:
    """A value's text without the addresses of objects, which differ from rank to rank."""
    return "..." if repr is None else _ADDRESS.sub(">", repr)


def interleaved(c: Sequence[Frame], python: PythonThread) -> tuple[Frame, ...]:
    """C's and Python's frames, innermost first, Python's before the C frame that runs them.

    We assign them from the outermost on: an interpreter loop that has just been called has no
    Python frame yet. Python's frames whose C frame is unknown are at the end.
    """
    groups: list[list[Frame]] = [[]]
    for frame, each in zip(frames(python.frames), python.frames, strict=True):
        groups[-1].append(frame)
        if each.is_entry or each.is_shim_entry:
            groups.append([])
    groups = [group for group in groups if group]
    runs = [at for at, frame in enumerate(c) if _EVALUATES.match(frame.location.function)]
    owned = dict(zip(runs[max(len(runs) - len(groups), 0) :], groups, strict=False))
    merged = [each for at, frame in enumerate(c) for each in (*owned.get(at, ()), frame)]
    return (*merged, *(frame for group in groups[len(owned) :] for frame in group))

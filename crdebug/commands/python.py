"""Ranks that run Python: pybt, pyprint."""

from __future__ import annotations

from crdebug.base.answers import Answers, some
from crdebug.base.errors import BadInput
from crdebug.commands.arguments import flag, natural, option, word
from crdebug.commands.looking import DATA, EACH
from crdebug.commands.pictures import PNG, SVG
from crdebug.commands.registry import Call
from crdebug.commands.results import Backtraces, Printed, Result, Said
from crdebug.commands.stacks import DEPTH, FRAMES, FUNCTION_ONLY, TREE, as_stacks, no_frames, shown

BOTH = flag("--both", "with the C frames between Python's")
THREADS = flag("--threads", "of all threads that run Python; implies --tree")
FRAME = option(
    "--frame",
    "N",
    "begin at this Python frame, as 'pybt' numbers them",
    read=natural("N", "").read,
    default=0,
)
NAME = word("NAME", "a local variable; without it, all of the frame", default="")
TREE_OPTIONS = (THREADS, FUNCTION_ONLY, DEPTH, PNG, SVG)


@DATA.command(
    "pybt",
    """
Show the Python call stack of each rank, innermost first; or a tree of all.

It is the stack of the selected thread or, if that runs no Python, of the oldest one that does;
equal stacks are merged as 'backtrace' does. Nothing has to be installed for it: py-spy reads the
stack from outside, of any CPython, with or without debug symbols. With --both the C frames are
shown too: Python's frames are above the C function that runs them.

CPython's own helpers for GDB do more where they are installed ('gdb py-bt', 'gdb py-print x',
'gdb py-locals'). They need its debug symbols. For Debian's Python both are in python3-dbg; for
another one that was built with -g the helpers are Tools/gdb/libpython.py in its sources, loaded by
'gdb source FILE'.

    pybt
    [0-3] pybt --both
    pybt --tree
    pybt --threads --svg hang.svg
""",
    arguments=(BOTH, TREE, *TREE_OPTIONS, EACH, FRAMES),
    ranks=True,
    of_cores=False,
)
async def pybt(call: Call) -> Result:
    session, both = call.context.session, call[BOTH]
    if not (call[TREE] or any(call[each] for each in TREE_OPTIONS)):
        answers = await session.python_backtrace(call.ranks, call[FRAMES], both=both)
        return Backtraces(as_stacks(some(answers)), call[EACH])
    no_frames(call)
    tree = await session.python_tree(
        call.ranks,
        both=both,
        all_threads=call[THREADS],
        depth=call[DEPTH],
        function_only=call[FUNCTION_ONLY],
    )
    return shown(call, tree)


@DATA.command(
    "pyprint",
    """
Show a local variable of Python on each rank; equal values are shown as one.

It is the innermost function's, or that of the nearest caller that has one of this name. Numbers,
strings, lists and the like are shown as Python shows them, long ones in part; of other objects, the
class is shown. Variables of a module are not searched.

    pyprint step
    [0] pyprint u --frame 2
    pyprint
""",
    arguments=(FRAME, EACH, NAME),
    ranks=True,
    of_cores=False,
)
async def pyprint(call: Call) -> Result:
    session, name = call.context.session, call[NAME]
    if not name:
        found = some(await session.python_variables(call.ranks, call[FRAME]))
        lines = {
            rank: "\n".join(f"{name} = {value}" for name, value in there) or "no local variables"
            for rank, there in found.values.items()
        }
        return Said(Answers(lines, found.errors))
    if not name.isidentifier():
        raise BadInput(f"'{name}' is not a variable's name", hint="expressions are not evaluated")
    return Printed(some(await session.python_variable(call.ranks, name, call[FRAME])), call[EACH])

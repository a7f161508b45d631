"""Stacks and threads: backtrace, stack, thread."""

from __future__ import annotations

import re
from collections.abc import Mapping

from crdebug.base.answers import Answers, NoRankAnswered, T, same_places, some
from crdebug.base.errors import BadInput
from crdebug.base.ranks import RankSet
from crdebug.charts.trees import save_tree
from crdebug.commands.arguments import flag, integer, integers, option, rest
from crdebug.commands.looking import DATA, EACH
from crdebug.commands.pictures import PNG, SVG, picture_file
from crdebug.commands.registry import Call
from crdebug.commands.results import Applied, Backtraces, Result, Text, Threads, ThreadStacks, Tree
from crdebug.session.values import Frame, Stack, StackTree

FRAMES = integer("N", "show the innermost N frames only", default=0)
TREE = flag("--tree", "merge them into one tree of calls")
ALL_THREADS = flag("--threads", "of all threads; implies --tree")
FUNCTION_ONLY = flag("--function-only", "merge frames whatever their line; implies --tree")
DEPTH = option(
    "--depth", "N", "the outermost N frames only; implies --tree", read=FRAMES.read, default=0
)
NUMBER = integer("N", "a thread's number")
LIST = integers("LIST", "numbers of threads, and ranges of them")
THREAD = rest(
    "N | apply LIST COMMAND", "a thread's number; without one, the selected thread", default=""
)
_BACKTRACE = re.compile(r"(?:bt|ba|backtrace|where)(?:\s+(\d+))?")
TREE_OPTIONS = (ALL_THREADS, FUNCTION_ONLY, DEPTH, PNG, SVG)


@DATA.command(
    "backtrace",
    """
Show the call stack of each rank, innermost frame first; or a tree of all.

Ranks whose frames are the same functions at the same lines are shown as one; arguments appear
where all of them agree, and as (...) where they do not. With --tree the stacks are merged from the
outermost frame on; see 'stack'.
""",
    aliases=("bt", "ba", "where"),
    arguments=(TREE, *TREE_OPTIONS, EACH, FRAMES),
    ranks=True,
)
async def backtrace(call: Call) -> Result:
    if call[TREE] or any(call[each] for each in TREE_OPTIONS):
        no_frames(call)
        return await stack(call)
    session = call.context.session
    if not call[EACH]:
        return Backtraces(some(await session.stacks(call.ranks, call[FRAMES])))
    return Backtraces(as_stacks(some(await session.backtrace(call.ranks, call[FRAMES]))), each=True)


def as_stacks(answers: Answers[tuple[Frame, ...]]) -> Answers[Stack]:
    """As they are shown."""
    stacks = {rank: Stack.of(frames) for rank, frames in answers.values.items()}
    return Answers(stacks, answers.errors)


def no_frames(call: Call) -> None:
    """Raises BadInput for a tree of the innermost N frames."""
    if call[FRAMES]:
        raise BadInput("a tree has the outermost frames", hint="write --depth N")


@DATA.command(
    "stack",
    """
Show the call stacks of all ranks as one tree: where ranks part, it branches.

A branch begins with its ranks; the calls that they have in common follow, outermost first. Frames
are the same if they are of one function at the same line.

    stack --threads
    [0-7] stack --function-only --svg hang.svg
""",
    arguments=TREE_OPTIONS,
    ranks=True,
)
async def stack(call: Call) -> Result:
    tree = await call.context.session.stack_tree(
        call.ranks,
        all_threads=call[ALL_THREADS],
        depth=call[DEPTH],
        function_only=call[FUNCTION_ONLY],
    )
    return shown(call, tree)


def shown(call: Call, tree: StackTree) -> Result:
    """A tree as the options want it."""
    file = picture_file(call)
    return Text(f"the tree is in {save_tree(tree, file)}") if file else Tree(tree)


@DATA.command(
    "thread",
    """
Choose the thread that commands look at, or pass a command to GDB for several.

When a rank runs, the thread that stops it is chosen instead. COMMAND is GDB's, and LIST is 'all',
or threads by GDB's numbers ('info threads' shows them).

    [3] thread 2
    thread apply all backtrace 3
    thread apply 1-2 print i
""",
    arguments=(THREAD,),
    ranks=True,
)
async def thread(call: Call) -> Result:
    session, text = call.context.session, call[THREAD]
    word, _, rest_ = text.partition(" ")
    if word == "apply":
        which, _, command = rest_.strip().partition(" ")
        if not which or not command.strip():
            raise BadInput("threads or a command are missing", hint="thread apply all backtrace")
        numbers = None if which == "all" else LIST.read(which)
        stacks = _BACKTRACE.fullmatch(command.strip())
        if stacks is not None:
            limit = int(stacks[1] or 0)
            found = await session.thread_backtraces(call.ranks, limit, numbers)
            return ThreadStacks(
                tuple((number, as_stacks(answers)) for number, answers in _any(found))
            )
        told = await session.thread_apply(call.ranks, command.strip(), numbers)
        alike = {number: same_places(answers) for number, answers in told.items()}
        return Applied(_any(alike))
    failed = {}
    if text:
        failed = dict((await session.select_thread(call.ranks, NUMBER.read(text))).errors)
    selected = await session.selected_thread(call.ranks - RankSet.of(failed))
    return Threads(some(Answers(selected.values, {**failed, **selected.errors})))


def _any(told: Mapping[int, Answers[T]]) -> tuple[tuple[int, Answers[T]], ...]:
    """By thread, if there is an answer at all. Raises NoRankAnswered."""
    if not any(answers.values for answers in told.values()):
        raise NoRankAnswered.of(pair for a in told.values() for pair in a.merged_errors())
    return tuple(told.items())

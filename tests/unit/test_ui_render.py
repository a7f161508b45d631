"""Results, stops, output and progress as text."""

from __future__ import annotations

import errno
import io
import re
from dataclasses import replace

import pytest
from fake_session import MAIN, POLL, RELAX, FakeSession, a_checkpoint, as_session, stops, together

from crdebug.base.answers import Answers
from crdebug.base.errors import BadInput, DeadlineExpired, GdbError
from crdebug.base.events import (
    GdbSays,
    GroupStopped,
    JobEnded,
    JobOutput,
    Location,
    Progress,
    RankRestored,
    RankRunning,
    RankStopped,
    StopReason,
)
from crdebug.base.ranks import RankSet
from crdebug.commands import results
from crdebug.commands.context import Context
from crdebug.commands.stacks import as_stacks
from crdebug.commands.standard import standard
from crdebug.debugger.breakpoints import Breakpoint
from crdebug.debugger.target import Frame
from crdebug.ui import failures
from crdebug.ui.output import OutputMarks
from crdebug.ui.render import render
from crdebug.ui.screen import Screen, exit_words
from crdebug.ui.stops import describe

pytestmark = pytest.mark.unit


# ---- stops ------------------------------------------------------------------------------------


def told(stop: GroupStopped) -> list[str]:
    return list(describe(stop))


def test_one_rank_stopped_and_the_others_with_it() -> None:
    cause = stops(RankSet.of([2]), StopReason.BREAKPOINT, "1")
    others = (
        *stops(RankSet.of([0, 1]), StopReason.FOLLOWED, at=POLL),
        *stops(RankSet.of([3]), StopReason.FOLLOWED, at=MAIN),
    )
    assert told(GroupStopped(cause, cause + others)) == [
        "rank 2 hit breakpoint 1: relax at heat.c:41; ranks 0-1,3 were stopped too",
        "  [0-1] poll",
        "  [3] main at heat.c:80",
    ]


def test_places_that_differ_by_address_only_are_one_place() -> None:
    cause = tuple(
        RankStopped(rank, StopReason.BREAKPOINT, "1", 1, Location(rank, "relax", "heat.c", 41))
        for rank in range(4)
    )
    assert told(GroupStopped(cause, cause)) == ["ranks 0-3 hit breakpoint 1: relax at heat.c:41"]


def test_causes_of_several_kinds_each_have_a_sentence() -> None:
    cause = (
        *stops(RankSet.of([0]), StopReason.SIGNAL, "SIGSEGV"),
        *stops(RankSet.of([1]), StopReason.EXITED, "3", None),
    )
    others = stops(RankSet.of([2, 3]), StopReason.FOLLOWED, at=None)
    assert told(GroupStopped(cause, cause + others)) == [
        "rank 0 got SIGSEGV: relax at heat.c:41",
        "rank 1 exited with status 3; ranks 2-3 were stopped too",
    ]


@pytest.mark.parametrize(
    ("reason", "detail", "sentence"),
    [
        (StopReason.STEP, "", "[0-3] relax at heat.c:41"),
        (StopReason.FINISH, "", "ranks 0-3 returned to relax at heat.c:41"),
        (StopReason.FINISH, "5", "ranks 0-3 returned to relax at heat.c:41 with 5"),
        (StopReason.WATCHPOINT, "2", "ranks 0-3 hit watchpoint 2: relax at heat.c:41"),
        (StopReason.INTERRUPT, "", "ranks 0-3 were interrupted: relax at heat.c:41"),
        (StopReason.EXITED, "0", "ranks 0-3 exited with status 0"),
        (StopReason.KILLED, "SIGKILL", "ranks 0-3 were killed by SIGKILL"),
        (StopReason.OTHER, "", "ranks 0-3 stopped: relax at heat.c:41"),
        (StopReason.FOLLOWED, "", "ranks 0-3 stopped with the others: relax at heat.c:41"),
    ],
)
def test_every_reason_has_words(reason: StopReason, detail: str, sentence: str) -> None:
    assert told(together(reason, detail)) == [sentence]


def test_every_reason_is_tested() -> None:
    for reason in StopReason:
        assert told(together(reason, "1"))


# ---- answers ----------------------------------------------------------------------------------


def test_equal_values_are_one_and_errors_come_last() -> None:
    answers = Answers({0: "5", 2: "7", 3: "7", 4: "7"}, {1: GdbError("Cannot access memory", "x")})
    assert render(results.Printed(answers)) == (
        "[2-4] = 7\n[0] = 5\n[1] error: Cannot access memory"
    )


def test_what_gdb_said() -> None:
    answers = Answers({0: "rip 0x1\n", 1: "a\nb\n", 2: "a\nb\n", 3: ""}, {})
    assert render(results.Said(answers)) == "[1-2]\na\nb\n[0] rip 0x1"
    assert render(results.Said(Answers({0: "", 1: "\n"}, {}))) == ""


def test_stacks_are_equal_by_function_and_line() -> None:
    def stack(rank: int) -> tuple[Frame, ...]:
        where = Location(0x2000 + rank, "relax", "heat.c", 41)
        return (Frame(0, where, f"u={rank:#x}"), Frame(1, MAIN, "argc=1"))

    odd = (Frame(0, POLL, ""), Frame(1, Location(0x7F01, ""), ""))
    answers = Answers({0: stack(0), 1: stack(1), 2: odd, 3: stack(3)}, {})
    assert render(results.Backtraces(as_stacks(answers))).splitlines() == [
        "[0-1,3]",
        "  #0   relax (...) at heat.c:41",
        "  #1   main (argc=1) at heat.c:80",
        "[2]",
        "  #0   poll ()",
        "  #1   0x7f01 ()",
    ]
    assert "u=0x1" in render(results.Backtraces(as_stacks(Answers({1: stack(1)}, {}))))
    assert render(results.Backtraces(as_stacks(answers), each=True)).count("u=") == 3


async def shown(*lines: str) -> str:
    registry, context = standard(), Context(as_session(FakeSession()))
    for line in lines:
        result = await registry.run(context, line)
    return render(result)


async def test_threads_are_merged_and_one_rank_shows_thread_ids() -> None:
    assert (await shown("info threads")).splitlines() == [
        "ranks  thread  tid  name      state    where",
        "[0-3]  1            heat      stopped  relax at heat.c:41",
        "[0-3]  2            progress  stopped  poll",
    ]
    assert "[2]    2       202  progress" in await shown("[2] info threads")


async def test_ranks() -> None:
    lines = (await shown("info ranks")).splitlines()
    assert lines[0].split() == ["rank", "state", "pid", "host", "executable", "where"]
    assert lines[3] == "2     stopped  102  node1  heat        relax at heat.c:41"


async def test_breakpoints() -> None:
    assert await shown("[0-1] break relax if n > 3") == (
        "breakpoint 1 on [0-1]: relax at heat.c:41 if n > 3"
    )
    assert await shown("tbreak relax") == "temporary breakpoint 1 on [0-3]: relax at heat.c:41"
    assert await shown("info breakpoints") == "there are no breakpoints"
    assert (await shown("tb relax if x", "i b")).splitlines() == [
        "number  ranks  location            hits  condition",
        "1       [0-3]  relax at heat.c:41  0     if x, once",
    ]
    assert await shown("delete") == "there are no breakpoints"
    assert await shown("break relax", "delete") == ""


def test_a_breakpoint_that_is_not_the_same_everywhere() -> None:
    made = Breakpoint(
        3,
        "work",
        RankSet.of([0, 1, 2]),
        places={0: (RELAX,), 1: (RELAX, MAIN), 2: ()},
        problems={3: "No symbol table"},
    )
    assert render(results.BreakpointSet(made)).splitlines() == [
        "breakpoint 3 on [0-2]: work",
        "  [0] relax at heat.c:41",
        "  [1] relax at heat.c:41, main at heat.c:80",
        "  [2] work (pending)",
        "[3] error: No symbol table",
    ]


async def test_checkpoints() -> None:
    assert await shown("checkpoint before") == "checkpoint heat:1 taken (12.3 MB)"
    assert await shown("checkpoint", "restart") == (
        "back at checkpoint heat:1 (incarnation 2)\n  [0-3] relax at heat.c:41"
    )
    table = await shown("checkpoint before the loop", "info checkpoints")
    assert re.search(
        r"heat:1 .* 12.3 MB  1 +yes +\[0-3\] relax at heat.c:41  before the loop", table
    )
    assert await shown("info checkpoints") == "there are no checkpoints"


def test_what_a_checkpoint_builds_on_is_shown_where_one_does() -> None:
    later = replace(a_checkpoint(3), bases=(2, 1))
    assert render(results.CheckpointTaken(later)) == (
        "checkpoint heat:3 taken (12.3 MB, changed since 2)"
    )
    header, first, second = render(results.Checkpoints((a_checkpoint(1), later))).splitlines()
    assert re.search(r"size +on +incarnation", header)
    assert re.search("12.3 MB +1 +yes", first) and re.search("12.3 MB +2 +1 +yes", second)


def test_a_checkpoint_that_is_of_no_use_is_shown_as_that() -> None:
    bad = replace(a_checkpoint(2), problem="it has version 3 (use the crdebug that took it)")
    header, first, second, why = render(results.Checkpoints((a_checkpoint(1), bad))).splitlines()
    assert "cannot be restarted" not in first and "cannot be restarted" in second
    assert why == f"{bad.handle}: {bad.problem}" and "checkpoint" in header


def test_a_table_folds_at_a_terminals_width_only() -> None:
    listed = results.Checkpoints((a_checkpoint(1, note="long " * 40),))
    assert len(render(listed).splitlines()) == 2
    assert all(len(line) <= 80 for line in render(listed, 80).splitlines())


# ---- output and progress ----------------------------------------------------------------------


def test_output_comes_in_whole_marked_lines() -> None:
    lines: list[str] = []
    marks = OutputMarks(lambda mark, line: lines.append(mark + line))
    marks.feed(JobOutput("stdout", "step 1\nst"))
    marks.feed(JobOutput("stderr", "oops\r\n"))
    marks.feed(JobOutput("stdout", "ep 2\n\nlast"))
    assert lines == ["out| step 1", "err| oops", "out| step 2", "out| "]
    marks.flush()
    marks.feed(JobOutput("stdout", " words"))
    marks.flush(final=True)
    marks.flush()
    assert lines[4:] == ["out| last\\", "out|  words"]


class Streams:
    def __init__(self, *, terminal: bool = False, announce: bool = False) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.screen = Screen(
            terminal=terminal, announce=announce, out=lambda: self.out, err=lambda: self.err
        )

    def texts(self) -> tuple[str, str]:
        return self.out.getvalue(), self.err.getvalue()


def test_nothing_is_written_into_a_half_line() -> None:
    streams = Streams()
    streams.screen.event(JobOutput("stdout", "half"))
    streams.screen.note("a note")
    streams.screen.event(JobOutput("stdout", " done"))
    streams.screen.event(JobEnded(0))
    assert streams.texts() == (
        "out| half\\\na note\nout|  done\nthe job ended with status 0\n",
        "",
    )


def test_progress_is_a_line_for_each_phase() -> None:
    streams = Streams()
    with streams.screen.busy():
        for phase in ("herd", "herd", "dump"):
            streams.screen.event(Progress("checkpoint", phase, RankSet.span(2)))
    with streams.screen.busy():
        streams.screen.event(Progress("checkpoint", "dump"))
    assert streams.texts() == (
        "",
        "checkpoint: herd [0-1]\ncheckpoint: dump [0-1]\ncheckpoint: dump\n",
    )


def test_on_a_terminal_progress_leaves_nothing_in_the_output() -> None:
    streams = Streams(terminal=True)
    with streams.screen.busy():
        streams.screen.event(Progress("checkpoint", "dump"))
        streams.screen.event(JobOutput("stdout", "x\n"))
        streams.screen.event(Progress("checkpoint", "store"))
    out, _ = streams.texts()
    assert re.sub(r"\x1b\[\d+m", "", out) == "out| x\n"


@pytest.mark.parametrize(
    ("status", "words"), [(0, "0"), (3, "3"), (137, "137 (SIGKILL)"), (255, "255")]
)
def test_the_status_of_a_signal_names_the_signal(status: int, words: str) -> None:
    assert exit_words(status) == words


@pytest.mark.parametrize("announce", [True, False])
def test_restored_ranks_are_announced_where_somebody_waits_for_it(announce: bool) -> None:
    streams = Streams(announce=announce)
    streams.screen.event(RankRestored(0, "node1", 100))
    assert streams.texts() == ("", "MPIR_debug_info) node1:100\n" if announce else "")


def test_a_stop_is_shown_once() -> None:
    streams = Streams()
    died = RankStopped(1, StopReason.KILLED, "SIGKILL")
    with streams.screen.busy():
        streams.screen.event(RankStopped(0, StopReason.BREAKPOINT, "1"))
        streams.screen.event(died)
    streams.screen.event(RankRunning(0))
    assert streams.texts() == ("", "")
    streams.screen.event(died)
    streams.screen.event(GdbSays(2, "warning: odd\n"))
    streams.screen.event(together(StopReason.BREAKPOINT, "1"))
    assert streams.texts()[0].splitlines() == [
        "rank 1 was killed by SIGKILL",
        "[2] gdb: warning: odd",
        "ranks 0-3 hit breakpoint 1: relax at heat.c:41",
    ]


def test_what_the_terminal_cannot_show_is_escaped_and_a_closed_pipe_is_no_error() -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Screen(terminal=False, out=lambda: ascii_only).note("Grüße \udcff")
    assert ascii_only.buffer.getvalue() == b"Gr\\xfc\\xdfe \\udcff\n"

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    Screen(terminal=False, out=Closed).note("x")


# ---- errors -----------------------------------------------------------------------------------


def test_an_expected_error_is_a_sentence() -> None:
    error = BadInput("there is no rank 9", hint="the job has ranks 0-3")
    assert failures.describe(error) == ("there is no rank 9 (the job has ranks 0-3)", 1)


def test_a_group_of_expected_errors_is_their_sentences() -> None:
    late = DeadlineExpired("an answer", 5.0, ranks=RankSet.of([1]), phase="herd")
    group = ExceptionGroup("", [late, ExceptionGroup("", [BadInput("no")]), BadInput("no")])
    assert failures.describe(group) == (
        "rank 1 during herd: waited 5 s for an answer\nno",
        1,
    )


@pytest.mark.parametrize(
    ("number", "word", "hint"),
    [
        (errno.EACCES, "permission denied", "as its owner"),
        (errno.EROFS, "read-only file system", "as its owner"),
        (errno.ENOSPC, "no space left on device", "make room"),
    ],
)
def test_what_the_machine_refuses_of_a_file_is_no_bug(number: int, word: str, hint: str) -> None:
    for path in ("/a/b", b"/a/b"):
        text, status = failures.describe(OSError(number, "x", path))
        assert status == 1
        assert text.startswith(f"/a/b: {word} (") and hint in text
    assert failures.describe(OSError(number, "x"))[1] == 70


@pytest.mark.parametrize("error", [KeyError("x"), ExceptionGroup("", [BadInput("a"), OSError()])])
def test_anything_else_is_a_bug_with_a_traceback(error: Exception) -> None:
    text, status = failures.describe(error)
    assert status == 70
    assert text.startswith("this is a bug in crdebug, please report it: ")
    assert type(error).__name__ in text.splitlines()[-1] or "OSError" in text

"""Lines to results: reading, preconditions, and the calls to the session."""

from __future__ import annotations

import inspect

import pytest
from fake_session import FakeSession, a_checkpoint, as_session, stops, together

from crdebug.base.answers import ADDRESS, Answers, alike
from crdebug.base.errors import BadInput, CrdebugError, GdbError, Refused, StoreError
from crdebug.base.events import GroupStopped, StopReason
from crdebug.base.ranks import RankSet
from crdebug.commands import results
from crdebug.commands.context import Context
from crdebug.commands.registry import Group, Registry
from crdebug.commands.standard import standard

pytestmark = pytest.mark.unit


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


@pytest.fixture
def context(session: FakeSession) -> Context:
    return Context(as_session(session))


REGISTRY = standard()
SUBJECTS = [
    each.name.removeprefix("info ") for each in REGISTRY.commands if each.name.startswith("info ")
]


async def run(context: Context, line: str) -> results.Result:
    return await REGISTRY.run(context, line)


# ---- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("c", "continue"),
        ("cont", "continue"),
        ("s 3", "step"),
        ("n", "next"),
        ("fin", "finish"),
        ("p x", "print"),
        ("p/x x", "print"),
        ("p /x x", "print"),
        ("p*x", "print"),
        ("print(x)", "print"),
        ("bt", "backtrace"),
        ("ba", "backtrace"),
        ("b relax", "break"),
        ("tb relax", "tbreak"),
        ("d", "delete"),
        ("i r", "info ranks"),
        ("i b", "info breakpoints"),
        ("info th", "info threads"),
        ("inf ch", "info checkpoints"),
        ("ch", "checkpoint"),
        ("q", "quit"),
        ("h", "help"),
        ("  [0] p x", "print"),
    ],
)
def test_names_may_be_shortened(line: str, name: str) -> None:
    assert REGISTRY.read(line).command.name == name


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("de", "'de' is ambiguous: define-set, delete, detach (type more of it)"),
        ("info", f"'info' needs a subject (one of {', '.join(SUBJECTS)})"),
        ("[0-1]", "a command is missing after [0-1] (write [0-1] print x)"),
        ("print", "EXPR is missing (usage: [RANKS] print[/f] [--each] EXPR)"),
        ("print/x", "EXPR is missing (usage: [RANKS] print[/f] [--each] EXPR)"),
        ("break", "LOCATION [if CONDITION] is missing"),
        ("break if x", "a location is missing"),
        ("break relax if", "a condition is missing after 'if'"),
        ("step many", "N is a whole number from 1, not 'many'"),
        ("step 0", "N is a whole number from 1, not '0'"),
        ("step 1 2", "'2' is not expected here (usage: [RANKS] step [N])"),
        ("finish now", "'now' is not expected here"),
        ("step/x", "'/x' is not expected here"),
        ("delete x", "'x' is not a number or a range (write 1 or 3-5)"),
        ("delete 3-1", "'3-1' is not a number or a range"),
        ("delete 7", "there is no breakpoint 7 ('info breakpoints' lists them)"),
        ("[7] print x", "there is no rank 7 (the job has ranks 0-3)"),
        ("[a] print x", "there is no rank set 'a' ('info sets' lists them; write 0,2-3"),
        ("[0 print x", "']' is missing after '[0 print x' (write [0,2-3] print x)"),
        ("[(1) - 0-1] print x", "no rank is in '(1) - 0-1'"),
        (
            "[@idle] print x",
            "'@idle' is not a state of ranks, and not a host (states: @stopped, @runn",
        ),
        ("define-set all 0", "'all' is not a name for a set"),
        ("undefine-set edge", "there is no rank set 'edge'"),
        ("[0] checkpoint", "'checkpoint' takes no rank set (it is for the whole job)"),
        ("restart heat:x", "'heat:x' is not a checkpoint (write N or heat:N)"),
        ("restart other:1", "other:1 is a checkpoint of another job"),
        ("frobnicate", "there is no command 'frobnicate' ('help' lists them"),
        ("contineu", "there is no command 'contineu' (did you mean 'continue'?"),
        ("info nothing", "there is no command 'info nothing'"),
        ("?", "there is no command '?'"),
    ],
)
async def test_bad_input_is_one_sentence(context: Context, line: str, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        await run(context, line)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_declaring_a_name_twice_is_a_bug() -> None:
    group = Group("a", "A")

    async def handler(call: object) -> results.Result:
        return results.Nothing()

    group.command("one", "One.", aliases=("o",))(handler)
    group.command("other", "Other.", aliases=("o",))(handler)
    with pytest.raises(AssertionError, match="declared twice"):
        Registry([group])


# ---- ranks and preconditions -----------------------------------------------------------------


async def test_a_command_addresses_all_ranks_the_focus_or_the_set_in_front(
    session: FakeSession, context: Context
) -> None:
    session.values["x"] = ["5"] * 4
    await run(context, "print x")
    context.focus = RankSet.of([1, 2])
    await run(context, "print x")
    await run(context, "[0,2-3] print x")
    await run(context, "[all] print x")
    assert [asked[1] for asked in session.asked] == ["0-3", "1-2", "0,2-3", "0-3"]


async def test_stopped_is_the_default_precondition(session: FakeSession, context: Context) -> None:
    session.running = RankSet.of([1])
    with pytest.raises(Refused, match=r"rank 1: 'backtrace' needs stopped ranks \('interrupt'"):
        await run(context, "bt")
    await run(context, "[0] bt")
    await run(context, "info ranks")


async def test_a_gdb_that_has_died_is_replaced_before_a_command_that_needs_its_rank(
    session: FakeSession, context: Context
) -> None:
    shown: list[results.Result] = []
    context.show = shown.append
    session.dead, session.values["step"] = RankSet.of([0, 2]), ["3"] * 4
    await run(context, "info breakpoints")
    assert not shown
    await run(context, "[1-2] print step")
    assert shown == [results.Text("another gdb stopped rank 2 where it is now")]
    await run(context, "continue")
    assert shown[1:] == [results.Text("another gdb stopped rank 0 where it is now")]


async def test_an_ended_job_can_be_left_and_restarted_only(
    session: FakeSession, context: Context
) -> None:
    await run(context, "checkpoint")
    session.ended = 0
    for line in ("bt", "continue", "checkpoint", "kill", "interrupt", "detach"):
        with pytest.raises(Refused, match="heat has ended"):
            await run(context, line)
    for line in ("info ranks", "info checkpoints", "help", "echo"):
        await run(context, line)
    assert isinstance(await run(context, "restart"), results.Restarted)
    assert session.ended is None


async def test_nothing_runs_after_the_end_of_the_session(context: Context) -> None:
    assert await run(context, "detach") == results.Left("heat", detached=True)
    with pytest.raises(Refused, match="the session is over"):
        await run(context, "bt")


# ---- running ----------------------------------------------------------------------------------


async def test_an_empty_line_repeats_running_commands_only(
    session: FakeSession, context: Context
) -> None:
    assert await run(context, "") == results.Nothing()
    await run(context, "[0] step 3")
    await run(context, "")
    await run(context, "bt")
    assert await run(context, "  ") == results.Nothing()
    assert session.asked == [("step", "0", 3), ("step", "0", 3), ("backtrace", "0-3", 0)]


async def test_continue_goes_on_as_far_as_it_is_asked(
    session: FakeSession, context: Context
) -> None:
    for line in ("continue", "[2] continue --to-end"):
        assert isinstance(await run(context, line), results.Stopped)
    assert session.asked == [("run on", "0-3"), ("run on to end", "2")]


async def test_interrupt_says_when_there_is_nothing_to_stop(context: Context) -> None:
    with pytest.raises(Refused, match="no rank is running"):
        await run(context, "interrupt")


# ---- looking ----------------------------------------------------------------------------------


async def test_print_fails_only_when_all_ranks_do(session: FakeSession, context: Context) -> None:
    session.values["x"] = ["5", GdbError("Cannot access memory", "x"), "5", "5"]
    assert isinstance(await run(context, "print x"), results.Printed)
    with pytest.raises(CrdebugError) as caught:
        await run(context, "[1] print x")
    assert str(caught.value) == "rank 1: Cannot access memory"
    session.values["x"] = [GdbError(f"no {rank // 2}", "x") for rank in range(4)]
    with pytest.raises(CrdebugError) as caught:
        await run(context, "print x")
    assert str(caught.value) == "no rank could answer\n  [0-1] no 0\n  [2-3] no 1"
    session.values["x"] = [GdbError('No symbol "x" in current context.', "x")] * 4
    with pytest.raises(CrdebugError, match=r"^ranks 0-3: No symbol .*\('backtrace' shows where"):
        await run(context, "print x")


async def test_a_format_goes_to_gdb(session: FakeSession, context: Context) -> None:
    session.values["/x x + 1"] = ["0x6"] * 4
    result = await run(context, "p/x x + 1")
    assert isinstance(result, results.Printed)
    assert result.answers.merged() == ((RankSet.span(4), "0x6"),)


async def test_gdb_gets_the_line_as_typed(session: FakeSession, context: Context) -> None:
    await run(context, '[1] gdb set var  name = "a  # b"')
    assert session.asked == [("gdb", "1", 'set var  name = "a  # b"')]


async def test_info_ranks_of_some(context: Context) -> None:
    result = await run(context, "[1,3] info ranks")
    assert isinstance(result, results.Ranks)
    assert [each.rank for each in result.ranks] == [1, 3]


# ---- breakpoints, checkpoints, leaving --------------------------------------------------------


async def test_break_takes_a_condition(context: Context) -> None:
    result = await run(context, "[0-1] tb heat.c:41 if step > 10")
    assert isinstance(result, results.BreakpointSet)
    made = result.breakpoint
    assert (made.location, made.condition, made.temporary, str(made.ranks)) == (
        "heat.c:41",
        "step > 10",
        True,
        "0-1",
    )


async def test_delete_takes_numbers_ranges_or_everything_after_a_question(
    session: FakeSession, context: Context
) -> None:
    for _ in range(5):
        await run(context, "break relax")
    assert await run(context, "delete 1 3-4") == results.BreakpointsDeleted((1, 3, 4))
    questions: list[str] = []

    async def no(question: str) -> bool:
        questions.append(question)
        return False

    context.confirm = no
    assert await run(context, "delete") == results.Nothing()
    assert questions == ["Delete all breakpoints?"]
    assert [each.number for each in session.breakpoints()] == [2, 5]


async def test_delete_deletes_nothing_when_one_number_is_wrong(
    session: FakeSession, context: Context
) -> None:
    await run(context, "break relax")
    with pytest.raises(BadInput, match="there is no breakpoint 9"):
        await run(context, "delete 1 9")
    assert len(session.breakpoints()) == 1


@pytest.mark.parametrize("text", ["", "1", "heat:1"])
async def test_restart_takes_a_number_or_a_handle(context: Context, text: str) -> None:
    assert await run(context, "checkpoint before the loop") == results.CheckpointTaken(
        a_checkpoint(1, note="before the loop")
    )
    result = await run(context, f"restart {text}")
    assert isinstance(result, results.Restarted)
    assert (result.checkpoint.number, result.incarnation) == (1, 2)


async def test_a_checkpoint_that_is_not_there(context: Context) -> None:
    await run(context, "checkpoint")
    with pytest.raises(StoreError, match=r"there is no checkpoint heat:9 \('info checkpoints'"):
        await run(context, "restart 9")


@pytest.mark.parametrize(
    ("owns_job", "question", "asked"),
    [
        (True, "The job heat is attached and will be killed. Quit anyway?", []),
        (
            False,
            "The job heat is attached and will run on without a debugger. Quit anyway?",
            [("detach",)],
        ),
    ],
)
async def test_quit_says_what_happens_to_the_job(
    session: FakeSession, owns_job: bool, question: str, asked: list[tuple[str]]
) -> None:
    context = Context(as_session(session), owns_job=owns_job)
    questions: list[str] = []
    answers = [False, True]

    async def confirm(question: str) -> bool:
        questions.append(question)
        return answers.pop(0)

    context.confirm = confirm
    assert await run(context, "quit") == results.Nothing()
    assert not context.over
    assert await run(context, "quit") == results.Left("heat", detached=not owns_job)
    assert context.over
    assert questions == [question] * 2
    assert session.asked == asked


async def test_quit_after_the_end_asks_nothing(session: FakeSession) -> None:
    async def confirm(question: str) -> bool:
        raise AssertionError(question)

    session.ended = 0
    context = Context(as_session(session), confirm=confirm)
    assert await run(context, "quit") == results.Left("heat", detached=False)


async def test_kill_keeps_the_session(session: FakeSession, context: Context) -> None:
    assert await run(context, "kill") == results.Killed("heat")
    assert not context.over


def test_the_fake_session_has_the_face_of_the_real_one() -> None:
    from crdebug.session import Session

    real = {name: member for name, member in vars(Session).items() if not name.startswith("_")}
    begin = {"run", "attach", "restart_from", "of_core_files"}
    fake = FakeSession()
    for name, member in real.items():
        if name in begin:
            continue
        assert hasattr(fake, name), name
        if inspect.isfunction(member):
            wanted = list(inspect.signature(member).parameters.values())[1:]
            found = list(inspect.signature(getattr(fake, name)).parameters.values())
            assert [(p.name, p.kind, p.default) for p in found] == [
                (p.name, p.kind, p.default) for p in wanted
            ], name


# ---- after a stop -------------------------------------------------------------------------------


async def test_commands_run_for_those_that_hit_and_as_often_as_they_let_the_job_run(
    session: FakeSession,
) -> None:
    shown: list[results.Result] = []
    context = Context(as_session(session), show=shown.append)
    session.values["x"] = ("1",) * 4
    await run(context, "break relax")
    await REGISTRY.run(context, "commands 1", ("silent", "print x", "continue"))
    hit = stops(RankSet.of([2]), StopReason.BREAKPOINT, "1")
    # far more often than Python's stack is deep
    session.coming.extend([GroupStopped(hit, hit)] * 3000)
    session.coming.append(together(StopReason.EXITED))
    ended = await run(context, "continue")
    assert ended == results.Stopped(together(StopReason.EXITED))
    printed = [each for each in shown if isinstance(each, results.Printed)]
    assert len(printed) == 3000 and not any(isinstance(e, results.Stopped) for e in shown)
    assert session.asked[1:3] == [("evaluate", "2", "x", ""), ("run on", "0-3")]


async def test_displays_follow_every_stop(session: FakeSession, context: Context) -> None:
    session.values["x"], session.values["/x x"] = ("1",) * 4, ("0x1",) * 4
    await run(context, "[1] display/x x")
    shown = await run(context, "display x")
    assert isinstance(shown, results.Displayed)
    assert [[str(r) for r, _ in answers.merged()] for _, answers in shown.values] == [
        ["1"],
        ["0-3"],
    ]
    stop = await run(context, "step")
    assert isinstance(stop, results.Several)
    assert [type(each) for each in stop.results] == [results.Stopped, results.Displayed]
    with pytest.raises(BadInput, match=r"there is no display 7 \('info display' lists them\)"):
        await run(context, "undisplay 7")
    await run(context, "undisplay 1")
    assert await run(context, "info display") == results.Text("2: [0-3] display x")
    await run(context, "undisplay")
    assert isinstance(await run(context, "step"), results.Stopped)


def test_answers_that_differ_in_addresses_only_are_shown_as_one() -> None:
    said = Answers({0: "at 0x7f0000001 <f+1>", 1: "at 0x7f0000002 <f+1>", 2: "at 0x7f0000002"}, {})
    assert [text for _, text in alike(said, ADDRESS).merged()] == [
        "at 0x... <f+1>",
        "at 0x7f0000002",
    ]


def test_commands_of_other_debuggers_are_answered_with_what_there_is() -> None:
    for word, hint in {"run": "'continue'", "r": "'restart'", "layout": "'list'"}.items():
        with pytest.raises(BadInput, match=f"no command '{word}'") as caught:
            standard().read(word)
        assert hint in (caught.value.hint or "")

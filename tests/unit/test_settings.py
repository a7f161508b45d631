"""set, show: the settings, how they are read, and the messages about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_session import FakeSession, as_session

from crdebug.base.errors import BadInput, Refused
from crdebug.base.settings import Settings
from crdebug.commands import settings
from crdebug.commands.completion import complete
from crdebug.commands.context import Context
from crdebug.commands.preferences import begin_with, prefer, read_preferences
from crdebug.commands.results import Text
from crdebug.commands.standard import standard
from crdebug.travel.auto_checkpoints import EVERY, Bound
from crdebug.travel.snapshot_cost import BUDGET

pytestmark = pytest.mark.unit

REGISTRY = standard()
NAMES = [each.name for each in settings.SETTINGS]


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


@pytest.fixture
def context(session: FakeSession) -> Context:
    return Context(as_session(session))


async def run(context: Context, line: str) -> str:
    result = await REGISTRY.run(context, line)
    assert isinstance(result, Text)
    return result.text


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("on", EVERY, "at most every 10 s while the job runs"),
        ("off", 0.0, "off"),
        ("3", 3.0, "at most every 3 s while the job runs"),
        ("0.5", 0.5, "at most every 0.5 s while the job runs"),
        ("5s", 5.0, "at most every 5 s while the job runs"),
        ("1.5M", 90.0, "at most every 1.5 min while the job runs"),
        ("2 h", 7200.0, "at most every 2 h while the job runs"),
        ("3600", 3600.0, "at most every 1 h while the job runs"),
    ],
)
async def test_how_often(
    session: FakeSession, context: Context, text: str, seconds: float, shown: str
) -> None:
    assert session.history is not None
    session.history.every = 77.0
    assert await run(context, f"set auto-checkpoint {text}") == f"auto-checkpoint: {shown}"
    assert session.history.every == seconds
    told = await run(context, "show auto-checkpoint")
    assert told == f"auto-checkpoint: {shown} (set here)"


@pytest.mark.parametrize("text", ["0", "-1", "yes", "1 2", "0x10", "1e3", "٣", "0.0", "nan"])
async def test_what_is_no_interval_changes_nothing(
    session: FakeSession, context: Context, text: str
) -> None:
    assert session.history is not None
    with pytest.raises(BadInput, match=f"'{text}' is neither 'on' nor 'off'"):
        await run(context, f"set auto-checkpoint {text}")
    assert session.history.every == EVERY


@pytest.mark.parametrize(
    ("text", "part", "shown"),
    [
        ("on", BUDGET, "2% of the run"),
        ("off", 0.0, "off"),
        ("0", 0.0, "off"),
        ("0%", 0.0, "off"),
        ("5", 0.05, "5% of the run"),
        ("0.25 %", 0.0025, "0.25% of the run"),
        ("100%", 1.0, "100% of the run"),
    ],
)
async def test_what_snapshots_may_cost(
    session: FakeSession, context: Context, text: str, part: float, shown: str
) -> None:
    assert session.history is not None
    session.history.costs.budget = 0.77
    assert await run(context, f"set snapshot-cost {text}") == f"snapshot-cost: {shown}"
    assert session.history.costs.budget == part
    assert await run(context, "show snapshot-cost") == f"snapshot-cost: {shown} (set here)"


@pytest.mark.parametrize("text", ["101%", "-1", "2s", "yes", "1e1", "٣", "2 5", "%", "2%%"])
async def test_what_is_no_part_of_the_run_changes_nothing(
    session: FakeSession, context: Context, text: str
) -> None:
    assert session.history is not None
    with pytest.raises(BadInput, match="is not a part of the run"):
        await run(context, f"set snapshot-cost {text}")
    assert session.history.costs.budget == BUDGET


@pytest.mark.parametrize(
    ("text", "bound", "shown"),
    [
        ("10%", Bound(part=0.1), "10% of the disk that is free without them"),
        ("2.5%", Bound(part=0.025), "2.5% of the disk that is free without them"),
        ("100%", Bound(part=1.0), "100% of the disk that is free without them"),
        ("500M", Bound(500 << 20), "500 MiB"),
        ("500 MiB", Bound(500 << 20), "500 MiB"),
        ("1.5g", Bound(3 << 29), "1.5 GiB"),
        ("2TB", Bound(2 << 40), "2 TiB"),
        ("64k", Bound(64 << 10), "64 KiB"),
        ("1000", Bound(1000), "1000 bytes"),
        ("12b", Bound(12), "12 bytes"),
    ],
)
async def test_how_much_of_the_disk(
    session: FakeSession, context: Context, text: str, bound: Bound, shown: str
) -> None:
    assert session.history is not None
    told = await run(context, f"set auto-checkpoint-disk {text}")
    assert told == f"auto-checkpoint-disk: {shown}"
    assert session.history.automatic.bound == bound


@pytest.mark.parametrize("text", ["0", "0%", "101%", "-5M", "much", "5X", "5 %%", "M", "1..5G"])
async def test_what_is_no_size(context: Context, text: str) -> None:
    with pytest.raises(BadInput, match="is not a size"):
        await run(context, f"set auto-checkpoint-disk {text}")


@pytest.mark.parametrize("free", [0, 1, 999, 10**12])
def test_a_size_is_absolute_and_a_percentage_is_of_the_free_memory(free: int) -> None:
    assert Bound(500).bytes(free) == 500
    assert Bound(part=0.25).bytes(free) == free // 4


async def test_all_of_them_are_shown(context: Context) -> None:
    lines = (await run(context, "show")).splitlines()
    assert [line.partition(":")[0] for line in lines] == NAMES


@pytest.mark.parametrize("command", ["set vars 3", "set nothing 1", "show nothing"])
async def test_the_error_for_an_unknown_one_lists_the_known_ones(
    context: Context, command: str
) -> None:
    with pytest.raises(BadInput, match="there is no setting") as caught:
        await run(context, command)
    assert all(name in str(caught.value) for name in NAMES)
    assert "'gdb set ...'" in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_the_beginning_of_a_name_is_enough_if_it_is_the_only_one(name: str) -> None:
    assert settings.find(name).name == name
    for length in range(1, len(name)):
        fitting = [each for each in NAMES if each.startswith(name[:length])]
        if name[:length] in fitting or len(fitting) == 1:
            assert settings.find(name[:length]).name in fitting
        else:
            with pytest.raises(BadInput, match=f"ambiguous: {', '.join(fitting)}"):
                settings.find(name[:length])


async def test_a_likely_slip_is_guessed(context: Context) -> None:
    with pytest.raises(BadInput, match="did you mean 'auto-checkpoint'"):
        await run(context, "set auto-chekpoint off")


@pytest.mark.parametrize(
    "line", ["set auto-checkpoint", "set snapshot-cost", "set", "set auto-checkpoint-disk"]
)
async def test_a_value_is_needed(context: Context, line: str) -> None:
    with pytest.raises(BadInput, match="is missing"):
        await run(context, line)


@pytest.mark.parametrize("reason", ["not started by crdebug", "not recorded"])
async def test_a_job_without_a_history_has_none_to_choose(
    session: FakeSession, context: Context, reason: str
) -> None:
    assert session.history is not None
    session.history.recorded = False
    if reason == "not started by crdebug":
        session.history = None
    with pytest.raises(Refused, match="there are no automatic checkpoints"):
        await run(context, "set auto-checkpoint on")
    lines = (await run(context, "show")).splitlines()
    (line,) = (each for each in lines if each.startswith("auto-checkpoint: "))
    assert line.startswith("auto-checkpoint: there are no automatic checkpoints")


def test_completion_offers_their_names(context: Context) -> None:
    for command in ("set", "show"):
        assert [each.text for each in complete(REGISTRY, context, f"{command} ")] == NAMES


# ---- the settings of a session, and of the console ----------------------------------------------

CONSOLE = [
    ("on-hangup kill", "on-hangup: kill"),
    ("on-hangup let-go", "on-hangup: let-go"),
    ("pager off", "pager: off"),
    ("limit-stop 5", "limit-stop: 5 s"),
    ("limit-dump 0.5", "limit-dump: 0.5 s"),
    ("full-every 3", "full-every: 3"),
    ("gdb /opt/gdb", "gdb: /opt/gdb"),
    ("compiler gcc -m64", "compiler: gcc -m64"),
]


@pytest.mark.parametrize(("line", "told"), CONSOLE)
async def test_set_here(context: Context, line: str, told: str) -> None:
    name = line.split()[0]
    assert (await run(context, f"show {name}")).endswith(" (default)")
    assert await run(context, f"set {line}") == told
    assert await run(context, f"show {name}") == f"{told} (set here)"
    assert f"{told} (set here)" in (await run(context, "show")).splitlines()


async def test_all_parts_of_a_session_see_a_new_limit(
    session: FakeSession, context: Context
) -> None:
    before = session.settings
    await run(context, "set limit-stop 7")
    assert session.settings is before
    assert before.stop == 7


BAD = ["on-hangup maybe", "pager yes", "limit-stop 0", "limit-stop soon", "signal 9", "signal FOO"]
BAD += ["full-every 0", "full-every often", "full-every 1.5"]


@pytest.mark.parametrize("line", BAD)
async def test_what_is_no_value(context: Context, line: str) -> None:
    name = line.split()[0]
    before = await run(context, f"show {name}")
    with pytest.raises(BadInput):
        await run(context, f"set {line}")
    assert await run(context, f"show {name}") == before


@pytest.mark.parametrize("line", ["signal SIGTSTP", "record off"])
async def test_what_a_job_is_started_with_is_not_set_later(context: Context, line: str) -> None:
    with pytest.raises(Refused, match="can only be set when the job starts"):
        await run(context, f"set {line}")


# ---- the config file ----------------------------------------------------------------------------


async def test_the_config_file_holds_in_every_session(
    tmp_path: Path, session: FakeSession, context: Context
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '# mine\npager = false\n"on-hangup" = "kill"\nlimit-stop = 7.5\n\n'
        'auto-checkpoint = "3s"\nsignal = "SIGTSTP"\n'
    )
    preferences = read_preferences(file)
    session.settings = begin_with(preferences, Settings())
    prefer(preferences, context)
    assert (session.settings.stop, session.settings.signal) == (7.5, 20)
    assert session.history is not None and session.history.every == 3
    lines = (await run(context, "show")).splitlines()
    for line in (
        f"pager: off ({file}:2)",
        f"on-hangup: kill ({file}:3)",
        f"limit-stop: 7.5 s ({file}:4)",
        f"auto-checkpoint: at most every 3 s while the job runs ({file}:6)",
        f"signal: SIGTSTP ({file}:7)",
        "limit-dump: 10 min (default)",
    ):
        assert line in lines
    await run(context, "set pager on")
    assert await run(context, "show pager") == "pager: on (set here)"


def test_what_a_job_does_not_have_is_passed_over(
    tmp_path: Path, session: FakeSession, context: Context
) -> None:
    session.history = None
    (tmp_path / "config.toml").write_text("auto-checkpoint = 3\n")
    prefer(read_preferences(tmp_path / "config.toml"), context)


def test_there_need_be_no_config_file(tmp_path: Path) -> None:
    assert read_preferences(tmp_path / "none") == ()


FAULTS = [
    (b"pager = maybe\n", ":1: invalid value"),
    (b"\npager = 'maybe'\n", ":2: 'maybe' is neither 'on' nor 'off'"),
    (b"# x\n\nnosuch = 1\n", ":3: there is no setting 'nosuch'"),
    (b"pag = true\n", ":1: there is no setting 'pag'"),
    (b"[pager]\nx = 1\n", ":1: a setting is one text"),
    (b"pager = true\nlimit-stop = [1]\n", ":2: a setting is one text"),
    (b"limit-stop = -1\n", ":1: '-1' is not a time"),
    (b'limit-stop = "5 weeks"\n', ":1: '5 weeks' is not a time"),
    (b"pager", ": expected"),
    (b"pager = '\xff'\n", " are not UTF-8 text"),
]


@pytest.mark.parametrize(("text", "said"), FAULTS)
def test_a_bad_config_file_is_one_sentence_with_the_line(
    tmp_path: Path, text: bytes, said: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(text)
    with pytest.raises(BadInput) as caught:
        read_preferences(file)
    assert f"{file}{said}" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_help_tells_all_of_them(context: Context) -> None:
    told = await run(context, "help set")
    for each in settings.SETTINGS:
        assert f"set {each.name} {each.values}" in told
        assert each.help.split()[0] in told


def test_a_patience_is_off_or_seconds() -> None:
    assert (settings.read_patience("off"), settings.read_patience("2.5")) == (0.0, 2.5)
    for text in ("on", "0", "-1", "", "soon"):
        with pytest.raises(BadInput, match="is neither 'off' nor a time"):
            settings.read_patience(text)

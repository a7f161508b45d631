"""set, show: the settings, how they are read, and what is said of them."""

from __future__ import annotations

import pytest
from fake_session import FakeSession

from crdebug.commands import settings
from crdebug.commands.completion import complete
from crdebug.commands.context import Context
from crdebug.commands.results import Text
from crdebug.commands.standard import standard
from crdebug.errors import BadInput, Refused
from crdebug.travel.automatic import EVERY, Bound

pytestmark = pytest.mark.unit

REGISTRY = standard()
NAMES = [each.name for each in settings.SETTINGS]


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


@pytest.fixture
def context(session: FakeSession) -> Context:
    return Context(session)  # type: ignore[arg-type]


async def run(context: Context, line: str) -> str:
    result = await REGISTRY.run(context, line)
    assert isinstance(result, Text)
    return result.text


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("on", EVERY, "every 10 s while the job runs"),
        ("off", 0.0, "off"),
        ("3", 3.0, "every 3 s while the job runs"),
        ("0.5", 0.5, "every 0.5 s while the job runs"),
        ("3600", 3600.0, "every 3600 s while the job runs"),
    ],
)
async def test_how_often(
    session: FakeSession, context: Context, text: str, seconds: float, shown: str
) -> None:
    assert session.history is not None
    session.history.every = 77.0
    assert await run(context, f"set auto-checkpoint {text}") == f"auto-checkpoint: {shown}"
    assert session.history.every == seconds
    assert await run(context, "show auto-checkpoint") == f"auto-checkpoint: {shown}"


@pytest.mark.parametrize("text", ["0", "-1", "yes", "1 2", "0x10", "1e3", "٣", "0.0", "nan"])
async def test_what_is_no_interval_changes_nothing(
    session: FakeSession, context: Context, text: str
) -> None:
    assert session.history is not None
    with pytest.raises(BadInput, match=f"'{text}' is neither 'on' nor 'off'"):
        await run(context, f"set auto-checkpoint {text}")
    assert session.history.every == EVERY


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
    with pytest.raises(BadInput, match="is no size"):
        await run(context, f"set auto-checkpoint-disk {text}")


@pytest.mark.parametrize("free", [0, 1, 999, 10**12])
def test_a_size_is_a_size_and_a_part_is_of_what_is_free(free: int) -> None:
    assert Bound(500).bytes(free) == 500
    assert Bound(part=0.25).bytes(free) == free // 4


async def test_all_of_them_are_shown(context: Context) -> None:
    lines = (await run(context, "show")).splitlines()
    assert [line.partition(":")[0] for line in lines] == NAMES


@pytest.mark.parametrize("command", ["set var = 3", "set nothing 1", "show nothing"])
async def test_of_one_that_is_unknown_it_is_said_which_there_are(
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


@pytest.mark.parametrize("line", ["set auto-checkpoint", "set", "set auto-checkpoint-disk"])
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
    assert lines[0].startswith("auto-checkpoint: there are no automatic checkpoints")


def test_completion_offers_their_names(context: Context) -> None:
    for command in ("set", "show"):
        assert [each.text for each in complete(REGISTRY, context, f"{command} au")] == NAMES


async def test_the_help_tells_all_of_them(context: Context) -> None:
    told = await run(context, "help set")
    for each in settings.SETTINGS:
        assert f"set {each.name} {each.values}" in told
        assert each.help.split()[0] in told

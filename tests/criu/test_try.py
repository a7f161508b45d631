"""try: a receive from whichever rank gets the message that did not come first."""

from __future__ import annotations

import re

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.errors import BadInput
from crdebug.session import Session
from harness.jobs import Heard
from harness.programs import build
from harness.talk import said
from harness.travel import history, recorded

FEW = ("receive", "posted", "looked")
OTHERS = (
    ("any_tag", "tested", "posted_twice", "exchanged", "replaced", "probed"),
    ("taken", "taken_if_there", "persistent", "persistent_twice", "copied", "reversed"),
    ("of_other_group", "synchronous", "waits_for_its_receive", "served", "one_is_open"),
)
MODES = pytest.mark.parametrize(
    "names",
    [
        pytest.param(FEW, id=FEW[0]),
        *(pytest.param(each, id=each[0], marks=pytest.mark.sweep) for each in OTHERS),
    ],
)


def results(output: str) -> dict[str, int]:
    """By mode, whose message came first."""
    return {name: int(first) for name, first in re.findall(r"(\w+): (\d)\n", output)}


async def run_to_end(job: Session, heard: Heard, names: tuple[str, ...]) -> dict[str, int]:
    await job.run_on(job.ranks, to_end=True)
    await Deadline(60).until(lambda: results(heard.text()).keys() == {*names}, "the results")
    return results(heard.text())


@MODES
async def test_each_one_gets_the_other_message(names: tuple[str, ...]) -> None:
    heard = Heard()
    modes = ",".join(names)
    async with recorded(build("chooses"), "--modes", modes, ranks=3, heard=heard) as job:
        first = await run_to_end(job, heard, names)
        listed = await said(job, "info races")
        assert [each.split()[0] for each in listed[1:]] == [f"{n + 1}:" for n in range(len(names))]
        for number, name in enumerate(names, 1):
            before = len(heard.text())
            await said(job, f"try {number}")
            assert history(job).branching.current == f"try-{number}"
            found = results(heard.text()[before:])
            assert found[name] == 3 - first[name], (name, found)
            assert found.keys() == {*names[number - 1 :]}
            await said(job, "switch main")
        assert await said(job, "info races") == listed


async def test_on_the_way_back_it_is_repeated() -> None:
    heard = Heard()
    async with recorded(build("chooses"), "--modes", "posted", ranks=3, heard=heard) as job:
        first = (await run_to_end(job, heard, ("posted",)))["posted"]
        await said(job, "try 1")
        await said(job, "bisect rank 0: first != 0")
        assert history(job).branching.current == "try-1"
        assert (await said(job, "[0] print first"))[-1].endswith(f"= {3 - first}")


async def test_what_could_not_have_come_first_is_refused() -> None:
    heard = Heard()
    async with recorded(build("chooses"), "--modes", "receive", ranks=3, heard=heard) as job:
        first = (await run_to_end(job, heard, ("receive",)))["receive"]
        with pytest.raises(BadInput, match="there are 1 such receives, not 2"):
            await said(job, "try 2")
        with pytest.raises(BadInput, match=f"a message of rank {first} could not have come first"):
            await said(job, f"try 1 {first}")
        with pytest.raises(BadInput, match="'x' is not a rank"):
            await said(job, "try 1 x")

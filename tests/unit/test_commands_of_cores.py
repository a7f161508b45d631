"""Commands at core files: those that look work, the others are refused before anything is done."""

from __future__ import annotations

import pytest
from fake_session import FakeSession, as_session

from crdebug.base.errors import Refused
from crdebug.commands.context import Context
from crdebug.commands.results import Left, Printed
from crdebug.commands.standard import standard

pytestmark = pytest.mark.unit

REGISTRY = standard()
NEED_A_PROCESS = ("running", "breakpoints", "checkpoints")


@pytest.fixture
def context() -> Context:
    session = FakeSession()
    session.of_cores = True
    session.values["step"] = ["7"] * 4
    return Context(as_session(session), owns_job=False)


def test_which_commands_core_files_will_do_for() -> None:
    for group in REGISTRY.groups:
        found = {each.name for each in group.commands if each.of_cores}
        if group.name in NEED_A_PROCESS:
            assert not found
        elif group.name == "history":
            assert found == {"compare", "why-blocked"}
        elif group.name == "job":
            assert found == {"log", "source", "quit", "shell"}
        else:
            others = {each.name for each in group.commands} - found
            assert others <= {"pybt", "pyprint"}


async def test_a_command_that_looks_works(context: Context) -> None:
    assert isinstance(await REGISTRY.run(context, "print step"), Printed)


async def test_one_that_needs_a_process_is_refused(context: Context) -> None:
    session = context.session
    for line in ("continue", "[0] step", "break main", "checkpoint", "kill"):
        with pytest.raises(Refused, match="needs a process, and a core file cannot run"):
            await REGISTRY.run(context, line)
    assert isinstance(session, FakeSession) and not session.asked


async def test_quit_leaves_at_once(context: Context) -> None:
    async def no(question: str) -> bool:
        raise AssertionError(question)

    context.confirm = no
    assert await REGISTRY.run(context, "quit") == Left("heat", detached=False)
    assert context.over

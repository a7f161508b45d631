"""The doctor's judgement of several hosts: equal ones are one, with their levels or their error."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from test_doctor import WELL

from crdebug.base.errors import CrdebugError, NotAvailable
from crdebug.commands.doctor_hosts import all_can_be_looked_at, as_json, as_text, compare
from crdebug.node.probes import Answer, GdbAnswer, Machine

NO_GDB = replace(WELL, gdb=GdbAnswer(False, said="no gdb in PATH"))
NO_MPICC = replace(WELL, mpicc=Answer(False, said="no mpicc in PATH"))


def unreachable(host: str) -> CrdebugError:
    return NotAvailable(
        f"cannot reach {host} by ssh: no route to host", hint=f"'ssh {host} true' must work"
    )


def text(found: dict[str, Machine | CrdebugError]) -> list[str]:
    return as_text(compare(found)).splitlines()


def test_hosts_that_are_alike_are_one_line() -> None:
    assert text({"n1": WELL, "n2": WELL, "n10": WELL}) == [
        "ok       n1,n2,n10  look, go back, checkpoint",
        "ready: 'crdebug attach' can debug the ranks on all of them",
    ]


def test_a_version_that_differs_is_no_difference() -> None:
    other = replace(WELL, gdb=replace(WELL.gdb, version="GNU gdb 13.1"))
    assert len(compare({"n1": WELL, "n2": other})) == 1


def test_a_host_that_lacks_something_says_what_and_what_to_do() -> None:
    assert text({"n1": WELL, "n2": NO_MPICC, "n3": NO_GDB}) == [
        "ok       n1  look, go back, checkpoint",
        "ok       n2  look, checkpoint",
        "             not to go back: mpicc missing",
        "             to do: run 'crdebug setup'",
        "missing  n3  nothing",
        "             not to look: gdb missing",
        "             to do: run 'crdebug setup'",
        "not ready: n3",
    ]


def test_a_host_that_cannot_be_asked_says_why() -> None:
    assert text({"n1": WELL, "n2": unreachable("n2")}) == [
        "ok       n1  look, go back, checkpoint",
        "missing  n2  cannot reach n2 by ssh: no route to host",
        "             to do: 'ssh n2 true' must work",
        "not ready: n2",
    ]


def test_those_that_cannot_be_asked_for_the_same_reason_are_one_line() -> None:
    found: dict[str, Machine | CrdebugError] = {
        host: unreachable(host) for host in ("n2", "n20", "n2.site")
    }
    assert text(found)[0] == ("missing  n2,n20,n2.site  cannot reach HOST by ssh: no route to host")


def test_ranks_can_be_looked_at_where_no_launcher_is() -> None:
    report = compare({"n1": replace(WELL, launchers=())})
    assert all_can_be_looked_at(report)
    assert as_text(report).splitlines()[0] == "ok       n1  look"
    assert "not to go back: mpi missing" in as_text(report)


def test_of_many_hosts_only_some_are_named() -> None:
    said = text({f"n{number}": WELL for number in range(1000)})
    assert said[0] == ("ok       n0,n1,n2,n3,n4,n5,n6,n7 and 992 more  look, go back, checkpoint")


@pytest.mark.parametrize(
    "found, ready", [(WELL, True), (NO_GDB, False), (unreachable("n2"), False)]
)
def test_programs_get_all_of_it(found: Machine | CrdebugError, ready: bool) -> None:
    report = compare({"n1": WELL, "n2": found})
    answer = json.loads(as_json(report))
    assert answer["ready"] == ready == all_can_be_looked_at(report)
    assert [name for each in answer["hosts"] for name in each["hosts"]] == ["n1", "n2"]
    levels = [each["name"] for each in answer["hosts"][0]["levels"]]
    assert levels == ["look", "go back", "checkpoint"]
    if isinstance(found, CrdebugError):
        assert answer["hosts"][1]["problem"] == found.problem
        assert answer["hosts"][1]["what_to_do"] == found.hint

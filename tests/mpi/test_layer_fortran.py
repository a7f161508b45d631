"""Calls through the MPI's Fortran bindings are counted, recorded and repeated as those in C."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdebug.node import probes
from harness.layered import Layered
from harness.programs import BINDINGS

MISSING = probes.probe_mpifort().said


@pytest.mark.skipif(not probes.probe_mpifort().works, reason=f"mpifort: {MISSING}")
@pytest.mark.parametrize("binding", BINDINGS)
def test_calls_from_fortran_are_recorded_once_and_repeated(tmp_path: Path, binding: str) -> None:
    job = Layered(tmp_path / "time", "field", 8, flags=BINDINGS[binding])
    recorded = job.run()
    log = job.log(1)
    assert [call.name for call in log.calls[:6]] == [
        *("MPI_Init", "MPI_Comm_dup", "MPI_Wtime", "MPI_Send", "MPI_Send", "MPI_Allreduce")
    ]
    assert {call.comm for call in log.calls if call.name == "MPI_Send"} == {"world#2"}
    assert "MPI_Waitany" in (names := {call.name for call in job.log(0).calls})
    assert "MPI_Testsome" in names
    # Each place in the program, not in the binding: two sends are two places, in each round.
    sends = [call.site for call in log.calls if call.name == "MPI_Send"]
    assert len(set(sends)) == 2 and sends == sends[:2] * 8
    for _ in range(3):
        assert job.run() == recorded  # with the result of MPI_Wtime
    heard = recorded.split(" total")[0]
    assert any(not job.run({"CRDEBUG_ENFORCE": "0"}).startswith(heard) for _ in range(8))

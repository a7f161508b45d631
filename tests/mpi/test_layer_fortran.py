"""Calls through the MPI's Fortran bindings are counted, recorded and repeated as those in C."""

from __future__ import annotations

from pathlib import Path

from harness.layered import Layered


def test_calls_from_fortran_are_recorded_once_and_repeated(tmp_path: Path) -> None:
    flags = ("-Wl,--no-as-needed", "-lmpi_mpifh")
    arguments = ("--rounds", 20, "--jitter-us", 1500)
    job = Layered(tmp_path / "time", "fortran", *arguments, flags=flags)
    recorded = job.run()
    log = job.log(1)
    assert [c.name for c in log.calls[:4]] == [
        *("MPI_Init", "MPI_Comm_dup", "MPI_Send", "MPI_Barrier")
    ]
    assert {c.comm for c in log.calls if c.name == "MPI_Send"} == {"world#2"}
    for _ in range(4):
        assert job.run() == recorded
    assert any(job.run({"CRDEBUG_ENFORCE": "0"}) != recorded for _ in range(8))

"""The doctor's judgement, on machines that are written down."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crdebug.commands.doctor import Finding, as_json, as_text, diagnose, judge, main_job_can_run
from crdebug.node import probes
from crdebug.node.criu_program import CriuAttempt, CriuProgram, criu_complaint
from crdebug.node.probes import (
    Answer,
    GdbAnswer,
    Launcher,
    Machine,
    Namespaces,
    Ptrace,
    Space,
    mpi_family,
)

GIB = 1 << 30
CRIU = CriuProgram("/opt/criu", "4.1.1", "Looks good.")

WELL = Machine(
    python=Answer(True, path="/usr/bin/python3", version="3.13.5"),
    gdb=GdbAnswer(True, path="/usr/bin/gdb", version="GNU gdb 16.3", python="3.13.5"),
    cc=Answer(True, path="/usr/bin/cc", version="cc 14.2.0"),
    mpicc=Answer(True, path="/usr/bin/mpicc", version="gcc 14.2.0"),
    mpifort=Answer(True, path="/usr/bin/mpifort", version="GNU Fortran 14.2.0"),
    launchers=(Launcher("/usr/bin/mpirun", "Open MPI", "5.0.7"),),
    criu=(CriuAttempt("criu", CRIU, "Looks good."),),
    criu_features=(("mem_dirty_track", False), ("uffd", True)),
    ptrace=Ptrace(True, "", None),
    namespaces=Namespaces(True, ""),
    capabilities=(("CAP_SYS_ADMIN", True), ("CAP_SYS_RESOURCE", False)),
    ip=Answer(True, path="/usr/sbin/ip", version="iproute2-6.15.0"),
    tar=Answer(True, path="/usr/bin/tar", version="tar 1.35"),
    space=Space("/var/state", 10 * GIB),
    kernel="6.12.0",
    root=True,
)


def only(findings: tuple[Finding, ...], name: str) -> Finding:
    (found,) = (finding for finding in findings if finding.name == name)
    return found


def test_a_machine_that_has_everything() -> None:
    findings = judge(WELL)
    assert {finding.status for finding in findings} == {"ok"}
    assert not any(finding.what_to_do for finding in findings)
    assert main_job_can_run(findings)
    assert as_text(findings).splitlines()[-1].startswith("ready")
    assert "mem_dirty_track no, uffd yes" in as_text(findings)


BROKEN: list[tuple[str, Callable[[Machine], Machine], str]] = [
    ("python", lambda m: replace(m, python=Answer(False, version="3.9.2")), "3.11"),
    ("gdb", lambda m: replace(m, gdb=GdbAnswer(False, "no gdb")), "scripts/setup"),
    ("gdb", lambda m: replace(m, gdb=GdbAnswer(False, "no", "/bin/gdb")), "has Python"),
    ("ptrace", lambda m: replace(m, ptrace=Ptrace(False, "denied", 1)), "ptrace_scope to 0"),
    ("ptrace", lambda m: replace(m, ptrace=Ptrace(False, "denied", 3)), "started anew"),
    ("ptrace", lambda m: replace(m, ptrace=Ptrace(False, "denied", None)), "CAP_SYS_PTRACE"),
    ("cc", lambda m: replace(m, cc=Answer(False, "no cc")), "scripts/setup"),
    ("mpicc", lambda m: replace(m, mpicc=Answer(False, "no mpicc")), "scripts/setup"),
    ("mpi", lambda m: replace(m, launchers=()), "scripts/setup"),
    ("criu", lambda m: replace(m, criu=(CriuAttempt("criu", None, "vdso"),)), "scripts/setup"),
    (
        "criu",
        lambda m: replace(m, criu=(CriuAttempt("criu", None, "no permission"),), root=False),
        "as root",
    ),
    ("namespaces", lambda m: replace(m, namespaces=Namespaces(False, "no", ("net",))), "privil"),
    ("ip", lambda m: replace(m, ip=Answer(False, "no ip")), "scripts/setup"),
    ("tar", lambda m: replace(m, tar=Answer(False, "no tar")), "scripts/setup"),
]


@pytest.mark.parametrize(("name", "broken", "mend"), BROKEN)
def test_what_is_needed_and_missing(
    name: str, broken: Callable[[Machine], Machine], mend: str
) -> None:
    findings = judge(broken(WELL))
    finding = only(findings, name)
    assert finding.status == "missing"
    assert mend in finding.what_to_do
    assert finding.detail
    assert not main_job_can_run(findings)
    text = as_text(findings)
    assert text.splitlines()[-1] == f"not ready: {name} missing"
    assert f"to do: {finding.what_to_do}" in text
    assert f"why: {finding.why}" in text


LESS: list[tuple[str, Callable[[Machine], Machine], str]] = [
    ("mpifort", lambda m: replace(m, mpifort=Answer(False, "no gfortran")), "gfortran"),
    ("mpi", lambda m: replace(m, launchers=(Launcher("/x/mpirun", "", "odd 1"),)), "odd 1"),
    ("space", lambda m: replace(m, space=Space("/s", GIB // 2)), "0.5 GiB"),
    (
        "capabilities",
        lambda m: replace(m, capabilities=(("CAP_SYS_ADMIN", False),)),
        "not CAP_SYS_ADMIN",
    ),
]


@pytest.mark.parametrize(("name", "lessened", "detail"), LESS)
def test_what_only_some_need(
    name: str, lessened: Callable[[Machine], Machine], detail: str
) -> None:
    findings = judge(lessened(WELL))
    finding = only(findings, name)
    assert finding.status == "warning"
    assert finding.what_to_do
    assert detail in finding.detail
    assert main_job_can_run(findings)


def test_a_broken_candidate_is_told_beside_the_one_that_works() -> None:
    broken = CriuAttempt("/own/criu", None, "vdso")
    finding = only(judge(replace(WELL, criu=(broken, WELL.criu[0]))), "criu")
    assert finding.status == "ok"
    assert "4.1.1" in finding.detail
    assert "/own/criu: vdso" in finding.detail
    absent = replace(broken, there=False)
    finding = only(judge(replace(WELL, criu=(absent, WELL.criu[0]))), "criu")
    assert "/own/criu" not in finding.detail


def test_every_launcher_is_told() -> None:
    mpich = Launcher("/opt/mpich/bin/mpirun", "MPICH", "4.3.0")
    text = as_text(judge(replace(WELL, launchers=(*WELL.launchers, mpich))))
    assert "Open MPI 5.0.7, /usr/bin/mpirun" in text
    assert "MPICH 4.3.0, /opt/mpich/bin/mpirun" in text


def test_json_is_the_findings() -> None:
    findings = judge(replace(WELL, tar=Answer(False, "no tar")))
    report = json.loads(as_json(findings))
    assert report["ready"] is False
    assert tuple(Finding(**fields) for fields in report["findings"]) == findings


SAYINGS = [
    ("mpirun (Open MPI) 4.1.4\n\nReport bugs to …", ("Open MPI", "4.1.4")),
    ("mpirun (Open MPI) 5.0.7\n", ("Open MPI", "5.0.7")),
    ("HYDRA build details:\n    Version:                 4.0.2\n    CC: gcc", ("MPICH", "4.0.2")),
    ("MPICH\nMPICH Version:      \t5.0.2\nMPICH ABI: 17", ("MPICH", "5.0.2")),
    ("something else 1.0", ("", "something else 1.0")),
    ("", ("", "")),
]


@pytest.mark.parametrize(("text", "expected"), SAYINGS)
def test_which_mpi_a_launcher_is(text: str, expected: tuple[str, str]) -> None:
    assert mpi_family(text) == expected


def test_criu_names_the_cause_and_not_its_helper() -> None:
    said = (
        "Error (criu/util.c:642): exited, status=1\n"
        "Warn  (criu/kerndat.c:1): something\n"
        "Error (criu/vdso.c:381): vdso: Unexpected rt vDSO area bounds\n"
    )
    assert criu_complaint(said) == "Error (criu/vdso.c:381): vdso: Unexpected rt vDSO area bounds"
    assert criu_complaint("") == ""


# ---- against programs that are made up, and this machine ---------------------------------------


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_criu_is_checked_once_for_each_state_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = tmp_path / "checks"
    works = f'case $1 in check) echo x >>"{counted}"; echo fine ;; *) echo "Version: 9.9" ;; esac'
    criu = program(tmp_path / "criu", works)
    monkeypatch.setenv("CRDEBUG_CRIU", str(criu))
    assert probes.find_criu() == CriuProgram(str(criu), "9.9", "fine")
    assert probes.find_criu() == CriuProgram(str(criu), "9.9", "fine")
    assert counted.read_text() == "x\n"
    program(tmp_path / "new", "echo 'Error (criu/a.c:1): no' >&2; exit 1").rename(criu)
    assert probes.find_criu() is None
    obstacle = probes.checkpoint_obstacle()
    assert obstacle == f"criu: {criu}: Error (criu/a.c:1): no"


def test_every_launcher_in_path_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    program(one / "mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
    (one / "mpiexec").symlink_to("mpirun")
    program(two / "mpirun", "echo 'HYDRA build details:'; echo '    Version: 4.0.2'")
    program(two / "mpichversion", "echo 'MPICH Version: 4.0.3'")
    monkeypatch.setenv("PATH", f"{one}:{two}:/usr/bin:/bin")
    monkeypatch.setattr(probes, "LAUNCHER_VARIANTS", ("",))
    found = [
        launcher
        for launcher in probes.probe_launchers.__wrapped__()
        if launcher.path.startswith(str(tmp_path))
    ]
    assert found == [
        Launcher(str(one / "mpirun"), "Open MPI", "4.1.4"),
        Launcher(str(two / "mpirun"), "MPICH", "4.0.3"),
    ]


def test_a_missing_gdb_is_an_answer(tmp_path: Path) -> None:
    answer = probes.probe_gdb(str(tmp_path / "gdb"))
    assert not answer.works
    assert answer.path is None
    silent = program(tmp_path / "gdb-minimal", "echo 'Python scripting is not supported'")
    assert not probes.probe_gdb(str(silent)).works


def test_space_of_a_directory_that_is_yet_to_be(tmp_path: Path) -> None:
    assert probes.probe_space(tmp_path / "a" / "b").free > 0


def test_this_machine_can_be_diagnosed() -> None:
    findings = diagnose()
    assert {"python", "gdb", "criu", "namespaces", "space"} <= {one.name for one in findings}
    assert only(findings, "python").status == "ok"
    assert json.loads(as_json(findings))["ready"] is main_job_can_run(findings)

"""The doctor's judgement, on machines that are written down."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from crdebug.commands.doctor import (
    Finding,
    Level,
    as_json,
    as_text,
    diagnose,
    judge,
    level_of,
    levels,
    main_job_can_run,
)
from crdebug.node import criu_program, probes, proc
from crdebug.node.criu_program import CriuAttempt, CriuProgram
from crdebug.node.criu_trial import errors_in
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
from crdebug.ui.doctor import doctor

GIB = 1 << 30
TRIED = "processes dumped and restored"
CRIU = CriuProgram("/sbin/criu", "4.1.1", TRIED, False)

WELL = Machine(
    python=Answer(True, path="/usr/bin/python3", version="3.13.5"),
    gdb=GdbAnswer(True, path="/usr/bin/gdb", version="GNU gdb 16.3", python="3.13.5"),
    cc=Answer(True, path="/usr/bin/cc", version="cc 14.2.0"),
    mpicc=Answer(True, path="/usr/bin/mpicc", version="gcc 14.2.0"),
    mpifort=Answer(True, path="/usr/bin/mpifort", version="GNU Fortran 14.2.0"),
    asyncssh=Answer(True, version="2.24.1"),
    launchers=(Launcher("/usr/bin/mpirun", "Open MPI", "5.0.7"),),
    criu=(CriuAttempt("criu", CRIU, TRIED),),
    criu_features=(("mem_dirty_track", False), ("uffd", True)),
    ptrace=Ptrace(True, "", None),
    namespaces=Namespaces(True, ""),
    capabilities=(("CAP_SYS_ADMIN", True), ("CAP_SYS_RESOURCE", False)),
    space=Space("/var/state", 10 * GIB),
    kernel="6.12.0",
    root=True,
)


def failed(candidate: str, said: str = "dump: sockets: no such option") -> CriuAttempt:
    return CriuAttempt(candidate, None, said)


PRIVATE = CriuAttempt("/data/criu/bin/criu", None, "there is no such program", there=False)


def only(findings: tuple[Finding, ...], name: str) -> Finding:
    (found,) = (finding for finding in findings if finding.name == name)
    return found


def test_a_machine_that_has_everything() -> None:
    findings = judge(WELL)
    assert {finding.status for finding in findings} == {"ok"}
    assert not any(finding.what_to_do for finding in findings)
    assert main_job_can_run(findings)
    assert level_of(findings) == "checkpoint"
    assert as_text(findings).splitlines()[-1] == (
        "ready: MPI jobs can be debugged, checkpointed and restarted here"
    )
    assert "mem_dirty_track no, uffd yes" in as_text(findings)


def test_ranks_on_other_hosts_need_a_package() -> None:
    lacking = judge(replace(WELL, asyncssh=Answer(False, "not installed")))
    *others, hosts = levels(lacking)
    assert {level.status for level in others} == {"ok"}
    assert (hosts.name, hosts.status) == ("many hosts", "missing")
    assert "asyncssh missing" in hosts.why and "pip install" in hosts.what_to_do
    assert level_of(lacking) == level_of(judge(WELL)) == "checkpoint"


def test_what_is_set_for_launchers_and_why() -> None:
    lines = as_text(judge(WELL, {"UCX_TLS": "tcp"}), verbose=True).splitlines()
    (cards,) = [line for line in lines if "OMPI_MCA_pml=ob1" in line]
    assert cards.startswith("ok       launch ")
    assert "OMPI_MCA_btl=self,vader,tcp UCX_TLS=tcp (yours): transports" in cards


BROKEN: list[tuple[str, Callable[[Machine], Machine], str]] = [
    ("python", lambda m: replace(m, python=Answer(False, version="3.9.2")), "3.11"),
    ("gdb", lambda m: replace(m, gdb=GdbAnswer(False, "no gdb")), "crdebug setup"),
    ("gdb", lambda m: replace(m, gdb=GdbAnswer(False, "no", "/bin/gdb")), "has Python"),
    ("ptrace", lambda m: replace(m, ptrace=Ptrace(False, "no", 1, False)), "ptrace_scope to 0"),
    ("ptrace", lambda m: replace(m, ptrace=Ptrace(False, "no", 3, False)), "rebooted"),
    ("ptrace", lambda m: replace(m, ptrace=Ptrace(False, "no", None, False)), "CAP_SYS_PTRACE"),
    ("cc", lambda m: replace(m, cc=Answer(False, "no cc")), "crdebug setup"),
    ("mpi", lambda m: replace(m, launchers=()), "crdebug setup"),
]
NO_MPICC = replace(WELL, mpicc=Answer(False, "no mpicc"))
USER = replace(
    WELL,
    criu_features=(),
    capabilities=tuple((name, False) for name in ("CAP_SYS_ADMIN", "CAP_SYS_RESOURCE")),
    root=False,
)
REFUSED = "cannot make a container: namespaces of a user: Operation not permitted"


def refusing(*against: str) -> Callable[[Machine], Machine]:
    """User namespaces, and with them CRIU, which is tried in one."""
    refused = Namespaces(False, REFUSED, against)
    criu = (PRIVATE, failed("criu", REFUSED))
    return lambda m: replace(USER, namespaces=refused, criu=criu)


NO_CHECKPOINTS: list[tuple[str, Callable[[Machine], Machine], str]] = [
    ("criu", lambda m: replace(m, criu=(PRIVATE, failed("criu"))), "run 'crdebug setup'"),
    ("criu", lambda m: replace(USER, criu=(PRIVATE, failed("criu"))), "run 'crdebug setup'"),
    ("criu", lambda m: replace(m, criu=(failed("/my/criu"),)), "CRDEBUG_CRIU"),
    ("criu", refusing(), "first the namespaces"),
    ("namespaces", lambda m: replace(m, namespaces=Namespaces(False, "no")), "privileged"),
    ("namespaces", refusing(), "run as root"),
    ("namespaces", refusing("user.max_user_namespaces"), "sysctl user.max_user_namespaces=1"),
    (
        "namespaces",
        refusing("kernel.unprivileged_userns_clone"),
        "sysctl kernel.unprivileged_userns_clone=1",
    ),
    (
        "namespaces",
        refusing("kernel.apparmor_restrict_unprivileged_userns"),
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("namespaces", refusing("seccomp"), "seccomp profile"),
]


@pytest.mark.parametrize(("name", "broken", "mend"), NO_CHECKPOINTS)
def test_without_checkpoints_all_else_works(
    name: str, broken: Callable[[Machine], Machine], mend: str
) -> None:
    findings = judge(broken(WELL))
    finding = only(findings, name)
    assert finding.status == "missing" and finding.detail
    assert mend in finding.what_to_do
    assert main_job_can_run(findings) and level_of(findings) == "go back"
    (checkpoint,) = (level for level in levels(findings) if level.name == "checkpoint")
    assert checkpoint.status == "missing" and f"{name} missing" in checkpoint.why
    assert finding.what_to_do in checkpoint.what_to_do
    answer = as_text(findings).splitlines()[-1]
    assert answer.startswith("ready to go back: MPI jobs can be debugged here, also backwards")
    assert answer.endswith(f"(not to checkpoint: {checkpoint.why})")


def test_without_a_record_of_messages_there_are_still_checkpoints() -> None:
    findings = judge(NO_MPICC)
    assert [level.status for level in levels(findings)] == ["ok", "missing", "ok", "ok"]
    assert main_job_can_run(findings) and level_of(findings) == "checkpoint"
    assert as_text(findings).endswith("restarted here (not to go back: mpicc missing)")
    neither = judge(replace(NO_MPICC, criu=(PRIVATE, failed("criu"))))
    assert main_job_can_run(neither) and level_of(neither) == "look"
    assert as_text(neither).endswith(
        "ready to look: MPI jobs can be debugged here "
        "(not to go back: mpicc missing; not to checkpoint: criu missing)"
    )


def test_an_ordinary_user_needs_no_privileges_and_learns_what_does() -> None:
    findings = judge(USER)
    assert {finding.status for finding in findings} == {"ok"}
    assert level_of(findings) == "checkpoint"
    told = only(findings, "privileges").detail
    assert "incremental checkpoints" in told and "jobs that 'attach' found" in told
    assert "in a user namespace" in only(findings, "namespaces").detail


@pytest.mark.parametrize("scope", [1, 2])
def test_where_yama_allows_only_what_crdebug_starts(scope: int) -> None:
    findings = judge(replace(USER, ptrace=Ptrace(False, "denied", scope, True)))
    finding = only(findings, "ptrace")
    assert finding.status == "warning" and f"ptrace_scope is {scope}" in finding.detail
    assert "only jobs that 'crdebug run' starts" in finding.detail
    assert level_of(findings) == "checkpoint"


@pytest.mark.parametrize(("name", "broken", "mend"), BROKEN)
def test_what_is_needed_and_missing(
    name: str, broken: Callable[[Machine], Machine], mend: str
) -> None:
    findings = judge(broken(WELL))
    finding = only(findings, name)
    assert finding.status == "missing"
    assert mend in finding.what_to_do
    assert finding.detail
    assert not main_job_can_run(findings) and level_of(findings) is None
    assert [level.status for level in levels(findings)] == ["missing"] * 4
    text = as_text(findings)
    assert text.splitlines()[-1] == f"not ready: {name} missing"
    assert f"to do: {finding.what_to_do}" in text
    assert f"why: {finding.why}" in text


LESS: list[tuple[str, Callable[[Machine], Machine], str]] = [
    ("mpifort", lambda m: replace(m, mpifort=Answer(False, "no gfortran")), "gfortran"),
    ("mpi", lambda m: replace(m, launchers=(Launcher("/x/mpirun", "", "odd 1"),)), "odd 1"),
    ("space", lambda m: replace(m, space=Space("/s", GIB // 2)), "0.5 GiB"),
    (
        "privileges",
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


def test_the_result_of_the_trial_of_criu_is_shown() -> None:
    finding = only(judge(WELL), "criu")
    assert finding.detail == f"4.1.1, /sbin/criu: {TRIED}"
    finding = only(judge(replace(WELL, criu=(PRIVATE, failed("criu")))), "criu")
    assert finding.detail == "on kernel 6.12.0: criu: dump: sockets: no such option"
    finding = only(judge(replace(WELL, criu=(PRIVATE, replace(PRIVATE, candidate="criu")))), "criu")
    assert finding.detail == (
        "on kernel 6.12.0: /data/criu/bin/criu: there is no such program; "
        "criu: there is no such program"
    )


def test_a_broken_candidate_is_shown_next_to_the_working_one() -> None:
    broken = CriuAttempt("/own/criu", None, "vdso")
    finding = only(judge(replace(WELL, criu=(broken, WELL.criu[0]))), "criu")
    assert finding.status == "ok"
    assert "4.1.1" in finding.detail
    assert "/own/criu: vdso" in finding.detail
    absent = replace(broken, there=False)
    finding = only(judge(replace(WELL, criu=(absent, WELL.criu[0]))), "criu")
    assert "/own/criu" not in finding.detail


def test_every_launcher_is_listed() -> None:
    mpich = Launcher("/opt/mpich/bin/mpirun", "MPICH", "4.3.0")
    text = as_text(judge(replace(WELL, launchers=(*WELL.launchers, mpich))))
    assert "Open MPI 5.0.7, /usr/bin/mpirun" in text
    assert "MPICH 4.3.0, /opt/mpich/bin/mpirun" in text


def test_json_is_the_findings_and_the_levels() -> None:
    findings = judge(replace(WELL, namespaces=Namespaces(False, "refused")))
    report = json.loads(as_json(findings))
    assert (report["ready"], report["level"]) == (True, "go back")
    assert tuple(Finding(**fields) for fields in report["findings"]) == findings
    assert tuple(Level(**fields) for fields in report["levels"]) == levels(findings)
    report = json.loads(as_json(judge(replace(WELL, launchers=()))))
    assert (report["ready"], report["level"]) == (False, None)


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


def test_criu_names_the_causes_and_not_its_helpers() -> None:
    said = (
        "Error (criu/util.c:642): exited, status=1\n"
        "Warn  (criu/kerndat.c:1): something\n"
        "(00.000021) Error (criu/rlimit.c:9): rlimit: Can't setup RLIMIT_NOFILE for self\n"
        "(00.004318)      7: Error (criu/vdso.c:381): vdso: Unexpected rt vDSO area bounds\n"
        "(00.004400) Error (criu/cr-dump.c:2): Dumping FAILED.\n"
    )
    assert errors_in(said) == ("vdso: Unexpected rt vDSO area bounds", "Dumping FAILED.")
    assert errors_in("") == ()


# ---- against programs that are made up, and this machine ---------------------------------------


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@dataclass
class Machinery:
    """A made-up CRIU, and a made-up trial that counts its runs and has a given result."""

    criu: Path
    trial: Path
    count: Path

    def says(self, said: str, status: int = 0) -> None:
        self.trial.write_text(
            f"import sys\nopen({str(self.count)!r}, 'a').write(sys.argv[1] + '\\n')\n"
            f"print({said!r})\nsys.exit({status})\n"
        )

    @property
    def trials(self) -> int:
        return self.count.read_text().count("\n") if self.count.exists() else 0

    @property
    def works(self) -> CriuProgram:
        return CriuProgram(str(self.criu), "9.9", TRIED, True)


def forget() -> None:
    """As in a process that has just started."""
    criu_program._try_criu.cache_clear()


@pytest.fixture
def machinery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machinery]:
    made = Machinery(
        program(tmp_path / "criu", 'echo "Version: 9.9"'), tmp_path / "trial.py", tmp_path / "count"
    )
    made.says(TRIED)
    monkeypatch.setattr(criu_program, "TRIAL", made.trial)
    monkeypatch.setenv("CRDEBUG_CRIU", str(made.criu))
    monkeypatch.setenv("CRDEBUG_CACHE", str(tmp_path / "cache"))
    yield made
    forget()


def test_a_criu_that_works_is_tried_once_and_then_remembered(machinery: Machinery) -> None:
    for _ in range(3):
        assert probes.find_criu() == machinery.works
        forget()
    assert machinery.count.read_text() == f"{machinery.criu}\n"


CHANGES: dict[str, Callable[[Machinery, pytest.MonkeyPatch], object]] = {
    "the machine was started anew": lambda m, patch: patch.setattr(
        proc, "boot_id", lambda: "another"
    ),
    "the program was replaced": lambda m, _: program(
        m.criu.with_name("new"), 'echo "Version: 9.9"'
    ).rename(m.criu),
    "the program was touched": lambda m, _: os.utime(m.criu, ns=(1, 1)),
    "the trial tries more": lambda m, _: m.trial.write_text(m.trial.read_text() + "# more\n"),
    "another user asks": lambda m, patch: patch.setattr(os, "geteuid", lambda: 4711),
    "what was kept is damaged": lambda m, _: [
        path.write_text("{") for path in m.criu.parent.glob("cache/criu/*")
    ],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_remembered_trial_is_repeated_when_something_changed(
    change: str, machinery: Machinery, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert probes.find_criu() == machinery.works
    CHANGES[change](machinery, monkeypatch)
    forget()
    assert probes.find_criu() == machinery.works
    assert machinery.trials == 2


def test_whether_a_criu_tracks_changes_is_asked_once_and_remembered(machinery: Machinery) -> None:
    script = (
        f'[ "$1" != check ] || {{ echo "$@" >>{machinery.count}; exit 3; }}; echo "Version: 9.9"'
    )
    program(machinery.criu, script)
    for _ in range(3):
        found = probes.find_criu()
        assert found is not None and not found.tracks
        forget()
    asked = machinery.count.read_text().splitlines()
    assert asked == [str(machinery.criu), "check --feature mem_dirty_track"]


def test_a_criu_that_fails_is_tried_again_by_the_next_process(machinery: Machinery) -> None:
    machinery.says("dump: no", status=1)
    assert probes.find_criu() is None
    assert probes.checkpoint_obstacle() == f"criu: {machinery.criu}: dump: no"
    assert machinery.trials == 1
    forget()
    machinery.says(TRIED)
    assert probes.find_criu() == machinery.works
    assert machinery.trials == 2


def test_a_place_that_cannot_be_written_costs_a_trial_and_nothing_else(
    machinery: Machinery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CRDEBUG_CACHE", str(tmp_path / "file" / "below"))
    for number in (1, 2):
        assert probes.find_criu() == machinery.works
        assert machinery.trials == number
        forget()


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


def test_it_looks_for_what_the_config_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text('gdb = "gdb-of-mine"\ncompiler = "cc-of-mine -O1"\n')
    monkeypatch.setenv("CRDEBUG_CONFIG", str(tmp_path / "config.toml"))
    report = CliRunner().invoke(doctor, ["--json"])
    assert report.exit_code == 1
    said = {each["name"]: each for each in json.loads(report.output)["findings"]}
    assert said["gdb"]["status"] == "missing" and "gdb-of-mine" in str(said["gdb"])
    assert said["cc"]["status"] == "missing" and "cc-of-mine" in str(said["cc"])


def test_this_machine_can_be_diagnosed() -> None:
    findings = diagnose()
    assert {"python", "gdb", "criu", "namespaces", "space"} <= {one.name for one in findings}
    assert only(findings, "python").status == "ok"
    assert json.loads(as_json(findings))["ready"] is main_job_can_run(findings)

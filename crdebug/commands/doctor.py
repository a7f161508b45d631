"""`crdebug doctor`: can the main job run on this machine, and if not, what to do.

The main job is to debug an MPI job, take checkpoints of it and restart it. What it needs and does
not find is "missing"; what only some uses need is a "warning". Everything here but diagnose() is
pure: crdebug.node.probes asks the machine, this page judges the answers.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from crdebug.base.settings import Settings
from crdebug.job.launch_environment import NEEDED
from crdebug.node import probes
from crdebug.node.criu_program import CriuAttempt
from crdebug.node.probes import Answer, Machine

Status = Literal["ok", "warning", "missing"]

# below this a checkpoint of a few small ranks may not fit
LITTLE_SPACE = 1 << 30

# What the job container and CRIU use. The probes that really try decide; these explain.
EXPECTED_CAPABILITIES = ("CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE")

_LAUNCH = "launch"
_SETUP = "run 'crdebug setup'"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    why: what crdebug needs it for.  what_to_do: empty when there is nothing to do.
    detail: what was found, or what the machine said.
    """

    name: str
    status: Status
    why: str
    what_to_do: str
    detail: str


def diagnose(settings: Settings | None = None) -> tuple[Finding, ...]:
    """Probe this machine (about a second) and judge it."""
    chosen = settings or Settings()
    machine = probes.probe_machine(gdb=chosen.gdb, compiler=chosen.compiler)
    return judge(machine, os.environ)


def main_job_can_run(findings: Iterable[Finding]) -> bool:
    """Whether an MPI job can be debugged, checkpointed and restarted here."""
    return all(finding.status != "missing" for finding in findings)


def judge(machine: Machine, environment: Mapping[str, str] | None = None) -> tuple[Finding, ...]:
    """The findings, in the order in which a user would fix things.

    environment: the user's; variables that are set in it are left alone.
    """
    return (
        _of_answer("python", machine.python, "crdebug runs in it", "use Python 3.11 or newer"),
        _gdb(machine),
        _ptrace(machine),
        _of_answer("cc", machine.cc, "compiles crdebug's native part", _SETUP),
        _of_answer("mpicc", machine.mpicc, "compiles the part that records MPI calls", _SETUP),
        *_launchers(machine),
        *_settings(environment or {}),
        _of_answer(
            "mpifort",
            machine.mpifort,
            "only Fortran programs need it",
            "for Fortran programs, install gfortran",
            lacking="warning",
        ),
        *_criu(machine),
        _namespaces(machine),
        _capabilities(machine),
        _of_answer("tar", machine.tar, "CRIU stores the contents of tmpfs with it", _SETUP),
        _space(machine),
    )


# ---- the findings ------------------------------------------------------------------------------


def _of_answer(
    name: str, answer: Answer, why: str, what_to_do: str, *, lacking: Status = "missing"
) -> Finding:
    if answer.works:
        return Finding(name, "ok", why, "", _words(answer.version, answer.path))
    return Finding(
        name, lacking, why, what_to_do, _words(answer.said or answer.version, answer.path)
    )


def _words(what: str, path: str | None) -> str:
    return ", ".join(part for part in (what, path) if part)


def _gdb(machine: Machine) -> Finding:
    gdb = machine.gdb
    why = "one debugs each rank; it needs Python inside"
    if gdb.works:
        detail = _words(f"{gdb.version} with Python {gdb.python}", gdb.path)
        return Finding("gdb", "ok", why, "", detail)
    # Debian's gdb-minimal is such a GDB
    mend = f"install a GDB that has Python; {_SETUP} for one" if gdb.path else _SETUP
    return Finding("gdb", "missing", why, mend, _words(gdb.said, gdb.path))


def _ptrace(machine: Machine) -> Finding:
    ptrace = machine.ptrace
    why = "GDB attaches to ranks that it did not start"
    scope = "no Yama" if ptrace.scope is None else f"Yama's ptrace_scope is {ptrace.scope}"
    if ptrace.works:
        return Finding("ptrace", "ok", why, "", scope)
    if ptrace.scope == 3:
        mend = "ptrace_scope 3 stays until the machine is rebooted without it"
    elif ptrace.scope:
        mend = "run as root, or set kernel.yama.ptrace_scope to 0 by sysctl"
    else:
        mend = "allow ptrace: in a container, add CAP_SYS_PTRACE and a seccomp profile with it"
    return Finding("ptrace", "missing", why, mend, _words(ptrace.said, scope))


def _launchers(machine: Machine) -> tuple[Finding, ...]:
    why = "starts the ranks"
    if not machine.launchers:
        return (Finding("mpi", "missing", why, _SETUP, "no mpirun or mpiexec in PATH"),)
    return tuple(
        Finding(
            "mpi",
            "ok" if launcher.family else "warning",
            why,
            "" if launcher.family else "crdebug was tried with Open MPI and MPICH only",
            _words(f"{launcher.family} {launcher.version}".strip(), launcher.path),
        )
        for launcher in machine.launchers
    )


def _settings(environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """The variables that are set for launchers and transports, by the reason."""
    found: dict[str, list[str]] = {}
    for name, (value, reason) in NEEDED.items():
        yours = environment.get(name)
        told = f"{name}={value}" if yours is None else f"{name}={yours} (yours)"
        found.setdefault(reason, []).append(told)
    why = "crdebug sets it for the jobs that it starts, unless you have; see `info launch`"
    return tuple(
        Finding(_LAUNCH, "ok", why, "", f"{' '.join(told)}: {reason}")
        for reason, told in found.items()
    )


def _criu(machine: Machine) -> tuple[Finding, ...]:
    why = "takes the checkpoints"
    failed = [attempt for attempt in machine.criu if attempt.program is None]
    program = machine.criu[-1].program if machine.criu else None
    if program is None:
        if not machine.root:
            mend = "run as root: CRIU needs it; then 'crdebug setup'"
        elif len(failed) == 1:  # see crdebug.base.settings.criu_candidates()
            mend = "set CRDEBUG_CRIU to a CRIU that works; or unset it and run 'crdebug setup'"
        else:
            mend = _SETUP
        # usually there is no private CRIU; that counts only where there is no CRIU at all
        told = [attempt for attempt in failed if attempt.there] or failed
        detail = f"on kernel {machine.kernel}: {_failures(told)}"
        return (Finding("criu", "missing", why, mend, detail),)
    detail = f"{_words(program.version, program.path)}: {program.tried}"
    # one that is there and fails is worth a word
    broken = [attempt for attempt in failed if attempt.there]
    if broken:
        detail = f"{detail} (not {_failures(broken)})"
    found = Finding("criu", "ok", why, "", detail)
    features = ", ".join(f"{name} {'yes' if has else 'no'}" for name, has in machine.criu_features)
    return (
        found,
        # none of these is needed, so their lack is nothing to warn of
        Finding("criu features", "ok", "would make checkpoints faster or smaller", "", features),
    )


def _failures(attempts: Iterable[CriuAttempt]) -> str:
    return "; ".join(f"{attempt.candidate}: {attempt.said}" for attempt in attempts)


def _namespaces(machine: Machine) -> Finding:
    namespaces = machine.namespaces
    why = "a job has its own PIDs, network, IPC and mounts, so that a restart can have the same"
    if namespaces.works:
        return Finding("namespaces", "ok", why, "", "pid, net, ipc, uts, mount with its own /proc")
    refused = f"refused: {', '.join(namespaces.refused)}" if namespaces.refused else ""
    mend = "in a container, run it privileged" if machine.root else "run as root"
    return Finding("namespaces", "missing", why, mend, _words(namespaces.said, refused))


def _capabilities(machine: Machine) -> Finding:
    why = "the kernel asks for them when processes are traced, dumped and restored"
    has = [name for name, held in machine.capabilities if held]
    lacks = [name for name, held in machine.capabilities if not held]
    told = f"has {', '.join(has) or 'none'}"
    detail = f"{told}; not {', '.join(lacks)}" if lacks else told
    expected = [name for name in lacks if name in EXPECTED_CAPABILITIES]
    if not expected:
        return Finding("capabilities", "ok", why, "", detail)
    mend = "add them to the container" if machine.root else "run as root"
    return Finding("capabilities", "warning", why, mend, detail)


def _space(machine: Machine) -> Finding:
    space = machine.space
    why = "checkpoints are as large as the job's memory"
    detail = f"{space.free / (1 << 30):.1f} GiB free for {space.path}"
    if space.free >= LITTLE_SPACE:
        return Finding("space", "ok", why, "", detail)
    mend = "free some, or set CRDEBUG_HOME to a directory with more"
    return Finding("space", "warning", why, mend, detail)


# ---- the report --------------------------------------------------------------------------------


def as_text(findings: Sequence[Finding], *, verbose: bool = False) -> str:
    """One line for each finding, what to do below it, and the answer as the last line.

    verbose: also findings that need no action: crdebug's settings for launchers.
    """
    findings = [each for each in findings if verbose or each.name != _LAUNCH]
    width = max((len(finding.name) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.status:<7}  {finding.name:<{width}}  {finding.detail}")
        if finding.status != "ok":
            indent = " " * (width + 11)
            lines += [f"{indent}why: {finding.why}", f"{indent}to do: {finding.what_to_do}"]
    missing = [finding.name for finding in findings if finding.status == "missing"]
    if missing:
        lines.append(f"not ready: {', '.join(dict.fromkeys(missing))} missing")
    else:
        lines.append("ready: MPI jobs can be debugged, checkpointed and restarted here")
    return "\n".join(lines)


def as_json(findings: Sequence[Finding]) -> str:
    """{"ready": ..., "findings": [...]}; fields and their names are those of Finding."""
    report = {
        "ready": main_job_can_run(findings),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
    return json.dumps(report, indent=2)

"""`crdebug doctor`: how far can this user go on this machine, and what to do to go further.

There are levels: to look at jobs, to go back in them, to take checkpoints; and to look at jobs on
many hosts. What a level needs and does not find is "missing"; what only some uses need is a
"warning". Everything here but diagnose() is pure: crdebug.node.probes asks the machine, this page
judges the answers.
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
LevelName = Literal["look", "go back", "checkpoint", "many hosts"]

# what each level gives, and on which it builds
GIVES: dict[LevelName, str] = {
    "look": "run jobs, attach to them, stop, step and print on all ranks",
    "go back": "reverse commands, and the messages of the past",
    "checkpoint": "checkpoints on disk, restarts, branches side by side",
    "many hosts": "attach to jobs with ranks on several machines; checkpoints are of one machine",
}
BUILDS_ON: dict[LevelName, tuple[LevelName, ...]] = {
    "look": ("look",),
    "go back": ("look", "go back"),
    "checkpoint": ("look", "checkpoint"),
    "many hosts": ("look", "many hosts"),
}

# below this a checkpoint of a few small ranks may not fit
LITTLE_SPACE = 1 << 30

# What root's job container and CRIU use. The probes that really try decide; these explain.
EXPECTED_CAPABILITIES = ("CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE")

_LAUNCH = "launch"
_SETUP = "run 'crdebug setup'"
_LOST = "without it there are no checkpoints; the rest works"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    why: what crdebug needs it for.  what_to_do: empty when there is nothing to do.
    detail: what was found, or what the machine said.
    level: the lowest that it is needed for; None: for none.
    """

    name: str
    status: Status
    why: str
    what_to_do: str
    detail: str
    level: LevelName | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """One thing that a user may want to do here. why: the findings that are in the way."""

    name: LevelName
    status: Status
    gives: str
    why: str
    what_to_do: str


def diagnose(settings: Settings | None = None) -> tuple[Finding, ...]:
    """Probe this machine (about a second) and judge it. settings: those that sessions here begin
    with."""
    chosen = settings or Settings()
    machine = probes.probe_machine(gdb=chosen.gdb, compiler=chosen.compiler)
    return judge(machine, os.environ)


def main_job_can_run(findings: Sequence[Finding]) -> bool:
    """Whether an MPI job can be debugged here, in any level."""
    return bool(level_of(findings))


def level_of(findings: Sequence[Finding]) -> LevelName | None:
    """The highest level that works."""
    working = _working(levels(findings))
    return working[-1] if working else None


def _working(answers: Sequence[Level]) -> list[LevelName]:
    """On one machine, the lowest first."""
    return [each.name for each in answers if each.status == "ok" and each.name in _READY]


def levels(findings: Sequence[Finding]) -> tuple[Level, ...]:
    """The answer for each level, the lowest first."""
    return tuple(_level(name, below, findings) for name, below in BUILDS_ON.items())


def _level(name: LevelName, below: tuple[LevelName, ...], findings: Sequence[Finding]) -> Level:
    lacks = [each for each in findings if each.status == "missing" and each.level in below]
    whys = dict.fromkeys(f"{each.name} missing" for each in lacks)
    to_do = dict.fromkeys(each.what_to_do for each in lacks)
    return Level(name, "missing" if lacks else "ok", GIVES[name], ", ".join(whys), "; ".join(to_do))


def judge(machine: Machine, environment: Mapping[str, str] | None = None) -> tuple[Finding, ...]:
    """The findings, in the order in which a user would fix things.

    environment: the user's; variables that are set in it are left alone.
    """
    return (
        _of_answer("python", machine.python, "crdebug runs in it", "use Python 3.11 or newer"),
        _gdb(machine),
        _ptrace(machine),
        _of_answer("cc", machine.cc, "compiles crdebug's native part", _SETUP),
        *_launchers(machine),
        _of_answer(
            "mpicc",
            machine.mpicc,
            "compiles the part that records MPI calls",
            _SETUP,
            level="go back",
        ),
        *_settings(environment or {}),
        _of_answer(
            "mpifort",
            machine.mpifort,
            "only Fortran programs need it",
            "for Fortran programs, install gfortran",
            lacking="warning",
        ),
        _of_answer(
            "asyncssh",
            machine.asyncssh,
            "reaches the ranks on other hosts",
            "pip install 'crdebug[hosts]'",
            level="many hosts",
        ),
        *_criu(machine),
        _namespaces(machine),
        _privileges(machine),
        _space(machine),
    )


# ---- the findings ------------------------------------------------------------------------------


def _of_answer(
    name: str,
    answer: Answer,
    why: str,
    what_to_do: str,
    *,
    lacking: Status = "missing",
    level: LevelName = "look",
) -> Finding:
    needed = level if lacking == "missing" else None
    if answer.works:
        return Finding(name, "ok", why, "", _words(answer.version, answer.path), needed)
    said = _words(answer.said or answer.version, answer.path)
    return Finding(name, lacking, why, what_to_do, said, needed)


def _words(what: str, path: str | None) -> str:
    return ", ".join(part for part in (what, path) if part)


def _gdb(machine: Machine) -> Finding:
    gdb = machine.gdb
    why = "one debugs each rank; it needs Python inside"
    if gdb.works:
        detail = _words(f"{gdb.version} with Python {gdb.python}", gdb.path)
        return Finding("gdb", "ok", why, "", detail, "look")
    # Debian's gdb-minimal is such a GDB
    mend = f"install a GDB that has Python; {_SETUP} for one" if gdb.path else _SETUP
    return Finding("gdb", "missing", why, mend, _words(gdb.said, gdb.path), "look")


def _ptrace(machine: Machine) -> Finding:
    ptrace = machine.ptrace
    why = "GDB attaches to ranks that it did not start"
    scope = "no Yama" if ptrace.scope is None else f"Yama's ptrace_scope is {ptrace.scope}"
    if ptrace.works:
        return Finding("ptrace", "ok", why, "", scope, "look")
    if ptrace.scope == 3:
        mend = "ptrace_scope 3 stays until the machine is rebooted without it"
    elif ptrace.scope:
        mend = "have an administrator set kernel.yama.ptrace_scope to 0 by sysctl, or run as root"
    else:
        mend = "allow ptrace: in a container, add CAP_SYS_PTRACE and a seccomp profile with it"
    if ptrace.ranks:
        detail = f"{scope}: only jobs that 'crdebug run' starts, not those that 'attach' finds"
        return Finding("ptrace", "warning", why, mend, detail, "look")
    return Finding("ptrace", "missing", why, mend, _words(ptrace.said, scope), "look")


def _launchers(machine: Machine) -> tuple[Finding, ...]:
    why = "starts the ranks"
    if not machine.launchers:
        return (Finding("mpi", "missing", why, _SETUP, "no mpirun or mpiexec in PATH", "look"),)
    return tuple(
        Finding(
            "mpi",
            "ok" if launcher.family else "warning",
            why,
            "" if launcher.family else "crdebug was tried with Open MPI and MPICH only",
            _words(f"{launcher.family} {launcher.version}".strip(), launcher.path),
            "look",
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
        if not machine.namespaces.works:
            mend = "first the namespaces, in which it is tried; then 'crdebug doctor' again"
        elif len(failed) == 1:  # see crdebug.base.settings.criu_candidates()
            mend = "set CRDEBUG_CRIU to a CRIU that works; or unset it and run 'crdebug setup'"
        else:
            mend = _SETUP
        # usually there is no private CRIU; that counts only where there is no CRIU at all
        told = [attempt for attempt in failed if attempt.there] or failed
        detail = f"on kernel {machine.kernel}: {_failures(told)}"
        return (Finding("criu", "missing", why, mend, detail, "checkpoint"),)
    detail = f"{_words(program.version, program.path)}: {program.tried}"
    # one that is there and fails is worth a word
    broken = [attempt for attempt in failed if attempt.there]
    if broken:
        detail = f"{detail} (not {_failures(broken)})"
    found = Finding("criu", "ok", why, "", detail, "checkpoint")
    if not machine.criu_features:
        return (found,)
    features = ", ".join(f"{name} {'yes' if has else 'no'}" for name, has in machine.criu_features)
    return (
        found,
        # none of these is needed, so their lack is nothing to warn of
        Finding("criu features", "ok", "would make checkpoints faster or smaller", "", features),
    )


def _failures(attempts: Iterable[CriuAttempt]) -> str:
    return "; ".join(f"{attempt.candidate}: {attempt.said}" for attempt in attempts)


# what an administrator has to do about each switch that is set against user namespaces
_SWITCH_BACK = {
    "user.max_user_namespaces": "sysctl user.max_user_namespaces=10000",
    "kernel.unprivileged_userns_clone": "sysctl kernel.unprivileged_userns_clone=1",
    "kernel.apparmor_restrict_unprivileged_userns": (
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    ),
}


def _namespaces(machine: Machine) -> Finding:
    namespaces = machine.namespaces
    why = "a job has its own PIDs, network, IPC and mounts, so that a restart can have the same"
    if namespaces.works:
        kinds = "pid, net, ipc, uts, mount with its own /proc"
        detail = kinds if machine.root else f"{kinds}, in a user namespace"
        return Finding("namespaces", "ok", why, "", detail, "checkpoint")
    against = [_SWITCH_BACK[name] for name in namespaces.against if name in _SWITCH_BACK]
    if against and not machine.root:
        mend = f"for an administrator: {'; '.join(against)}"
    elif probes.SECCOMP in namespaces.against and not machine.root:
        mend = "in a container, start it with a seccomp profile that allows user namespaces"
    elif machine.root:
        mend = "in a container, run it privileged"
    else:
        mend = "run as root, or where users may make namespaces"
    set_against = f"set against it: {', '.join(namespaces.against)}" if namespaces.against else ""
    detail = _words(namespaces.said, set_against)
    return Finding("namespaces", "missing", f"{why}; {_LOST}", mend, detail, "checkpoint")


def _privileges(machine: Machine) -> Finding:
    if not machine.root:
        detail = (
            "none, and none needed; but only root has incremental checkpoints, checkpoints of jobs "
            "that 'attach' found, and the jobs of other users"
        )
        return Finding("privileges", "ok", "some things really need them", "", detail)
    why = "the kernel asks for them when root's processes are traced, dumped and restored"
    has = [name for name, held in machine.capabilities if held]
    lacks = [name for name, held in machine.capabilities if not held]
    told = f"has {', '.join(has) or 'none'}"
    detail = f"{told}; not {', '.join(lacks)}" if lacks else told
    if not any(name in EXPECTED_CAPABILITIES for name in lacks):
        return Finding("privileges", "ok", why, "", detail)
    return Finding("privileges", "warning", why, "add them to the container", detail)


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
    """One line for each finding, with what to do below it; then one for each level, and the answer
    as the last line.

    verbose: also findings that need no action: crdebug's settings for launchers.
    """
    shown = [each for each in findings if verbose or each.name != _LAUNCH]
    answers = levels(findings)
    width = max(map(len, (*(each.name for each in shown), *GIVES)))
    lines = []
    for finding in shown:
        lines.append(f"{finding.status:<7}  {finding.name:<{width}}  {finding.detail}")
        if finding.status != "ok":
            lines += _to_do(width, finding.why, finding.what_to_do)
    lines.append("")
    for level in answers:
        lines.append(f"{level.status:<7}  {level.name:<{width}}  {level.gives}")
        if level.status != "ok":
            lines += _to_do(width, level.why, level.what_to_do)
    lines.append(_answer(answers))
    return "\n".join(lines)


def _to_do(width: int, why: str, what_to_do: str) -> list[str]:
    indent = " " * (width + 11)
    return [f"{indent}why: {why}", f"{indent}to do: {what_to_do}"]


_READY: dict[LevelName, str] = {
    "look": "ready to look: MPI jobs can be debugged here",
    "go back": "ready to go back: MPI jobs can be debugged here, also backwards",
    "checkpoint": "ready: MPI jobs can be debugged, checkpointed and restarted here",
}


def _answer(answers: Sequence[Level]) -> str:
    working = _working(answers)
    if not working:
        return f"not ready: {answers[0].why}"
    lacking = [level for level in answers if level.name in _READY and level.status != "ok"]
    without = "; ".join(f"not to {level.name}: {level.why}" for level in lacking)
    return _READY[working[-1]] + (f" ({without})" if without else "")


def as_json(findings: Sequence[Finding]) -> str:
    """{"ready": ..., "level": ..., "levels": [...], "findings": [...]}; fields and their names are
    those of Level and Finding."""
    report = {
        "ready": main_job_can_run(findings),
        "level": level_of(findings),
        "levels": [dataclasses.asdict(level) for level in levels(findings)],
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
    return json.dumps(report, indent=2)

"""`crdebug doctor --hosts`: how far a user can go on each of several hosts.

Hosts whose answers are equal are one line. A host of ranks needs no launcher to be looked at: the
agent's GDBs attach to what the launcher's daemons have started there. All here is pure.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from crdebug.base.errors import CrdebugError
from crdebug.commands.doctor import Level, judge, levels
from crdebug.node.probes import Machine

_SHOWN = 8  # names of one line


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one host.

    levels: for the jobs there, the lowest first; none if it could not be asked.
    problem: why not.  what_to_do: about that.
    """

    levels: tuple[Level, ...]
    problem: str = ""
    what_to_do: str = ""

    @property
    def can_be_looked_at(self) -> bool:
        return bool(self.levels) and self.levels[0].status == "ok"


@dataclass(frozen=True, slots=True)
class Alike:
    """Hosts with the same verdict, in the order in which the user named them."""

    hosts: tuple[str, ...]
    verdict: Verdict


def compare(found: Mapping[str, Machine | CrdebugError]) -> tuple[Alike, ...]:
    """The verdicts, in the order of their first hosts."""
    alike: dict[Verdict, list[str]] = {}
    for host, answer in found.items():
        alike.setdefault(_verdict(host, answer), []).append(host)
    return tuple(Alike(tuple(hosts), _named(verdict, hosts)) for verdict, hosts in alike.items())


def all_can_be_looked_at(report: Sequence[Alike]) -> bool:
    return all(each.verdict.can_be_looked_at for each in report)


def _verdict(host: str, answer: Machine | CrdebugError) -> Verdict:
    """Without the host's name, so that it can be that of others too."""
    if isinstance(answer, CrdebugError):
        name = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])")
        words = name.sub("HOST", answer.clause())
        return Verdict((), words, name.sub("HOST", answer.hint or ""))
    findings = judge(answer)
    look = levels([each for each in findings if each.name != "mpi"])[0]
    others = [each for each in levels(findings)[1:] if each.name != "many hosts"]
    return Verdict((look, *others))


def _named(verdict: Verdict, hosts: Sequence[str]) -> Verdict:
    """With the name again, if there is only one."""
    if len(hosts) > 1:
        return verdict
    problem, what_to_do = (
        each.replace("HOST", hosts[0]) for each in (verdict.problem, verdict.what_to_do)
    )
    return dataclasses.replace(verdict, problem=problem, what_to_do=what_to_do)


# ---- the report --------------------------------------------------------------------------------


def as_text(report: Sequence[Alike]) -> str:
    """One line for hosts that are alike, with what is in the way below it; the answer is the last
    line."""
    width = max(len(_names(each.hosts)) for each in report)
    lines = []
    for each in report:
        status = "ok" if each.verdict.can_be_looked_at else "missing"
        first, *more = _lines(each.verdict)
        lines.append(f"{status:<7}  {_names(each.hosts):<{width}}  {first}")
        lines += [f"{'':{width + 11}}{line}" for line in more]
    return "\n".join([*lines, _answer(report)])


def _lines(verdict: Verdict) -> Iterator[str]:
    if verdict.problem:
        yield verdict.problem
        if verdict.what_to_do:
            yield f"to do: {verdict.what_to_do}"
        return
    yield ", ".join(each.name for each in verdict.levels if each.status == "ok") or "nothing"
    for each in verdict.levels:
        if each.status != "ok":
            yield f"not to {each.name}: {each.why}"
            yield f"to do: {each.what_to_do}"
            if each is verdict.levels[0]:
                return  # the others build on it


def _names(hosts: Sequence[str]) -> str:
    shown = ",".join(hosts[:_SHOWN])
    return f"{shown} and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else shown


def _answer(report: Sequence[Alike]) -> str:
    not_ready = [
        host for each in report if not each.verdict.can_be_looked_at for host in each.hosts
    ]
    if not_ready:
        return f"not ready: {_names(not_ready)}"
    return "ready: 'crdebug attach' can debug the ranks on all of them"


def as_json(report: Sequence[Alike]) -> str:
    """{"ready": ..., "hosts": [{"hosts": [...], "levels": [...], "problem": ..., "what_to_do":
    ...}]}; fields and their names are those of Alike, Verdict and Level."""
    hosts = [{"hosts": each.hosts, **dataclasses.asdict(each.verdict)} for each in report]
    return json.dumps({"ready": all_can_be_looked_at(report), "hosts": hosts}, indent=2)

"""Ranks whose GDBs are with agents, as on other hosts: the same answers as here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
import pytest_asyncio
from processes import Process, Spawn, kill_gdb, soon

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable, Refused
from crdebug.base.events import Event, JobSays, StopReason
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.debugger.group import TargetGroup
from crdebug.debugger.target import BreakpointRequest, Motion, TargetState, Verb
from crdebug.hosts.attach import attach_everywhere
from crdebug.hosts.survey import survey
from crdebug.node import probes, proc
from crdebug.node.probes import Machine
from crdebug.session import Session
from harness.agents import Agents, LocalAgent, agents, found, stopped

ALL = RankSet.span(4)
HERE, THERE = RankSet.of([0, 1]), RankSet.of([2, 3])


class Job:
    """Ranks 0 and 1 here; 2 on a host n2, 3 on n3; or all of them here."""

    def __init__(self, processes: list[Process], made: Agents) -> None:
        self.processes = processes
        self.agents = made
        self.told: list[str] = []
        self.settings = Settings(host_interval=0.5, host_misses=4, stop=10.0)
        self.group: TargetGroup

    def tell(self, event: Event) -> None:
        if isinstance(event, JobSays):
            self.told.append(event.text)

    async def attach(self, *, over_hosts: bool) -> TargetGroup:
        pids = {rank: process.pid for rank, process in enumerate(self.processes)}
        far = {"n2": {2: pids[2]}, "n3": {3: pids[3]}} if over_hosts else {}
        near = pids if not over_hosts else {rank: pids[rank] for rank in HERE}
        _, self.group = await attach_everywhere(
            found(near, far), "", self.settings, self.tell, self.agents.start
        )
        return self.group


@asynccontextmanager
async def job(spawn: Spawn) -> AsyncIterator[Job]:
    processes = [spawn("pace=500", "threads=1", rank=rank) for rank in range(4)]
    async with agents() as made:
        job = Job(processes, made)
        try:
            yield job
        finally:
            if hasattr(job, "group"):
                await job.group.close()


@pytest_asyncio.fixture
async def far(spawn: Spawn) -> AsyncIterator[Job]:
    """Attached over hosts."""
    async with job(spawn) as made:
        await made.attach(over_hosts=True)
        yield made


async def tour(group: TargetGroup) -> list[object]:
    """What a user does, and what is the same wherever the ranks are."""
    session = Session(group, "test", group.settings, None)
    seen: list[object] = []
    made = await session.add_breakpoint(ALL, "factorial", condition="k == 3")
    seen += [made.number, made.problems]
    there, stop = await group.gather(ALL, made.number)
    seen += [there, [(each.rank, each.reason, each.detail) for each in stop.stops]]
    await session.delete_breakpoint(made.number)
    seen.append((await session.evaluate(ALL, "pace")).merged())
    seen.append((await session.evaluate(ALL, "nothing_of_this_name")).merged_errors())
    seen.append([(r, str(f[1].location)) for r, f in (await session.backtrace(ALL)).merged()])
    seen.append((await session.select_frame(ALL, "up")).merged()[0][1].location.function)
    seen.append((await session.gdb(ALL, "info frame")).merged_errors())
    seen.append((await session.select_thread(ALL, 1)).merged())
    seen.append([(b.frames[-1:], b.ranks) for b in (await session.stack_tree(ALL)).branches])
    seen.append(len((await session.info_threads(ALL)).merged()[0][1]))
    seen.append([n.values for n in (await session.numbers(ALL, "pace")).values.values()])
    stopped = await session.finish(ALL)
    seen.append([(each.rank, each.reason, str(each.location)) for each in stopped.cause])
    stopped = await session.next(ALL)
    seen.append([(each.rank, each.reason, str(each.location)) for each in stopped.cause])
    seen.append((await session.set_variable(ALL, "pace = 700")).merged())
    seen.append((await session.evaluate(ALL, "pace", "/x")).merged())
    seen.append((await session.barrier(ALL, "rank.c:75")).there)
    seen.append([line for line in await session.complete(3, "print pac") if "pace" in line])
    watch = await session.add_breakpoint(RankSet.of([3]), "hot", condition="1 == 1")
    stopped = await session.resume(ALL)
    seen.append([(each.rank, each.reason, each.detail) for each in stopped.cause])
    await session.delete_breakpoint(watch.number)
    return seen


async def test_the_same_answers_as_on_one_host(spawn: Spawn) -> None:
    seen = []
    for over_hosts in (False, True):
        async with job(spawn) as made:
            seen.append(await tour(await made.attach(over_hosts=over_hosts)))
            detached = await made.group.detach_all()
            assert not detached.errors
            for process in made.processes:
                process.assert_free()
    assert seen[0] == seen[1]


async def test_an_interrupt_and_an_end_reach_the_other_hosts(far: Job) -> None:
    run = asyncio.create_task(far.group.resume(ALL))
    while far.group.running != ALL:
        await asyncio.sleep(0)
    await far.group.interrupt()
    result = await soon().wait(run, "the stop")
    assert {stop.reason for stop in result.stops} == {StopReason.INTERRUPT}
    await far.group.evaluate(RankSet.of([3]), "ending = 4")
    result = await soon().wait(far.group.resume(ALL), "rank 3 to come to its end")
    assert [(stop.rank, stop.reason) for stop in result.cause] == [(3, StopReason.ENDING)]
    result = await soon().wait(far.group.resume(ALL), "the end of rank 3")
    assert [(stop.rank, stop.reason, stop.detail) for stop in result.cause] == [
        (3, StopReason.EXITED, "3")
    ]
    told = await far.group.evaluate(ALL, "pace")
    assert str(told.errors[3]) == "rank 3 exited with status 3"


async def test_a_session_over_hosts_takes_no_checkpoint_and_says_so(far: Job) -> None:
    session = Session(far.group, "test", far.settings, None)
    session._found = found({}, {"n2": {2: far.processes[2].pid}})
    with pytest.raises(Refused, match="ranks on other hosts"):
        await session.checkpoint()


# ---- what can go wrong -------------------------------------------------------------------------


# By default each of both; with --all each with each.
LOST = [
    *(("stopped", "stands"), ("stopped", "steps")),
    *(("cut", "runs"), ("cut", "is asked")),
]
MORE = [
    *(("stopped", "runs"), ("stopped", "is asked")),
    *(("cut", "stands"), ("cut", "steps")),
]


async def busy_with(group: TargetGroup, meanwhile: str) -> asyncio.Task[object] | None:
    """Begin this."""
    if meanwhile == "stands":
        return None
    if meanwhile == "is asked":
        line = "python import time; time.sleep(3)"
        asking = asyncio.create_task(group.console(ALL, line))
        await asyncio.sleep(0)
        return asking
    motion = Motion(Verb.NEXT, 100000)
    run = group.resume(ALL) if meanwhile == "runs" else group.run(ALL, motion)
    work = asyncio.create_task(run)
    while group.running != ALL:
        await asyncio.sleep(0)
    return work


@pytest.mark.parametrize(
    ("how", "meanwhile"), [*LOST, *(pytest.param(*each, marks=pytest.mark.sweep) for each in MORE)]
)
async def test_an_agent_that_is_lost_is_named_and_the_others_go_on(
    far: Job, how: str, meanwhile: str
) -> None:
    group, agent = far.group, far.agents.hosts["n3"]
    work = await busy_with(group, meanwhile)
    with stopped(agent) if how == "stopped" else contextlib.nullcontext():
        if how == "cut":
            agent.stream.cut = True
        latency = Deadline(far.settings.host_interval * (far.settings.host_misses + 2) + 5)
        await latency.until(lambda: bool(group.nodes[1].lost), "the agent to be lost")
        if work is not None:
            with contextlib.suppress(CrdebugError):  # in words, of the lost rank
                await latency.wait(work, "the others")
    assert any("the agent on n3" in each and "rank 3" in each for each in far.told), far.told
    assert group[3].state is TargetState.DEAD
    others = ALL - RankSet.of([3])
    if group.running:
        await group.interrupt()
        await soon().until(lambda: not group.running, "the others to stop")
    told = await group.evaluate(ALL, "pace")
    assert told.merged() == ((others, "500"),)
    assert "the agent on n3" in str(told.errors[3])
    await group.detach_all()


@pytest.mark.parametrize("meanwhile", ["stands", "runs", "steps", "is asked"])
async def test_an_agent_that_is_killed_is_replaced(far: Job, meanwhile: str) -> None:
    """Another one takes its ranks up where they are now, with their breakpoints."""
    group, session = far.group, Session(far.group, "test", far.settings, far.tell)
    point = await group.add_breakpoint(ALL, BreakpointRequest("factorial", condition="pace < 0"))
    work = await busy_with(group, meanwhile)
    far.agents.hosts["n3"].signal(signal.SIGKILL)
    again = "another agent on n3 has rank 3, which stands where it is now"
    await soon().until(lambda: again in far.told, "another agent")
    if work is not None:
        with contextlib.suppress(CrdebugError):  # in words, of the lost rank
            await soon().wait(work, "the others")
    if group.running:
        await group.interrupt()
        await soon().until(lambda: not group.running, "the others to stop")
    assert [each for each in far.told if "the agent on n3 has ended" in each], far.told
    assert group[3].state is TargetState.STOPPED
    assert (await group.evaluate(ALL, "pace")).merged() == ((ALL, "500"),)
    assert group.table.get(point.number).ranks == ALL
    await group.set_condition(point.number, "k == 3")
    assert (await session.barrier(ALL, "factorial")).there == ALL
    await session.delete_breakpoint(point.number)
    detached = await group.detach_all()
    assert not detached.errors
    for process in far.processes:
        process.assert_free()


def _more(count: Callable[[], int], than: int) -> bool:
    return count() > than


async def test_an_agent_that_ends_again_and_again_is_left_alone(far: Job) -> None:

    def done() -> int:
        return sum("other agent" in each for each in far.told)

    for times in range(3):
        far.agents.hosts["n3"].signal(signal.SIGKILL)
        await soon().until(partial(_more, done, times), "what is done")
    assert far.told[-1] == "rank 3: no other agent is started on n3 any more"
    assert far.group[3].state is TargetState.DEAD
    await far.group.detach_all()


async def test_one_that_cannot_be_replaced_leaves_the_others_alone(far: Job) -> None:
    far.agents.fails = True
    far.agents.hosts["n3"].signal(signal.SIGKILL)
    told = "rank 3: no other agent on n3: "
    await soon().until(lambda: any(told in each for each in far.told), "the failure")
    await far.group.whole()
    assert [node.lost for node in far.group.nodes] == ["", "has ended"]
    assert (await far.group.evaluate(HERE, "pace")).merged() == ((HERE, "500"),)
    stop = await soon().wait(far.group.run(HERE | RankSet.of([2]), Motion(Verb.NEXT, 1)), "a line")
    assert len(stop.stops) == 3
    await far.group.detach_all()


async def test_a_rank_that_ends_with_its_agent_has_ended(far: Job) -> None:
    os.kill(far.processes[3].pid, signal.SIGKILL)
    far.agents.hosts["n3"].signal(signal.SIGKILL)
    await soon().until(lambda: far.group[3].state is TargetState.EXITED, "the end of rank 3")
    assert far.group[2].state is TargetState.STOPPED


async def test_an_agent_that_is_cut_off_lets_its_ranks_go(spawn: Spawn) -> None:
    async with job(spawn) as made:
        made.settings.host_patience = 3.0
        made.settings.host_interval = 1.0  # the others hear of crdebug
        made.settings.host_misses = 600  # which notices nothing, and closes nothing
        await made.attach(over_hosts=True)
        made.agents.hosts["n3"].stream.cut = True
        there = made.processes[3].pid
        await soon().until(lambda: proc.status(there)["TracerPid"] == "0", "the agent to let go")
        assert made.group[2].state is TargetState.STOPPED


@pytest.mark.parametrize("rank", [1, 3])
async def test_a_gdb_that_dies_there_is_as_one_that_dies_here(far: Job, rank: int) -> None:
    await far.group.add_breakpoint(RankSet.of([rank]), BreakpointRequest("hot"))
    await far.group.resume(ALL)
    kill_gdb(far.group[rank])
    await soon().until(lambda: far.group[rank].state is TargetState.DEAD, "its death")
    told = await far.group.evaluate(ALL, "pace")
    assert "gdb ended" in str(told.errors[rank])
    assert told.merged() == ((ALL - RankSet.of([rank]), "500"),)


async def test_a_process_that_is_no_such_rank_is_left_alone(spawn: Spawn) -> None:
    """Whoever forges a launcher's table could have crdebug stop any process."""
    async with job(spawn) as made:
        made.processes[3] = spawn("pace=500", rank=7)
        with pytest.raises(Refused, match=r"rank 3: process \d+ does not say that it is this rank"):
            await made.attach(over_hosts=True)
        for process in made.processes:
            process.assert_free()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["false"], "no agent answers"),
        (["cat", "/dev/urandom"], "no agent answers"),
        (
            ["sh", "-c", "sleep 0.1; echo Welcome to this host, have fun and see you; cat"],
            "no agent",
        ),
        (["python3", "-c", "import os, sys; os.write(1, bytes(4)); sys.stdin.read()"], "no"),
    ],
)
async def test_something_else_that_answers_is_named(
    spawn: Spawn, command: list[str], words: str
) -> None:
    processes = [spawn("pace=500", rank=rank) for rank in range(4)]
    async with agents(command) as made:
        job = Job(processes, made)
        job.settings = replace(job.settings, attach=3)  # some say nothing more
        with pytest.raises(NotAvailable, match=words):
            await job.attach(over_hosts=True)
    for process in processes:
        process.assert_free()


async def test_one_that_never_answers_is_not_waited_for(spawn: Spawn) -> None:
    process = spawn("pace=500", rank=0)
    async with agents(["sleep", "1000"]) as made:
        with pytest.raises(NotAvailable, match=r"no agent answers: .* its first answer"):
            await attach_everywhere(
                found({}, {"n2": {0: process.pid}}), "", Settings(attach=0.5), None, made.start
            )
    process.assert_free()


async def test_agents_say_what_their_machines_have() -> None:
    """The same as is found here; a host that has no agent has an error, and keeps nobody waiting.
    No agent is left."""
    here = probes.probe_machine()
    async with agents() as made, agents(["false"]) as broken:

        async def start(host: str, deadline: Deadline) -> LocalAgent:
            return await (broken if host == "n3" else made).start(host, deadline)

        answers = await survey(("localhost", "n2", "n3"), Settings(), start)
        assert list(made.hosts) == ["n2"] and made.hosts["n2"].process.returncode is not None
    for host in ("localhost", "n2"):
        answer = answers[host]
        assert isinstance(answer, Machine)
        assert replace(answer, space=here.space) == here
    assert isinstance(answers["n3"], NotAvailable) and "no agent answers" in str(answers["n3"])

"""A crdebug that kills itself with SIGKILL at a given moment: `python -m harness.victim PLAN`.

PLAN is JSON:
  start   "run" or "attach", or "restart" from `handle`
  argv    the launcher's command, to run
  break   a function to stop in first
  verb    the operation then: "checkpoint", "restart", or nothing
  then    and after that
  at      [operation, phase]: die at that event; "stopped" or "running": die before the verb;
          "done": die after all; "criu": be killed by the CRIU
Before it dies it writes a line of JSON: {"gdbs": [PID, ...], "job": PID of PID 1}.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from crdebug.attached.checkpoint import Operation
from crdebug.base.events import Event, Progress, RankRunning
from crdebug.job.directory import JobDirectory
from crdebug.node import proc
from crdebug.session import Session
from harness.jobs import JOB


def publish_when(last: asyncio.Event) -> Callable[[], None]:
    """Publish only when nothing else is left to do: otherwise that might be done, and never
    reported, before the ranks are out.

    last: set when it is reported. Returns a function that undoes this.
    """
    publish = Operation.publish

    async def after_all(operation: Operation) -> None:
        await last.wait()
        await publish(operation)

    patch = pytest.MonkeyPatch()
    patch.setattr(Operation, "publish", after_all)
    return patch.undo


class Victim:
    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.running: set[int] = set()
        self.runs = asyncio.Event()
        self.ranks = 0
        self.last = asyncio.Event()

    def hear(self, event: Event) -> None:
        if isinstance(event, Progress) and [event.operation, event.phase] == self.plan["at"]:
            self.die()
        if isinstance(event, Progress) and event.phase == "dump":
            self.last.clear()
        if isinstance(event, Progress) and event.phase == "publish":
            self.last.set()
        if isinstance(event, RankRunning):
            self.running.add(event.rank)
            if len(self.running) == self.ranks:
                self.runs.set()

    def tell(self) -> None:
        directory = JobDirectory(JOB)
        children = [pid for pid in proc.pids() if _parent(pid) == os.getpid()]
        gdbs = [pid for pid in children if "--interpreter=mi3" in proc.command_line(pid)]
        job = directory.read().pid if directory.exists() else 0
        print(json.dumps({"gdbs": gdbs, "job": job}), flush=True)

    def die(self) -> None:
        self.tell()
        os.kill(os.getpid(), signal.SIGKILL)

    async def live(self) -> None:
        publish_when(self.last)
        session = await self.start()
        self.ranks = len(session.ranks)
        if self.plan.get("break"):
            await session.add_breakpoint(session.ranks, self.plan["break"])
            await session.resume(session.ranks)
        if self.plan["at"] == "stopped":
            self.die()
        if self.plan["at"] == "criu":
            self.tell()
        if self.plan["at"] == "running":
            self.running.clear()
            running = asyncio.create_task(session.resume(session.ranks))
            await self.runs.wait()
            self.die()
            await running
        for verb in (self.plan.get("verb"), self.plan.get("then")):
            if verb == "checkpoint":
                await session.checkpoint()
            elif verb == "restart":
                await session.restart()
        if self.plan["at"] == "done":
            self.die()

    async def start(self) -> Session:
        if self.plan["start"] == "run":
            return await Session.run(self.plan["argv"], name=JOB, subscriber=self.hear)
        if self.plan["start"] == "attach":
            return await Session.attach(JOB, subscriber=self.hear)
        return await Session.restart_from(self.plan["handle"], subscriber=self.hear)


def _parent(pid: int) -> int:
    try:
        return proc.parent(pid)
    except ProcessLookupError:
        return 0


if __name__ == "__main__":
    asyncio.run(Victim(json.loads(sys.argv[1])).live())

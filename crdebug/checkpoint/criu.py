"""CRIU as the checkpoint/restart service (criu(8)).

Its options are those that crdebug.node.criu_trial tries a CRIU with, where each one's reason is.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path

from crdebug.base.deadline import FOR_EVER, Deadline
from crdebug.base.errors import CrdebugError, CrsFailed, StoreError
from crdebug.base.settings import cache_home
from crdebug.checkpoint.crs import OnceWhole, T, WhileFrozen
from crdebug.node import container, owners, proc, programs, scratch
from crdebug.node.broken_dump import Before
from crdebug.node.container import Container
from crdebug.node.criu_program import CriuProgram
from crdebug.node.criu_trial import COMMON as _COMMON
from crdebug.node.criu_trial import DUMP as _DUMP
from crdebug.node.criu_trial import RESTORE as _RESTORE
from crdebug.node.criu_trial import UNPRIVILEGED as _UNPRIVILEGED
from crdebug.node.criu_trial import errors_in

# A tree without namespaces of its own: its session may be its starter's.
_NO_CONTAINER = ("--shell-job",)
_FROZEN, _WHOLE = "post-dump", "post-restore"
_LOOK = 0.25  # seconds between two looks whether the tree was killed
_TO_FINISH = 2.0  # seconds; a tree that was released may end by itself before CRIU has
_TO_END = 30.0  # seconds; a killed process ends at once, unless the kernel is in trouble


class _Rendezvous:
    """Where CRIU's action script meets us. act: by action, a function that gets the PID of the
    tree's first process; returns a plan that the script is to carry out, if there is one."""

    def __init__(self, act: Mapping[str, Callable[[int], Awaitable[Path | None]]]) -> None:
        self._act = act
        self.pid: int | None = None
        self.error: BaseException | None = None
        self.refused = False  # the dump or restore is not wanted any more
        self.final = False  # a plan is being carried out, or was
        self._serving: set[asyncio.Task[None]] = set()

    async def over(self) -> None:
        """CRIU has ended. If it was killed, its script outlives it: its requests are not answered
        any more, but a plan that it is carrying out is completed first."""
        if not self.final:
            self.refused = True
            for each in self._serving:
                each.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            words = (await reader.readline()).decode().split()
            if self.refused:
                return  # without an answer the action fails, and so does the CRS
            plan = None
            if len(words) == 2 and words[0] in self._act:
                pid = int(words[1])
                plan = await self._act[words[0]](pid)
                self.pid = pid
            if self.refused:
                return
            if plan is None:
                writer.write(b"go\n")
                await writer.drain()
                return
            self.final = words[0] == _WHOLE
            writer.write(b"carry out " + os.fsencode(plan) + b"\n")
            await writer.drain()
            told = (await reader.readline()).decode(errors="replace").strip()
            if told and told != "done":
                self.error = StoreError(told)
        except (ConnectionError, EOFError):
            pass  # the script was killed; its CRS tells
        except asyncio.CancelledError:
            pass  # of `over`
        except BaseException as error:  # goes to whoever started the dump
            self.error = error
        finally:
            writer.close()


class Criu:
    """CRIU behind the CRS seam. helper: our starter, which is its action script."""

    def __init__(self, program: CriuProgram, helper: Path) -> None:
        self._program = program
        self._helper = helper

    @property
    def name(self) -> str:
        return f"criu {self._program.version}"

    @property
    def tracks(self) -> bool:
        return self._program.tracks

    async def dump(
        self,
        pid: int,
        images: Path,
        frozen: WhileFrozen[T],
        deadline: Deadline,
        *,
        container: Container | None,
        track: bool = False,
        base: Path | None = None,
    ) -> T:
        """When this is cancelled, CRIU is left to finish if that is near: to make a process execute
        a system call, it replaces some of the process's code for some microseconds, and would leave
        it so if it were killed just then."""
        arguments = ["dump", "--tree", str(proc.inner_pid(pid)), *_COMMON, *_DUMP]
        if track:
            arguments.append("--track-mem")
        if base is not None:  # found from the images' directory, wherever that is by then
            arguments += ["--prev-images-dir", os.path.relpath(base, images)]
        found: list[T] = []

        async def note(_inner: int) -> None:
            found.append(await frozen(pid))

        meeting = _Rendezvous({_FROZEN: note})
        work = self._run(arguments, container, images, meeting, deadline)
        running = asyncio.create_task(_or_restored(pid, work))
        try:
            await _unless_killed(pid, running)
        except asyncio.CancelledError:
            meeting.refused = True
            await asyncio.wait([running], timeout=min(deadline.left, _TO_END))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            raise
        return found[-1]

    async def restore(
        self,
        images: Path,
        whole: OnceWhole[T],
        deadline: Deadline,
        *,
        container: Container | None,
        passed: int = -1,
        instead: Mapping[str, int] | None = None,
    ) -> T:
        found: list[T] = []

        async def planned(inner: int) -> Path:
            plan, value = await whole(container.find(inner) if container else inner)
            found.append(value)
            return plan

        meeting = _Rendezvous({_WHOLE: planned})
        arguments = ["restore", *_COMMON, *_RESTORE]
        for name, descriptor in (instead or {}).items():
            arguments += ["--inherit-fd", f"fd[{descriptor}]:{name}"]
        kept = tuple({*(instead or {}).values(), passed} - {-1})
        work = self._run(arguments, container, images, meeting, Deadline(FOR_EVER), kept)
        await _unless_final(meeting, asyncio.create_task(work), deadline)
        return found[-1]

    async def _run(
        self,
        arguments: list[str],
        within: Container | None,
        images: Path,
        meeting: _Rendezvous,
        deadline: Deadline,
        passed: Sequence[int] = (),
    ) -> None:
        verb = arguments[0]
        # A short path of its own: the name of a Unix socket has 108 bytes at most (unix(7)).
        with scratch.directory() as work:
            log = work / f"{verb}.log"
            socket, server = work / "socket", work / "server"
            script = work / "action"
            # The variable shows whose script it is, should it be left alone with a plan.
            script.write_text(
                f"#!/bin/sh\nexport {container.SCRIPT_OF}={shlex.quote(str(images))}\n"
                f"exec '{self._helper}' --crs-action '{socket}' '{server}'\n"
            )
            script.chmod(0o700)
            command = [self._program.path, *arguments]
            command += [*_NO_CONTAINER] if within is None else []
            command += [*_UNPRIVILEGED] if os.geteuid() != 0 else []
            command += ["--images-dir", str(images), "--work-dir", str(work)]
            command += ["--log-file", str(log), "-v1", "--action-script", str(script)]
            keeper = within.keeper if within is not None else None
            listening = await asyncio.start_unix_server(meeting.serve, socket)
            try:
                try:
                    done = await programs.run(
                        container.entering(self._helper, keeper, command, server),
                        deadline,
                        f"the CRS to {verb}",
                        environment={**os.environ, "XDG_RUNTIME_DIR": str(self._facts)},
                        pass_fds=passed,
                    )
                finally:
                    await meeting.over()
                if meeting.error is not None:
                    raise _as_error(meeting.error)
                if done.status != 0 or meeting.pid is None:
                    text = log.read_text(errors="replace") if log.exists() else ""
                    said = errors_in(text) or errors_in(done.err)
                    how = _ending(done.status)
                    raise CrsFailed(f"criu {verb} {how}", said or tuple(done.err.splitlines()[-2:]))
            except BaseException:
                # A CRIU that was killed takes nothing with it: neither the program that wraps it,
                # nor the tree that it has begun to restore. A tree that it was dumping runs on.
                await container.end_all(lambda: container.crs_at_work(images), Deadline(_TO_END))
                raise
            finally:
                listening.close()
                await listening.wait_closed()

    @property
    def _facts(self) -> Path:
        """Where CRIU keeps what it has found out about this kernel, if root does not run it."""
        place = cache_home() / "criu"
        owners.make_private(place)
        return place


async def _unless_final(
    meeting: _Rendezvous, restore: asyncio.Task[None], deadline: Deadline
) -> None:
    """Await a restore. When we are cancelled, or the deadline expires, it is ended, unless what
    makes it final has begun. Raises DeadlineExpired."""
    try:
        while not restore.done():
            try:
                await asyncio.wait([restore], timeout=None if meeting.final else deadline.left)
            except asyncio.CancelledError:
                if not meeting.final:
                    raise
            if not deadline.left and not meeting.final and not restore.done():
                raise deadline.expired("the CRS to restore")
        restore.result()
    finally:
        if not restore.done():
            meeting.refused = True
            restore.cancel()
            await asyncio.gather(restore, return_exceptions=True)


async def _unless_killed(pid: int, dump: asyncio.Task[None]) -> None:
    """Await a dump; end it if the tree is killed meanwhile: CRIU then waits for processes that
    cannot stop any more, and these cannot end while it traces them. Raises CrsFailed."""
    while not dump.done():
        await asyncio.wait([dump], timeout=_LOOK)
        if not dump.done() and proc.is_ending(pid):
            await asyncio.wait([dump], timeout=_TO_FINISH)
            if dump.cancel():
                await asyncio.gather(dump, return_exceptions=True)
                raise CrsFailed("the job was killed while it was dumped")
    dump.result()


async def _or_restored(pid: int, dump: Coroutine[None, None, None]) -> None:
    """A dump that fails leaves nothing in the processes, even if CRIU was killed."""
    before = Before(pid)
    try:
        await dump
    except BaseException:
        await before.restore()
        raise


def _ending(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"failed (exit status {status})"


def _as_error(error: BaseException) -> BaseException:
    if isinstance(error, CrdebugError | OSError):
        return error
    return CrdebugError(f"internal error while the job was frozen: {error!r}")

"""Running a piece of work to its end, despite signals."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Coroutine
from typing import TypeVar

import click

T = TypeVar("T")


def wait(work: Coroutine[object, object, T], told: list[int] | None = None) -> T:
    """Run to the end. A signal cancels the work, which then cleans up: no job is left half-way.

    told: gets the signal.
    """
    import asyncio

    told = [] if told is None else told

    async def run() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            if not told:
                told.append(number)
                task.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup(1) ignores SIGHUP
                loop.add_signal_handler(number, end, number)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        if not told:
            raise
    with contextlib.suppress(OSError):  # the terminal may have gone
        click.echo(f"crdebug: ended by {signal.Signals(told[0]).name}", err=True)
    return click.get_current_context().exit(128 + told[0])

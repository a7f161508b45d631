"""The matcher, which reads the records of MPI calls: one for all tests of a process."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor

from crdebug.base.settings import Settings
from crdebug.native.matcher.library import Library
from crdebug.native.matcher.loading import load


@functools.cache
def library() -> Library:
    """Also for tests whose thread runs an event loop."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(lambda: asyncio.run(load(Settings().compiler))).result()

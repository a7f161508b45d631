"""The interface of a started agent, however it was started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable
from crdebug.hosts.wire import Stream


class Started(Protocol):
    """An agent that has just been started, perhaps in vain."""

    @property
    def stream(self) -> Stream: ...

    async def why_not(self, error: CrdebugError, deadline: Deadline) -> NotAvailable:
        """It has not answered: why, with its last words. error: what was seen on the stream."""
        ...

    async def close(self, deadline: Deadline) -> None:
        """End it and free everything. Idempotent."""
        ...


Start = Callable[[str, Deadline], Awaitable[Started]]
"""Starts the agent on a host. Raises NotAvailable."""

"""The byte stream below a GDB/MI connection: lines in, bytes out, and the end of the other side."""

from __future__ import annotations

from typing import Protocol

from crdebug.base.deadline import Deadline


class Transport(Protocol):
    """A byte stream to one GDB process.

    Not thread-safe: all calls from the event loop that owns it. The other side may end at any
    time; then `readline` returns what is left and after that b"" for ever, and `write` does
    nothing. A transport never frames by silence: a line ends at its newline or at the end.
    """

    @property
    def pid(self) -> int:
        """The process id of the other side, 0 if it is not a process."""
        ...

    async def readline(self) -> bytes:
        """The next line with its newline; the rest of the data, then b"", at the end."""
        ...

    def write(self, data: bytes) -> None:
        """Queue bytes; never blocks. Bytes for a GDB that has ended are dropped."""
        ...

    def interrupt(self) -> None:
        """Send the other side SIGINT, which makes GDB give up its current command."""
        ...

    def last_words(self) -> str:
        """The end of what the other side wrote outside the protocol (its standard error)."""
        ...

    async def wait(self) -> int:
        """The exit status once the other side has ended; negative for a signal."""
        ...

    async def close(self, deadline: Deadline) -> int:
        """End the other side, by force if it must be, and free everything. Idempotent.

        Returns the exit status, negative for a signal. Raises DeadlineExpired when even force
        did not help in time.
        """
        ...

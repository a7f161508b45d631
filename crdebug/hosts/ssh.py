"""Start an agent by ssh: the channel of its command is the wire, so that nothing listens anywhere.

The user's own configuration of ssh applies (~/.ssh/config, keys, agent, known hosts).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError, NotAvailable
from crdebug.base.settings import Settings
from crdebug.hosts.starting import Start

if TYPE_CHECKING:
    import asyncssh

# Variables that say where crdebug and its files are: they are the same on all hosts.
_SAME = ("PYTHONPATH", "PATH", "CC", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
_LAST_WORDS = 2000


class SshStream:
    """The channel as a Stream."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._process = process

    async def read(self, size: int) -> bytes:
        try:
            return await self._process.stdout.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            raise
        except Exception as error:  # asyncssh's, of a connection that is lost
            raise ConnectionResetError(errno.ECONNRESET, str(error).lower()) from error

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.write(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.write_eof()


class OverSsh:
    """An agent that was started by ssh."""

    def __init__(
        self,
        host: str,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
    ) -> None:
        self._host = host
        self._connection = connection
        self._process = process
        self.stream = SshStream(process)

    async def why_not(self, error: CrdebugError, deadline: Deadline) -> NotAvailable:
        words = b""
        with contextlib.suppress(Exception):
            words = await deadline.wait(self._process.stderr.read(_LAST_WORDS), "its last words")
        text = words.decode("utf-8", "backslashreplace").strip().splitlines()
        return NotAvailable(
            f"no agent answers on {self._host}: {text[-1] if text else error.clause()}",
            hint=f"crdebug must be at {sys.executable} there, too",
        )

    async def close(self, deadline: Deadline) -> None:
        self.stream.close()
        with contextlib.suppress(CrdebugError):  # it has let its ranks go by then
            await deadline.wait(self._process.wait(), f"the agent on {self._host} to end")
        self._connection.close()
        with contextlib.suppress(CrdebugError):
            await deadline.wait(self._connection.wait_closed(), "ssh to end")
        self._connection.abort()


def starter(settings: Settings) -> Start:
    """Starts agents by ssh. settings: how often ssh looks whether the host is there."""

    async def start(host: str, deadline: Deadline) -> OverSsh:
        ssh = _asyncssh()
        options: dict[str, Any] = {
            "keepalive_interval": settings.host_interval,
            "keepalive_count_max": settings.host_misses,
        }
        try:
            user, _, name = host.rpartition("@")
            whose = {"username": user} if user else {}
            connecting = ssh.connect(name, **options, **whose, **_cipher(ssh, name, whose))
            connection = await deadline.wait(connecting, f"ssh to {host}")
            process = await connection.create_process(_command(), encoding=None)
        except (OSError, ssh.Error) as error:
            raise NotAvailable(
                f"cannot reach {host} by ssh: {_reason(error)}",
                hint=f"'ssh {host} true' must work without a question",
            ) from error
        return OverSsh(host, connection, process)

    return start


def _cipher(ssh: Any, host: str, whose: dict[str, str]) -> dict[str, str]:
    """AES in Galois mode, unless the user has chosen. asyncssh prefers ChaCha20, with which a
    packet takes it three times as long."""
    chosen = ssh.SSHClientConnectionOptions(host=host, **whose).encryption_algs
    default = ssh.SSHClientConnectionOptions(host=host, config=None).encryption_algs
    return {"encryption_algs": "^aes128-gcm@openssh.com"} if chosen == default else {}


def _asyncssh() -> Any:
    try:
        import asyncssh
    except ImportError:
        raise NotAvailable(
            "ranks on other hosts need the Python package asyncssh",
            hint="pip install 'crdebug[hosts]'",
        ) from None
    return asyncssh


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):  # its numbers are not errno's
        return (error.strerror or str(error)).lower()
    if isinstance(error, OSError):  # asyncio's own words name an address and a port
        return (os.strerror(error.errno) if error.errno else str(error)).lower()
    return str(error).rstrip(".")


def _command() -> str:
    words = ["exec", "env", *_variables(), sys.executable, "-m", "crdebug.hosts"]
    return shlex.join(words)


def _variables() -> Iterator[str]:
    for name, value in os.environ.items():
        if name.startswith("CRDEBUG_") or name in _SAME:
            yield f"{name}={value}"

"""Both sides of a wire must be the same crdebug: a message's description is its code."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from crdebug import base
from crdebug.base.errors import NotAvailable
from crdebug.base.version import VERSION
from crdebug.hosts.messages import Greeting, Hello


@cache
def build() -> str:
    """A hash of the modules whose classes and functions messages name."""
    top = Path(base.__file__).parent.parent
    told = hashlib.sha256()
    for package in ("base", "debugger", "hosts", "mi", "node", "acquire", "job", "native/recorder"):
        for each in sorted((top / package).glob("*.py")):
            told.update(each.name.encode() + b"\0" + each.read_bytes())
    return told.hexdigest()[:16]


def hello() -> Hello:
    return Hello(VERSION, build())


def require_same(other: Greeting | Hello | None, host: str) -> None:
    """Raises NotAvailable, with both versions."""
    if other is None or (other.version, other.build) != (VERSION, build()):
        theirs = f"{other.version} ({other.build})" if other is not None else "unknown"
        raise NotAvailable(
            f"{host} has another crdebug: {theirs}, here it is {VERSION} ({build()})",
            hint="install the same one on both hosts",
        )

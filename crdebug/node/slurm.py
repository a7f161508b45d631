"""Slurm's short form of a list of hosts."""

from __future__ import annotations

import subprocess

from crdebug.base.errors import NotAvailable

_PATIENCE = 10.0  # seconds; scontrol asks nobody for this


def host_names(short: str) -> tuple[str, ...]:
    """All of ``n[1-3],x7``: as scontrol(1) says, "show hostnames". Raises NotAvailable."""
    if "[" not in short:
        return tuple(filter(None, short.split(",")))
    words = ["scontrol", "show", "hostnames", short]
    try:
        ran = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NotAvailable(
            f"cannot tell which hosts {short} are: {error}",
            hint="name them: 'crdebug run --hosts n1,n2 -- ...'",
        ) from None
    return tuple(ran.stdout.split())

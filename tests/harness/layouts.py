"""What the C compiler makes of a header that Python reads the same structures by."""

from __future__ import annotations

import subprocess
from pathlib import Path


def said_by(program: str, directory: Path, *headers: Path) -> bytes:
    """What a C program writes that includes the headers; compiled in an empty directory."""
    (directory / "layout.c").write_text(program)
    compiler = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", "layout"]
    compiler += [f"-I{place}" for place in headers]
    subprocess.run([*compiler, "layout.c"], cwd=directory, check=True)
    return subprocess.run([directory / "layout"], capture_output=True, check=True).stdout

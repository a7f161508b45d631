"""The machine code that clones the ranks is that of clone.S."""

from __future__ import annotations

import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from crdebug.gdbscripts.snapshot import machine_code as code

SOURCE = Path(str(resources.files("crdebug.gdbscripts"))) / "snapshot" / "clone.S"


def run(*argv: object) -> str:
    done = subprocess.run(list(map(str, argv)), check=True, capture_output=True, text=True)
    return done.stdout


def test_the_machine_code_is_the_assembled_source(tmp_path: Path) -> None:
    if not all(map(shutil.which, ("cc", "objcopy", "nm"))):
        pytest.skip("no assembler here")
    made, binary = tmp_path / "clone.o", tmp_path / "clone.bin"
    run("cc", "-c", "-o", made, SOURCE)
    run("objcopy", "-O", "binary", "-j", ".text", made, binary)
    content = binary.read_bytes()
    assert content[: code.RESULT].rstrip(b"\0") == code.CODE
    at = {name: int(place, 16) for place, _, name in map(str.split, run("nm", made).splitlines())}
    assert [at[name] for name in ("start", "setup", "result", "pidfd", "closed", "mask")] == [
        *(code.START, code.SETUP, code.RESULT, code.PIDFD, code.CLOSED, code.MASK)
    ]
    assert (at["overflow"], at["flags"]) == (code.FLAGS, code.FLAGS + 1)
    assert (at["patience"], at["name"]) == (code.PATIENCE, code.NAME)
    saved = [at[f"saved_{name}"] for name in code.SAVED_REGISTERS]
    assert saved == [code.SAVED + 8 * count for count in range(len(saved))]

"""GDBs look for separate debug files where crdebug unpacks them, then in their usual places."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.debugger.gdb import GdbTarget
from crdebug.debugger.startup import unpacked_debug_files

_ID = "c0ffee5eed"


async def test_a_debug_file_in_the_cache_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRDEBUG_CACHE", str(tmp_path / "it's a cache {1}"))
    source, program = tmp_path / "p.c", tmp_path / "p"
    source.write_text("int main(void) {\n    return 0;\n}\n")
    subprocess.run(["cc", "-g", f"-Wl,--build-id=0x{_ID}", "-o", program, source], check=True)
    kept = unpacked_debug_files() / ".build-id" / _ID[:2] / f"{_ID[2:]}.debug"
    kept.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, kept], check=True)
    subprocess.run(["strip", program], check=True)
    deadline = Deadline(60.0)
    target = await GdbTarget.launch(0, deadline)
    try:
        stop = await target.start([str(program)], deadline)
        assert stop.location is not None and stop.location.line == 2
        told = await target.console("show debug-file-directory", deadline)
        assert f"{unpacked_debug_files()}:/" in told
    finally:
        await target.close(deadline)


async def test_its_answers_are_written_at_once_in_an_environment_for_containers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    deadline = Deadline(60.0)
    target = await GdbTarget.launch(0, deadline)

    def writes() -> int:
        told = dict(line.split(": ") for line in io.read_text().splitlines())
        return int(told["syscw"])

    try:
        io = Path(f"/proc/{target.gdb_pid}/io")
        before = writes()
        answer = await target.console("help all", deadline)
        assert writes() - before < len(answer) // 4
    finally:
        await target.close(deadline)

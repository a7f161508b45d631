"""Programs that are built with a sanitizer: they start, and its report stops the rank."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.base.events import StopReason
from crdebug.base.settings import Settings
from crdebug.detached import jobs
from crdebug.native.build import build as build_native
from crdebug.session import Session
from harness.jobs import Heard, bare_job, run_to_end, session
from harness.mpirun import command
from harness.programs import build

ADDRESS = ("-fsanitize=address",)


@pytest.mark.parametrize(
    ("flag", "how", "told"),
    [
        ("address", "heap", "AddressSanitizer: heap-buffer-overflow "),
        ("undefined", "overflow", "UndefinedBehaviorSanitizer"),
        ("thread", "race", "ThreadSanitizer: data race "),
    ],
)
async def test_a_report_stops_the_job_with_all_ranks_alive(
    flag: str, how: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Open MPI takes two locks of its own in either order (mca_btl_tcp_add_procs).
    monkeypatch.setenv("TSAN_OPTIONS", "detect_deadlocks=0")
    # ThreadSanitizer keeps the addresses to itself at which PMIx 5 shares memory (docs/limits.md).
    monkeypatch.setenv("PMIX_MCA_gds", "hash")
    program = build("wrong", flags=[f"-fsanitize={flag}"])
    heard = Heard()
    async with session(program, "--how", how, ranks=2, heard=heard) as job:
        stop = await job.resume(job.ranks)
        (cause,) = stop.cause
        assert (cause.rank, cause.reason) == (1, StopReason.REPORT), heard.text("stderr")
        assert cause.detail.startswith(told), cause.detail
        assert [info.state for info in job.info_ranks()] == ["stopped"] * 2
        if flag == "undefined":  # which by default only reports
            assert await run_to_end(job) == 0
            assert "rank 1: went on" in heard.text()


async def test_nothing_but_the_report_is_different(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to its end under the debugger, which LeakSanitizer cannot do; and the user may preload
    other libraries."""
    program = build("wrong", flags=ADDRESS)
    monkeypatch.setenv("LSAN_OPTIONS", "detect_leaks=0")  # MPI's
    async with bare_job(program, "--rank", -1, ranks=2) as info:
        assert await end_of(info.name) == (0, "rank 0: went on\nrank 1: went on\n")
    monkeypatch.delenv("LSAN_OPTIONS")
    heard = Heard()
    argv = command(program, "--rank", -1, ranks=2)
    for env in ({}, {"LD_PRELOAD": "libasan.so.8"}):
        job = await Session.run(argv, env=env, subscriber=heard)
        try:
            assert await run_to_end(job) == 0
        finally:
            await job.close()
    assert "AddressSanitizer" not in heard.text("stderr")


async def end_of(name: str) -> tuple[int, str]:
    heard = Heard()
    return await jobs.follow(name, heard), heard.text()


@pytest.mark.parametrize("starts", ["sh -c 'exec {0}'", "env {0}", "timeout 60 {0}", "python3 {1}"])
async def test_whatever_starts_such_a_program_the_runtime_comes_first(
    tmp_path: Path, starts: str
) -> None:
    """And what the program starts itself does not have it."""
    source, program, script = tmp_path / "a.c", tmp_path / "a", tmp_path / "a.py"
    source.write_text('#include <stdlib.h>\nint main() { return system("echo $LD_PRELOAD"); }\n')
    script.write_text(f"import subprocess; subprocess.run([{str(program)!r}], check=True)\n")
    subprocess.run(["gcc", *ADDRESS, "-o", program, source], check=True)
    shim = str((await build_native(Settings().compiler, Deadline(120))).shim)
    ran = subprocess.run(
        ["/bin/sh", "-c", starts.format(program, script)],
        env={**os.environ, "LD_PRELOAD": shim},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{shim}\n", "")

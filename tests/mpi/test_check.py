"""What the record of wrong programs, and of right ones, shows to be wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from crdebug.base.deadline import Deadline
from crdebug.detached.check import of_logs
from crdebug.job.directory import JobDirectory
from crdebug.timeline.calls import Calls, Kind
from crdebug.timeline.check import Record, check
from crdebug.timeline.findings import NOTHING, Merged, Weight, merged
from crdebug.timeline.recorded import Recorded
from harness.cli import argv, crdebug, finish, started
from harness.layered import Layered
from harness.listed import Listed
from harness.matcher import library
from harness.mpirun import command, run
from harness.mpis import MPIS, Mpi
from harness.programs import MPICHS_HEADER, build, source

DEBIANS = [mpi for mpi in MPIS if "Debian" in mpi.origin]

# By mode, the lines.
WRONG: dict[str, tuple[str, ...]] = {
    "unreceived": (
        r"\[0-3\] MPI_Send sends tag 8, which is not received by MPI_Finalize by ranks 0-3",
        r"\[0-3\] MPI_Send would wait for ever because of MPI_Send of ranks 0-3",
    ),
    "truncated": (r"\[1\] MPI_Recv failed: MPI_ERR_TRUNCATE",),
    "refused": (r"\[2\] MPI_Send failed: MPI_ERR_RANK",),
    "uncompleted": (r"\[1\] MPI_Irecv is not completed by MPI_Finalize",),
    "root": (r"\[3\] MPI_Bcast has root 3, but root 0 in MPI_Bcast of rank 0",),
    "size": (r"\[2\] MPI_Bcast has 8 bytes, but 4 in MPI_Bcast of rank 0",),
    "handles": (
        r"\[0-3\] MPI_Barrier failed: MPI_ERR_COMM",
        r"\[0-3\] MPI_Bcast failed: MPI_ERR_TYPE",
    ),
    "two_types": (r"\[0\] MPI_Sendrecv failed: MPI_ERR_TRUNCATE",),
    "missing": (r"\[0\] MPI_Bcast is called, but not by ranks 1-3",),
}
# Programs that are right, and how often they go round.
RIGHT: dict[str, tuple[object, ...]] = {
    "collectives": (),
    "wildcard": ("--rounds", 1, "--jitter-us", 200),
    "testsome": ("--rounds", 1, "--jitter-us", 200),
    "persistent": ("--rounds", 3, "--jitter-us", 200),
    "master": ("--rounds", 3, "--jitter-us", 200),
    "onesided": (),
    "started": (),
    "longrun": ("--steps", 40),
    "files": (),
}


def record_of(job: Layered) -> Recorded:
    recorded = Recorded(library())
    recorded.read(sorted(job.directory.iterdir()))
    return recorded


def found_in(job: Layered) -> list[Merged]:
    job.run()
    recorded = record_of(job)
    record = Record.of(recorded.matching, recorded.logs, job.ranks)
    assert record.at_end
    assert not record.caveats()
    return merged(check(record), lambda rank, site: "here")


@pytest.mark.parametrize("mpi", DEBIANS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("mode", WRONG)
def test_each_error_is_named(mode: str, mpi: Mpi, tmp_path: Path) -> None:
    found = found_in(Layered(tmp_path / "time", "errors", "--mode", mode, mpi=mpi))
    texts = [each.text.partition("; 'goto")[0].replace(" (here)", "") for each in found]
    if mode == "size":  # who gets it from the odd one may find it too long
        texts = [each for each in texts if "MPI_Bcast failed: MPI_ERR_TRUNCATE" not in each]
    assert len(texts) == len(WRONG[mode]), texts
    for text, pattern in zip(texts, WRONG[mode], strict=True):
        assert re.fullmatch(pattern, text), text


def functions_named(job: Layered, extra: Mapping[str, str]) -> set[str]:
    """By the MPI's own message. Where that ends the job, launchers lose it now and then, and
    Open MPI 4.1's may hang, with a record and without."""
    for _ in range(10):
        try:
            said = run(job.argv, extra=extra, seconds=15).stderr
        except AssertionError as hung:
            said = str(hung)
        if named := {*re.findall(r"MPI_[A-Z][a-z_]+\b", said)}:
            return named
    return set()


@pytest.mark.parametrize("mpi", DEBIANS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize(
    ("program", "mode"),
    [
        ("wrong_together", "no_handle_of_communicator"),
        ("wrong_together", "no_handle_of_type"),
        ("wrong_messages", "negative_count_from_anyone"),
        ("wrong_messages", "negative_tag_from_anyone"),
        ("wrong_messages", "negative_tag_of_probe"),
    ],
)
def test_the_mpi_says_of_the_programs_own_call_what_is_wrong(
    program: str, mode: str, mpi: Mpi, tmp_path: Path
) -> None:
    job = Layered(tmp_path / "time", program, "--mode", mode, ranks=3, flags=MPICHS_HEADER, mpi=mpi)
    bare, recorded = functions_named(job, {}), functions_named(job, job.environment())
    assert bare
    assert recorded == bare


@pytest.mark.parametrize(
    ("mpi", "program"),
    # With MPICH 4.0 `onesided` fails, with the recorder and without.
    [(mpi, name) for mpi in DEBIANS for name in RIGHT if (mpi, name) != (DEBIANS[1], "onesided")],
    ids=lambda value: getattr(value, "name", value),
)
def test_of_a_right_program_nothing_is_called_wrong(program: str, mpi: Mpi, tmp_path: Path) -> None:
    ranks = 2 if program in ("started", "onesided") else 4
    flags = MPICHS_HEADER
    job = Layered(tmp_path / "time", program, *RIGHT[program], ranks=ranks, flags=flags, mpi=mpi)
    wrong = [each.text for each in found_in(job) if each.weight is not Weight.RACE]
    assert wrong == []
    assert_answers_as_a_list(record_of(job).logs[0].calls)


def assert_answers_as_a_list(calls: Calls) -> None:
    """What is chosen of a log while it is read, is what one finds who looks at all of it."""
    as_list = Listed([*calls])
    for kind in Kind:
        assert [*calls.of(kind)] == [*as_list.of(kind)]
    ticks = [call.returned.tick for call in as_list]
    for some in ticks, ticks[::7], [*range(1, ticks[-1] + 1)], ticks[-1:], ticks[:1] * 3:
        assert [*calls.heads(some)] == as_list.heads(some)
    assert [*calls.heads([0, ticks[-1] + 1])] == [None, None]
    together, others = calls.together(), as_list.together()
    assert together.keys() == others.keys()
    for name, each in together.items():
        assert [*each.numbers] == [*others[name].numbers]
        pairs = {*zip(each.likes, others[name].likes, strict=True)}
        assert len(pairs) == len({*each.likes}) == len({*others[name].likes})


@pytest.mark.parametrize("mpi", DEBIANS, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("mode", ["aborts", "finalizes_in_exit", "freed_at_the_end", "given_back",
                                  "idup_and_window", "win_test"])  # fmt: skip
def test_of_an_unusual_end_that_mpi_allows_nothing_is_claimed(
    mode: str, mpi: Mpi, tmp_path: Path
) -> None:
    flags = MPICHS_HEADER
    job = Layered(tmp_path / "time", "ends", "--mode", mode, ranks=3, flags=flags, mpi=mpi)
    ran = run(job.argv, extra=job.environment(), seconds=60)
    assert mode == "aborts" or ran.status == 0, ran
    told = asyncio.run(of_logs(sorted(job.directory.iterdir()), library(), over=True))
    assert told.splitlines()[0] == NOTHING, told
    if mode == "aborts":
        assert "(0 called MPI_Abort)" in told


async def test_what_ended_a_job_is_named_with_its_line_when_it_is_gone() -> None:
    """With MPICH: Open MPI 4.1's launcher may crash or hang when a rank ends so, also without
    crdebug (9 of 81 bare runs, 6 at a time)."""
    mpi, text = DEBIANS[1], source("wrong_messages").read_text().splitlines()
    program = build("wrong_messages", compiler=mpi.tool("mpicc"), flags=MPICHS_HEADER)
    call = "MPI_Send(&value, 1, MPI_INT, WRONG_ELSE(rank_count, 1)"
    line = next(n for n, each in enumerate(text, 1) if call in each)
    job = (*mpi.launch(3), program, "--mode", "no_such_rank")
    options = ("--no-debugger", "--record", "--name", "bad")
    ran = await asyncio.to_thread(run, argv("run", *options, "--", *job))
    assert ran.status != 0, ran
    told = (await crdebug("check", "bad")).stdout.splitlines()
    assert told[0] == "1 is wrong:"
    named = f"  [0] MPI_Send (wrong_messages.c:{line}) failed: MPI_ERR_RANK, which ended the job;"
    assert told[1].startswith(named)


async def until_stuck() -> None:
    """Wait until job 'stuck' can never go on."""
    said, deadline = "", Deadline(60)
    while "whatever else happens" not in said and deadline.left > 0:
        said = (await asyncio.to_thread(run, argv("why", "stuck"))).stdout


async def test_of_a_job_that_was_killed_the_calls_are_told_that_it_was_in() -> None:
    job = command(build("hangs"), "--mode", "member", ranks=4)
    with started("run", "--no-debugger", "--record", "--name", "stuck", "--", *job) as running:
        await until_stuck()
        await crdebug("kill", "stuck")
        await finish(running)
    told = (await crdebug("check", "stuck")).stdout
    assert re.search(r"\[0-2\] MPI_Barrier \(hangs.c:\d+\) had not returned", told), told
    assert re.search(r"\[3\] MPI_Recv \(hangs.c:\d+\) had not returned", told), told


async def test_if_the_record_of_a_rank_is_damaged_those_of_the_others_are_used() -> None:
    job = command(build("hangs"), "--mode", "member", ranks=4)
    with started("run", "--no-debugger", "--record", "--name", "stuck", "--", *job) as running:
        await until_stuck()
        directory = JobDirectory("stuck")
        with (directory.run(1) / "time/1").open("r+b") as log:
            log.seek(8)
            log.write(b"\xff" * 8)
        damaged = r"rank 1: .*/1 is damaged: its header"
        told = (await crdebug("why", "stuck")).stdout.splitlines()
        assert re.fullmatch(r"0-2 wait in MPI_Barrier .* for 3, since tick \d+", told[0]), told
        assert "0 → 3 → 0: a deadlock, whatever else happens" in told
        assert re.match("what it did before is not known: " + damaged, told[-1]), told
        told = (await crdebug("check", "stuck")).stdout.splitlines()
        assert re.match(r"\(" + damaged, told[-3]), told
        assert "(there is no record of 1: collectives were not compared)" in told
        await crdebug("kill", "stuck")
        await finish(running)
    told = (await crdebug("check", "stuck")).stdout.splitlines()
    assert re.match(r"  \[0,2\] MPI_Barrier \(hangs.c:\d+\) had not returned", told[1]), told
    assert any(re.match(r"\(" + damaged, line) for line in told), told


async def test_a_standstill_is_in_the_log_of_a_batch_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('patience = "0.5 s"\n')
    monkeypatch.setenv("CRDEBUG_CONFIG", str(config))
    job = command(build("hangs"), "--mode", "member", ranks=4)
    with started("run", "--no-debugger", "--record", "--name", "stuck", "--", *job) as running:
        assert running.stderr is not None
        said = ""
        while "whatever else happens" not in said:
            said += (line := await asyncio.to_thread(running.stderr.readline))
            assert line, said
        await crdebug("kill", "stuck")
        await finish(running)
    assert "crdebug: no rank has come further in its MPI calls for 0.5 s:" in said

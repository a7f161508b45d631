"""Programs that go wrong, each after a kind of error that collections of wrong MPI programs have
(MPI-CorrBench, MPI-BugBench, the tests of MUST and ISP), and what crdebug says of them.

docs/errors.md has a row for each. With CRDEBUG_WRITE_DOCS=1 tests write their rows there.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crdebug.base.deadline import Deadline
from crdebug.detached.check import of_logs
from crdebug.detached.why import told
from crdebug.job.clocks import RankClock
from harness import mpirun
from harness.layered import Layered, Running
from harness.matcher import library
from harness.mpis import Mpi
from harness.programs import MPICHS_HEADER, build, source

RANKS = 3
PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
CLAIMS = ("a deadlock", "can never go on", "do not fit", "nobody has asked")
_HEAD = "| program | what is wrong | the bare run | `why-blocked` | `check` |"
_BARE = 4.0  # seconds after which a bare run is taken to hang


@dataclass(frozen=True, slots=True)
class Case:
    """One program. what: is wrong with it. says: matches what crdebug says of it; "" if no record
    shows it. accepted: an MPI may take it, or end the job without a word to anybody."""

    program: str
    mode: str
    what: str
    says: str

    @property
    def accepted(self) -> bool:
        return self.mode in ("no_buffer_for_bsend", "same_buffer", "after_finalize")

    @property
    def marks(self) -> list[str]:
        """The lines that are to be named: "wrong_messages.c:27"."""
        text = source(self.program).read_text().splitlines()
        first = text.index(f"static void {self.mode}(void) {{")
        last = text.index("}", first)
        marked = (n for n in range(first, last) if text[n].endswith("// !"))
        return [f"{self.program}.c:{n + 1}" for n in marked]


@dataclass(frozen=True, slots=True)
class Answer:
    """hangs: it did not come to its end. why: of `why-blocked`, if it hangs. check: its lines."""

    hangs: bool
    why: tuple[str, ...]
    check: tuple[str, ...]
    output: str = ""

    @property
    def text(self) -> str:
        return "\n".join((*self.why, *self.check))

    def claims(self) -> list[str]:
        """What it says to be wrong."""
        found = [line for line in self.why if any(each in line for each in CLAIMS)]
        return [*found, *(line for line in self.check if line.startswith("  "))]


def _job(case: Case, mpi: Mpi, place: Path, *, right: bool) -> Layered:
    options = ("--mode", case.mode, "--right", int(right))
    return Layered(place, case.program, *options, ranks=RANKS, flags=MPICHS_HEADER, mpi=mpi)


def answer(case: Case, mpi: Mpi, place: Path, *, right: bool) -> Answer:
    """place: an empty directory."""
    return answer_of(_job(case, mpi, place, right=right), right=right)


def answer_of(job: Layered, *, right: bool, seconds: float = 20.0) -> Answer:
    """Run it until it has ended, or is said to hang for ever. Of one that is right, all claims
    count, those also that were made on its way."""
    place = job.directory
    why: list[str] = []
    claimed: list[str] = []

    def is_over() -> bool:
        if not running.goes_on():
            return True
        before = [*why]
        why[:] = asyncio.run(told(clocks, library(), lambda: sorted(place.iterdir())))
        claimed.extend(line for line in why if any(each in line for each in CLAIMS))
        return not right and _is_clear(before, why)

    with job.running() as running:
        clocks = _clocks(running)
        deadline = Deadline(seconds)
        while not is_over() and deadline.left > 0:
            asyncio.run(asyncio.sleep(0.05))
        hangs = running.goes_on()
        output = "" if hangs else running.output()
        files = sorted(place.iterdir())
        check = asyncio.run(of_logs(files, library(), over=not hangs)).splitlines()
        for each in clocks if hangs else ():  # the launcher alone takes seconds for that
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
    # What was said of one that went on then counts where it is right.
    return Answer(hangs, tuple(why if hangs else claimed if right else ()), tuple(check), output)


def _is_clear(before: list[str], why: list[str]) -> bool:
    """Does it hang, and is that all that there is to say?"""
    return "whatever else happens" in str(why) or (
        "perhaps a deadlock" in str(why) and before == why
    )


def _clocks(running: Running) -> list[RankClock]:
    """None if it ended at once."""
    try:
        found = running.find()
    except AssertionError:
        return []
    return [RankClock(n, each.pid, each.address, 0) for n, each in enumerate(found)]


def bare(case: Case, mpi: Mpi) -> str:
    """How it ends without crdebug."""
    program = build(case.program, flags=MPICHS_HEADER, compiler=mpi.tool("mpicc"))
    argv = [*mpi.launch(RANKS), str(program), "--mode", case.mode, "--right", "0"]
    try:
        done = mpirun.run(argv, seconds=_BARE)
    except AssertionError:
        return "hangs"
    error = re.search(r"MPI_ERR_\w+", done.stdout + done.stderr)
    if done.status == 0:
        return "ends well"
    return f"aborts: {error[0]}" if error else f"ends with {done.status}"


def _messages() -> Iterator[Case]:
    for mode, what, says in (
        ("receive_first", "both receive before they send", "0 → 1 → 0: a deadlock"),
        ("send_first_large", "both send much before they receive", "a deadlock"),
        (
            "send_first_small",
            "both send a little before they receive",
            "would wait for ever because of",
        ),
        ("synchronous_first", "both send synchronously before they receive", "a deadlock"),
        ("ring_of_receives", "all receive before they send, in a ring", "a deadlock"),
        ("to_itself", "a synchronous send to itself", "can never go on"),
        ("from_itself", "a receive from itself", "can never go on"),
        ("wrong_tag", "another tag", "nobody has asked for: tag 8"),
        ("wrong_communicator", "another communicator", "nobody has asked for: tag 7 on world#2"),
        ("wrong_source", "a receive from another rank", "a deadlock"),
        ("no_send", "nobody sends", "a deadlock"),
        ("no_receive", "nobody receives", "is not received by MPI_Finalize"),
        ("no_receive_large", "nobody receives, and the message is large", "MPI_Send to 1"),
        ("one_too_few", "three receives, and two sends", "a deadlock"),
        ("wrong_neighbour", "MPI_Sendrecv in a ring, from the wrong side", "a deadlock"),
        ("wildcard_takes_it", "MPI_ANY_SOURCE takes what is for another receive", "a deadlock"),
        ("any_tag_takes_it", "MPI_ANY_TAG takes what is for another receive", "a deadlock"),
        ("nobody_sends_to_any", "nobody sends to an open receive", "a deadlock"),
        ("probe_of_nothing", "a probe, and nobody sends", "MPI_Probe from 0"),
        ("probed_and_left", "probed, and not received", "is not received by MPI_Finalize"),
        ("taken_and_left", "MPI_Mprobe without MPI_Mrecv", "MPI_Mprobe.* is not completed"),
        ("both_probe", "both probe before they send", "a deadlock"),
        ("no_such_rank", "a rank that is not there", "failed: MPI_ERR_RANK"),
        ("negative_rank", "a negative rank", "failed: MPI_ERR_RANK"),
        ("negative_tag", "a negative tag", "failed: MPI_ERR_TAG"),
        ("negative_tag_from_anyone", "the same of an open receive", "MPI_Recv .* MPI_ERR_TAG"),
        ("negative_tag_of_probe", "the same of MPI_Probe", "MPI_Probe .* MPI_ERR_TAG"),
        ("negative_count_from_anyone", "of an open receive a negative count", "MPI_ERR_COUNT"),
        ("negative_count", "a negative count", "failed: MPI_ERR_COUNT"),
        ("null_communicator", "MPI_COMM_NULL", "failed: MPI_ERR_COMM"),
        ("null_type", "MPI_DATATYPE_NULL", "failed: MPI_ERR_TYPE"),
        ("type_not_committed", "a type that is not committed", "failed: MPI_ERR_TYPE"),
        ("type_of_nothing", "a type of a negative count", "failed: MPI_ERR_"),
        ("posted_to_nobody", "MPI_Isend to a rank that is not there", "failed: MPI_ERR_RANK"),
        ("freed_communicator", "a communicator that was freed", "failed: MPI_ERR_COMM"),
        ("too_long", "the message is longer than the receive", "failed: MPI_ERR_TRUNCATE"),
        ("too_long_posted", "the same of MPI_Irecv", "failed: MPI_ERR_TRUNCATE"),
        ("no_buffer_for_bsend", "MPI_Bsend without a buffer", "failed: MPI_ERR_"),
        ("receive_not_completed", "no wait for MPI_Irecv", "MPI_Irecv.* is not completed"),
        ("send_not_completed", "no wait for MPI_Isend", "MPI_Isend.* is not completed"),
        ("request_overwritten", "one variable for two requests", "MPI_Irecv.* is not completed"),
        (
            "wait_for_nothing",
            "a wait for what nobody sends",
            "MPI_Wait.* for 0, to complete MPI_Irecv, tag 7",
        ),
        (
            "one_of_all_never_comes",
            "MPI_Waitall, and one is not sent",
            "for 0, to complete MPI_Irecv, tag 8 ",
        ),
        ("none_of_any_comes", "MPI_Waitany, and nobody sends", "MPI_Waitany.* for one of 0,2"),
        ("waits_cross", "both wait before they send", "a deadlock"),
        ("tests_for_ever", "MPI_Test in a loop, and nobody sends", "perhaps a deadlock"),
        ("started_never", "a persistent send that is never started", "a deadlock"),
        ("started_not_completed", "no wait for MPI_Start", "MPI_Start.* is not completed"),
        ("persistent_not_freed", "a persistent request is not freed", "MPI_Recv_init.* not freed"),
        ("freed_while_active", "a request is freed before its wait", "frees a request that is not"),
        ("all_started_one_missing", "MPI_Startall, and one is not sent", "MPI_Waitall.* for 0"),
        ("two_senders", "two messages for one wildcard", "could have got another message"),
        ("probe_of_two_senders", "the same, probed", "could have got another message"),
        ("posted_to_two_senders", "the same, posted", "could have got another message"),
        ("written_while_sent", "the buffer of MPI_Isend is written", ""),
        ("read_too_soon", "the buffer of MPI_Irecv is read", ""),
        ("no_finalize", "exit without MPI_Finalize", "exit\\(0\\), without MPI_Finalize"),
    ):
        yield Case("wrong_messages", mode, what, says)


def _types() -> Iterator[Case]:
    for mode, what, says in (
        ("other_type", "MPI_INT is received as MPI_FLOAT", "receives MPI_FLOAT, but MPI_INT"),
        ("other_type_of_exchange", "the same in MPI_Sendrecv", "MPI_FLOAT, but MPI_INT"),
        ("other_type_started", "the same, persistent", "receives MPI_FLOAT, but MPI_INT"),
        ("other_type_of_elements", "of a type that is made of it", "MPI_INT, but MPI_FLOAT"),
        ("other_type_than_bytes", "another size of number", "MPI_DOUBLE, but MPI_UNSIGNED_LONG"),
        ("other_count_of_own_half", "MPI_Allgather takes more than it gives", "receives another n"),
        ("other_type_of_own_half", "MPI_Gather takes another type", "_INT, but receives MPI_FLOAT"),
        ("other_count_of_scatter", "MPI_Scatter gives more", "sends another number|MPI_ERR_TRUNC"),
        ("room_for_fewer", "MPI_Put of more than is taken", "fewer at the target|MPI_ERR_T"),
        ("more_than_room", "MPI_Get of more than is taken", "more at the target|MPI_ERR_T"),
        ("init_twice", "MPI_Init, twice", "MPI_Init .* failed: MPI_ERR_OTHER"),
        ("after_finalize", "a call after MPI_Finalize", "MPI_Barrier .* failed: MPI_ERR_OTHER"),
    ):
        yield Case("wrong_types", mode, what, says)


def _together() -> Iterator[Case]:
    for mode, what, says in (
        ("other_order", "collectives in another order", "do not fit"),
        ("bcast_for_reduce", "MPI_Bcast for MPI_Reduce", "is called where others call|do not fit"),
        ("gather_for_scatter", "MPI_Gather for MPI_Scatter", "do not fit|where others call"),
        ("no_barrier", "MPI_Barrier is not called by all", "a deadlock"),
        ("no_allreduce", "MPI_Allreduce is not called by all", "a deadlock"),
        ("only_the_root", "MPI_Bcast is called by the root alone", "is called, but not by"),
        ("not_the_root", "MPI_Bcast is not called by the root", "a deadlock"),
        ("reduce_without_one", "MPI_Reduce is not called by all", "a deadlock"),
        ("scan_without_first", "MPI_Scan is not called by rank 0", "a deadlock"),
        ("posted_without_one", "MPI_Ibarrier is not called by all", "to complete MPI_Ibarrier"),
        ("posted_other_order", "nonblocking ones in another order", "where others call|do not fit"),
        ("posted_and_waited_for", "the same, each waited for", "where others call|do not fit"),
        ("posted_and_blocking", "MPI_Bcast for MPI_Ibcast", "where others call|do not fit"),
        ("posted_not_completed", "no wait for MPI_Iallreduce", "MPI_Iallreduce.* not completed"),
        ("other_communicator", "a barrier of another communicator", "a deadlock"),
        ("communicators_cross", "barriers of two communicators, crossed", "a deadlock"),
        ("receive_before_barrier", "the send is behind a barrier", "a deadlock"),
        ("synchronous_and_bcast", "the receive is behind a collective", "a deadlock"),
        ("split_without_one", "MPI_Comm_split is not called by all", "a deadlock"),
        ("dup_without_one", "MPI_Comm_dup is not called by all", "a deadlock"),
        ("root_goes_on", "the root has to leave MPI_Bcast alone", "would wait for ever because of"),
        ("other_root_of_bcast", "another root", "has root 1, but root 0"),
        ("each_its_own_root", "each its own root", "has root"),
        ("other_root_of_reduce", "another root of MPI_Reduce", "has root 1, but root 0|root:"),
        ("other_root_of_gather", "another root of MPI_Gather", "has root 2, but root 0|root:"),
        ("other_count_of_bcast", "another count", "has 8 bytes, but 4"),
        ("other_count_of_allreduce", "another count of MPI_Allreduce", "8 bytes"),
        ("other_count_of_alltoall", "another count of MPI_Alltoall", "8 bytes"),
        ("other_counts_of_gatherv", "more than the root expects", "failed: MPI_ERR_(TRUNC|IN_ST)"),
        ("other_counts_of_reduce_scatter", "other counts of MPI_Reduce_scatter", "MPI_ERR_TRUNC"),
        ("other_operation", "another operation", "has MPI_MAX, but MPI_SUM"),
        ("other_operation_of_reduce", "another operation of MPI_Reduce", "MPI_PROD, but MPI_SUM"),
        ("other_type_of_bcast", "another type of the same size", "has MPI_FLOAT, but MPI_INT"),
        ("other_type_of_allreduce", "another type of MPI_Allreduce", "MPI_FLOAT, but MPI_INT"),
        ("other_type_and_size", "another type of another size", "MPI_DOUBLE, but MPI_INT"),
        ("other_type_of_gather", "another type of MPI_Gather", "has MPI_FLOAT, but MPI_INT"),
        ("other_operation_of_its_own", "the operation of one is its own", "of its own, but MPI_S"),
        ("no_such_root", "a root that is not there", "failed: MPI_ERR_ROOT"),
        ("negative_root", "a negative root", "failed: MPI_ERR_ROOT"),
        ("null_operation", "MPI_OP_NULL", "failed: MPI_ERR_OP"),
        ("operation_not_for_type", "MPI_BAND of MPI_DOUBLE", "failed: MPI_ERR_OP"),
        ("null_type_of_bcast", "MPI_DATATYPE_NULL", "failed: MPI_ERR_TYPE"),
        ("negative_count_of_bcast", "a negative count", "failed: MPI_ERR_COUNT"),
        ("null_communicator_of_barrier", "MPI_COMM_NULL", "failed: MPI_ERR_COMM"),
        ("null_communicator_of_ibarrier", "the same of MPI_Ibarrier", "failed: MPI_ERR_COMM"),
        ("no_handle_of_communicator", "a handle that is none", "her .* failed: MPI_ERR_COMM"),
        ("no_handle_of_type", "the same of a type", "failed: MPI_ERR_TYPE"),
        ("same_buffer", "one buffer for both", "failed: MPI_ERR_BUFFER"),
        ("communicator_not_freed", "a communicator is not freed", "MPI_Comm_dup.* not freed"),
        ("type_not_freed", "a type is not freed", "MPI_Type_contiguous.* not freed"),
        ("window_not_freed", "a window is not freed", "MPI_Win_create.* not freed"),
        ("operation_not_freed", "an operation is not freed", "MPI_Op_create.* not freed"),
        ("group_not_freed", "a group is not freed", "MPI_Comm_group.* not freed"),
        ("put_outside_of_epoch", "MPI_Put outside of an epoch", "failed: MPI_ERR_RMA_SYNC"),
        ("fence_without_one", "a fence that is not called by all", "do not fit|a deadlock"),
        ("free_without_fence", "no fence after MPI_Put", "Win_fence after|MPI_ERR_RMA_SYNC"),
        ("unlock_without_lock", "MPI_Win_unlock without a lock", "failed: MPI_ERR_RMA_SYNC"),
        ("lock_twice", "MPI_Win_lock, twice", "failed: MPI_ERR_RMA_|can never"),
        ("flush_without_lock", "MPI_Win_flush without a lock", "failed: MPI_ERR_RMA_SYNC"),
        ("put_to_nobody", "MPI_Put to a rank that is not there", "failed: MPI_ERR_RANK"),
        ("start_without_post", "MPI_Win_start without MPI_Win_post", "a deadlock"),
        ("post_without_start", "MPI_Win_post without MPI_Win_start", "a deadlock"),
        ("complete_without_start", "MPI_Win_complete without a start", "without MPI_Win_start"),
        ("locks_cross", "two locks, crossed", "a deadlock"),
        ("window_without_one", "MPI_Win_create is not called by all", "a deadlock"),
        ("two_put_at_once", "two put at the same place", ""),
        ("got_and_read_too_soon", "read before the fence", ""),
    ):
        yield Case("wrong_together", mode, what, says)


CASES = (*_messages(), *_types(), *_together())


# ---- the page ------------------------------------------------------------------------------------


def rows(text: str) -> dict[str, str]:
    """The lines of the page's table, by mode."""
    found = re.findall(r"^\| `(\w+)` \|.*$", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return dict(zip(found, lines, strict=True))


def write_row(case: Case, cells: tuple[str, str, str]) -> None:
    """Into the page, in the order of the cases. cells: the bare run, why-blocked, check."""
    with PAGE.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        known = rows(text)
        known[case.mode] = f"| {' | '.join((f'`{case.mode}`', case.what, *cells))} |"
        table = [known[each.mode] for each in CASES if each.mode in known]
        before = text.partition(_HEAD)[0]
        file.seek(0)
        file.truncate()
        file.write("\n".join([f"{before}{_HEAD}", "| --- | --- | --- | --- | --- |", *table, ""]))


def cells(case: Case, found: Answer, bare_run: str) -> tuple[str, str, str]:
    """What the page says of an answer."""
    marked = [line for line in found.why if any(mark in line for mark in case.marks)]
    knot = [line for line in found.why if any(each in line for each in CLAIMS)]
    why = [*dict.fromkeys((*marked[:2], *knot[:1]))]
    check = [line.strip() for line in found.check if line.startswith("  ")]
    short = [line.partition("; 'goto")[0] for line in check]
    told = [line.partition(": 'goto")[0].partition(", since")[0] for line in why]
    return bare_run, "; ".join(told) or "-", "; ".join(short[:2]) or "-"

"""The table of MPI calls against the MPI's own header, and the C generated from it."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from crdebug.native.recorder import build, clock, mpi_errors, mpi_four, mpi_wrappers
from crdebug.native.recorder.build import mpicc_of
from crdebug.native.recorder.mpi_calls import BY_NAME, DIGEST, FUNCTIONS
from crdebug.timeline.calls import Kind
from harness.mpis import MPIS, Mpi

pytestmark = pytest.mark.unit

NATIVE = Path(mpi_wrappers.__file__).parent

# Functions that need only the process's data: handles, attributes, types, groups, names, tools.
LOCAL = re.compile(
    r"MPI_(Abort|Add_error_(class|code|string)|Address|Aint_(add|diff)|Alloc_mem|Free_mem"
    r"|Attr_(delete|get|put)|Buffer_attach|Cart_(coords|get|map|rank|shift)|Cartdim_get"
    r"|(Open|Close)_port|(Lookup|Publish|Unpublish)_name|\w+_(c2f|f2c|c2f08|f082c|f082f|f2f08)"
    r"|(Comm|Win|File)_(call|create|get|set)_errhandler|(Comm|Win|Type)_(create|free)_keyval"
    r"|(Comm|Win|Type)_(get|set|delete)_(attr|name|info)|Comm_(compare|get_parent|group|rank)"
    r"|Comm_(remote_group|remote_size|size|test_inter)|Dims_create"
    r"|Dist_graph_neighbors(_count)?|Error_(class|string)|Errhandler_\w+|Finalized|Initialized"
    r"|Get_(address|count|elements(_x)?|library_version|processor_name|version)"
    r"|Graph_(get|map|neighbors(_count)?)|Graphdims_get|Group_\w+|Info_\w+|Is_thread_main"
    r"|Keyval_(create|free)|Op_(create|free|commutative)|(Unp|P)ack(_external)?(_size)?|Pcontrol"
    r"|Query_thread|Register_datarep|Status_set_(cancelled|elements(_x)?)|Topo_test|Type_\w+"
    r"|Win_(get_group|shared_query|attach|detach)|Wtick|T_\w+|Reduce_local|Grequest_complete"
    r"|Test_cancelled|File_(delete|seek|set_(atomicity|info)|get_\w+)"
    # of MPI-4 and later: sessions are refused as a whole, where they begin
    r"|Session_(?!init$|iflush_buffer$)\w+|Abi_\w+|\w+_(from|to)int|Status_(get|set)_(error|source|tag)"
    r"|Remove_error_(class|code|string)|Get_hw_resource_info"
    r"|Comm_attach_buffer)(_c)?"
)


@pytest.mark.parametrize("mpi", MPIS, ids=[mpi.name for mpi in MPIS])
def test_no_function_is_forgotten(mpi: Mpi) -> None:
    """Each function is counted, or refused, or local, and none two of them."""
    header = [mpi.tool("mpicc"), *build.HEADER]
    text = subprocess.run(header, capture_output=True, text=True, check=True).stdout
    functions = {*mpi_four.declared(text)} - {"MPI_Type_free"}
    known = {*BY_NAME, *(f"{function.full}_c" for function in mpi_four.LARGE), *mpi_four.REFUSED}
    known |= {"MPI_Buffer_detach_c", "MPI_Comm_detach_buffer_c"}  # only how the answer is written
    assert len(functions) > 350
    assert not {name for name in functions - known if not LOCAL.fullmatch(name)}
    assert not {name for name in known if LOCAL.fullmatch(name)}
    assert not {function.full for function in FUNCTIONS if not function.newer} - functions
    defines = mpi_four.has_header(text).splitlines()
    newer = {function.full for function in FUNCTIONS if function.newer}
    assert {f"#define HAS_{name}" for name in functions & newer} <= {*defines}


def test_kinds_are_those_of_the_timeline() -> None:
    assert {function.kind for function in FUNCTIONS} <= set(Kind.__members__)
    assert len(FUNCTIONS) < 512  # nine bits of a record
    assert len({function.name for function in FUNCTIONS}) == len(FUNCTIONS)


def test_a_wrapper_counts_once_and_asks_the_mpi() -> None:
    text = mpi_wrappers.wrappers()
    for function in FUNCTIONS:
        (body,) = re.findall(
            rf"EXPORTED \w+ {function.full}\(.*?^}}", text, re.MULTILINE | re.DOTALL
        )
        if function.shape == "bare":
            assert f"return wrap_{function.name}(" in body
            continue
        assert body.count("enter()") == 1
        assert body.count("leave();") == 2  # where it only counts, and where it records
        assert f"return P{function.full}(" in body


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_layout_is_the_compilers(tmp_path: Path) -> None:
    fields = [
        ("clock", "stop", clock.STOP_OFFSET),
        ("clock", "enforce", clock.ENFORCE_OFFSET),
        ("clock", "diverged", clock.DIVERGED_OFFSET),
        ("clock", "last", clock.LAST_OFFSET),
        ("clock", "look_at", clock.LOOK_OFFSET),
        ("clock", "doing", clock.DOING_OFFSET),
        ("clock", "doing_count", clock.DOING_OFFSET + struct.calcsize("<5Q")),
        ("clock", "ops", clock.DOING_OFFSET + struct.calcsize("<5Q16I")),
        ("log", "tail", clock.TAIL_OFFSET),
        ("log", "cuts", clock.CUTS_OFFSET),
        ("log", "room", clock.ROOM_OFFSET),
        ("log", "begin", clock.BEGIN_OFFSET),
        ("log", "doing", clock.DOING_IN_LOG_OFFSET),
        ("log", "ended_now", clock.DOING_IN_LOG_OFFSET + struct.calcsize("<4Q")),
        ("log", "left", clock.DOING_IN_LOG_OFFSET + struct.calcsize("<6Q")),
        ("log", "outside", clock.DOING_IN_LOG_OFFSET + struct.calcsize("<6QII")),
    ]
    # where the two formats read the fields
    parts = [("<", "abi"), ("<IIii", "now"), ("<IIiiQQ", "held"), ("<IIiiQQI", "mode")]
    parts += [("<IIiiQQII", "cursor"), ("<IIiiQQIIQQ", "initialized")]
    parts += [("<IIiiQQIIQQIiIII", "diverged"), ("<IIiiQQIIQQIiIIII", "diverged_now")]
    parts += [("<IIiiQQIIQQIiIIIIQ4QQQIHH", "words_from")]
    fields += [("clock", field, struct.calcsize(part)) for part, field in parts]
    checks = [
        f"_Static_assert(offsetof(struct crdebug_{owner}, {field}) == {offset}, {field!r});"
        for owner, field, offset in fields
    ]
    checks += [
        f"_Static_assert(sizeof(struct crdebug_clock) == {clock.SIZE}, {'size'!r});",
        f"_Static_assert(sizeof(struct crdebug_log) == {clock.LOG_SIZE}, {'log'!r});",
        f"_Static_assert(sizeof(struct crdebug_record) == {clock.RECORD.size}, {'record'!r});",
        f"_Static_assert(CRDEBUG_LOG_HEADER == {clock.LOG_HEADER}, {'header'!r});",
        f"_Static_assert(CRDEBUG_CLOCK_ABI == {clock.ABI}, {'abi'!r});",
        f"_Static_assert(CRDEBUG_OLD == {clock.OLD}, {'old'!r});",
        f"_Static_assert(CRDEBUG_PAGE == {clock.PAGE}, {'page'!r});",
        f"_Static_assert(CRDEBUG_ARGUMENT_ERRORS == {mpi_errors.ARGUMENTS}, {'errors'!r});",
    ]
    source = tmp_path / "layout.c"
    text = "\n".join(['#include "clock.h"', "#include <stddef.h>", *checks])
    source.write_text(text.replace("'", '"'))
    subprocess.run(["cc", "-c", "-I", NATIVE, "-o", "/dev/null", source], check=True)


def test_every_field_of_the_clock_is_read_where_it_is() -> None:
    """Each field in its place: a number of its own comes back."""
    data = clock._CLOCK.pack(
        *(clock.ABI, clock.SIZE, 3, 4, 5, 6, 1, 1, 9, 10, 1, 2, 13, 3, 1, 1, 17),
        *(18, 19, 20, 21, 22, DIGEST, 1, 1, 2, 23, 2, *range(24, 32)),
        *(4, 0, 0x2000),
        *(0x1000, 8, 1, 32, 33),
        *(BY_NAME["MPI_Win_post"].number, 7 << 48, 5, 0x400, 0, 4, 1, 2, 5, 1, *range(11 + 14)),
    )
    found = clock.Clock.parse(data)
    assert (found.rank, found.world, found.now, found.stop) == (3, 4, 5, 6)
    assert (found.cursor, found.repeat, found.thread_level, found.open_epochs) == (9, 10, 2, 13)
    assert (found.refused, found.expected, found.actual) == (3, (18, 19), (20, 21))
    assert (found.diverged_now, found.pending_wild, found.replaying) == (17, 22, True)
    assert (found.expected_failed, found.actual_failed) == ("MPI_ERR_BUFFER", "MPI_ERR_COUNT")
    assert (found.words_from, found.last) == (23, clock.Last.IS_THERE)
    assert (found.expected_words, found.actual_words) == ((24, 25, 26, 27), (28, 29, 30, 31))
    assert found.looked_changed == 33


class TestTheMpiccOfALauncher:
    @staticmethod
    def program(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    def test_is_beside_it(self, tmp_path: Path) -> None:
        launcher = self.program(tmp_path / "bin" / "mpirun")
        assert mpicc_of(str(launcher)) is None
        mpicc = self.program(tmp_path / "bin" / "mpicc")
        assert mpicc_of(str(launcher)) == str(mpicc)

    def test_is_of_the_same_mpi_where_several_are(self, tmp_path: Path) -> None:
        own = {}
        for family in ("openmpi", "mpich"):
            own[family] = self.program(tmp_path / f"mpicc.{family}")
            self.program(tmp_path / f"mpirun.{family}")
        self.program(tmp_path / "mpicc")
        for family, mpicc in own.items():
            assert mpicc_of(str(tmp_path / f"mpirun.{family}")) == str(mpicc)
            short = tmp_path / "mpirun"
            short.unlink(missing_ok=True)
            short.symlink_to(tmp_path / f"mpirun.{family}")
            assert mpicc_of(str(short)) == str(mpicc)

    def test_is_none_without_a_launcher(self) -> None:
        assert mpicc_of("there-is-no-such-launcher") is None

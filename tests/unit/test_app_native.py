"""The rank's side of programs' requests, crdebug/native/shim/app.c, in a process without MPI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crdebug import app
from crdebug.base.deadline import Deadline
from crdebug.base.errors import NotAvailable
from crdebug.base.settings import Settings
from crdebug.native.applib import build as applib
from crdebug.native.shim import app_layout
from crdebug.native.shim.app_layout import App, Moment, Status, pack_reason
from harness.layouts import said_by

pytestmark = pytest.mark.unit

HEADERS = Path(app_layout.__file__).parent
PUBLIC = Path(applib.__file__).parent

LAYOUT = r"""
#include "app.h"
#include "crdebug_app.h"
#include <stddef.h>
#include <stdio.h>

static struct crdebug_app app = {
    CRDEBUG_APP_ABI, sizeof app, 3, 4, 5, 6, 7, -8, -9, 10, 11, 12, 13, -14, 15, 16,
    "note", "reason", "refusal"};

#define AT(field) offsetof(struct crdebug_app, field)

int main(void) {
    printf("%zu %zu %zu %zu %zu %zu %d %d %d %d %d %d %d\n", AT(door), AT(answered), AT(status),
           AT(call), AT(moment), AT(reason), CRDEBUG_BEFORE_CHECKPOINT, CRDEBUG_AFTER_CONTINUE,
           CRDEBUG_AFTER_RESTART, CRDEBUG_DONE, CRDEBUG_NOT_HERE, CRDEBUG_REFUSED, CRDEBUG_FAILED);
    fflush(stdout);
    return fwrite(&app, sizeof app, 1, stdout) != 1;
}
"""


def test_python_and_the_compiler_agree(tmp_path: Path) -> None:
    said = said_by(LAYOUT, tmp_path, HEADERS, PUBLIC)
    numbers, data = said.split(b"\n", 1)
    offsets = ("DOOR", "ANSWERED", "STATUS", "CALL", "MOMENT", "REASON")
    assert [int(number) for number in numbers.split()] == [
        *(getattr(app_layout, name) for name in offsets),
        *(int(each) for each in (*Moment, *Status)),
    ]
    assert [*map(int, app.Moment), *map(int, app.Status)] == [*map(int, (*Moment, *Status))]
    assert len(data) == app_layout.SIZE
    assert App.parse(data) == App(
        quiet=3,
        asked=5,
        answered=6,
        wish=7,
        wanted=-8,
        callbacks=11,
        call=12,
        called=13,
        moment=-14,
        refused=True,
        helper=16,
        note="note",
        refusal="refusal",
    )


def test_a_reason_is_cut_between_characters() -> None:
    packed = pack_reason("ä" * 300)
    assert len(packed) == app_layout.REASON_SIZE
    assert packed.rstrip(b"\0").decode() == "ä" * 127


# A rank without a debugger: the shim is there, and says that the process is rank 0. The process
# itself writes the answers that would come from outside, and reads the door's FIFO.
RANK = r"""
import ctypes, os, sys, threading, time
door = os.open(sys.argv[2] + "/door", os.O_RDWR)
shim = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
numbers = lambda name, count: (ctypes.c_int * count).in_dll(shim, name)
rank, word = numbers("crdebug_shim", 4), numbers("crdebug_app", 16)
rank[2], rank[3] = 0, 62
QUIET, DOOR, ASKED, CALLBACKS, CALL, CALLED, MOMENT, REFUSED = 2, 3, 4, 10, 11, 12, 13, 14
from crdebug import app

def until(true):
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, list(word)
        time.sleep(0.001)
"""


def in_a_rank(home: Path, text: str) -> str:
    """The output of a program in such a process. home: the job's directory."""
    for name in ("asks", "door"):
        os.mkfifo(home / name)
    sources = [HEADERS / name for name in ("shim.c", "app.c", "places.c")]
    compiler = ["cc", "-std=c11", "-O2", "-shared", "-fPIC", "-pthread", f"-I{PUBLIC}"]
    subprocess.run([*compiler, "-o", home / "shim.so", *sources, "-ldl"], check=True)
    ran = subprocess.run(
        [sys.executable, "-c", RANK + text, home / "shim.so", home],
        capture_output=True,
        text=True,
        env={**os.environ, "CRDEBUG_DIR": str(home)},
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_quiet_regions_are_counted_and_wait_at_a_closed_door_that_somebody_holds(
    tmp_path: Path,
) -> None:
    said = in_a_rank(
        tmp_path,
        """
print(app.checkpoint("x"), app.restart(1), word[ASKED])       # nobody hears
print(app.quiet_start(), app.quiet_start(), word[QUIET])
print(app.checkpoint("x"))
print(app.quiet_end(), app.quiet_end(), app.quiet_end(), word[QUIET], app.reason())
word[DOOR] = 1
inside = threading.Thread(target=app.quiet_start)
inside.start()
word[DOOR] = 0                                                 # opened
inside.join()
print(word[QUIET], app.quiet_end())
word[DOOR] = 1
os.close(door)                                                 # who closed it is gone
print(app.quiet_start(), word[QUIET], word[DOOR])
""",
    )
    assert said.splitlines() == [
        "(-1, 0) -1 0",
        "0 0 2",
        "(-1, 0)",
        "0 0 -2 0 no quiet region has begun",
        "1 0",
        "0 1 0",
    ]


def test_callbacks_are_stacked_and_one_that_refuses_ends_the_round(tmp_path: Path) -> None:
    """Should crdebug die before it calls those after, they are called all the same."""
    said = in_a_rank(
        tmp_path,
        """
trace, against = [], []
def note(name):
    def callback(moment):
        trace.append(name + str(int(moment)))
        if name in against and moment == 0:
            print(app.checkpoint(), app.register(print), app.quiet_start(), app.quiet_end())
            raise app.Refusal("busy")
    return callback

def call(moment):
    trace.clear()
    word[MOMENT] = moment
    word[CALL] += 1
    until(lambda: word[CALLED] == word[CALL])
    print(moment, " ".join(trace), word[REFUSED])

print([app.register(note(name)) for name in "abc"], word[CALLBACKS])
call(0); call(1); call(1); call(0); call(2); call(2)
against.append("b")
call(0)
print(ctypes.string_at(ctypes.addressof(word) + 64 + 128 + 256))
call(1)
against.clear()
call(0)
os.close(door)
until(lambda: len(trace) == 6)
print(*trace)
""",
    )
    assert said.splitlines() == [
        "[0, 0, 0] 3",
        "0 c0 b0 a0 0",
        "1 a1 b1 c1 0",
        "1  0",
        "0 c0 b0 a0 0",
        "2 a2 b2 c2 0",
        "2 a2 b2 c2 0",
        "(-2, 0) -2 0 0",
        "0 c0 b0 c1 1",
        "b'busy'",
        "1  1",
        "0 c0 b0 a0 0",
        "c0 b0 a0 a1 b1 c1",
    ]


def test_without_crdebug_nothing_is_here() -> None:
    assert app.checkpoint("x") == (Status.NOT_HERE, 0)
    assert {app.restart(), app.quiet_start(), app.quiet_end()} == {Status.NOT_HERE}
    assert app.register(lambda moment: None) == Status.NOT_HERE
    assert app.reason() == ""
    with app.quiet():
        pass


async def test_the_library_is_compiled_once_for_each_pair_of_compilers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRDEBUG_CACHE", str(tmp_path))
    home = await applib.build_library(Settings().compiler, "", Deadline(60))
    assert {path.name for path in home.iterdir()} == {"crdebug_app.h", "libcrdebug_app.a"}
    stamp = home.stat().st_mtime_ns
    assert await applib.build_library(Settings().compiler, "", Deadline(60)) == home
    assert home.stat().st_mtime_ns == stamp
    with pytest.raises(NotAvailable, match=r"there is no Fortran compiler 'none' .* --fortran"):
        await applib.build_library(Settings().compiler, "none", Deadline(60))
    assert applib.pkg_words(home, cflags=True, libs=False) == f"-I{home}"
    assert applib.pkg_words(home, cflags=False, libs=True) == f"-L{home} -lcrdebug_app -ldl"

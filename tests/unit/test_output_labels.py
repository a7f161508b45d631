"""Output labelled by rank, from the marks of three launchers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from crdebug.job.output_labels import OF_HYDRA, OF_PRTERUN, Labels, asking

pytestmark = pytest.mark.unit

# As they write them: the first and the last begin anew where another rank comes between.
ORTE = b"[1,0]<stdout>:part[1,1]<stdout>:one\n[1,0]<stdout>: rest\n[1,1]<stdout>:\n[1,0]<stdout>:x"
PRTE = b"[1,0]<stdout>: part rest\n[1,1]<stdout>: one\n[1,1]<stdout>: \n[1,0]<stdout>: x"
HYDRA = (
    b"[0,1]<crdebug>:one\n[0,0]<crdebug>:part[0,1]<crdebug>:\n"
    b"[0,0]<crdebug>: rest\n[0,0]<crdebug>:x"
)


def labelled(text: bytes, *cuts: int) -> bytes:
    labels, told, at = Labels(), b"", 0
    for cut in sorted(min(each, len(text)) for each in cuts):
        told += labels.feed(text[at:cut])
        at = cut
    return told + labels.feed(text[at:], final=True)


@pytest.mark.parametrize("text", [ORTE, PRTE, HYDRA])
def test_each_line_has_its_rank_and_pieces_are_put_together(text: bytes) -> None:
    lines = labelled(text).splitlines()
    assert sorted(lines) == [b"[0] part rest", b"[0] x", b"[1] ", b"[1] one"]
    assert lines[-1] == b"[0] x"


@given(some.sampled_from([ORTE, PRTE, HYDRA]), some.lists(some.integers(0, 100), max_size=8))
def test_however_it_comes_in_pieces(text: bytes, cuts: list[int]) -> None:
    assert labelled(text, *cuts) == labelled(text)


@given(some.binary())
def test_nothing_is_lost_without_marks(text: bytes) -> None:
    assert labelled(text) == text


@given(some.lists(some.tuples(some.integers(0, 999), some.binary(max_size=9)), max_size=9))
def test_nothing_is_lost_of_whatever_bytes(wrote: list[tuple[int, bytes]]) -> None:
    lines = [(0, b""), *((rank, line.replace(b"\n", b"")) for rank, line in wrote)]
    text = b"".join(b"[1,%d]<stderr>:%b\n" % each for each in lines)
    assert labelled(text) == b"".join(b"[%d] %b\n" % each for each in lines)
    labels = Labels()  # a line at a time, and then many at a time
    assert b"".join(labels.feed(each + b"\n") for each in text.split(b"\n")[:-1]) == labelled(text)
    assert labels.feed(text) == labelled(text)


def test_a_mark_in_the_middle_of_a_character() -> None:
    character = "\u00e9".encode()
    text = b"[1,12]<stdout>:" + character[:1] + b"[1,12]<stdout>:" + character[1:] + b"\n"
    assert labelled(text).decode() == "[12] \u00e9\n"


def test_what_the_launcher_says_itself_stays_as_it_is() -> None:
    text = b"[1,0]<stdout>:a\nmpirun noticed that ...\n[1,1]<stdout>:[3] is the program's\n"
    assert labelled(text) == b"[0] a\nmpirun noticed that ...\n[1] [3] is the program's\n"


def test_a_launcher_that_makes_no_marks_is_noticed() -> None:
    labels = Labels()
    assert labels.feed(b"\nhello\n") == b"\nhello\n" and labels.unmarked
    labels = Labels()
    labels.feed(b"[1,0]<stdout>:a\nhello\n")
    assert not labels.unmarked


def test_long_lines_and_many_are_no_slower() -> None:
    """A line without an end, in small pieces, and 20 MB of lines."""
    labels, began = Labels(), time.process_time()
    for _ in range(10_000):
        assert labels.feed(b"[1,0]<stdout>:" + b"x" * 200) == b""
    assert labels.feed(b"[1,0]<stdout>:\n") == b"[0] " + b"x" * 2_000_000 + b"\n"
    line = b"[1,0]<stdout>:" + b"y" * 66 + b"\n"
    for _ in range(250):
        assert len(labels.feed(line * 1000)) == 71 * 1000
    assert time.process_time() - began < 3  # some 0.4 s


COMMAND = ["mpirun", "-n", "2", "./heat"]


@pytest.mark.parametrize(
    ("family", "version", "options"),
    [
        ("MPICH", "4.0.2", OF_HYDRA),
        ("MPICH", "", OF_HYDRA),
        ("Open MPI", "5.0.3", OF_PRTERUN),
        ("Open MPI", "4.1.4", ()),  # it takes a variable
        ("", "", ()),
    ],
)
def test_how_a_launcher_is_asked(family: str, version: str, options: tuple[str, ...]) -> None:
    assert asking(COMMAND, family, version) == ["mpirun", *options, *COMMAND[1:]]


def test_what_the_user_has_asked_for_stays() -> None:
    for option in ("--output", "--tag-output", "--output=tag", "--timestamp-output"):
        argv = ["mpirun", option, *COMMAND[1:]]
        assert asking(argv, "Open MPI", "5.0.3") == argv
    argv = ["mpiexec", "-prepend-rank", *COMMAND[1:]]
    assert asking(argv, "MPICH", "4.2") == argv

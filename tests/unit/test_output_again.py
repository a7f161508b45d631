"""Output that comes a second time because a job repeats its past."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as some

from crdebug.job import output_again, output_places
from crdebug.job.output_again import MOST, Again
from crdebug.job.output_places import length_of_same, start_of_line

pytestmark = pytest.mark.unit


def expecting(text: str) -> Again:
    """Of a job that was taken back to where it had not written this yet."""
    again = Again(bytes.decode)
    taken_back(again, text)
    return again


def taken_back(again: Again, text: str) -> None:
    again.begin(100 + len(text))
    again.cut(100, text.encode())
    assert again.end(b"") == ""


def test_what_was_shown_is_left_out_and_what_is_new_is_shown() -> None:
    again = expecting("step 3\nstep 4\n")
    assert again.feed("step 3\nstep") == ""
    assert again.feed(" 4\nstep 5\nst") == "step 5\nst"
    assert again.feed("ep 6\n") == "ep 6\n"


def test_a_line_is_left_out_as_often_as_it_was_shown() -> None:
    again = expecting("done\ndone\n")
    assert again.feed("done\n" * 3) == "done\n"


def test_what_another_rank_prints_for_the_first_time_is_shown_at_once() -> None:
    again = expecting("[0] step 3\n[0] step 4\n")
    assert again.feed("[1] step 5\n[0] step 3\n") == "[1] step 5\n"


def test_a_question_is_shown_although_something_is_expected() -> None:
    again = expecting("step 3\n")
    assert again.feed("how many? ") == "how many? "
    assert again.feed("step 3\n") == ""


def test_going_back_while_it_repeats() -> None:
    again = expecting("a\nb\nc\n")
    assert again.feed("a\nb") == ""
    taken_back(again, "a\nb")  # to the beginning; c is still expected
    assert again.feed("a\nb\nc\nd\n") == "d\n"


def test_while_a_place_is_looked_for_nothing_is_shown_and_one_of_the_ways_counts() -> None:
    again = Again(bytes.decode)
    again.begin(16)
    again.cut(10, b"a\nb\nc\n")
    assert again.feed("a\nb\n") == ""
    again.cut(8, b"z\na\nb\n")  # further back: of this, only z was not known
    assert again.feed("z\na\nz\na\n") == ""
    again.cut(8, b"z\na\nz\na\n")
    assert again.end(b"z\na\n") == ""
    assert again.low == 8
    assert again.feed("a\nb\nc\nd\n") == "a\nd\n"
    again.begin(20)
    assert again.end(b"") == ""
    assert again.feed("b\n") == "b\n"


def test_a_rank_that_has_come_further_than_it_was_has_written_more() -> None:
    """It stood between two calls, and was brought to the later one."""
    again = Again(bytes.decode)
    again.begin(4)  # "a\nb\n"
    again.cut(2, b"b\n")
    assert again.feed("b\nnew\nnew\n") == ""
    assert again.end(b"b\nnew\nnew\n") == "new\nnew\n"
    assert again.feed("c\n") == "c\n"
    again = expecting("b\nc\n")
    again.begin(104)
    assert again.feed("c\nnew\nb") == ""
    assert again.end(b"c\nnew\nb") == "new\n"
    assert again.feed("\n") == ""
    again.begin(110)
    assert again.end(b"how many? ") == "how many? "
    again.begin(120)  # that is shown, and nothing happens
    again.cut(110, b"how many? ")
    assert again.end(b"how many? ") == ""


def test_what_was_kept_back_is_shown_when_it_turns_out_to_be_new() -> None:
    again = expecting("step 3\nstep 4\n")
    assert again.feed("ste") == ""
    assert again.is_over() == "ste"
    assert again.feed("p 3\n") == "p 3\n"
    again = expecting("step 3\n")
    assert again.feed("ste", final=True) == "ste"


def test_of_very_much_all_is_shown_again() -> None:
    again = expecting("".join(f"line {n}\n" for n in range(200_000)))
    assert again.feed("line 7\nline") == ""
    taken_back(again, "x" * MOST)
    assert again.feed("line 8\n") == "line 8\n"


def test_much_that_comes_in_pieces_is_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts: list[int] = []

    def counted(lines: Iterable[str]) -> list[str]:
        sorts.append(1)
        return sorted(lines)

    monkeypatch.setattr(output_again, "sorted", counted, raising=False)
    again = expecting("".join(f"line {n}\n" for n in range(20_000)))
    for n in range(100):
        assert again.feed(f"line {n}") + again.feed("\n") == ""
    assert len(sorts) == 1


@given(some.text("ab\n"), some.lists(some.integers(0, 40), max_size=6))
def test_however_it_comes_in_pieces_nothing_new_is_lost(text: str, cuts: list[int]) -> None:
    again, told, at = expecting(text), "", 0
    whole = text[: text.rfind("\n") + 1]
    repeated = whole + "new\n"
    for cut in [*sorted(cuts), len(repeated)]:
        told += again.feed(repeated[at:cut])
        at = max(at, cut)
    assert told == "new\n"


@given(some.binary(max_size=9), some.binary(max_size=9), some.binary(max_size=9))
def test_how_much_is_the_same_and_where_a_line_begins(
    tmp_path_factory: pytest.TempPathFactory, same: bytes, one: bytes, other: bytes
) -> None:
    first, second = (tmp_path_factory.mktemp("same") / name for name in "ab")
    first.write_bytes(same + one)
    second.write_bytes(same + other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_places, "_PIECE", 3)
        length = length_of_same(first, second)
        data = first.read_bytes()
        assert data[:length] == second.read_bytes()[:length]
        assert data[length : length + 1] != second.read_bytes()[length : length + 1] or (
            length == len(data)
        )
        begun = start_of_line(first, length)
        assert data[:begun].endswith(b"\n") or begun == 0
        assert b"\n" not in data[begun:length]

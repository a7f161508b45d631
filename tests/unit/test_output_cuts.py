"""A job's output is what it was at a moment, wherever the job goes in its history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from crdebug.job import output_cuts
from crdebug.job.output_cuts import Cuts

pytestmark = pytest.mark.unit


class Stream:
    def __init__(self) -> None:
        self.text = b""
        self.cuts = Cuts()
        self.moments: list[tuple[int, int, bytes]] = []

    def remember(self) -> None:
        self.moments.append((len(self.text), self.cuts.count, self.text))

    def go(self, size: int, cuts: int) -> None:
        low, tail = self.cuts.back_to(size, cuts, len(self.text), lambda at: self.text[at:])
        assert low <= len(self.text)
        self.text = self.text[:low] + tail


@given(some.lists(some.one_of(some.sampled_from([b"", b"a\n", b"bc"]), some.integers(0, 20))))
def test_at_each_moment_it_is_what_it_was_then(steps: list[bytes | int]) -> None:
    """Text is written; b"" remembers the moment, and a number goes to one."""
    stream = Stream()
    stream.remember()
    for step in steps:
        if isinstance(step, int):
            size, cuts, text = stream.moments[step % len(stream.moments)]
            stream.go(size, cuts)
            assert stream.text == text
        elif step:
            stream.text += step
        else:
            stream.remember()


def test_of_very_much_there_is_at_least_what_is_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output_cuts, "MOST", 10)
    stream = Stream()
    stream.text = b"one\n"
    stream.remember()
    stream.text += b"x" * 20
    stream.remember()
    (early, cuts, _), (late, later, _) = stream.moments
    stream.go(early, cuts)
    assert stream.text == b"one\n"
    stream.go(late, later)
    assert stream.text == b"one\n"  # not a hole

"""Tests that are run once more: in a pytest of its own, with the plugin alone."""

from __future__ import annotations

from pathlib import Path

import pytest

# The first time that each is run, its file is not there yet.
UNSTEADY = """
import pathlib, pytest

def first(name):
    path = pathlib.Path(__file__).with_name(name)
    there = path.exists()
    path.touch()
    return not there

@pytest.fixture
def leaves():
    yield
    if first("left"):
        pytest.fail("the test left behind: a sock", pytrace=False)

def test_steady():
    pass

def test_unsteady():
    print("what it printed")
    assert not first("ran"), "what it said"

def test_leaves(leaves):
    pass
"""
RED = """
def test_red():
    assert False, "always"
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makeini("[pytest]\naddopts = -p harness.again -p no:asyncio -p no:cacheprovider")
    return pytester


def test_what_passes_the_second_time_is_unsteady(suite: pytest.Pytester) -> None:
    suite.makepyfile(UNSTEADY)
    ran = suite.runpytest_subprocess("--again")
    assert ran.ret == pytest.ExitCode.OK
    ran.stdout.fnmatch_lines(
        [
            "*AssertionError: what it said",
            "what it printed",
            "the test left behind: a sock",
            "UNSTEADY *::test_unsteady",
            "UNSTEADY *::test_leaves",
            "*= 2 passed, 2 unsteady in *",
        ]
    )


def test_what_fails_again_is_a_failure_also_with_workers(suite: pytest.Pytester) -> None:
    suite.makepyfile(UNSTEADY + RED)
    ran = suite.runpytest_subprocess("--again", "-n", "2")
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    ran.stdout.fnmatch_lines_random(["FAILED *::test_red*", "UNSTEADY *::test_unsteady"])
    ran.stdout.fnmatch_lines(["*= 1 failed, 2 passed, 2 unsteady in *"])


def test_so_many_failures_are_not_run_once_more(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("n", range(13))
        def test_red(n):
            assert False
        """
    )
    ran = suite.runpytest_subprocess("--again")
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    ran.stdout.fnmatch_lines(["more than 12 tests failed: none was run once more"])

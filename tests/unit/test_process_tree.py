"""Which process started which, beside what psutil says of the same ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from crdebug.node import process_tree

pytestmark = pytest.mark.unit

# A child with a child of its own, and then another child.
_FAMILY = "sh -c 'sleep 1000 & echo; wait' & sleep 1000 & echo; wait"


@contextmanager
def family() -> Iterator[psutil.Process]:
    with subprocess.Popen(["sh", "-c", _FAMILY], stdout=subprocess.PIPE) as first:
        found = psutil.Process(first.pid)
        try:
            assert first.stdout is not None
            assert [first.stdout.readline(), first.stdout.readline()] == [b"\n", b"\n"]
            yield found
        finally:
            for each in (*found.children(recursive=True), found):
                each.kill()


def test_descendants_are_all_that_is_below() -> None:
    with family() as first:
        found = process_tree.descendants(first.pid)
        assert sorted(found) == sorted(each.pid for each in first.children(recursive=True))
        assert len(found) == 3


def test_descendants_come_by_age() -> None:
    with family() as first:
        found = process_tree.descendants(first.pid)
        ages = [psutil.Process(pid).create_time() for pid in found]
        assert ages == sorted(ages)


def test_what_has_ended_is_no_descendant_also_while_nobody_has_waited_for_it() -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert ended.pid not in process_tree.descendants(os.getpid())
        assert ended.pid in [each.pid for each in psutil.Process().children()]


def test_ancestors_are_those_above_the_nearest_first() -> None:
    with family() as first:
        inner = next(each for each in first.children(recursive=True) if each.ppid() != first.pid)
        found = process_tree.ancestors(inner.pid)
        assert found[:2] == (inner.ppid(), first.pid)
        assert found == tuple(each.pid for each in inner.parents())
        assert os.getpid() in found


def test_a_process_that_is_not_there_has_nobody() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    assert process_tree.descendants(ended.pid) == process_tree.ancestors(ended.pid) == ()

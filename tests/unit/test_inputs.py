"""What a job reads: the file that PID 1 passes on, and what of it a restart finds again."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.deadline import Deadline
from crdebug.errors import StoreError
from crdebug.job import inputs

pytestmark = pytest.mark.unit


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """Empty directories, one after the other."""
    return (_made(tmp_path / str(number)) for number in itertools.count())


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def text(run: Path, name: str = inputs.INPUT) -> list[bytes]:
    """The blocks that are in the file."""
    data, blocks = (run / name).read_bytes(), []
    while data:
        length = int.from_bytes(data[:4], "little")
        blocks.append(data[4 : 4 + length])
        data = data[4 + length :]
    return blocks


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_the_source_is_there_from_the_beginning(
    runs: Iterator[Path], size: int, more: bool
) -> None:
    run, source = next(runs), next(runs) / "source"
    source.write_bytes(os.urandom(size))
    with inputs.open_source(source) as file:
        inputs.begin(run, file, more=more)
    blocks = text(run)
    assert b"".join(blocks) == source.read_bytes()
    assert blocks.count(b"") == (not more)
    assert inputs.is_over(run) is (not more)
    inputs.append(run, b"" if more else b"x")
    assert inputs.is_over(run)


def test_after_a_restart_it_has_what_was_sent_later_once_ranks_run(runs: Iterator[Path]) -> None:
    """Whatever the checkpoint had of it, and however often the job went back before."""
    sent = [b"a", b"bb\n", b"", b"ignored"]
    for taken in range(len(sent) + 1):
        run, saved = next(runs), next(runs)
        inputs.begin(run, None, more=True)
        for number, block in enumerate(sent):
            if number == taken:
                inputs.save(run, saved)
            inputs.append(run, block)
        if taken == len(sent):
            inputs.save(run, saved)
        for _ in range(2):
            old, run = run, next(runs)
            inputs.bring_back(saved, old, run)
            assert text(run) == sent[:taken]
            assert inputs.has_later(run) is (taken < len(sent))
            assert inputs.is_over(run)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cat:
            inputs.give_again(run, cat.pid)  # it ends by a signal that it does not know
            assert cat.stdin is not None
            cat.stdin.close()
        assert text(run) == sent
        assert not inputs.has_later(run)


def test_what_is_sent_instead_of_it(runs: Iterator[Path]) -> None:
    run, saved, new = next(runs), next(runs), next(runs)
    inputs.begin(run, None, more=True)
    inputs.save(run, saved)
    inputs.append(run, b"old")
    inputs.append(run, b"")
    inputs.bring_back(saved, run, new)
    inputs.drop_later(new)
    assert not inputs.is_over(new)
    inputs.append(new, b"new")
    assert text(new) == [b"new"]
    again = next(runs)  # what another future was sent is not this one's
    inputs.bring_back(run, new, again)
    assert text(again) == [b"old", b""]
    assert not inputs.has_later(again)


def test_what_comes_while_it_is_not_given_again_yet_comes_behind_it(runs: Iterator[Path]) -> None:
    run, saved, new = next(runs), next(runs), next(runs)
    inputs.begin(run, None, more=True)
    inputs.save(run, saved)
    inputs.append(run, b"1")
    inputs.bring_back(saved, run, new)
    inputs.append(new, b"2")
    assert text(new, inputs.LATER) == [b"1", b"2"]
    assert text(new) == []


def test_branches_keep_their_own(runs: Iterator[Path]) -> None:
    """The file that PID 1 has open stays the same one, also when the job does not change over."""
    run, main, branch = next(runs), next(runs), next(runs)
    inputs.begin(run, None, more=True)
    inputs.append(run, b"main")
    inputs.copy(run, main)
    inputs.append(run, b"branch")
    with open(run / inputs.INPUT, "rb") as ours:
        inputs.replace(run, main, branch)
        assert (text(run), text(branch)) == ([b"main"], [b"main", b"branch"])
        inputs.replace(run, branch, main)
        assert (text(run), text(main)) == ([b"main", b"branch"], [b"main"])
        assert os.path.samestat(os.fstat(ours.fileno()), (run / inputs.INPUT).stat())


def test_a_job_that_has_none(runs: Iterator[Path]) -> None:
    """One that crdebug did not start."""
    run, saved, new = next(runs), next(runs), next(runs)
    inputs.save(run, saved)
    inputs.bring_back(saved, run, new)
    assert not any(any(each.iterdir()) for each in (run, saved, new))
    assert inputs.size(run) == 0


def test_what_does_not_fit_on_the_disk_is_not_there_by_halves(tmp_path: Path) -> None:
    """Half a block would be taken for the beginning of the next one's."""
    inputs.begin(tmp_path, None, more=True)
    inputs.append(tmp_path, b"first")
    before = (tmp_path / inputs.INPUT).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 6, hard))
    try:
        with pytest.raises(StoreError, match="the job's input cannot be kept: File too large"):
            inputs.append(tmp_path, b"second, which is longer")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / inputs.INPUT).read_bytes() == before
    inputs.append(tmp_path, b"")
    assert inputs.is_over(tmp_path)


async def test_a_fifo_is_read_to_its_end_while_other_things_go_on(runs: Iterator[Path]) -> None:
    run, fifo = next(runs), next(runs) / "fifo"
    os.mkfifo(fifo)
    with inputs.open_source(fifo) as source:  # nobody writes to it yet
        beginning = asyncio.create_task(inputs.begin_with(run, source, more=False))
        writer = await asyncio.to_thread(os.open, fifo, os.O_WRONLY)
        for number in range(3):
            os.write(writer, b"%d\n" % number)
            await Deadline(30).until(lambda: len(text(run)) > number, "what was written")  # noqa: B023
            assert not beginning.done()
        os.close(writer)
        await beginning
    assert text(run) == [b"0\n", b"1\n", b"2\n", b""]


async def test_who_waits_for_a_fifo_that_nobody_writes_to_can_be_interrupted(
    runs: Iterator[Path],
) -> None:
    run, fifo = next(runs), next(runs) / "fifo"
    os.mkfifo(fifo)
    with inputs.open_source(fifo) as source:
        beginning = asyncio.create_task(inputs.begin_with(run, source, more=False))
        await asyncio.sleep(0)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning

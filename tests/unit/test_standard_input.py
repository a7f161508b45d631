"""A job's input: the file that PID 1 passes on, and the part of it that a restart finds again."""

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

from crdebug.base.deadline import Deadline
from crdebug.base.errors import StoreError
from crdebug.job import standard_input

pytestmark = pytest.mark.unit


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """Empty directories, one after the other."""
    return (_made(tmp_path / str(number)) for number in itertools.count())


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def text(run: Path, name: str = standard_input.INPUT) -> list[bytes]:
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
    with standard_input.open_source(source) as file:
        standard_input.begin(run, file, more=more)
    blocks = text(run)
    assert b"".join(blocks) == source.read_bytes()
    assert blocks.count(b"") == (not more)
    assert standard_input.is_over(run) is (not more)
    standard_input.append(run, b"" if more else b"x")
    assert standard_input.is_over(run)


def test_after_a_restart_it_gets_later_input_once_ranks_run(runs: Iterator[Path]) -> None:
    """Whatever the checkpoint had of it, and however often the job went back before."""
    sent = [b"a", b"bb\n", b"", b"ignored"]
    for taken in range(len(sent) + 1):
        run, saved = next(runs), next(runs)
        standard_input.begin(run, None, more=True)
        for number, block in enumerate(sent):
            if number == taken:
                standard_input.save(run, saved)
            standard_input.append(run, block)
        if taken == len(sent):
            standard_input.save(run, saved)
        for _ in range(2):
            old, run = run, next(runs)
            standard_input.bring_back(saved, old, run)
            assert text(run) == sent[:taken]
            assert standard_input.has_later(run) is (taken < len(sent))
            assert standard_input.is_over(run)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cat:
            standard_input.give_again(run, cat.pid)  # it ends by a signal that it does not know
            assert cat.stdin is not None
            cat.stdin.close()
        assert text(run) == sent
        assert not standard_input.has_later(run)


def test_what_is_sent_instead_of_it(runs: Iterator[Path]) -> None:
    run, saved, new = next(runs), next(runs), next(runs)
    standard_input.begin(run, None, more=True)
    standard_input.save(run, saved)
    standard_input.append(run, b"old")
    standard_input.append(run, b"")
    standard_input.bring_back(saved, run, new)
    standard_input.drop_later(new)
    assert not standard_input.is_over(new)
    standard_input.append(new, b"new")
    assert text(new) == [b"new"]
    again = next(runs)  # what another future was sent is not this one's
    standard_input.bring_back(run, new, again)
    assert text(again) == [b"old", b""]
    assert not standard_input.has_later(again)


def test_new_input_comes_after_input_that_is_still_to_be_repeated(runs: Iterator[Path]) -> None:
    run, saved, new = next(runs), next(runs), next(runs)
    standard_input.begin(run, None, more=True)
    standard_input.save(run, saved)
    standard_input.append(run, b"1")
    standard_input.bring_back(saved, run, new)
    standard_input.append(new, b"2")
    assert text(new, standard_input.LATER) == [b"1", b"2"]
    assert text(new) == []


def test_branches_keep_their_own(runs: Iterator[Path]) -> None:
    """The file that PID 1 has open stays the same one, also when the job does not change over."""
    run, main, branch = next(runs), next(runs), next(runs)
    standard_input.begin(run, None, more=True)
    standard_input.append(run, b"main")
    standard_input.copy(run, main)
    standard_input.append(run, b"branch")
    with open(run / standard_input.INPUT, "rb") as ours:
        standard_input.replace(run, main, branch)
        assert (text(run), text(branch)) == ([b"main"], [b"main", b"branch"])
        standard_input.replace(run, branch, main)
        assert (text(run), text(main)) == ([b"main", b"branch"], [b"main"])
        assert os.path.samestat(os.fstat(ours.fileno()), (run / standard_input.INPUT).stat())


def test_a_job_that_has_none(runs: Iterator[Path]) -> None:
    """One that crdebug did not start."""
    run, saved, new = next(runs), next(runs), next(runs)
    standard_input.save(run, saved)
    standard_input.bring_back(saved, run, new)
    assert not any(any(each.iterdir()) for each in (run, saved, new))
    assert standard_input.size(run) == 0


def test_what_does_not_fit_on_the_disk_is_not_there_by_halves(tmp_path: Path) -> None:
    """Half a block would be taken for the beginning of the next one's."""
    standard_input.begin(tmp_path, None, more=True)
    standard_input.append(tmp_path, b"first")
    before = (tmp_path / standard_input.INPUT).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 6, hard))
    try:
        with pytest.raises(StoreError, match="the job's input cannot be kept: File too large"):
            standard_input.append(tmp_path, b"second, which is longer")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / standard_input.INPUT).read_bytes() == before
    standard_input.append(tmp_path, b"")
    assert standard_input.is_over(tmp_path)


async def test_reading_a_fifo_to_its_end_does_not_block_the_loop(runs: Iterator[Path]) -> None:
    run, fifo = next(runs), next(runs) / "fifo"
    os.mkfifo(fifo)
    with standard_input.open_source(fifo) as source:  # nobody writes to it yet
        beginning = asyncio.create_task(standard_input.begin_with(run, source, more=False))
        writer = await asyncio.to_thread(os.open, fifo, os.O_WRONLY)
        for number in range(3):
            os.write(writer, b"%d\n" % number)
            await Deadline(30).until(lambda: len(text(run)) > number, "what was written")  # noqa: B023
            assert not beginning.done()
        os.close(writer)
        await beginning
    assert text(run) == [b"0\n", b"1\n", b"2\n", b""]


async def test_waiting_for_a_fifo_without_a_writer_can_be_interrupted(
    runs: Iterator[Path],
) -> None:
    run, fifo = next(runs), next(runs) / "fifo"
    os.mkfifo(fifo)
    with standard_input.open_source(fifo) as source:
        beginning = asyncio.create_task(standard_input.begin_with(run, source, more=False))
        await asyncio.sleep(0)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning

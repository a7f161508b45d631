"""Ranks that run Python, with a wheel's MPI and with Debian's; and a rank that does not."""

from __future__ import annotations

import ctypes.util
import re
from pathlib import Path

import pytest

from crdebug.base.answers import NoRankAnswered
from crdebug.base.errors import BadInput
from crdebug.base.ranks import RankSet
from crdebug.base.settings import Settings
from crdebug.session import Session
from harness import mpirun
from harness.jobs import JOB
from harness.mpis import MPIS, Mpi
from harness.programs import build
from harness.talk import Talk

_NESTED = Path(__file__).parents[1] / "programs" / "nested.py"
_LINES = {line.strip(): number for number, line in enumerate(_NESTED.read_text().splitlines(), 1)}
_WHEELS = [mpi for mpi in MPIS if "mpi4py" in mpi.languages]
# Debian's MPIs have one Python, the wheels another.
_FIRST_OF_EACH = {bool(mpi.suffix): mpi for mpi in reversed(_WHEELS)}.values()
each_wheel = pytest.mark.parametrize(
    "mpi",
    [
        pytest.param(mpi, id=mpi.name, marks=() if mpi in _FIRST_OF_EACH else pytest.mark.sweep)
        for mpi in _WHEELS
    ],
)


def _at(function: str, line: str, arguments: str = r".*") -> str:
    return rf"py\d+ +{function} \({arguments}\) at nested.py:{_LINES[line]}"


_MEETS = _at(r"(Solver\.)?meet", "comm.Barrier()", "self=<Solver>, step=0")
_RELAXES = _at(r"(Solver\.)?relax", "return max([step], key=self.meet)", "self=<Solver>, step=0")
_FIRST = _at(r"(Solver\.)?first", "return self.relax(step)")
_MAIN = _at("main", "(solver.relax if rank else solver.first)(step)")
_MODULE = _at("<module>", "main(Solver(), int(sys.argv[1]))", "")


def _frames(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def _are(text: str, *patterns: str) -> bool:
    lines = _frames(text)
    return len(lines) == len(patterns) and all(map(re.fullmatch, patterns, lines))


@each_wheel
async def test_the_stacks_of_python(mpi: Mpi, tmp_path: Path) -> None:
    argv = [*mpi.launch(3), str(mpi.python), str(_NESTED), "3"]
    job = await Session.run(argv, name=JOB, settings=Settings(record=True))
    try:
        talk = Talk(job)
        with pytest.raises(NoRankAnswered, match="cannot read its Python stacks: "):
            await talk("pybt")  # Python's main has not begun
        await talk("barrier MPI_Barrier")
        others = (r"\[1-2\]", _MEETS, _RELAXES, _MAIN, _MODULE)
        first = (r"\[0\]", _MEETS, _RELAXES, _FIRST, _MAIN, _MODULE)
        assert _are(await talk("pybt"), *others, *first)
        assert _are(await talk("[1] pybt 2"), r"\[1\]", _MEETS, _RELAXES)
        # where they part, and all that runs Python
        tree = await talk("pybt --tree --function-only")
        assert re.search(r"^\[0-2\] 3 ranks\n +<module>\n +main\n├ \[1-2\]", tree), tree
        text = await talk("pybt --threads")
        assert re.search(r"^\[0-2\] 3 threads\n( .*\n)* +helps at nested.py:", text), text
        # each C function that runs Python, with the Python that it runs
        both = _frames(await talk("[1] pybt --both"))
        assert both[1].startswith("#0 ") and "MPI_Barrier" in both[1]
        told = [line for line in both if line.startswith("py") or "_EvalFrameDefault (" in line]
        loop = r"#\d+ +_PyEval_EvalFrameDefault \(.*"
        assert _are("\n".join(told), _MEETS, loop, _RELAXES, _MAIN, _MODULE, loop), both
        every = await talk("[1] pybt --both --threads")
        assert "helps at nested.py" in every and "_start\n" in every
        # variables
        assert await talk("pyprint step") == "[0-2] = 0"
        assert await talk("[1-2] pyprint mine") == '[1] = [0, {"rank": 1}]\n[2] = [0, {"rank": 2}]'
        assert await talk("pyprint meetings") == "[0-2] = 3"  # of a caller
        assert (
            await talk("[1] pyprint --frame 2") == "[1]\nsolver = <Solver>\nmeetings = 3\nstep = 0"
        )
        with pytest.raises(NoRankAnswered, match="no Python function here has a local variable"):
            await talk("pyprint mine --frame 1")
        with pytest.raises(NoRankAnswered, match="there is no Python frame 9"):
            await talk("pyprint --frame 9")
        with pytest.raises(BadInput, match="not a variable's name"):
            await talk("pyprint len(mine)")
        with pytest.raises(BadInput, match="write --depth N"):
            await talk("pybt --tree 2")
        # the selected thread counts, if it runs Python
        threads = (await job.info_threads(RankSet.of([1]))).values[1]
        said = [await _said(talk, each.number) for each in threads]
        assert sum("helps () at nested.py:" in each for each in said) == 1
        assert sum(_are(each, r"\[1\]", *others[1:]) for each in said) == len(said) - 1
        await talk(f"[1] thread {threads[-1].number}")  # the MPI library's, or the helper's
        assert "_PyEval_EvalFrameDefault" in await talk("[1] pybt --both")
    finally:
        await job.close()


async def _said(talk: Talk, number: int) -> str:
    await talk(f"[1] thread {number}")
    return await talk("[1] pybt")


@pytest.mark.skipif(not _WHEELS, reason="no mpi4py")
async def test_debian_s_open_mpi_and_a_rank_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    mpirun.require_many_programs()
    library = ctypes.util.find_library("mpi")
    assert library is not None
    monkeypatch.setenv("MPI4PY_LIBMPI", library)
    argv = mpirun.command(_WHEELS[0].python, _NESTED, 3, ranks=1)
    argv += [":", "--oversubscribe", "-n", "1", str(build("pingpong"))]
    job = await Session.run(argv, name=JOB)
    try:
        talk = Talk(job)
        await talk.all(["[0] tbreak MPI_Barrier", "continue"])
        said = await talk("pybt")
        assert said.endswith("\n[1] error: it runs no Python") and re.search(_MEETS, said), said
        with pytest.raises(NoRankAnswered, match="it runs no Python"):
            await talk("[1] pybt")
        assert await talk("[0] pyprint step") == "[0] = 0"
    finally:
        await job.close()


_RAISES = _NESTED.with_name("raises.py")
_EXCEPTIONS = {
    "text": "ValueError: step 3 has no residual",
    "none": "KeyError",
    "number": "IndexError",
    "own": "Own",
}


@each_wheel
async def test_an_exception_that_nothing_catches(mpi: Mpi) -> None:
    for kind, told in _EXCEPTIONS.items():
        argv = [*mpi.launch(2), str(mpi.python), "-m", "mpi4py", str(_RAISES), kind]
        job = await Session.run(argv, name=JOB, settings=Settings(record=False))
        try:
            talk = Talk(job)
            assert await talk("catch python") == "catchpoint 1 on [0-1]: catch python"
            said = await talk("continue")
            assert f"rank 1 hit catchpoint 1 ({told}): PyErr_Display" in said, said
            said = await talk("continue")
            assert "MPI_Abort" in said or "exit(1)" in said, said
        finally:
            await job.kill()
            await job.close()


async def test_where_nothing_is_raised_it_is_no_stop() -> None:
    mpi = _WHEELS[0]
    argv = [*mpi.launch(2), str(mpi.python), "-m", "mpi4py", str(_RAISES), "exits"]
    job = await Session.run(argv, name=JOB, settings=Settings(record=False))
    try:
        talk = Talk(job)
        await talk("catch python")
        said = await talk("continue")
        assert "catchpoint" not in said, said
    finally:
        await job.kill()
        await job.close()

"""Rank 1 raises what nothing catches, after what something does.

raises.py KIND    of the exception: text, none, number, own, group
"""

import contextlib
import sys

from mpi4py import MPI


class Own(RuntimeError):
    pass


def fails(kind: str, step: int) -> None:
    if kind == "text":
        raise ValueError("step 3 has no residual")
    if kind == "none":
        raise KeyError
    if kind == "number":
        raise IndexError(step)
    if kind == "own":
        raise Own("grün", step)
    sys.exit(0)


comm = MPI.COMM_WORLD
for step in range(4):
    comm.Barrier()
    with contextlib.suppress(ValueError):
        fails("text", step)
    if step == 3 and comm.Get_rank() == 1:
        fails(sys.argv[1], step)

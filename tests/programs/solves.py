"""Ranks that relax a value together, in functions that call each other; nobody waits for long.

solves.py STEPS [traced]    traced: with a trace function of the program's own
"""

import sys
from collections.abc import Iterator

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()


class Solver:
    def __init__(self) -> None:
        self.value = float(rank)

    def relax(self, step: int) -> float:
        mine = self.value * 2 + step

        # no code here
        total = comm.allreduce(mine)
        self.value = total / 3
        return self.value


def halves(steps: int) -> Iterator[float]:
    for step in range(steps):
        yield step / 2


def fails(step: int) -> None:
    raise ValueError(step)


def main(steps: int) -> float:
    solver, last = Solver(), 0.0
    comm.Barrier()
    for step in range(steps):
        last = solver.relax(step)
        try:
            fails(step)
        except ValueError:
            last += 0
        last += sum(halves(2))
    return last


if "traced" in sys.argv:
    sys.settrace(lambda *event: None)
print(f"rank {rank}: {main(int(sys.argv[1]))}", flush=True)

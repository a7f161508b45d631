"""Ranks that meet in a function that Python has called through C; rank 0 comes another way.

nested.py MEETINGS
"""

import sys
import threading

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
ready, held = threading.Lock(), threading.Lock()


def helps() -> None:
    ready.release()
    held.acquire()


class Solver:
    def meet(self, step: int) -> int:
        mine, name = [step, {"rank": rank}], "field"
        comm.Barrier()
        return len(mine) + len(name)

    def relax(self, step: int) -> int:
        return max([step], key=self.meet)

    def first(self, step: int) -> int:
        return self.relax(step)


def main(solver: Solver, meetings: int) -> None:
    for step in range(meetings):
        (solver.relax if rank else solver.first)(step)


ready.acquire(), held.acquire()
threading.Thread(target=helps, daemon=True).start()
ready.acquire()
main(Solver(), int(sys.argv[1]))

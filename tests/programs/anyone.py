"""Rank 0 receives from any rank, through mpi4py, and prints the order, which MPI leaves open.

anyone.py ROUNDS
"""

import random
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
heard = []
for step in range(int(sys.argv[1])):
    if rank == 0:
        status = MPI.Status()
        for _ in range(size - 1):
            value = comm.recv(source=MPI.ANY_SOURCE, tag=1, status=status)
            assert value == {"step": step, "rank": status.Get_source()}
            heard.append(status.Get_source())
    else:
        time.sleep(random.random() * 0.002)
        comm.send({"step": step, "rank": rank}, dest=0, tag=1)
    total = comm.allreduce(rank)
if rank == 0:
    print("heard", *heard, "total", total)

"""asks.c in Python: makes every possible request of crdebug, and prints the answers."""

import threading
import time
from collections.abc import Callable

from mpi4py import MPI

from crdebug import app

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
inside = busy = False
trace = ""
while_taken = threading.Lock()


def called(name: str, moment: app.Moment) -> None:
    global trace
    letter = "bcr"[moment]
    trace += letter.upper() if name == "outer" else letter
    before = moment is app.Moment.BEFORE_CHECKPOINT
    if name == "outer" and before:
        assert not inside
        while_taken.acquire()
    elif name == "outer":
        while_taken.release()
    elif before and busy:
        raise app.Refusal("the device is busy")


def callback(name: str) -> Callable[[app.Moment], None]:
    return lambda moment: called(name, moment)


def say(what: str, status: int, number: int = 0) -> None:
    global trace
    with while_taken:  # until the callbacks have ended
        if rank == 0:
            why = app.reason() if status < app.Status.NOT_HERE else ""
            print(f"{what}: {int(status)} {number} [{trace}] {why}", flush=True)
        trace = ""


def ask(what: str) -> int:
    comm.barrier()
    status, number = app.checkpoint(what) if rank == 0 else (0, 0)
    told: int = comm.bcast(int(status))
    say(what, told, number)
    return told


app.register(callback("inner"))
app.register(callback("outer"))

restarts = ask("first")

with app.quiet():
    app.quiet_start()
    app.quiet_end()
    ask("in a region")

if rank == 1:
    inside = True
    app.quiet_start()
comm.barrier()
if rank == 1:
    time.sleep(0.05)
    inside = False
    app.quiet_end()
ask("after a region")

busy = rank == 1
ask("busy")
busy = False

back = 0
if rank == 0:
    back = app.restart(1 if restarts == app.Status.DONE else 99)
say("back", back)
say("end of no region", app.quiet_end())

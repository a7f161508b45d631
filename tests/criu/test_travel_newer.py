"""Back in time through what MPI-4 adds (tests/programs/newer.c), on an MPI that has it."""

from __future__ import annotations

import pytest

from crdebug.session import Session
from crdebug.timeline.calls import Call, Kind
from harness.jobs import JOB, Heard, run_to_end
from harness.mpis import MPIS, Mpi
from harness.programs import build
from harness.travel import ONE, RECORDED, history

RANKS, ROUNDS = 3, 4
LEFT = {rank: (rank - 1) % RANKS for rank in range(RANKS)}
# A rank that waits in MPICH keeps its processor busy, and more than two ranks run.
THESE = tuple(
    pytest.param(mpi, id=mpi.name, marks=pytest.mark.sweep if "MPICH" in mpi.name else ())
    for mpi in MPIS
    if mpi.name != "Open MPI 4.1"
)


@pytest.mark.parametrize("newer", THESE)
async def test_exchanges_partitions_and_persistent_collectives_lead_to_each_other(
    newer: Mpi,
) -> None:
    heard = Heard()
    program = build("newer", compiler=newer.tool("mpicc"))
    argv = [*newer.launch(RANKS), str(program), "--rounds", str(ROUNDS), "--jitter-us", "300"]
    job = await Session.run(argv, name=JOB, settings=RECORDED, subscriber=heard)
    try:
        past = history(job)
        past.every = ONE
        assert await run_to_end(job) == 0
        said = heard.text()
        assert said.count("rank ") == RANKS

        def calls(rank: int, *names: str) -> list[Call]:
            logged = past.traveller.recorded.logs()[rank].calls
            return [c for c in logged if c.name in names and c.kind is not Kind.NOTHING]

        # A partition that had arrived was ready at its sender, in the same round.
        for rank, at in ((1, 2), (0, 1)):
            await past.goto_tick(rank, calls(rank, "MPI_Parrived")[at].tick)
            moment = await past.goto_sender(rank)
            ready = calls(LEFT[rank], "MPI_Pready_range")[2 * at]
            assert (moment.focus, moment.tick) == (LEFT[rank], ready.tick)
        # The last of its partitions sent the message; its receiver had all of it.
        sent = calls(0, "MPI_Pready_list")[2 * 2 + 1]
        await past.goto_tick(0, sent.tick)
        moment = await past.goto_receiver(0)
        waits = [c for c in calls(1, "MPI_Waitall") if c.tick > calls(1, "MPI_Parrived")[2].tick]
        assert (moment.focus, moment.tick) == (1, waits[0].tick)
        # A persistent broadcast came from its root, whatever the root had started before it.
        (bcast,) = (
            each
            for name, each in past.traveller.recorded.matching().successions.items()
            if name != each.comm and each.name(0) == "MPI_Bcast_init"
        )
        entered = bcast.instance(2).entered
        await past.goto_tick(2, entered[2])
        moment = await past.goto_sender(2)
        assert (moment.focus, moment.tick) == (1, entered[1])
        assert moment.note == "rank 1 is the root of MPI_Bcast_init"
        # In the midst of exchanges from anybody, and on from there, to the same end.
        for rank in (0, 2):
            posted = calls(rank, "MPI_Isendrecv")[2 * 2 + 1]
            moment = await past.goto_tick(rank, posted.tick)
            assert moment.tick == posted.tick
        assert await run_to_end(job) == 0
        assert heard.text() == said  # which comes again, and is not shown again
        replaced = calls(1, "MPI_Isendrecv_replace")[3]
        (wait,) = (c for c in calls(1, "MPI_Wait") if replaced.tick in c.completes)
        await past.goto_tick(1, wait.tick)
        moment = await past.goto_sender(1)
        assert (moment.focus, moment.tick) == (0, calls(0, "MPI_Isendrecv_replace")[3].tick)
        told = (await job.evaluate(job.ranks, "step")).values
        assert int(told[0]) == int(told[1]) == 3
    finally:
        await job.close()

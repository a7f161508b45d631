"""info requests, info comms: what the ranks hold of their MPI, now and in the past."""

from __future__ import annotations

import re

from harness.programs import build
from harness.talk import said
from harness.travel import history, recorded, run_to


async def test_requests_and_communicators() -> None:
    async with recorded(build("holds"), ranks=3) as job:
        await run_to(job, 0, "here")
        held = await said(job, "info requests")
        plain = [re.sub(r" \(holds.c:\d+\)|; 'goto.*", "", each) for each in held]
        assert [each for each in plain if each.startswith("[0]")] == [
            "[0] MPI_Irecv of tag 5: not sent by rank 1",
            "[0] MPI_Irecv of tag 6, from any rank: not received yet",
            "[0] MPI_Irecv of tag 7: sent by rank 2",
            "[0] MPI_Isend of tag 8, 1048576 bytes: no receive is posted by rank 2",
            "[0] MPI_Recv_init of tag 9: not started; with rank 1",
            "[0] MPI_Ibarrier not called yet by ranks 1-2",
        ]
        assert all(re.search(r" \(holds.c:\d+\)", each) for each in held)
        title, *lines = await said(job, "info comms")
        assert title.split() == ["communicator", "ranks", "collectives"]
        told = {line.split()[0]: line.split()[1:] for line in lines}
        assert told["world"][0] == "0-2"
        assert told["2,0"] == ["2,0", "0"]
        assert told["1#2"] == ["1", "0"]
        assert told["world#2"][0] == "0-2"
        assert "freed by 0" in " ".join(told["world#2"])
        tick = history(job).now(0).tick
        await run_to(job, 0, "here")
        held = await said(job, "[0] info requests")
        assert held == ["no rank holds a request"]
        await history(job).goto_tick(0, tick)
        again = await said(job, "[0] info requests")
        assert [re.sub(r" \(holds.c:\d+\)|; 'goto.*", "", each) for each in again] == [
            each for each in plain if each.startswith("[0]")
        ]

"""What the ranks hold of their MPI: info requests, info comms."""

from __future__ import annotations

from crdebug.commands.history import HISTORY
from crdebug.commands.registry import Call, Requires
from crdebug.commands.results import Communicators, Result, Text


@HISTORY.command(
    "info requests",
    """
Show the requests that the ranks hold here, and how far the other side is.

Each with the line of the call that made it. A request is held from MPI_Isend, MPI_Irecv and the
like to the call that says that it is complete; a persistent one to MPI_Request_free. Sends for
which the MPI gave a request that is complete from the beginning are not among them.
""",
    ranks=True,
)
async def info_requests(call: Call) -> Result:
    return Text(await call.context.session.requests(call.ranks))


@HISTORY.command(
    "info comms",
    """
Show the communicators and windows that the ranks have made.

Each with its members: world ranks, in the order that they have in it; with how many collectives all
of them have called on it; and with the ranks that have freed it. The names are those that the other
commands use: of equal members the second one is '0-3#2'.
""",
    requires=Requires.ANY,
)
async def info_comms(call: Call) -> Result:
    return Communicators(await call.context.session.communicators())

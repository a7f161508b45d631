"""What the matching of messages has to know of each MPI function (native/history.h)."""

from __future__ import annotations

import functools
from typing import Any

from crdebug.native import history, mpi_calls
from crdebug.timeline.calls import Kind
from crdebug.timeline.collectives import OF_WINDOWS, Shape, shape_of
from crdebug.timeline.tables import mode_of

OUTSIDE = frozenset(
    (
        "MPI_Init",
        "MPI_Init_thread",
        "MPI_Finalize",
        "MPI_Abort",
        "MPI_Comm_spawn",
        "MPI_Comm_spawn_multiple",
        "MPI_Comm_accept",
        "MPI_Comm_connect",
        "MPI_Comm_join",
    )
)
"""Calls by which a rank talks with the launcher or with other jobs."""

KINDS = tuple(Kind)
KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
NAMES = {number: function.full for number, function in mpi_calls.BY_NUMBER.items()}
NUMBERS = {name: number for number, name in NAMES.items()}

_SPECIAL = {
    "Mprobe": history.MATCHED_PROBE,
    "Improbe": history.MATCHED_PROBE,
    "Mrecv": history.MATCHED_RECEIVE,
    "Imrecv": history.MATCHED_RECEIVE,
    "Start": history.START,
    "Startall": history.STARTALL,
    "Waitall": history.ALL,
    "Testall": history.ALL,
    "Waitsome": history.SOME,
    "Testsome": history.SOME,
    "Request_get_status": history.LOOKS,
    "Request_free": history.FREES,
    # collective over a group that no record names (MPI 4.1, 7.4.2)
    "Comm_create_group": history.BY_GROUP,
    # begin and end of MPI are collective over all ranks, and no communicator's calls
    "Init": history.BEGINS,
    "Init_thread": history.BEGINS,
    "Finalize": history.ENDS,
    **dict.fromkeys((name.removeprefix("MPI_") for name in OF_WINDOWS), history.OF_WINDOW),
    "Win_post": history.EXPOSES,
    "Win_start": history.ACCESSES,
    "Win_wait": history.EXPOSED,
    "Win_test": history.EXPOSED,
    "Win_complete": history.ACCESSED,
    "Precv_init": history.RECEIVES,
    **dict.fromkeys(("Pready", "Pready_range", "Pready_list"), history.READIES),
    "Parrived": history.ARRIVED,
}


_ALL = 1 << 9  # as many as the numbers in a record (clock.h)


@functools.cache
def table() -> Any:
    """By the functions' numbers in the log; those of no function have no shape."""
    shapes = list(Shape)
    made = [(KIND_NUMBERS[Kind.OTHER], -1, 0, 0)] * _ALL
    for number, function in mpi_calls.BY_NUMBER.items():
        special = _SPECIAL.get(function.name, 0)
        special |= history.POSTS if function.posts else 0
        special |= history.PREPARES if function.prepares else 0
        special |= history.OUTSIDE if function.full in OUTSIDE else 0
        made[number] = (
            KIND_NUMBERS[Kind[function.kind]],
            shapes.index(shape_of(function.full)),
            mode_of(function.full),
            special,
        )
    return history.functions(made)

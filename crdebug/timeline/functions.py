"""Properties of MPI functions that the matching of messages needs (native/matcher/history.h)."""

from __future__ import annotations

import functools
from typing import Any

from crdebug.native.matcher import library
from crdebug.native.recorder import mpi_calls
from crdebug.timeline.calls import Kind
from crdebug.timeline.collectives import OF_WINDOWS, SAME_SIZE, Shape, shape_of
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
    "Mprobe": library.MATCHED_PROBE,
    "Improbe": library.MATCHED_PROBE,
    "Mrecv": library.MATCHED_RECEIVE,
    "Imrecv": library.MATCHED_RECEIVE,
    "Start": library.START,
    "Startall": library.STARTALL,
    "Waitall": library.ALL,
    "Testall": library.ALL,
    "Waitsome": library.SOME,
    "Testsome": library.SOME,
    "Request_get_status": library.LOOKS,
    "Request_free": library.FREES,
    # collective over a group that no record names (MPI 4.1, 7.4.2)
    "Comm_create_group": library.BY_GROUP,
    # begin and end of MPI are collective over all ranks, and no communicator's calls
    "Init": library.BEGINS,
    "Init_thread": library.BEGINS,
    "Finalize": library.ENDS,
    **dict.fromkeys((name.removeprefix("MPI_") for name in OF_WINDOWS), library.OF_WINDOW),
    "Win_post": library.EXPOSES,
    "Win_start": library.ACCESSES,
    "Win_wait": library.EXPOSED,
    "Win_test": library.EXPOSED,
    "Win_complete": library.ACCESSED,
    "Precv_init": library.RECEIVES,
    **dict.fromkeys(("Pready", "Pready_range", "Pready_list"), library.READIES),
    "Parrived": library.ARRIVED,
}


_ALL = 1 << 9  # as many as the numbers in a record (clock.h)


@functools.cache
def table() -> Any:
    """By the functions' numbers in the log; a number of no function has no shape."""
    shapes = list(Shape)
    made = [(KIND_NUMBERS[Kind.OTHER], -1, 0, 0)] * _ALL
    for number, function in mpi_calls.BY_NUMBER.items():
        special = _SPECIAL.get(function.name, 0)
        special |= library.POSTS if function.posts else 0
        special |= library.PREPARES if function.prepares else 0
        special |= library.OUTSIDE if function.full in OUTSIDE else 0
        special |= library.SAME_SIZE if function.full in SAME_SIZE else 0
        made[number] = (
            KIND_NUMBERS[Kind[function.kind]],
            shapes.index(shape_of(function.full)),
            mode_of(function.full),
            special,
        )
    return library.functions(made)

"""Stacks without crdebug's own frames."""

from __future__ import annotations

import pytest

from crdebug.base.events import Location
from crdebug.debugger.folding import folded
from crdebug.debugger.target import Frame

CACHE = "/root/.cache/crdebug/native"
LIBRARIES = {
    "layer": f"{CACHE}/mpi-f819fa9d4277838d/pmpi.so",
    "shim": f"{CACHE}/c06bd0f2ee9e9bd1/shim.so",
    "mpi": "/usr/lib/x86_64-linux-gnu/libmpi.so.40",
    "libc": "/usr/lib/libc.so.6",
    "program": "",
}


def stack(*calls: str) -> list[Frame]:
    """From ``function@library``, innermost first."""
    pairs = [each.split("@") for each in calls]
    return [
        Frame(level, Location(0x1000 + level, name, library=LIBRARIES[library]))
        for level, (name, library) in enumerate(pairs)
    ]


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        # nothing of crdebug's
        (("poll@libc", "PMPI_Recv@mpi", "main@program"), "0 poll, 1 PMPI_Recv, 2 main"),
        # through the layer into the MPI
        (
            ("poll@libc", "PMPI_Recv@mpi", "wrap_Recv@layer", "main@program"),
            "0 poll, 1 PMPI_Recv, 3 main",
        ),
        # held in the layer, which lets the MPI make progress meanwhile
        (
            (
                *("PMPI_Iprobe@mpi", "progress@layer", "crdebug_hold@layer", "leave@layer"),
                *("wrap_Reduce@layer", "work@program", "main@program"),
            ),
            "4 MPI_Reduce, 5 work, 6 main",
        ),
        # the program's own function, called by the MPI
        (
            (
                *("add@program", "ompi_op_reduce@mpi", "PMPI_Allreduce@mpi"),
                *("wrap_Allreduce@layer", "main@program"),
            ),
            "0 add, 1 ompi_op_reduce, 2 PMPI_Allreduce, 4 main",
        ),
        # in a waitpoint
        (
            (
                *("ppoll@libc", "wait_here@shim", "MPIR_checkpoint_debugger_waitpoint@shim"),
                *("<signal handler called>@libc", "compute@program", "main@program"),
            ),
            "4 compute, 5 main",
        ),
        # nothing else: it is shown as it is
        (("help@shim",), "0 help"),
    ],
)
def test_what_is_shown(calls: tuple[str, ...], shown: str) -> None:
    frames = folded(stack(*calls))
    assert ", ".join(f"{f.level} {f.location.function}" for f in frames) == shown

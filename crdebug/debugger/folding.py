"""Stacks without crdebug's own frames. Pure.

A recorded MPI call goes through the layer between the program and its MPI, and a rank may be
stopped there, or in a waitpoint. To the user it is in the call that the program made. Frames keep
GDB's numbers, so that ``frame N`` means the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from crdebug.base.events import Location
from crdebug.debugger.target import Frame

# What is put into ranks, by its place in the cache (crdebug/native/build.py).
_OWN = re.compile(r"/native/(\w+-)?[0-9a-f]{16}/[^/]+\.so$")
_CALL = re.compile(r"(?:wrap_|P?MPI_)(\w+)")  # as the layer, and MPIs, name the functions
MOST = 32  # frames that may be folded away, with what they have called
_HANDLER = "<signal handler called>"


def is_own(location: Location) -> bool:
    """Is it in crdebug's own code? That has no line numbers, so GDB names the library."""
    return _OWN.search(location.library) is not None


def is_inside(location: Location) -> bool:
    """Is it in crdebug's own code, and not at the call that the program has made?"""
    return is_own(location) and not location.function.startswith(("MPI_", "mpi_"))


def folded(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """A stack, innermost frame first, without crdebug's own frames and the functions that those
    have called. Where the MPI has not been called yet, or will not be (in the past), the call that
    the program has made is the innermost frame."""
    own = [at for at, frame in enumerate(frames) if is_own(frame.location)]
    if not own:
        return tuple(frames)
    last = own[-1]
    call = _call(frames[last])
    inner = [frame for frame in frames[:last] if not is_own(frame.location)]
    if call and any(_call(frame) == call for frame in inner):
        return (*inner, *frames[last + 1 :])
    if call:
        named = replace(frames[last].location, function=f"MPI_{call}", library="")
        return (replace(frames[last], location=named), *frames[last + 1 :])
    rest = frames[last + 1 :]
    if rest and rest[0].location.function == _HANDLER:
        rest = rest[1:]
    return tuple(rest) or tuple(frames)


def _call(frame: Frame) -> str:
    """Which MPI function it is, without MPI_; "" if it is none."""
    match = _CALL.fullmatch(frame.location.function)
    return match[1] if match else ""

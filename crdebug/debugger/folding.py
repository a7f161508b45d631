"""Stacks without crdebug's own frames. Pure.

A recorded MPI call goes through the layer between the program and its MPI, and a rank may stop
there, or in a waitpoint. For the user it is in the call that the program made. Frames keep GDB's
numbers, so that ``frame N`` means the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from crdebug.base.events import Location
from crdebug.debugger.target import Frame

# crdebug's libraries in ranks, by their place in the cache (crdebug/native/build.py).
_OWN = re.compile(r"/native/(\w+-)?[0-9a-f]{16}/[^/]+\.so$")
_CALL = re.compile(r"(?:wrap_|P?MPI_)(\w+)")  # the names in the layer, and in MPIs
MOST = 32  # frames that may be folded away, with the functions that they have called
_HANDLER = "<signal handler called>"


def is_own(location: Location) -> bool:
    """Is it in crdebug's own code? This has no line numbers, so GDB names the library."""
    return _OWN.search(location.library) is not None


def is_inside(location: Location) -> bool:
    """Is it in crdebug's own code, but not in the function that the program called?"""
    return is_own(location) and not location.function.startswith(("MPI_", "mpi_"))


def folded(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """A stack, innermost frame first, without crdebug's own frames and the functions that they
    called. If the layer has not called the MPI yet, or will not (in the past), the program's call
    is the innermost frame."""
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
    """The name of the MPI function, without MPI_; "" for other functions."""
    match = _CALL.fullmatch(frame.location.function)
    return match[1] if match else ""

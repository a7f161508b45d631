"""Additions of MPI-4 that not every MPI has: large counts, and calls that are not recorded.

An MPI's own header shows which it has. The layer records a large-count call as the one without
`_c`; mpi4py uses only large-count calls where the MPI has them. Receives, which the layer itself
may have to post anew, are recorded so only while their counts fit an int. A larger count, and any
call of REFUSED, ends the recording with a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from crdebug.native.recorder.mpi_calls import FUNCTIONS, Function

ONE = frozenset(("count", "sendcount", "recvcount", "origin_count", "target_count", "result_count"))
COUNTS = frozenset(("sendcounts", "recvcounts"))
PLACES = frozenset(("displs", "sdispls", "rdispls"))
UNIT = "disp_unit"  # a window's

_DECLARED = re.compile(r"\bP(MPI_[A-Z]\w*)\s*\(")
_LISTED_CONST = re.compile(r"\bMPI_Pready_list\s*\(\s*int\b[^,]*,\s*const\b")


def has_large(function: Function) -> bool:
    """Does MPI-4 have this call with large counts, too?"""
    typed = any(argument.type.startswith(("MPI_Datatype", "const MPI_D")) for argument in
                function.arguments)  # fmt: skip
    counted = typed and not (ONE | COUNTS).isdisjoint(function.words)
    return counted or UNIT in function.words


LARGE = tuple(function for function in FUNCTIONS if has_large(function))
# Without MPI_COMM_WORLD ranks have no numbers; communicators made from groups have no parent.
REFUSED = (
    *("MPI_Session_init", "MPI_Comm_create_from_group", "MPI_Intercomm_create_from_groups"),
    *(f"MPI_Request_get_status_{which}" for which in ("all", "any", "some")),
    "MPI_Session_iflush_buffer",
)


def declared(text: str) -> frozenset[str]:
    """The functions that a preprocessed mpi.h declares, and their PMPI twins."""
    return frozenset(_DECLARED.findall(text))


def has_header(text: str) -> str:
    """pmpi_has.h: which of the newer functions this MPI has. text: its mpi.h, preprocessed."""
    newer = [*(function.full for function in FUNCTIONS if function.newer), *REFUSED]
    newer += [f"{function.full}_c" for function in LARGE]
    there = declared(text)
    lines = [f"#define HAS_{name}" for name in newer if name in there]
    lines.append(f"#define LISTED {'const' if _LISTED_CONST.search(text) else ''}")
    return "\n".join(lines) + "\n"


def where_it_is(name: str, lines: str, *, always: bool = False) -> str:
    """C code of a function, left out if the MPI does not have the function."""
    return lines if always else f"#ifdef HAS_{name}\n{lines}\n#endif"


def source() -> str:
    """mpi_four.c."""
    return _ENTRY + _entries(REFUSED)


def _entries(names: Iterable[str]) -> str:
    return "\n".join(where_it_is(name, f'ENTRY("{name}")') for name in names) + "\n"


# Whatever its arguments are: end the recording, and call the MPI.
_ENTRY = r"""#include "pmpi.h"

__attribute__((visibility("hidden"))) void crdebug_newer(void) { refuse(CRDEBUG_NEWER); }
#define ENTRY(name)                                                                              \
    __asm__(".text\n.globl " name "\n.type " name ", @function\n" name ":\n"                     \
            "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\nsub $8, %rsp\n"     \
            "call crdebug_newer\n"                                                               \
            "add $8, %rsp\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"           \
            "jmp P" name "@PLT\n.size " name ", . - " name "\n");
"""

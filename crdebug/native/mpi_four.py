"""C for what MPI-4 adds to the calls of the table: large counts, and what is not recorded.

A large-count call whose counts are small is the call without `_c`, and recorded as that: mpi4py
makes no other where the MPI has them. One with a count beyond an int, and the few that are new
in MPI-4, end the recording, which says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from crdebug.native.mpi_calls import FUNCTIONS, Function

_ONE = frozenset(
    ("count", "sendcount", "recvcount", "origin_count", "target_count", "result_count")
)
_COUNTS = ("sendcounts", "recvcounts")
_PLACES = ("displs", "sdispls", "rdispls")
_UNIT = "disp_unit"  # of a window
# Blocking ones: their arrays need not outlive the call.
_CONVERTED = ("Allgatherv", "Alltoallv", "Gatherv", "Reduce_scatter", "Scatterv")


def has_large(function: Function) -> bool:
    """Has MPI-4 this call with large counts, too?"""
    typed = any(argument.type.startswith(("MPI_Datatype", "const MPI_D")) for argument in
                function.arguments)  # fmt: skip
    counted = typed and not {*_ONE, *_COUNTS}.isdisjoint(function.words)
    return counted or _UNIT in function.words


LARGE = tuple(function for function in FUNCTIONS if has_large(function))
_NEW = (
    *("Isendrecv", "Isendrecv_replace", "Isendrecv_c", "Isendrecv_replace_c"),
    *("Psend_init", "Precv_init", "Session_init", "Comm_create_from_group"),
    "Intercomm_create_from_groups",
    *(
        f"{function.name[1:].capitalize()}_init{ending}"
        for function in FUNCTIONS
        if function.kind == "POST_COLLECTIVE"
        for ending in (("", "_c") if function in LARGE else ("",))
    ),
)


def source() -> str:
    """mpi_four.c."""
    new = "\n".join(f'ENTRY("MPI_{name}")' for name in _NEW)
    return (
        _SOURCE + "\n".join(_large(function) for function in LARGE) + f"\n{_ENTRY}{new}\n#endif\n"
    )


def _declared(function: Function) -> Iterator[str]:
    for argument in function.arguments:
        if argument.word in _ONE:
            yield f"MPI_Count {argument.word}"
        elif argument.word == _UNIT:
            yield f"MPI_Aint {argument.word}"
        elif argument.word in _COUNTS:
            yield f"const MPI_Count {argument.word}[]"
        elif argument.word in _PLACES:
            yield f"const MPI_Aint {argument.word}[]"
        else:
            yield argument.declared


def _large(function: Function) -> str:
    asked = f"P{function.full}_c({', '.join(function.words)})"
    ones = (*_ONE, _UNIT)
    small = [f"IS_INT({word})" for word in function.words if word in ones]
    passed = [f"(int){word}" if word in ones else word for word in function.words]
    arrays = [word for word in function.words if word in (*_COUNTS, *_PLACES)]
    before = ""
    if arrays and function.name in _CONVERTED:
        before = "    int most = size_of(comm);\n"
        for word in arrays:
            passed[function.words.index(word)] = f"{word}_"
            there = _significant(function, word)
            one = "MPI_Count" if word in _COUNTS else "MPI_Aint"
            before += (
                f"    int {word}_[most];\n"
                f"    bool {word}_fit = {there} ? as_ints_{one}({word}, {word}_, most) : true;\n"
            )
            small.append(f"{word}_fit")
    elif arrays:
        small = []
    known = ""
    if small:
        known = (
            f"    if (LIKELY({' && '.join(small)})) return {function.full}({', '.join(passed)});\n"
        )
    return (
        f"EXPORTED int {function.full}_c({', '.join(_declared(function))}) {{\n{before}{known}"
        f"    refuse(CRDEBUG_NEWER);\n    return {asked};\n}}\n"
    )


def _significant(function: Function, word: str) -> str:
    """Does MPI look at an array in this process?"""
    if "root" in function.words:
        return "is_root(root, comm)"
    if word in ("sendcounts", "sdispls"):
        return "sendbuf != MPI_IN_PLACE"
    return "true"


_SOURCE = """#include "pmpi.h"

#if MPI_VERSION >= 4
#define IS_INT(count) ((MPI_Count)(int)(count) == (count))

static int size_of(MPI_Comm comm) {
    int inter, size;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter) PMPI_Comm_remote_size(comm, &size);
    else PMPI_Comm_size(comm, &size);
    return size;
}

static bool is_root(int root, MPI_Comm comm) {
    int inter, rank;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &rank);
    return inter ? root == MPI_ROOT : root == rank;
}

#define AS_INTS(type)                                                       \\
    static bool as_ints_##type(const type *from, int *to, int count) {      \\
        for (int i = 0; i < count; i++) {                                   \\
            if ((type)(int)from[i] != from[i]) return false;                \\
            to[i] = (int)from[i];                                           \\
        }                                                                   \\
        return true;                                                        \\
    }
AS_INTS(MPI_Count)
AS_INTS(MPI_Aint)

"""

# Whatever its arguments are: the recording ends, and the MPI is asked.
_ENTRY = r"""
__attribute__((visibility("hidden"))) void crdebug_newer(void) { refuse(CRDEBUG_NEWER); }
#define ENTRY(name)                                                                              \
    __asm__(".text\n.globl " name "\n.type " name ", @function\n" name ":\n"                     \
            "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\nsub $8, %rsp\n"     \
            "call crdebug_newer\n"                                                               \
            "add $8, %rsp\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"           \
            "jmp P" name "@PLT\n.size " name ", . - " name "\n");
"""

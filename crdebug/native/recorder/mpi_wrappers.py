"""The C of the layer's wrappers, generated from the table of MPI calls."""

from __future__ import annotations

from collections.abc import Iterator

from crdebug.native.recorder.mpi_calls import DIGEST, FUNCTIONS, Function
from crdebug.native.recorder.mpi_errors import NAMES, OTHER
from crdebug.native.recorder.mpi_four import COUNTS, LARGE, ONE, PLACES, UNIT, where_it_is
from crdebug.native.recorder.mpi_types import OTHER_SIZE, TYPES


def calls_header() -> str:
    """pmpi_calls.h: the numbers of the calls."""
    numbers = "\n".join(f"    CALL_{f.name} = {f.number}," for f in FUNCTIONS)
    types = ", ".join(f'{{"{name}", {size}}}' for name, size in TYPES)
    return (
        f"#define CRDEBUG_TABLE UINT64_C({DIGEST})\n"
        f"#define CRDEBUG_ERRORS {', '.join(NAMES)}\n"
        f"#define CRDEBUG_OTHER_ERROR {OTHER}\n"
        f"#define CRDEBUG_TYPES {types}\n"
        f"#define CRDEBUG_UNEQUAL {OTHER_SIZE}\n"
        f"enum crdebug_call {{\n    CALL_none = 0,\n{numbers}\n}};\n"
    )


def own_header() -> str:
    """pmpi_own.h: the functions written by hand for calls whose outcome MPI leaves open."""
    return "".join(
        f"{f.result} wrap_{f.name}({_declared(f, 'uint64_t site')});\n"
        for f in FUNCTIONS
        if f.shape in ("own", "bare")
    )


def wrappers() -> str:
    """pmpi_wrappers.c: defines every function in the table, for the application to call."""
    parts = [_INCLUDED]
    for function in FUNCTIONS:
        parts.append(where_it_is(function.full, _defined(function), always=not function.newer))
    for function in LARGE:
        parts.append(where_it_is(f"{function.full}_c", _defined(function, large=True)))
    names = {"MPI_Type_free": True} | {f.full: not f.newer for f in FUNCTIONS}
    names |= {f"{f.full}_c": False for f in LARGE}
    entries = "\n".join(
        where_it_is(name, f'    {{"{name}", (void *){name}}},', always=always)
        for name, always in names.items()
    )
    parts.append(_LOOKED_UP.format(entries=entries))
    return "\n".join(parts)


def _defined(function: Function, *, large: bool = False) -> str:
    # Calls that the layer may have to post again, with a count that is an int.
    shape = function.shape, function.kind
    narrow = large and (function.shape == "own" or shape == ("init", "OTHER"))
    lines = _narrowed(function) if narrow else _body(function, large=large)
    body = "\n".join(f"    {line}" for line in lines)
    name = f"{function.full}_c" if large else function.full
    parameters = ", ".join(_parameters(function, large)) or "void"
    return f"EXPORTED {function.result} {name}({parameters}) {{\n{body}\n}}\n"


def _parameters(function: Function, large: bool) -> Iterator[str]:
    for argument in function.arguments:
        word = argument.word
        if large and word in ONE:
            yield f"MPI_Count {word}"
        elif large and word == UNIT:
            yield f"MPI_Aint {word}"
        elif large and word in COUNTS | PLACES:
            yield f"const MPI_{'Count' if word in COUNTS else 'Aint'} {word}[]"
        else:
            yield argument.declared


def _narrowed(function: Function) -> Iterator[str]:
    counts = [word for word in function.words if word in ONE]
    passed = [f"(int){word}" if word in ONE else word for word in function.words]
    fit = " && ".join(f"(MPI_Count)(int){word} == {word}" for word in counts)
    yield f"if (LIKELY({fit})) return {function.full}({', '.join(passed)});"
    yield "refuse(CRDEBUG_NEWER);"
    yield f"return P{function.full}_c({_passed(function)});"


# A function's names by compiler and MPI: mpif.h and `use mpi` (gfortran, flang and ifort add one
# underscore), Open MPI's `use mpi_f08`, MPICH's for functions without and with a buffer.
_FORTRAN = ("mpi_{}_", "mpi_{}_f08_", "mpi_{}_f08ts_")


def fortran_entries() -> str:
    """fortran_entries.c: every function in the table, for Fortran programs to call."""
    return _ENTRIES.format(
        entries="\n".join(
            where_it_is(f.full, "\n".join(_entries(f)), always=not f.newer) for f in FUNCTIONS
        )
    )


def _entries(function: Function) -> Iterator[str]:
    for form in _FORTRAN:
        yield f'ENTRY("{form.format(function.name.lower())}")'


# Note the return address, then go on in the binding as if the program had called it. Fortran passes
# pointers and integers: no argument is in a vector register, and %rax and %r11 are free.
_ENTRIES = r"""/* See pmpi_fortran.c. */
#include "pmpi_has.h"
#if defined(__x86_64__)
#define ENTRY(name)                                                                          \
    __asm__(".pushsection .data.rel.local,\"aw\"\n"                                           \
            "0: .quad 1f\n"                                                                  \
            ".popsection\n"                                                                  \
            ".pushsection .rodata.str1.1,\"aMS\",@progbits,1\n"                              \
            "2: .string \"" name "\"\n"                                                      \
            ".popsection\n"                                                                  \
            ".text\n.globl " name "\n.type " name ", @function\n" name ":\n"                  \
            ".cfi_startproc\n"                                                               \
            "mov crdebug_fortran_site@gottpoff(%rip), %rax\n"                                \
            "mov (%rsp), %r11\n"                                                             \
            "mov %r11, %fs:(%rax)\n"                                                         \
            "jmp *0b(%rip)\n"                                                                \
            "1: lea 2b(%rip), %rax\n"                                                        \
            "lea 0b(%rip), %r11\n"                                                           \
            "jmp crdebug_first_call\n"                                                       \
            ".cfi_endproc\n"                                                                 \
            ".size " name ", . - " name "\n");
/* %rax: the name; %r11: where the binding's address is kept. */
__asm__(".text\n.hidden crdebug_first_call\n"
        ".type crdebug_first_call, @function\ncrdebug_first_call:\n"
        ".cfi_startproc\n"
        "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %r11\n"
        ".cfi_adjust_cfa_offset 56\n"
        "mov %rax, %rdi\n"
        "call crdebug_binding\n"
        "pop %r11\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"
        ".cfi_adjust_cfa_offset -56\n"
        "mov %rax, (%r11)\n"
        "jmp *%rax\n"
        ".cfi_endproc\n");
{entries}
#endif
"""


_INCLUDED = """#include <stdlib.h>
#include <string.h>

#include "pmpi.h"
#include "pmpi_own.h"
"""

_LOOKED_UP = """void *wrapper_of(const char *name) {{
    static const struct {{
        const char *name;
        void *wrapper;
    }} wrappers[] = {{
{entries}
    }};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strcmp(wrappers[i].name, name) == 0) return wrappers[i].wrapper;
    return NULL;
}}
"""


def _declared(function: Function, *first: str) -> str:
    return ", ".join((*first, *(argument.declared for argument in function.arguments)))


def _passed(function: Function, *first: str) -> str:
    return ", ".join((*first, *function.words))


def _body(function: Function, *, large: bool = False) -> Iterator[str]:
    asked = f"P{function.full}{'_c' if large else ''}({_passed(function)})"
    if function.shape == "bare":
        yield f"return wrap_{function.name}({_passed(function, 'SITE')});"
        return
    yield f"if (!enter()) return {asked};"
    yield "int rc;"
    yield from _asked(function)
    # Requests that a replay has posted as in the log stay posted so when the record ends.
    open_ = " && !shadows" if function.shape == "own" else ""
    yield f"if (UNLIKELY(C.mode == CRDEBUG_COUNTS{open_})) {{"
    yield f"    rc = {asked};"
    yield from (f"    {line}" for line in _epoch(function))
    yield from (f"    {line}" for line in _file(function))
    yield "    leave();"
    yield "    return rc;"
    yield "}"
    if function.shape == "own":
        yield "expected();"  # may change the data that MPI uses for a request
        yield f"rc = wrap_{function.name}({_passed(function, 'note.site')});"
    else:
        yield from _noted(function, asked)
        yield from _file(function)
    yield "leave();"
    yield "return rc;"


def _epoch(function: Function) -> Iterator[str]:
    """Epochs are tracked with or without a log. A freed window is recorded before it is gone."""
    if function.epoch and function.epoch != "FREE":
        target = "target_rank" if "target_rank" in function.words else "EVERYBODY"
        yield f"epoch(win, E_{function.epoch}, {target});"


def _file(function: Function) -> Iterator[str]:
    """So are the communicators of files."""
    if "newfile" in function.words:
        yield "if (rc == MPI_SUCCESS) file_made(*newfile, BODY_COMM(note.body));"
    if "file_in" in function.words:
        yield "if (rc == MPI_SUCCESS) file_gone(closed);"


def _asked(function: Function) -> Iterator[str]:
    """The note of the call, for its record (unless it makes one of its own), and said to whoever
    looks from outside."""
    words = function.words
    comms = {
        "comm": "comm_number(comm)",
        "comm_in": "comm_number(*comm_in)",
        "win": "window_number(win)",
        "win_in": "window_number(*win_in)",
    }
    comm = next((text for word, text in comms.items() if word in words), "0")
    peer = next((w for w in ("dest", "source", "root", "target_rank") if w in words), "")
    tag = "tag" if "tag" in words and "comm" in words else ""
    size = _bytes(function)
    if function.shape == "own":
        request = {"request": "*request", "request_of": "request_of"}
        for word in words if function.kind in ("COMPLETE", "READY", "CANCEL", "PROBE") else ():
            size = f"handle_age({request[word]})" if word in request else size
    if "sendtag" in words:
        peer, tag = "source", "recvtag"
        size, sent = "bytes_of(count, type)", "bytes_of(count, type)"
        if "sendcount" in words:
            size, sent = "bytes_of(recvcount, recvtype)", "bytes_of(sendcount, sendtype)"
    if "lock_type" in words:  # which locks exclude each other
        tag = "lock_type == MPI_LOCK_EXCLUSIVE"
    codes = f"peer_code({peer})" if peer else "0", f"tag_code({tag})" if tag else "0"
    yield (
        f"struct note note = note_of(CALL_{function.name}, SITE{_types(function)}, {comm}, "
        f"{', '.join(codes)}, {size});"
    )
    if "sendtag" in words:
        yield "note.few[0] = peer_code(dest);"
        yield "note.few[1] = tag_code(sendtag);"
        yield f"note.few[2] = (uint32_t){sent};"
        yield "note.count = 3;"
    elif tag and peer and (function.shape == "own" or function.kind in ("SEND", "POST_SEND")):
        yield "if (UNLIKELY(note_is_large(&note))) note_large(&note, " + (
            f"{size}, (uint32_t){peer}, (uint32_t)tag);"
        )
    if function.epoch == "FENCE":
        yield "if (assertion & MPI_MODE_NOPRECEDE) note.head |= FLAG(CRDEBUG_ODD);"
    if "op" in words:
        yield "C.doing_op = (uint64_t)(uintptr_t)op;"
    file = {"file": "file_comm(file)", "file_in": "file_comm(*file_in)"}
    of_file = next((text for word, text in file.items() if word in words), "")
    if "file_in" in words:
        yield "const MPI_File closed = *file_in;"
    yield f"doing_in(&note, {of_file});" if of_file else "doing(&note);"


def _noted(function: Function, asked: str) -> Iterator[str]:
    words = function.words
    size = _bytes(function)
    if function.epoch == "FREE":
        yield "epoch(*win_in, E_FREE, EVERYBODY);"
    if function.epoch in ("POST", "START"):
        yield "uint32_t *ranks = note_group(&note, group);"
        yield "doing(&note);"
    yield "begin(&note);"
    yield f"rc = {asked};"
    yield from _epoch(function)
    if function.shape == "post":
        yield "uint64_t place = finish(&note, rc);"
        yield "request_posted(rc == MPI_SUCCESS ? *request : mpi.request_null, 0, place);"
        return
    yield "finish(&note, rc);"
    if function.epoch in ("POST", "START"):
        yield "free(ranks);"
    if function.shape == "init" and function.kind == "COLLECTIVE":
        root = "root" if "root" in words else "MPI_PROC_NULL"
        made = "rc == MPI_SUCCESS ? *request : mpi.request_null"
        yield f"request_prepared_together({made}, comm, {root}, 0, {size});"
    elif function.shape == "init":
        buffer = "into" if "into" in words else "buf"
        other = "source" if "source" in words else "dest"
        prepared = f"*request, CALL_{function.name}, {buffer}, count, type, {other}, tag, comm"
        yield f"if (rc == MPI_SUCCESS) request_prepared({prepared});"
    if "newwin" in words:
        yield "if (rc == MPI_SUCCESS) window_made(*newwin, comm);"
    if function.shape == "comm":
        yield "if (rc == MPI_SUCCESS) comm_made(*newcomm);"


_IN_ORDER = ("sendbuf", "sendcount", "sendtype", "recvbuf", "recvcount", "recvtype")
_GIVES, _TAKES = {*_IN_ORDER[:3]}, {*_IN_ORDER[3:]}


def _types(function: Function) -> str:
    """What a message or a reduction is of; of a call that sends and receives, both."""
    has = set(function.words)
    one, two, op = "0", "0", "op_code(op)" if "op" in has else "0"
    if "eighbor" in function.name or function.name.endswith("et_accumulate"):
        return ""  # neighbours have types of their own, and with MPI_NO_OP the origin has none
    if {"origin_datatype", "target_datatype"} <= has:
        both = "origin_count, origin_datatype, target_count, target_datatype"
        gets = "true" if "get" in function.name.lower() else "false"
        one, two = "type_code(origin_datatype)", f"room_code({both}, {gets})"
        return f" | TYPES({one}, {two}, {op})"
    if function.kind == "RMA" or has & {"file", "file_in"}:
        return ""
    if "sendtype" in has and "sendtag" in has:
        one, two = "type_code(sendtype)", "type_code(recvtype)"
    elif "sendtag" in has:
        one = two = "type_code(type)"
    elif "type" in has:
        one = "type_code(type)"
    elif "catter" in function.name and has >= _TAKES:
        one = "type_if(recvbuf, recvtype, sendtype, comm)"
    elif has >= _GIVES:
        one = "type_if(sendbuf, sendtype, recvtype, comm)"
    else:
        return ""
    if has >= _GIVES | _TAKES and "sendtag" not in has:
        halves = _IN_ORDER if "catter" not in function.name else (*_IN_ORDER[3:], *_IN_ORDER[:3])
        two = f"half_code({', '.join(halves)}, {'root' if 'root' in has else 'EVERYBODY'}, comm)"
    return f" | TYPES({one}, {two}, {op})"


def _bytes(function: Function) -> str:
    """The bytes that one process sends or, if only the root has the count, receives; 0 if counts
    are arrays."""
    words = function.words
    has = set(words)
    if "origin_count" in has:
        return "bytes_of(origin_count, origin_datatype)"
    if {"count", "type"} <= has:
        return "bytes_of(count, type)"
    if {"recvcount", "type"} <= has:
        return "bytes_of(recvcount, type)"
    send = ("sendbuf", "sendcount", "sendtype")
    recv = ("recvbuf", "recvcount", "recvtype")
    gives = has.issuperset(send)
    gets = has.issuperset(recv)
    if "catter" in function.name and gets:
        send, recv, gives, gets = recv, send, gets, gives
    if not gives:
        return "0"
    other = ", ".join(recv[1:]) if gets else "0, mpi.type_null"
    return f"bytes_if({', '.join(send)}, {other}, comm)"

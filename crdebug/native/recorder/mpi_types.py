"""The types of messages and the operations of reductions, by their numbers in the log.

Two types fit if they are of one kind, whatever language names them: an MPI_INT is received as
MPI_INTEGER, though the standard says so only of equal names (MPI 4.1, 3.3.1 and 19.3.10). Complex
numbers and pairs count as two, and all types of one byte are alike, so that nothing is said of what
works everywhere. MPI_BYTE and MPI_PACKED fit everything, and have no number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

OPS = (
    *("MPI_MAX", "MPI_MIN", "MPI_SUM", "MPI_PROD", "MPI_LAND", "MPI_BAND", "MPI_LOR", "MPI_BOR"),
    *("MPI_LXOR", "MPI_BXOR", "MPI_MAXLOC", "MPI_MINLOC", "MPI_REPLACE", "MPI_NO_OP"),
)

# By kind, with the bytes of the element; an MPI that gives it another size does not have this type.
_KINDS = """
byte     1 CHAR SIGNED_CHAR UNSIGNED_CHAR INT8_T UINT8_T C_BOOL CXX_BOOL CHARACTER INTEGER1
int2     2 SHORT INT16_T INTEGER2
int4     4 INT INT32_T INTEGER INTEGER4
int8     8 LONG LONG_LONG_INT LONG_LONG INT64_T AINT COUNT OFFSET INTEGER8
uint2    2 UNSIGNED_SHORT UINT16_T
uint4    4 UNSIGNED UINT32_T
uint8    8 UNSIGNED_LONG UNSIGNED_LONG_LONG UINT64_T
real4    4 FLOAT REAL REAL4
real4    8 C_COMPLEX C_FLOAT_COMPLEX COMPLEX COMPLEX8 CXX_FLOAT_COMPLEX
real8    8 DOUBLE DOUBLE_PRECISION REAL8
real8   16 C_DOUBLE_COMPLEX DOUBLE_COMPLEX COMPLEX16 CXX_DOUBLE_COMPLEX
real16  16 LONG_DOUBLE REAL16
real16  32 C_LONG_DOUBLE_COMPLEX COMPLEX32 CXX_LONG_DOUBLE_COMPLEX
wide     4 WCHAR
logical  4 LOGICAL
real4i   8 FLOAT_INT
real8i  12 DOUBLE_INT
int8i   12 LONG_INT
int2i    6 SHORT_INT
real16i 20 LONG_DOUBLE_INT
int4     8 2INT 2INTEGER
real4    8 2REAL
real8   16 2DOUBLE_PRECISION
"""
_ROWS = [line.split() for line in _KINDS.strip().splitlines()]

TYPES = tuple((f"MPI_{name}", int(size)) for _, size, *names in _ROWS for name in names)
"""Names and sizes; their numbers are from 1."""

KIND = {f"MPI_{name}": kind for kind, _, *names in _ROWS for name in names}
"""Types of one kind fit each other."""

ADDRESS = (1 << 48) - 1
"""Of a site, these bits are a return address; the others say what `types` reads."""

OTHER_SIZE = 63
"""Instead of a second type: that half has another number of bytes."""

_OWN_OP = 15
OWN = "an operation of its own"


@dataclass(frozen=True, slots=True)
class Types:
    """What a call moves, or reduces. type: the basic type of all elements; "" where there are
    several, or none is known.  second: of a call that sends and receives, the type of what it
    receives; of a collective, that of its other half if it is another one.  op: of a reduction.
    unequal: the halves of a collective have not as many bytes, at a rank that is its own partner;
    of a one-sided call, there is more data than room for it.
    """

    type: str = ""
    second: str = ""
    op: str = ""
    unequal: bool = False


NO_TYPES = Types()


def types(site: int) -> Types:
    """What the upper bits of a site say (clock.h)."""
    return _types(site >> 48)


@cache
def _types(code: int) -> Types:
    first, second, op = code & 63, code >> 6 & 63, code >> 12
    named = OWN if op == _OWN_OP else _op(op)
    return Types(_name(first), _name(second), named, unequal=second == OTHER_SIZE)


def _name(number: int) -> str:
    return TYPES[number - 1][0] if 0 < number <= len(TYPES) else ""


def _op(number: int) -> str:
    return OPS[number - 1] if 0 < number <= len(OPS) else ""

"""Does a command for GDB change the program's state? The typed line alone decides.

A change in the past leaves the recorded history. An unclear line counts as a change: a new branch
of history costs a second, a change that goes unseen makes a replay diverge.
"""

from __future__ import annotations

import re
from collections.abc import Container

_TEXT = re.compile(r'"(?:\\.|[^"\\])*"|' + r"'(?:\\.|[^'\\])+'")
# GDB's own operators: they run nothing in the program.
_FREE = frozenset(("sizeof", "alignof", "_Alignof", "typeof", "decltype", "__typeof__"))
_CALL = re.compile(r"([A-Za-z_$][\w$:%]*)\s*\(|\)\s*\(")  # with %: a component, in Fortran
_CAST = re.compile(
    r"\(\s*(?:const\s+|unsigned\s+|signed\s+|struct\s+|enum\s+|union\s+)*[\w:]+[\s*&]*\)$"
)
# "real(kind=8), allocatable (3,-1:4)", "character*16"; a function's is "void (integer(kind=4))".
_ARRAY = re.compile(r"^character\*\S+$|\s\([-\d:,* ]+\)$")
_ASSIGNS = re.compile(r"(?<![=<>!])(?:<<|>>)?=(?!=)|\+\+|--")
_OWN = re.compile(r"\$\w+\s*(?:\[[^\]]*\]\s*)?=(?!=)")

# Commands that evaluate an expression, and do nothing else; each with its shortest name.
_LOOK = (
    ("print", 1), ("inspect", 3), ("output", 3), ("x", 1), ("printf", 6), ("display", 4),
    ("p", 1), ("po", 2), ("ptype", 2), ("whatis", 5), ("explore", 3), ("echo", 2), ("dprintf", 3),
)  # fmt: skip
# Commands that change the program, or may.
_CHANGE = (
    ("call", 3), ("jump", 1), ("return", 3), ("signal", 3), ("queue-signal", 1), ("restore", 4),
    ("load", 3), ("compile", 4), ("expression", 5), ("python", 2), ("py", 2), ("pi", 2),
    ("python-interactive", 7), ("guile", 2), ("source", 2), ("eval", 4), ("define", 3),
    ("print-object", 6), ("kill", 1), ("run", 1), ("start", 4), ("starti", 6), ("generate", 3),
    ("record", 3), ("flash-erase", 5), ("monitor", 3), ("maintenance", 2), ("mt", 2),
    ("detach", 3), ("attach", 3), ("interpreter-exec", 8), ("attach", 3),
)  # fmt: skip
# Commands that begin with others: of GDB's ("thread apply all print x").
_PREFIXES = re.compile(
    r"(?:thread|t|frame|f|inferior|taas|tfaas|faas)\b(?:\s+(?:apply|function|level|view))?"
    r"(?:\s+(?:all|-\w+|[\d.$*-]+))*\s+(?=[A-Za-z])"
)
_SET_STATE = re.compile(r"v(?:a(?:r(?:i(?:a(?:b(?:l(?:e)?)?)?)?)?)?)?\b")


def parenthesised(line: str) -> tuple[str, ...]:
    """The names before a parenthesis: of functions, or of Fortran's arrays."""
    found = _CALL.finditer(_TEXT.sub("''", line))
    return tuple(dict.fromkeys(each[1] for each in found if each[1]))


def is_of_array(type_: str) -> bool:
    """Is this GDB's word for the type of something that has elements or characters in Fortran?"""
    return _ARRAY.search(type_.removeprefix("type = ").strip()) is not None


def changes_state(line: str, arrays: Container[str] = ()) -> bool:
    """Could this line, typed for GDB, change memory, registers or the place of a rank other than by
    running on?

    arrays: names that are known to be arrays, whose elements Fortran writes in parentheses.
    """
    line = line.strip()
    prefix = _PREFIXES.match(line)
    if prefix is not None:
        return changes_state(line[prefix.end() :], arrays)
    if line.startswith(("with ", "w ")) and " -- " in line:
        return changes_state(line.split(" -- ", 1)[1], arrays)
    if line.startswith(("pipe ", "|")):
        piped = line.removeprefix("pipe").removeprefix("|").partition("|")[0]
        return changes_state(piped, arrays)
    name = re.match(r"[A-Za-z-]*", line)
    assert name is not None
    word, rest = name[0], line[name.end() :]
    if _is(word, _LOOK):
        return expression_changes(rest, arrays)
    if word == "set":
        return _set_changes(rest.strip(), arrays)
    return _is(word, _CHANGE)


def expression_changes(text: str, arrays: Container[str] = ()) -> bool:
    """Could evaluating this do more than look? An assignment, or a call of a function does."""
    text = _TEXT.sub("''", text)
    if _ASSIGNS.search(_OWN.sub("", text) if _sets_convenience(text) else text):
        return True
    return any(_is_call(text, found, arrays) for found in _CALL.finditer(text))


def _set_changes(rest: str, arrays: Container[str]) -> bool:
    if _SET_STATE.match(rest):
        return expression_changes(rest.partition(" ")[2], arrays)
    # 'set x = 1' is an assignment where 'set width 80' is a setting of GDB's.
    return bool(_ASSIGNS.search(rest)) and expression_changes(rest, arrays)


def _sets_convenience(text: str) -> bool:
    """A variable of GDB's own; a register is one of the program's."""
    found = re.match(r"\s*\$(\w+)\s*=(?!=)", text)
    return found is not None and not _REGISTER.fullmatch(found[1])


_REGISTER = re.compile(
    r"[re]?[abcd]x|[re]?[sd]i|[re]?[sb]p|[re]?ip|pc|sp|fp|ps|[abcd][hl]|r\d+[dwbl]?|eflags|orig_rax"
    r"|[cdefgs]s|[fg]s_base|st\d|mm\d|[xyz]mm\d+h?|k\d|mxcsr|f\w{3,5}"
)


def _is_call(text: str, found: re.Match[str], arrays: Container[str]) -> bool:
    name = found[1]
    if name is not None:
        return name not in _FREE and name not in arrays and not name.startswith("$_")
    # '(type) (x)' and '(f) (x)' look the same: a call of a pointer is (*f)(x)
    return _CAST.search(text[: found.start() + 1]) is None


def _is(word: str, known: tuple[tuple[str, int], ...]) -> bool:
    return any(len(word) >= least and name.startswith(word) for name, least in known if word)

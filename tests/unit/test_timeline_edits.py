"""Which commands for GDB take a job off its recorded future."""

from __future__ import annotations

import pytest

from crdebug.timeline.edits import changes_state, is_of_array, parenthesised

CHANGES = """
set var x = 1
set va x=1
set variable x = y == z
set var f()
set x = 3
set a[2] = 4
set *p = 1
set {int}0x100 = 2
set $rip = 3
print x = 1
p x++
p --n
print x += 2
p x <<= 1
p x >>= 1
print $rax = 2
print $pc = f
print f()
print/x f(1) + g
p (*f)(1)
p object.method()
p pointer->f(2)
p ns::f(1)
output f()
printf "%d", f()
call f(1)
cal f()
jump 12
j *0x1234
return
ret 3
signal 0
restore dump binary 0x10
thread apply all print x = 1
thread apply 1 2 -s set var x = 2
frame apply all p x = 1
with print pretty on -- print f()
pipe print x = 1 | cat
python gdb.execute("anything")
source file
eval "set var x = %d", 3
"""

LOOKS = """
print x
print x == 1
p x <= 2
p x >= 3
p a != b
p a << 2
print sizeof(int)
print (int)(x)
p (double) (x)
p (unsigned long)(x)
p (struct s *)(p)
p (a + b) * (c)
p &a
p a[1]
p *(int*)p
p "a = b()"
p ')'
p $_strlen(s)
p 'file.c'::x
set $i = 3
print $j = 4
set print pretty on
set width 80
set pagination off
x/4x $sp
display x
ptype struct s
whatis x
bt
list
info locals
info registers rip
frame 2
thread 1
thread apply all bt
thread apply all -q print x
up 2
next
"""


@pytest.mark.parametrize("line", CHANGES.strip().splitlines())
def test_what_changes_something_is_seen(line: str) -> None:
    assert changes_state(line)
    assert changes_state(f"  {line}  ")


@pytest.mark.parametrize("line", LOOKS.strip().splitlines())
def test_who_only_looks_changes_nothing(line: str) -> None:
    assert not changes_state(line)


def test_nothing_changes_nothing() -> None:
    assert not changes_state("")
    assert not changes_state("# set var x = 1")


def test_elements_of_fortran_arrays_are_looked_at() -> None:
    arrays = {"a", "x%grid"}
    for line in ("print a(1)", "p a(1:3) + x%grid(2,a(1))", "frame 1", "output a(:)"):
        assert not changes_state(line, arrays)
    for line in ("print f(a(1))", "set var a(1) = 2", "print grid(1)", "print a(1) = 2"):
        assert changes_state(line, arrays)
    assert parenthesised("print a(1) + x%grid(2, f (3)) + 'g(1)'") == ("a", "x%grid", "f")


@pytest.mark.parametrize(
    "type_",
    [
        "real(kind=8) (6)",
        "type = integer(kind=4), allocatable (3,-1:4)",
        "character*16",
        "real (*)",
    ],
)
def test_what_has_elements_in_fortran(type_: str) -> None:
    assert is_of_array(type_)


@pytest.mark.parametrize(
    "type_",
    ["void (integer(kind=4))", "real(kind=8) (void)", "int", "double [3]", "int (int)", "void ()"],
)
def test_what_is_called_has_none(type_: str) -> None:
    assert not is_of_array(type_)

"""What crdebug and its part inside GDB say to each other, from both sides."""

from __future__ import annotations

import ast
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdebug.gdbscripts import wire
from crdebug.gdbscripts.wire import Command, Reach, Steps, Thread

SCRIPTS = Path(__file__).parents[2] / "gdbscripts"
ANYWHERE, AT_STACK = Reach(0x401136), Reach(0x401136, (7, -8, 1, 0x7FFE10), 3)


@pytest.mark.parametrize("moves", [(), (ANYWHERE,), (AT_STACK, Steps(2)), (Steps(1), ANYWHERE)])
def test_a_place_is_read_as_it_was_written(moves: wire.Moves) -> None:
    assert wire.place_of(wire.place_text(moves)) == moves


def test_places_as_text() -> None:
    assert wire.place_text(()) == "-"
    assert wire.place_text((AT_STACK, Steps(2))) == "hit:401136:7,-8,1,7ffe10:3;stepi:2"
    assert wire.place_text((ANYWHERE,)) == "hit:401136:-:1"


@pytest.mark.parametrize("text", ["", "flat:3", "hit:401136", "hit:x:-:1", "hit:1:7,0:1"])
def test_no_place(text: str) -> None:
    with pytest.raises(ValueError):
        wire.place_of(text)


@pytest.mark.parametrize(
    "thread",
    [Thread(7, 1, 2, wire.WORD, 202), Thread(7, 1, 2, 3, wire.WORD, True, bytes(range(128)))],
)
def test_a_thread_is_read_as_it_was_written(thread: Thread) -> None:
    assert Thread.of(thread.word()) == thread


@pytest.mark.parametrize(
    ("rax", "orig_rax", "interrupted"),
    [(-512, 0, True), (-516, 202, True), (-4, 232, True), (-11, 0, False), (-512, -1, False)],
)
def test_which_calls_are_made_again(rax: int, orig_rax: int, interrupted: bool) -> None:
    thread = Thread(7, 1, 2, rax & wire.WORD, orig_rax & wire.WORD)
    assert thread.was_interrupted is interrupted


@pytest.mark.parametrize("number", [1, int(signal.SIGUSR1), 34, 62, 64])
def test_signals_by_gdbs_names(number: int) -> None:
    assert wire.gdb_signal_number(wire.gdb_signal_name(number)) == number


def test_gdb_names_signals_that_linux_does_not_have() -> None:
    assert wire.gdb_signal_name(62) == "SIG62"
    assert wire.gdb_signal_number("SIGINFO") is None
    assert wire.gdb_signal_number("SIG127") is None


def test_the_kind_of_an_error_is_no_part_of_its_problem() -> None:
    text = wire.error_text(wire.ErrorKind.AT_ORIGIN, "it is here: 3")
    assert wire.error_parts(text) == (wire.ErrorKind.AT_ORIGIN, "it is here: 3")
    assert wire.error_parts("No symbol table is loaded.") == ("", "No symbol table is loaded.")


def names() -> list[str]:
    return [name for name in vars(Command) if name.isupper()]


def defined() -> Iterator[str]:
    """Which names of Command a class of gdbscripts/ is registered by."""
    for path in SCRIPTS.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            call = node.value if isinstance(node, ast.Expr) else None
            for argument in call.args if isinstance(call, ast.Call) else ():
                if isinstance(argument, ast.Attribute) and ast.unparse(argument.value) == "Command":
                    yield argument.attr


def test_each_command_is_defined_once() -> None:
    assert sorted(defined()) == sorted(names())
    commands = [getattr(Command, name) for name in names()]
    assert len(set(commands)) == len(commands)
    assert all(command.startswith("-crdebug-") for command in commands)

"""A GDB sources crdebug's scripts into one namespace: none may take a name away from another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from crdebug.attached.gdbs import scripts, walking_scripts


def bound(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each name that a script binds at its top, and by what; imports bind what others have."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name, ast.unparse(statement)
        elif not isinstance(statement, ast.Import | ast.ImportFrom):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id, ast.unparse(statement)


def clashes(sources: dict[str, str]) -> list[str]:
    """Names that are a function or class in one script, and something else in another."""
    first: dict[str, tuple[str, str]] = {}
    told = []
    for script, source in sources.items():
        for name, what in bound(ast.parse(source)):
            other, before = first.setdefault(name, (script, what))
            defines = (before + what).count("def ") or (before + what).count("class ")
            if other != script and before != what and defines:
                told.append(f"{name} of {other} is another one in {script}")
    return told


def source_of(paths: tuple[Path, ...]) -> dict[str, str]:
    return {path.name: path.read_text() for path in paths}


def test_no_script_redefines_what_another_defines() -> None:
    assert not clashes(source_of((*scripts(), *walking_scripts())))


def test_a_clash_is_found() -> None:
    a = "def register(name):\n    return 1\nONE = 1\n"
    assert clashes({"a": a, "b": "for register in 'xy':\n    pass\nONE = 2\n"}) == [
        "register of a is another one in b"
    ]
    assert not clashes({"a": a, "b": a})

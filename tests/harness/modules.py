"""Reads the source of a module: its imports, uses and names. For tests of the layers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import cast


def unit_of(module: str) -> str:
    """The part of LEVELS that a module belongs to: crdebug.mi.records → mi, crdebug → ""."""
    return module.partition(".")[2].partition(".")[0]


def imported(tree: ast.AST, module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, wherever in the module, for types only or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative: as the import system resolves it
                parents = module.split(".")[: -node.level]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def dotted(node: ast.AST) -> str:
    """The dotted name that an expression is, or "": os.kill."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every use of a name; and `from os import kill` is a use too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = dotted(node)
            if name:
                yield node.lineno, name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


class Text(ast.Constant):
    """A constant that is a string."""

    value: str


def strings(tree: ast.AST) -> Iterator[Text]:
    """Every string that is no docstring, and the parts of f-strings."""
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if text and id(node) not in documents:
            yield cast(Text, node)


def proc_paths(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and value of every string that is a path in /proc, or the beginning of one.

    Not docstrings; nor "/proc/" alone, which only tells such paths from others. In an f-string, or
    before a plus sign, it is the beginning of one.
    """
    begun = {id(node.left) for node in ast.walk(tree) if isinstance(node, ast.BinOp)}
    begun |= {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in strings(tree):
        if re.match(r"/proc(/|$)", node.value) and (node.value != "/proc/" or id(node) in begun):
            yield node.lineno, node.value


def is_in(name: str, modules: Iterable[str]) -> bool:
    """Is an imported name one of these modules, or in one of them?"""
    return any(name == module or name.startswith(f"{module}.") for module in modules)

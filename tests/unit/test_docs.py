"""The documentation's links lead somewhere, and the files and names in it exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGES = sorted(
    (
        *(TOP / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
        *(TOP / "docs").glob("*.md"),
    ),
)
_NAMES = [str(page.relative_to(TOP)) for page in PAGES]


def dead_links(page: Path, text: str) -> list[str]:
    """Links to files that are not there; those to other places are not looked at."""
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    return [link for link in links if not (page.parent / link).exists()]


def missing_files(text: str) -> list[str]:
    """Paths of this repository, as in `crdebug/base/ranks.py`, that are not there."""
    named = re.findall(r"`((?:crdebug|gdbscripts|tests|scripts|examples|docs)/[\w./-]+)`", text)
    return [name for name in named if not (TOP / name).exists()]


def missing_targets(text: str) -> list[str]:
    """`make` with a target that the Makefile does not have."""
    targets = re.findall(r"^([a-z]+):", (TOP / "Makefile").read_text(), re.MULTILINE)
    made: list[str] = re.findall(r"(?:`|^ {4})make ([a-z]+)", text, re.MULTILINE)
    return [target for target in made if target not in targets]


@pytest.mark.parametrize("page", PAGES, ids=_NAMES)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    assert not dead_links(page, text)
    assert not missing_files(text)
    assert not missing_targets(text)


def test_what_is_not_there_is_found() -> None:
    readme = TOP / "README.md"
    assert dead_links(readme, "[a](LICENSE) [b](docs/none.md#x) [c](https://x.org)") == [
        "docs/none.md"
    ]
    assert missing_files("`crdebug/base/ranks.py` and `crdebug/none.py`") == ["crdebug/none.py"]
    assert missing_targets("    make demo\n`make nothing`") == ["nothing"]
    assert "docs/commands.md" in readme.read_text()


def test_the_architecture_names_every_part() -> None:
    text = (TOP / "docs" / "architecture.md").read_text()
    for entry in (TOP / "crdebug").iterdir():
        name = f"{entry.name}/" if entry.is_dir() else entry.name
        if entry.suffix in ("", ".py") and entry.stem not in ("__init__", "__pycache__"):
            assert f"`{name}`" in text, name


# ---- journeys.md ---------------------------------------------------------------------------------


def defined_in_python(node: ast.AST, before: str = "") -> Iterator[str]:
    """The functions and classes of a module, those in a class as Class.function."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield before + each.name
            yield from defined_in_python(each, f"{before}{each.name}.")


def defined(path: Path) -> set[str]:
    """What a file defines; of C, all that a line at the left margin has before a bracket."""
    text = path.read_text()
    if path.suffix == ".py":
        return set(defined_in_python(ast.parse(text)))
    heads: list[str] = re.findall(r"^[A-Za-z_].*", text, re.MULTILINE)
    return {name for head in heads for name in re.findall(r"(\w+)\(", head)}


def missing_functions(text: str) -> list[str]:
    """The references of the form `file:function` that lead nowhere."""
    named = re.findall(r"`([\w/]+\.\w+):([\w.]+)`", text)
    return [
        f"{file}:{name}"
        for file, name in named
        if not (TOP / file).exists() or name not in defined(TOP / file)
    ]


def test_every_function_of_the_journeys_is_there() -> None:
    text = (TOP / "docs" / "journeys.md").read_text()
    assert text.count("## ") == 6
    assert missing_functions(text) == []


def test_a_function_that_is_not_there_is_found() -> None:
    there = "`crdebug/ui/render.py:render` `crdebug/native/shim/shim.c:own_entry`"
    gone = ("crdebug/ui/render.py:nothing", "crdebug/none.py:x", "crdebug/native/shim/shim.c:none")
    assert missing_functions(f"{there} {' '.join(f'`{name}`' for name in gone)}") == list(gone)

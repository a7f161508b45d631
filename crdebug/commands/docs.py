"""docs/commands.md, from the declarations: ``python -m crdebug.commands.docs`` writes it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from crdebug.commands.help import label
from crdebug.commands.registry import Command, Registry
from crdebug.commands.standard import standard

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"

_INTRODUCTION = """\
# Commands

<!-- Written by `python -m crdebug.commands.docs` from the declarations in crdebug/commands/. -->

These are the commands of the console and of scripts (`-x SCRIPT`: one command a line, `#` begins
a comment line). Names may be shortened while they are unambiguous. An empty line at the console
repeats `step`, `next` and `continue`.

A command marked *ranks* takes a rank set in front: `[0,2-3] print x`, `[where x > 3] backtrace`;
[`focus`](#focus) explains how sets are written. Without one it is for the ranks of the focus: at
first, all of them. Equal answers are shown as one: `[0-3] = 5`.
"""


def markdown(registry: Registry) -> str:
    """The manual page."""
    return "\n".join(_page(registry)) + "\n"


def _page(registry: Registry) -> Iterator[str]:
    yield _INTRODUCTION.rstrip()
    for group in registry.groups:
        yield f"\n## {group.title}\n"
        for command in group.commands:
            name = command.name.replace(" ", "-")
            yield f"- [`{command.name}`](#{name}): {command.summary}"
        for command in group.commands:
            yield from _entry(command)


def _entry(command: Command) -> Iterator[str]:
    yield f"\n### {command.name}\n"
    yield f"    {command.usage}\n"
    yield command.summary
    if command.details:
        yield f"\n{command.details}"
    if command.arguments:
        yield ""
        for argument in command.arguments:
            yield f"- `{label(argument)}`: {argument.help}"
    facts = []
    if command.aliases:
        facts.append("also " + ", ".join(f"`{alias}`" for alias in command.aliases))
    if command.takes_ranks:
        facts.append("*ranks*")
    if facts:
        yield "\n" + "; ".join(facts) + "."


def main() -> None:
    """Write the page."""
    argparse.ArgumentParser(description="Write docs/commands.md.").parse_args()
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(markdown(standard()), encoding="utf-8")


if __name__ == "__main__":
    main()

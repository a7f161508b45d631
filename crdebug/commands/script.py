"""Scripts: one command a line, ``#`` comments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crdebug.base.errors import BadInput, CrdebugError
from crdebug.commands.registry import Registry
from crdebug.commands.results import Left, Result


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """A command and its place. file: as the user named it."""

    file: str
    number: int
    text: str


@dataclass(eq=False)
class ScriptFailed(CrdebugError):
    """A line of a script failed; the lines after it were not run, which `outcome` says.

    cause: what the line raised.
    """

    file: str
    line: int
    cause: CrdebugError

    @classmethod
    def at(
        cls, line: ScriptLine, cause: CrdebugError, missed: Sequence[ScriptLine]
    ) -> ScriptFailed:
        """missed: the lines after it, of this script and the next ones."""
        here = "" if isinstance(cause, ScriptFailed) else line.file
        outcome = _not_run(missed, here) if missed else None
        return cls(str(cause), line.file, line.number, cause, outcome=outcome)

    def clause(self) -> str:
        return f"{self.file}:{self.line}: {self.problem}"


def _not_run(missed: Sequence[ScriptLine], here: str) -> str:
    """The clause that names these lines, and their files unless that is `here`."""
    numbers: dict[str, list[int]] = {}
    for line in missed:
        numbers.setdefault(line.file, []).append(line.number)
    spans = [
        (f"lines {lines[0]}-{lines[-1]}" if len(lines) > 1 else f"line {lines[0]}")
        + ("" if file == here else f" of {file}")
        for file, lines in numbers.items()
    ]
    return f"{', '.join(spans)} {'were' if len(missed) > 1 else 'was'} not run"


def read_script(file: str) -> tuple[ScriptLine, ...]:
    """The commands of a file, without comments and blank lines. Raises BadInput.

    file: ~ is the home directory.  A line that ends with a backslash goes on in the next one.
    """
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"script {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"script {file} is not UTF-8 text") from error
    found, begun = [], ScriptLine(file, 0, "")
    for number, line in enumerate(text.splitlines(), start=1):
        if not begun.number:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            begun = ScriptLine(file, number, "")
        begun = replace(begun, text=begun.text + line.strip() if begun.text else line.strip())
        if begun.text.endswith("\\"):  # it goes on, also into what looks like a comment
            begun = replace(begun, text=begun.text[:-1])
            continue
        found.append(begun)
        begun = ScriptLine(file, 0, "")
    return (*found, begun) if begun.number else tuple(found)


BLOCK_END = "end"


def _block(lines: list[ScriptLine]) -> tuple[str, ...]:
    """Take the lines up to ``end`` off the list. Raises BadInput when that is missing."""
    texts = [line.text for line in lines]
    if BLOCK_END not in texts:
        hint = "it closes the lines that belong to a command"
        raise BadInput(f"'{BLOCK_END}' is missing", hint=hint)
    end = texts.index(BLOCK_END)
    del lines[: end + 1]
    return tuple(texts[:end])


async def play(
    lines: Iterable[ScriptLine],
    run: Callable[[str, Sequence[str]], Awaitable[Result]],
    registry: Registry,
    before: Callable[[str], None],
    after: Callable[[Result], None],
) -> None:
    """Run lines until one fails or ends the session.

    run: runs one, with the lines of its block.  before: called with each line that is worth
    showing.  after: called with each result.
    Raises ScriptFailed at the first error.
    """
    rest = list(lines)
    while rest:
        line = rest.pop(0)
        try:
            if registry.read(line.text).command.echoed:
                before(line.text)
            block = _block(rest) if registry.begins_block(line.text) else ()
            result = await run(line.text, block)
        except CrdebugError as error:
            raise ScriptFailed.at(line, error, rest) from error
        after(result)
        if isinstance(result, Left):
            return

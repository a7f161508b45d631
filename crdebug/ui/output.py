"""The application's output, marked as such."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from crdebug.base.events import Event, JobOutput, JobSays
from crdebug.ui.printable import for_stream, printable

_MARKS = {"stdout": "out| ", "stderr": "err| "}


class OutputMarks:
    """Puts a mark before each line of the application, and shows whole lines only.

    write: takes a mark and a line. An unfinished line is kept back until it ends, or until `flush`;
    its parts then end with a backslash, so that no part looks like a whole line.
    """

    def __init__(self, write: Callable[[str, str], None]) -> None:
        self._write = write
        self._kept: dict[str, str] = {}

    def feed(self, output: JobOutput) -> None:
        """Take text from one stream."""
        text = self._kept.pop(output.stream, "") + output.text
        *lines, rest = text.split("\n")
        for line in lines:
            self._show(output.stream, line.removesuffix("\r"))
        if rest:
            self._kept[output.stream] = rest

    def flush(self, *, final: bool = False) -> None:
        """Show unfinished lines. final: nothing will finish them."""
        kept, self._kept = self._kept, {}
        for stream, text in kept.items():
            self._show(stream, text if final else f"{text}\\")

    def _show(self, stream: str, line: str) -> None:
        self._write(_MARKS.get(stream, f"{stream}| "), line)


class Relay:
    """Writes the output of a job without a debugger where its launcher would have written it, and
    crdebug's messages about it to standard error, on lines of their own."""

    def __init__(self) -> None:
        self._midline = False  # the job's last line on standard error is unfinished

    def __call__(self, event: Event) -> None:
        if isinstance(event, JobOutput):
            stream = sys.stderr if event.stream == "stderr" else sys.stdout
            stream.write(for_stream(event.text, stream))
            stream.flush()
            if stream is sys.stderr:
                self._midline = not event.text.endswith("\n")
        elif isinstance(event, JobSays):
            begin = "\n" if self._midline else ""
            click.echo(f"{begin}crdebug: {printable(event.text)}", err=True)
            self._midline = False

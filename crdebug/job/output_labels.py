"""Which rank wrote a line: what launchers put before each one becomes ``[2] ``. Pure.

They do so if they are asked. Open MPI writes ``[1,2]<stdout>:`` before each piece of a line, and
pieces of several ranks may follow each other; with prterun (Open MPI 5) a blank follows. MPICH's
hydra writes a pattern of ours in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MARK = re.compile(rb"\[\d+,(\d+)\]<(?:crdebug>:|(?:stdout|stderr|stddiag)>:( ?))")
_ENDS = tuple(b"]<%b>:" % name for name in (b"stdout", b"stderr", b"stddiag", b"crdebug"))
# One that is not at the beginning of a line. (The bracket in front makes the search quick.)
_ODD = re.compile(rb"\[(?<!\n\[)\d+,\d+\]<(?:crdebug|stdout|stderr|stddiag)>:")
# The beginning of one, or one after which a blank may follow, at the end of what has come so far.
_BEGUN = re.compile(rb"\[(?:\d+(?:,(?:\d+(?:\](?:<(?:[a-z]{0,7}(?:>:?)?)?)?)?)?)?)?\Z")
_LONGEST = 64  # a mark is shorter
_FEW = 200  # different marks that are replaced one by one

OF_PRTERUN = ("--output", "tag")
OF_HYDRA = ("-prepend-pattern", "[0,%r]<crdebug>:")
IN_OPEN_MPI_4 = "OMPI_MCA_orte_tag_output"


def asking(argv: Sequence[str], family: str, version: str) -> list[str]:
    """The command line with which the launcher marks lines. family, version: of its MPI, "" if they
    are not known. Open MPI 4 takes a variable, IN_OPEN_MPI_4, and what the user has asked for
    stays."""
    options: tuple[str, ...] = ()
    if family == "MPICH" and not any(word.lstrip("-").startswith("prepend-") for word in argv):
        options = OF_HYDRA
    elif family == "Open MPI" and not version.startswith(("1", "2", "3", "4")):
        asked = ("output", "tag-output", "xml", "timestamp-output")
        if not any(word.startswith("-") and word.lstrip("-").startswith(asked) for word in argv):
            options = OF_PRTERUN
    return [argv[0], *options, *argv[1:]]


class Labels:
    """Puts the ranks' lines of one stream together, each with its rank before it.

    unmarked: the first line has come, without a mark: this launcher makes none.
    """

    def __init__(self) -> None:
        self.unmarked = False
        self._rank: int | None = None  # whose text comes now; None: the launcher's own
        # What ranks have written of lines that are not whole yet, in pieces.
        self._lines: dict[int, list[bytes]] = {}
        self._rest = b""
        self._spaced = True  # all marks so far had a blank behind
        self._begun = False
        # Marks at the beginning of a line: their ranks, and the labels instead of them.
        self._known: dict[bytes, tuple[int, bytes]] = {}

    def feed(self, text: bytes, *, final: bool = False) -> bytes:
        """The lines that are whole now. final: no more comes, so the others are shown as well."""
        text = self._rest + text
        cut = None if final else _BEGUN.search(text, max(0, len(text) - _LONGEST))
        self._rest = text[cut.start() :] if cut is not None else b""
        text = text[: len(text) - len(self._rest)]
        told: list[bytes] = []
        at = 0
        # Lines in which a mark comes later than at the beginning, and then the end of the text.
        odd = [mark.start() for mark in _ODD.finditer(text)]
        for place in (*odd, len(text)):
            line = text.rfind(b"\n", at, place) + 1
            while at < line:
                at = self._whole_lines(text, at, line, told) or self._piece(text, at, told)
            if at <= place < len(text):
                at = self._piece(text, at, told)
        while at < len(text):
            at = self._piece(text, at, told)
        if final:
            for rank, pieces in sorted(self._lines.items()):
                told.append(b"[%d] %b\n" % (rank, b"".join(pieces)))
            self._lines.clear()
        return b"".join(told)

    def _whole_lines(self, text: bytes, at: int, end: int, told: list[bytes]) -> int:
        """Label the lines from here on that have no mark but one of a known rank at the beginning,
        all at once: this is most of what a job writes. Returns where they end, 0 for none."""
        if self._rank is not None or len(self._known) > _FEW:
            return 0
        for mark, (rank, _) in self._known.items():
            if rank in self._lines:  # the rest of its line
                found = text.find(mark, max(at - 1, 0), end)
                if text.startswith(mark[1:], at):
                    return 0
                end = found + 1 if found >= 0 else end
        lines = b"\n" + text[at : end - 1]
        marks = sum(map(lines.count, _ENDS))
        for mark, (_, label) in self._known.items():
            marks -= lines.count(mark)
            lines = lines.replace(mark, label)
        if marks or not self._begun:
            return 0
        told.append(lines[1:] + b"\n")
        return end

    def _piece(self, text: bytes, at: int, told: list[bytes]) -> int:
        """Take what follows, up to the end of a line. Returns where that is."""
        end = text.find(b"\n", at) + 1 or len(text)
        for mark in _MARK.finditer(text, at, end):
            self._take(text[at : mark.start()], told)
            self._rank, self._begun = int(mark[1]), True
            blank = mark[2] or b""
            if self._spaced and not blank:
                self._spaced = False
                self._known.clear()
            at = mark.end() if self._spaced else mark.end() - len(blank)
            label = b"\n[%d] " % self._rank
            self._known[b"\n" + text[mark.start() : at]] = (self._rank, label)
        self._take(text[at:end], told)
        return end

    def _take(self, text: bytes, told: list[bytes]) -> None:
        """A piece without marks. What follows a line's end without a mark is the launcher's."""
        if text and self._rank is not None:
            line, end, text = text.partition(b"\n")
            begun = self._lines.pop(self._rank, [])
            begun.append(line)
            if end:
                told.append(b"[%d] %b\n" % (self._rank, b"".join(begun)))
                self._rank = None
            else:
                self._lines[self._rank] = begun
        self.unmarked = self.unmarked or (bool(text.strip()) and not self._begun)
        told.append(text)

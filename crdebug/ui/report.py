"""What happened to a job, as one HTML file: readable without a network, and without scripts.

Everything in it may come from the program, so all of it is escaped, and the page's content security
policy allows nothing but its own style.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from crdebug.charts.pages import SIGNATURE
from crdebug.ui.printable import printable


@dataclass(frozen=True, slots=True)
class Section:
    """text: lines, as the console shows them."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """summary: a few sentences.  facts: names and values."""

    title: str
    summary: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]


_HEAD, _TAIL = 200, 100  # lines of a section


def shortened(text: str) -> str:
    """The text without the middle of very many lines."""
    lines = text.splitlines()
    left_out = len(lines) - _HEAD - _TAIL
    if left_out <= 0:
        return text
    return "\n".join([*lines[:_HEAD], f"({left_out} lines are left out)", *lines[-_TAIL:]])


_STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
pre { font: 14px/1.4 monospace; background: #f4f4f4; padding: .8em; overflow-x: auto; }
pre.summary { background: #fdecea; font-weight: bold; white-space: pre-wrap; }
summary { font-size: 1.2em; cursor: pointer; margin-top: .8em; }
th { text-align: left; padding-right: 2em; font-weight: normal; color: #555; vertical-align: top; }
"""


def html(report: Report) -> str:
    facts = "\n".join(
        f"<tr><th>{_safe(name)}</th><td>{_safe(value)}</td></tr>" for name, value in report.facts
    )
    sections = "\n".join(
        f"<details open><summary>{_safe(each.title)}</summary>"
        f"<pre>{_safe(each.text)}</pre></details>"
        for each in report.sections
        if each.text.strip()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{SIGNATURE}
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{_safe(report.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{_safe(report.title)}</h1>
<pre class="summary">{_safe(report.summary)}</pre>
<table>
{facts}
</table>
{sections}
</body>
</html>
"""


def _safe(text: str) -> str:
    return escape(printable(text))

"""The manual page crdebug(1), from the declarations: click's commands and the console's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from crdebug import __version__
from crdebug.commands.registry import Registry

ENVIRONMENT = (
    ("CRDEBUG_HOME", "Jobs and checkpoints; by default crdebug in $XDG_STATE_HOME."),
    ("CRDEBUG_DATA", "Programs that `crdebug setup` installs; by default in $XDG_DATA_HOME."),
    ("CRDEBUG_CACHE", "The compiled native part and other caches; by default in $XDG_CACHE_HOME."),
    ("CRDEBUG_CONFIG", "The file of settings; by default crdebug/config.toml in $XDG_CONFIG_HOME."),
    ("CRDEBUG_HOOKS", "The operator's hooks; by default the directory hooks in $CRDEBUG_HOME."),
    ("CRDEBUG_CRIU", "The CRIU to use instead of all others."),
    ("CC", "The C compiler for the native part."),
)
STATUSES = (
    ("0", "Success; `crdebug run --no-debugger` exits with the job's own status."),
    ("1", "An error, with a message on standard error."),
    ("2", "An invalid command line."),
    ("70", "A bug in crdebug."),
    ("75", "The job was ended after its last checkpoint (`run --on-signal`)."),
    ("130", "Interrupted by Ctrl-C."),
)


def man_page(program: click.Group, registry: Registry) -> str:
    """The page as roff, for man(7)'s macros."""
    return "\n".join(_page(program, registry)) + "\n"


def _page(program: click.Group, registry: Registry) -> Iterator[str]:
    summary = (program.help or "").rstrip(".")
    yield f'.TH CRDEBUG 1 "" "crdebug {_roff(__version__)}" "User Commands"'
    yield ".SH NAME"
    yield f"crdebug \\- {_roff(summary[:1].lower() + summary[1:])}"
    yield ".SH SYNOPSIS"
    yield ".B crdebug\n.I COMMAND\n[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]"
    yield ".SH COMMANDS"
    with click.Context(program, info_name="crdebug") as context:
        for name in program.list_commands(context):
            command = program.commands[name]
            if not command.hidden:
                yield from _command(command, context)
    yield ".SH COMMANDS OF THE CONSOLE AND OF SCRIPTS"
    yield "A rank set in front (\\fB[0,2\\-3] print x\\fR) addresses those ranks only;"
    yield "\\fBhelp\\fR \\fICOMMAND\\fR explains each."
    for group in registry.groups:
        yield f".SS {_roff(group.title)}"
        for each in group.commands:
            yield from _entry(each.usage, each.summary)
    yield ".SH ENVIRONMENT"
    for variable, meaning in ENVIRONMENT:
        yield from _entry(variable, meaning)
    yield ".SH EXIT STATUS"
    for status, meaning in STATUSES:
        yield from _entry(status, meaning)
    yield ".SH SEE ALSO"
    yield ".BR gdb (1),\n.BR mpirun (1),\n.BR criu (8)"


def _command(command: click.Command, parent: click.Context) -> Iterator[str]:
    with click.Context(command, info_name=command.name, parent=parent) as context:
        usage = " ".join((command.name or "", *command.collect_usage_pieces(context)))
        yield f".SS {_roff(usage)}"
        paragraphs = (command.help or "").split("\n\n")
        yield "\n.PP\n".join(_roff(" ".join(each.split())) for each in paragraphs)
        for parameter in command.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None and record[1] and parameter.name != "help":
                yield from _entry(*record)


def _entry(term: str, meaning: str) -> Iterator[str]:
    yield f".TP\n\\fB{_roff(term)}\\fR\n{_roff(meaning)}"


def _roff(text: str) -> str:
    """Escape the text for roff; words between ` become bold."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    plain = re.sub(r"^([.'])", r"\\&\1", plain, flags=re.MULTILINE)
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fR", plain)

"""set, show: what a user can choose while a session lasts.

A setting is declared once, with how its value is read and where it is kept; `set`, `show`, their
help and completion derive from the declarations.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from textwrap import indent, wrap

from crdebug.base import signal_names, units
from crdebug.base.errors import BadInput, Refused
from crdebug.base.settings import Settings
from crdebug.base.units import bytes_text, seconds_text
from crdebug.commands.arguments import rest, word
from crdebug.commands.context import Context, Hangup, OnError
from crdebug.commands.registry import Call, Group, Requires
from crdebug.commands.results import Result, Text
from crdebug.commands.setting import (
    Setting,
    of_session,
    read_seconds,
    read_switch,
    read_text,
    reader,
    reader_or,
    setting,
    switch_text,
)
from crdebug.session.running import StopMode
from crdebug.session.values import BUDGET, EVERY, Bound, History
from crdebug.session.waiting import StepOthers

# ---- the settings ------------------------------------------------------------------------------


def _history(context: Context) -> History:
    found = context.session.history
    if found is None or not found.recorded:
        raise Refused(
            "there are no automatic checkpoints: this job's MPI calls are not recorded",
            hint="start it with 'crdebug run'",
        )
    return found


read_interval = reader_or({"on": EVERY, "off": 0.0})
_COSTS = {"on": BUDGET, "off": 0.0}
read_patience = reader_or({"off": 0.0})


def interval_text(seconds: float) -> str:
    return f"at most every {seconds_text(seconds)} while the job runs" if seconds else "off"


def read_cost(text: str) -> float:
    """A part of the run: ``2%``, ``0.5``, from 0 to 100 %."""
    if text in _COSTS:
        return _COSTS[text]
    number = re.fullmatch(r"(\d+(?:\.\d+)?) ?%?", text, re.ASCII)
    if number is None or float(number[1]) > 100:
        raise BadInput(f"'{text}' is not a part of the run", hint="write 2%, 0.5%, or off")
    return float(number[1]) / 100


def cost_text(part: float) -> str:
    return f"{part * 100:.3g}% of the run" if part else "off"


def read_bound(text: str) -> Bound:
    """A size (``500M``, ``2GiB``), or a part of the free disk (``10%``)."""
    try:
        if text.endswith("%"):
            part = float(text[:-1]) if re.fullmatch(r"\d+(\.\d+)? ?%", text, re.ASCII) else 0.0
            if not 0 < part <= 100:
                raise ValueError(text)
            return Bound(part=part / 100)
        return Bound(units.read_bytes(text))
    except ValueError:
        hint = "write 500M, 2G, or a part of the disk: 10%"
        raise BadInput(f"'{text}' is not a size", hint=hint) from None


def bound_text(bound: Bound) -> str:
    if not bound.size:
        return f"{bound.part * 100:g}% of the disk that is free without them"
    return bytes_text(bound.size)


def _put_failure(context: Context, wanted: bool) -> None:
    context.session.stop_at_failure = wanted


def _put_stop_mode(context: Context, mode: StopMode) -> None:
    context.session.stop_mode = mode


def _put_patience(context: Context, seconds: float) -> None:
    context.session.patience = seconds


def _put_others(context: Context, choice: StepOthers) -> None:
    context.session.step_others = choice


def _put_interval(context: Context, seconds: float) -> None:
    _history(context).every = seconds


def _put_cost(context: Context, part: float) -> None:
    _history(context).costs.budget = part


def _put_bound(context: Context, bound: Bound) -> None:
    _history(context).automatic.bound = bound


def read_signal(text: str) -> int:
    """A signal's number, by number or name."""
    try:
        number = signal_names.number_of(text)
    except ValueError as error:
        raise BadInput(str(error), hint="give a number or a name like SIGTSTP") from None
    signal_names.require_usable(number)
    return number


_DEFAULT_SIGNAL = "SIGRTMAX-2; of a job that is attached to, one that it does not use"


def signal_text(number: int) -> str:
    return signal_names.name_of(number) if number else _DEFAULT_SIGNAL


def record_text(record: bool | None) -> str:
    return "if the MPI's mpicc is there" if record is None else switch_text(record)


def _put_on_script_error(context: Context, choice: OnError) -> None:
    context.preferences.on_script_error = choice


def _put_hangup(context: Context, choice: Hangup) -> None:
    context.preferences.on_hangup = choice


def _put_pager(context: Context, on: bool) -> None:
    context.preferences.pager = on


def _limit(field: str, what: str) -> Setting:
    """How long something may take, a field of Settings."""

    def put(settings: Settings, seconds: float) -> None:
        setattr(settings, field, seconds)

    def get(settings: Settings) -> float:
        seconds: float = getattr(settings, field)
        return seconds

    return of_session(
        f"limit-{field}",
        "TIME",
        f"how long {what} may take",
        read=read_seconds,
        text=seconds_text,
        get=get,
        put=put,
    )


def _program(field: str, help: str) -> Setting:
    """A command, a field of Settings."""

    def put(settings: Settings, command: str) -> None:
        setattr(settings, field, command)

    return of_session(
        field,
        "PROGRAM",
        help,
        read=read_text,
        text=str,
        get=lambda settings: str(getattr(settings, field)),
        put=put,
    )


def read_directories(text: str) -> str:
    """Absolute paths, separated by colons; or none."""
    if text == "off":
        return ""
    for each in text.split(":"):
        if not each.startswith("/"):
            raise BadInput(f"'{each}' is not an absolute path", hint="write DIR:DIR..., or off")
    return text


def _put_auto_load(settings: Settings, directories: str) -> None:
    settings.auto_load = directories


def _put_signal(settings: Settings, number: int) -> None:
    settings.signal = number


def _put_record(settings: Settings, record: bool | None) -> None:
    settings.record = record


def _put_label_output(settings: Settings, wanted: bool) -> None:
    settings.label_output = wanted


def read_count(text: str) -> int:
    """A whole number, from 1 on."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,5}", text, re.ASCII):
        raise BadInput(f"'{text}' is not a number from 1 on")
    return int(text)


def _put_host_interval(settings: Settings, seconds: float) -> None:
    settings.host_interval = seconds


def _put_standing(settings: Settings, seconds: float) -> None:
    settings.patience = seconds


def _put_host_patience(settings: Settings, seconds: float) -> None:
    settings.host_patience = seconds


def _put_host_misses(settings: Settings, count: int) -> None:
    settings.host_misses = count


def _put_full_every(settings: Settings, count: int) -> None:
    settings.full_every = count


SETTINGS = (
    setting(
        "on-hangup",
        "hold|let-go|kill",
        "what happens to the job when the terminal goes away: it is held as it is, for 'crdebug "
        "attach' to come back to, or runs on without a debugger, or is ended",
        read=reader(Hangup),
        text=lambda choice: choice.value,
        get=lambda context: context.preferences.on_hangup,
        put=_put_hangup,
    ),
    setting(
        "on-script-error",
        "auto|let-go|hold|kill",
        "what happens to the job when a script of --batch fails: 'auto' lets it run on, but ends "
        "a job that this crdebug started if the script had changed it (set var, call, return, "
        "jump, send, gdb) or was interrupted; crdebug waits for a job that it started to end",
        read=reader(OnError),
        text=lambda choice: choice.value,
        get=lambda context: context.preferences.on_script_error,
        put=_put_on_script_error,
    ),
    setting(
        "pager",
        "on|off",
        "show an answer that is longer than the terminal page by page",
        read=read_switch,
        text=switch_text,
        get=lambda context: context.preferences.pager,
        put=_put_pager,
    ),
    setting(
        "stop-mode",
        "job|rank",
        "what happens when one rank stops: the others are stopped too, or run on; 'continue' then "
        "returns at once, 'wait' waits, and a command skips those of its ranks that are running",
        read=reader(StopMode),
        text=lambda mode: mode.value,
        get=lambda context: context.session.stop_mode,
        put=_put_stop_mode,
    ),
    setting(
        "stop-at-failure",
        "on|off",
        "stop a rank that calls MPI_Abort, or exits with a status that is not 0 or without "
        "MPI_Finalize, before the launcher ends the others for it",
        read=read_switch,
        text=switch_text,
        get=lambda context: context.session.stop_at_failure,
        put=_put_failure,
    ),
    setting(
        "step-patience",
        "off|TIME",
        "how long a step may take until crdebug checks whether it waits in MPI for ranks that are "
        "stopped",
        read=read_patience,
        text=lambda seconds: seconds_text(seconds) if seconds else "off",
        get=lambda context: context.session.patience,
        put=_put_patience,
    ),
    setting(
        "step-others",
        "ask|run|stop",
        "what to do about such a step: you are asked (a script is stopped), the other ranks run "
        "along with it, or it is stopped",
        read=reader(StepOthers),
        text=lambda choice: choice.value,
        get=lambda context: context.session.step_others,
        put=_put_others,
    ),
    setting(
        "auto-checkpoint",
        "on|off|TIME",
        "how often checkpoints for going back in time are taken while the job runs, at most: less "
        "often where they would cost more than a quarter of 'snapshot-cost', but at least every 5 "
        "minutes; older ones are thinned out; with 'off' there are no snapshots either",
        read=read_interval,
        text=interval_text,
        get=lambda context: _history(context).every,
        put=_put_interval,
    ),
    setting(
        "snapshot-cost",
        "on|off|N%",
        "how much of the run snapshots in memory and automatic checkpoints may cost together, 2% "
        "if you do not choose: they are taken as often as that allows; with 0 or 'off' no "
        "snapshots are taken while the job runs ('info snapshots' shows them)",
        read=read_cost,
        text=cost_text,
        get=lambda context: _history(context).costs.budget,
        put=_put_cost,
    ),
    setting(
        "auto-checkpoint-disk",
        "SIZE|N%",
        "how much of the disk these may take, as a size (500M, 2G) or as a part of the free space",
        read=read_bound,
        text=bound_text,
        get=lambda context: _history(context).automatic.bound,
        put=_put_bound,
    ),
    of_session(
        "full-every",
        "N",
        "of N checkpoints in a row one is full, and the others hold only what changed since the "
        "one before; with 1, or where the kernel does not track changes, all are full",
        read=read_count,
        text=str,
        get=lambda settings: settings.full_every,
        put=_put_full_every,
    ),
    of_session(
        "record",
        "on|off",
        "record the ranks' MPI calls, to go back in time",
        read=read_switch,
        text=record_text,
        get=lambda settings: settings.record,
        put=_put_record,
        fixed="'crdebug run --record', or the config file",
    ),
    of_session(
        "label-output",
        "on|off",
        "show which rank wrote a line of the job's output, as in '[2] text', a line when it is "
        "whole; off where crdebug's output is no terminal, unless --label-output asks for it",
        read=read_switch,
        text=switch_text,
        get=lambda settings: settings.label_output,
        put=_put_label_output,
        fixed="'crdebug run --label-output', or the config file",
    ),
    of_session(
        "signal",
        "N|NAME",
        "the signal that leads threads into the waitpoint",
        read=read_signal,
        text=signal_text,
        get=lambda settings: settings.signal,
        put=_put_signal,
        fixed="'crdebug run --signal', or the config file",
    ),
    _program("gdb", "the GDB of each rank, for those that are started from now on"),
    of_session(
        "auto-load",
        "off|DIR:DIR...",
        "the directories whose programs may bring scripts (PROGRAM-gdb.py, .debug_gdb_scripts) for "
        "the GDBs that are started from now on to run; name none that others may write to",
        read=read_directories,
        text=lambda directories: directories or "off",
        get=lambda settings: settings.auto_load,
        put=_put_auto_load,
    ),
    _program("compiler", "the C compiler for crdebug's native part, with options if need be"),
    of_session(
        "patience",
        "off|TIME",
        "how long no rank may come further before crdebug tells why, as 'why-blocked' does, while "
        "the job runs on",
        read=read_patience,
        text=lambda seconds: seconds_text(seconds) if seconds else "off",
        get=lambda settings: settings.patience,
        put=_put_standing,
    ),
    of_session(
        "host-interval",
        "TIME",
        "how often an agent on another host is asked whether it is there",
        read=read_seconds,
        text=seconds_text,
        get=lambda settings: settings.host_interval,
        put=_put_host_interval,
    ),
    of_session(
        "host-misses",
        "N",
        "an agent on another host that has not answered for so many times 'host-interval' is lost",
        read=read_count,
        text=str,
        get=lambda settings: settings.host_misses,
        put=_put_host_misses,
    ),
    of_session(
        "host-patience",
        "TIME",
        "an agent on another host that has heard nothing of crdebug for so long lets its ranks go",
        read=read_seconds,
        text=seconds_text,
        get=lambda settings: settings.host_patience,
        put=_put_host_patience,
        fixed="the config file",
    ),
    _limit("launch", "the start of all ranks"),
    _limit("attach", "attaching to all ranks"),
    _limit("stop", "stopping the job"),
    _limit("command", "one answer of a GDB"),
    _limit("herd", "leading the threads into the waitpoint"),
    _limit("hook", "a hook of the operator's, or the callbacks of the program"),
    _limit("quiet", "the end of the program's quiet regions"),
    _limit("dump", "writing a checkpoint"),
    _limit("restore", "reading a checkpoint back"),
)


# ---- the commands ------------------------------------------------------------------------------


def _names(context: Context) -> Iterable[str]:
    return (each.name for each in SETTINGS)


def find(name: str, *, whole: bool = False) -> Setting:
    """By name, or, unless it must be whole, an unambiguous beginning of it.

    Raises BadInput, saying which there are.
    """
    names = [each.name for each in SETTINGS]
    fitting = [each for each in SETTINGS if each.name.startswith(name) and not whole]
    exact = [each for each in SETTINGS if each.name == name]
    for found in (exact, fitting):
        if len(found) == 1:
            return found[0]
    if fitting:
        raise BadInput(f"'{name}' is ambiguous: {', '.join(each.name for each in fitting)}")
    close = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean '{close[0]}'? " if close else ""
    raise BadInput(
        f"there is no setting '{name}'",
        hint=f"{guess}settings: {', '.join(names)}; 'gdb set ...' is for those of GDB",
    )


GROUP = Group("settings", "Settings", of_cores=True)
NAME = word("NAME", "which one", candidates=_names)
VALUE = rest("VALUE", "see above")
ONE = word("NAME", "which one; without it, all are shown", default="", candidates=_names)


def _entry(each: Setting) -> str:
    return indent(f"set {each.name} {each.values}\n" + indent("\n".join(wrap(each.help)), _IN), _IN)


_IN = " " * 4
_LIST = "\n".join(map(_entry, SETTINGS))


@GROUP.command(
    "set",
    f"""
Choose how crdebug does something, while this session lasts.

{_LIST}

A TIME is a number of seconds, or has a unit: 500ms, 5s, 10m, 1.5h, 2d.

Settings for every session go into $XDG_CONFIG_HOME/crdebug/config.toml (or $CRDEBUG_CONFIG), one a
line: pager = false, limit-stop = "2m", on-hangup = "kill".

The program's variables are set with 'set var', GDB's own settings with 'gdb set ...'.
""",
    arguments=(NAME, VALUE),
    requires=Requires.ANY,
)
async def set_(call: Call) -> Result:
    chosen = find(call[NAME])
    chosen.assign(call.context, call[VALUE].strip())
    call.context.origins[chosen.name] = "set here"
    return Text(f"{chosen.name}: {chosen.show(call.context)}")


@GROUP.command(
    "show",
    "Show a setting, or all of them, with who chose it.",
    arguments=(ONE,),
    requires=Requires.ANY,
)
async def show(call: Call) -> Result:
    if call[ONE]:
        return Text(_shown(find(call[ONE]), call.context))
    return Text("\n".join(_line(each, call.context) for each in SETTINGS))


def _origin(each: Setting, context: Context) -> str:
    return context.origins.get(each.name, "default")


def _shown(each: Setting, context: Context) -> str:
    return f"{each.name}: {each.show(context)} ({_origin(each, context)})"


def _line(each: Setting, context: Context) -> str:
    try:
        return _shown(each, context)
    except Refused as reason:
        return f"{each.name}: {reason.problem}"

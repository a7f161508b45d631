"""The user's config file: settings that hold in every session, `name = value`, in TOML."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crdebug.base.errors import BadInput, CrdebugError, Refused
from crdebug.base.settings import Settings, config_file

if TYPE_CHECKING:
    from crdebug.commands.context import Context
    from crdebug.commands.setting import Setting

_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


@dataclass(frozen=True, slots=True)
class Preference:
    """One line of the file. text: as `set` would be given it.  where: ``FILE:LINE``."""

    setting: Setting
    text: str
    where: str


def read_preferences(file: Path) -> tuple[Preference, ...]:
    """What the file says; nothing if there is none. Raises BadInput that names file and line."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise BadInput(f"settings in {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"settings in {file} are not UTF-8 text") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        at = _AT_LINE.search(said)
        where = f"{file}:{at[1]}" if at else str(file)
        words = _AT_LINE.sub("", said)
        raise BadInput(f"{where}: {words[:1].lower()}{words[1:]}", hint=_FORM) from None
    return tuple(_preference(file, text, name, value) for name, value in values.items())


_FORM = "settings are lines like 'on-hangup = \"kill\"', see 'help set'"


def _preference(file: Path, text: str, name: str, value: object) -> Preference:
    from crdebug.commands.settings import find

    where = f"{file}:{_line_of(name, text)}"
    try:
        setting = find(name, whole=True)
        word = _word(value)
        setting.check(word)
    except CrdebugError as error:
        raise BadInput(f"{where}: {error.problem}", hint=error.hint) from None
    return Preference(setting, word, where)


def _line_of(name: str, text: str) -> int:
    key = re.compile(rf"\s*\[?\s*[\"']?{re.escape(name)}[\"']?\s*[\]=.]")
    lines = enumerate(text.splitlines(), start=1)
    return next((number for number, line in lines if key.match(line)), 1)


def _word(value: object) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case str() | int():
            return str(value)
        case float():
            return f"{value:.12g}"
        case _:
            raise BadInput("a setting is one text, number or truth value", hint=_FORM)


def read_own(settings: Settings | None = None) -> tuple[Sequence[Preference], Settings]:
    """The user's config file: its lines, and the settings to begin with, which follow it."""
    preferences = read_preferences(config_file())
    return preferences, begin_with(preferences, settings or Settings())


def begin_with(preferences: Iterable[Preference], settings: Settings) -> Settings:
    """Put into `settings` what a session begins with; returns it."""
    for each in preferences:
        if each.setting.begin is not None:
            each.setting.begin(settings, each.text)
    return settings


def prefer(preferences: Iterable[Preference], context: Context) -> None:
    """Apply the settings that a session does not begin with; those that it refuses are left out."""
    for each in preferences:
        if each.setting.begin is None:
            with contextlib.suppress(Refused):
                each.setting.assign(context, each.text)
        context.origins.setdefault(each.setting.name, each.where)

"""Sources of settings, by precedence: argument, environment, project's file, user's file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.errors import InvalidName, InvalidSetting
from penstock.setting_types import Setting
from penstock.settings_file import SettingsFile, refuse_untrusted
from penstock.store_url import StoreUrl

ARGUMENT = "argument"
DEFAULT = "default"


class SettingSources:
    """Everything that may set a setting, except the default."""

    def __init__(
        self, overrides: Mapping[str, Any], environ: Mapping[str, str], files: Sequence[SettingsFile]
    ) -> None:
        self._overrides = overrides
        self._environ = environ
        self._files = files

    def find(self, setting: Setting) -> tuple[str, Any]:
        """The source of a setting and its parsed value; of the default only the source."""
        if self._overrides.get(setting.name) is not None:
            return ARGUMENT, _read(setting, ARGUMENT, self._overrides[setting.name])
        for variable in (setting.env, *setting.aliases):
            if self._environ.get(variable):
                return variable, _read(setting, variable, self._environ[variable])
        values = [(file, file.values[setting.name]) for file in self._files if setting.name in file.values]
        if not values:
            return DEFAULT, None
        file, value = values[0]
        if file.kind == "project":
            # A value that something stronger replaces does no harm, and is not refused.
            weaker = values[1][1] if len(values) > 1 else setting.read_default()
            refuse_untrusted(file, setting, weaker, self._environ)
        return str(file.path), value


def refuse_unknown(overrides: Iterable[str], settings: Iterable[Setting]) -> None:
    known = [setting.name for setting in settings]
    for name in overrides:
        if name not in known:
            close = nearest_name(name, known)
            hint = f"; did you mean {close!r}?" if close else ""
            raise InvalidSetting(f"unknown setting {name!r}{hint}")


def nearest_name(name: str, known: Sequence[str]) -> str | None:
    """The known name that a misspelled one may mean."""
    import difflib

    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def _read(setting: Setting, source: str, given: object) -> object:
    try:
        return setting.read(given)
    except (ValueError, TypeError) as error:
        shown = StoreUrl(given).masked if setting.is_url and isinstance(given, str) else given
        where = f"{setting.name} (argument)" if source == ARGUMENT else source
        detail = f" ({error})" if isinstance(error, InvalidName) else ""
        raise InvalidSetting(f"{where} = {str(shown)[:200]!r}: expected {setting.allowed}{detail}") from None

"""Settings files: ``penstock.toml`` of the project and of the user, and trust in a project's file.

A project's file may come with a clone from a stranger. Without the user's trust it sets only what its
folder may decide: see ``Setting.project``. docs/decisions has the reasons.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from penstock.errors import InvalidSettingsFile, UntrustedSetting
from penstock.named_tuple import NamedTuple
from penstock.setting_types import Setting
from penstock.state_directory import absolute
from penstock.store_url import StoreUrl
from penstock.trust import LIST, digest_of, read_list, record, user_directory

NAME = "penstock.toml"
MAX_BYTES = 256 * 1024


class SettingsFile(NamedTuple):
    """A file that was read, with its parsed values by the name of the setting."""

    path: Path
    kind: Literal["project", "user"]
    values: Mapping[str, Any]
    content: bytes


class FilePlaces(NamedTuple):
    """Where settings files are, or would be."""

    project: Path | None
    """The nearest project file that belongs to this user or to root."""
    foreign: Path | None
    """A nearer one that belongs to another user, and is not read."""
    user: Path | None
    """The user's file, whether or not it exists; None without a home directory."""

    @property
    def trusted(self) -> Path | None:
        """The list of trusted project files."""
        return None if self.user is None else self.user.with_name(LIST)


def places(environ: Mapping[str, str], platform: str = sys.platform) -> FilePlaces:
    """Look for ``penstock.toml`` from the working directory upwards, and for the user's."""
    directory = user_directory(environ, platform)
    user = None if directory is None else directory / NAME
    foreign: Path | None = None
    try:
        here = Path.cwd()
        for found in (folder / NAME for folder in (here, *here.parents)):
            if found == user or not found.is_file():
                continue
            if _is_own(found):
                return FilePlaces(found, foreign, user)
            foreign = foreign or found
    except OSError:
        # The working directory was removed, or may not be read.
        return FilePlaces(None, None, user)
    return FilePlaces(None, foreign, user)


def _is_own(path: Path) -> bool:
    """Tell whether a file, and a link to the file, belong to this user or to root.

    Else another user could choose by a link in a shared folder which of this user's files is read.
    """
    return {path.stat().st_uid, path.lstat().st_uid} <= {os.geteuid(), 0}


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:
        # The directory is another user's, as that of root where a service runs with its environment.
        return False


# Reading.


def read_all(environ: Mapping[str, str], settings: Sequence[Setting]) -> list[SettingsFile]:
    """Read the project's and the user's file, where they exist: the stronger one first."""
    found = places(environ)
    files = []
    if found.project is not None:
        files.append(read(found.project, "project", settings, environ))
    if found.user is not None and _exists(found.user):
        files.append(read(found.user, "user", settings, environ))
    return files


def read(
    path: Path, kind: Literal["project", "user"], settings: Iterable[Setting], environ: Mapping[str, str]
) -> SettingsFile:
    """Read and check one file. Unknown keys and wrong values are refused, used or not."""
    import tomllib

    content = _content(path)
    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidSettingsFile(f"{path}: not valid TOML: {reason[:200]}") from None
    by_name = {setting.name: setting for setting in settings}
    values = {}
    for key, given in table.items():
        if key not in by_name:
            import difflib

            close = difflib.get_close_matches(key, by_name, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InvalidSettingsFile(f"{path}: unknown setting {key[:100]!r}{hint}")
        values[key] = _parsed(path, by_name[key], given, environ)
    return SettingsFile(path, kind, values, content)


def _content(path: Path) -> bytes:
    try:
        # Without waiting: a pipe put there since it was looked at has no writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidSettingsFile(f"{path}: not a regular file")
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidSettingsFile(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > MAX_BYTES:
        raise InvalidSettingsFile(f"{path}: larger than {MAX_BYTES:,} bytes")
    return content


def _parsed(path: Path, setting: Setting, given: Any, environ: Mapping[str, str]) -> Any:
    try:
        value = setting.read(given)
    except (ValueError, TypeError):
        value = None
    if not _same_kind(given, value):
        text = StoreUrl(given).masked if isinstance(given, str) and setting.is_url else given
        shown = f"{path}: {setting.name} = {str(text)[:200]!r}"
        raise InvalidSettingsFile(f"{shown}: expected {setting.allowed}{_quotes(given, value)}")
    if isinstance(value, tuple):
        return tuple(_anchored(setting, part, path.parent, environ) for part in value)
    return _anchored(setting, value, path.parent, environ) if isinstance(value, str) else value


def _same_kind(given: Any, value: Any) -> bool:
    """Compare types: in TOML a number is not a text. The text ``none`` means None."""
    if isinstance(given, bool) or isinstance(value, bool):
        return isinstance(given, bool) and isinstance(value, bool)
    if isinstance(given, str):
        return isinstance(value, str) or (value is None and given.strip().lower() == "none")
    if isinstance(given, Mapping):
        return isinstance(value, Mapping) and all(_same_kind(given[key], value[key]) for key in given)
    if isinstance(given, list):
        return isinstance(value, tuple)
    return isinstance(given, int | float) and value is not None


def _quotes(given: Any, value: Any) -> str:
    if not isinstance(given, str) or value is None:
        return ""
    return ", as a list" if isinstance(value, tuple) else ", without quotes"


def _anchored(setting: Setting, text: str, folder: Path, environ: Mapping[str, str]) -> str:
    """Make a relative path start at the folder of the file, wherever the command is run."""
    if setting.reads_paths:
        return str(absolute(text if text.startswith("~") else str(folder / text), environ))
    url = StoreUrl(text)
    if not setting.is_url or not url.is_file:
        return text
    start = "sqlite:///" if url.engine == "sqlite" else "jsonl://"
    path = text.removeprefix(start)
    relative = path and path != text and not path.startswith(("/", "~", ":"))
    return f"{start}{folder / path}" if relative else text


# Trust.


def refuse_untrusted(file: SettingsFile, setting: Setting, weaker: Any, environ: Mapping[str, str]) -> None:
    """Refuse a value that only a trusted project file may set. ``weaker`` is the value without the file."""
    value = file.values[setting.name]
    if setting.project == "any" or (setting.project == "lower" and value <= weaker):
        return
    if is_trusted(file, places(environ).trusted):
        return
    above = f" above {weaker:g}" if setting.project == "lower" else ""
    raise UntrustedSetting(
        f"{file.path} sets {setting.name}{above}, which only a project file that you trust may set",
        remedy="Read the file. If you trust it, run: penstock config trust. "
        f"Else set {setting.env} yourself, or run the command in another folder.",
    )


def set_trust(file: SettingsFile, trusted: Path, *, trust: bool) -> None:
    """Record, or with ``trust=False`` forget, that the user trusts this file with this content."""
    if trust and not _is_own(file.path):
        raise UntrustedSetting(
            f"{file.path} belongs to another user, and is not read", remedy="Copy it, or change its owner."
        )
    record(trusted, str(file.path), digest_of(file.content) if trust else None)


def is_trusted(file: SettingsFile, trusted: Path | None) -> bool:
    """Tell whether the user trusts this file with this content."""
    return trusted is not None and read_list(trusted).get(str(file.path)) == digest_of(file.content)

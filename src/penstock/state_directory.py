"""State directories, with the default queue and other files, and the user's list of what is trusted.

Settings files of projects and state directories are found from the current directory upwards, so both may
come with a clone or an archive. A list in the user's configuration directory has a digest for each trusted
path: of a settings file that of its content, of a state directory that of a random text inside, written
together with the list. A copy, a clone or a moved directory is not in it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import clock
from penstock.errors import (
    DiskFull,
    InvalidSetting,
    InvalidSettingsFile,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    UntrustedState,
)

if TYPE_CHECKING:
    from penstock.store_url import StoreUrl

LIST = "trusted.json"
TOKEN = "trust"
"""The file in a state directory with the text whose digest is in the list."""
IGNORE = ".gitignore"
"""Written beside it, so that no commit takes the state of a project along."""
_IGNORED = b"*\n"
_MOST_BYTES = 1 << 20


def user_directory(environ: Mapping[str, str], platform: str = sys.platform) -> Path | None:
    """The user's configuration directory; None without a home directory."""
    # The XDG specification asks to ignore a relative directory.
    if environ.get("XDG_CONFIG_HOME", "").startswith("/"):
        return Path(environ["XDG_CONFIG_HOME"]) / "penstock"
    if platform == "win32":
        return Path(environ["APPDATA"]) / "penstock" if environ.get("APPDATA") else None
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        return None
    return Path(home, "Library/Application Support" if platform == "darwin" else ".config", "penstock")


def _user_state(environ: Mapping[str, str]) -> str:
    """The user's own state directory, outside of projects; ``~`` is the home directory."""
    # The XDG specification asks to ignore a relative XDG_STATE_HOME.
    xdg = environ.get("XDG_STATE_HOME", "")
    return f"{xdg}/penstock" if xdg.startswith("/") else "~/.local/state/penstock"


def read_list(path: Path) -> dict[str, str]:
    """The digests by path."""
    import json

    try:
        known = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidSettingsFile(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        known = None
    if not isinstance(known, dict):
        raise InvalidSettingsFile(f"{path}: not a list of trusted files", remedy="Remove that file.")
    return known


def record(path: Path, trusted: str, digest: str | None) -> None:
    """Set the digest of a path in the list; None removes it."""
    with _locked(path):
        known = read_list(path)
        known.pop(trusted, None)
        _write(path, known if digest is None else {**known, trusted: digest})


def digest_of(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing the list: each would drop what the other has added."""
    import fcntl

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _not_written(path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write(path: Path, known: Mapping[str, str]) -> None:
    import json

    part = path.with_suffix(f".{os.getpid()}")
    try:
        part.touch(mode=0o600)
        part.write_text(json.dumps(known, indent=2), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> InvalidSettingsFile:
    return InvalidSettingsFile(f"{path}: cannot be written ({error.strerror})")


def _require_state(directory: Path, environ: Mapping[str, str]) -> None:
    """Raise ``UntrustedState`` unless this user has trusted the directory at this place.

    An empty one, made with ``mkdir``, holds nothing that could harm, and is trusted from now on.
    """
    listed = _trusted_list(environ)
    if listed is None:
        raise _untrusted(directory, "there is no home directory to keep a list of yours in")
    try:
        if _is_listed(directory, listed):
            return
        with _locked(listed):
            # Another process may have trusted it by now, or be about to.
            if _is_listed(directory, listed):
                return
            if not _is_empty(directory):
                raise _not_known(directory, _user_state(environ))
            _trust(directory, listed)
    except InvalidSettingsFile as error:
        raise _untrusted(directory, str(error)) from None


def trust_state(directory: Path, environ: Mapping[str, str], *, trust: bool = True) -> None:
    """Record, or with ``trust=False`` forget, that this state directory is the user's own."""
    listed = _trusted_list(environ)
    if listed is None:
        raise InvalidSettingsFile(
            "there is no home directory to record trust in", remedy="Set HOME, or name the directory: --state"
        )
    if directory.stat().st_uid != os.geteuid():
        raise UntrustedState(f"{directory} belongs to another user", directory, remedy=_NAME_IT)
    with _locked(listed):
        _trust(directory, listed, trust=trust)


def secret_of(directory: Path) -> bytes | None:
    """The random text of a state directory, which nobody knows who sends files into it; None without one."""
    return _token(directory)


def _trust(directory: Path, listed: Path, *, trust: bool = True) -> None:
    known = read_list(listed)
    named = known.pop(_name(directory), None)
    if trust:
        token = _token(directory)
        # A text that is in no list came with the directory: whoever put it there knows it.
        if token is None or digest_of(token) not in {named, *known.values()}:
            token = _new_token(directory)
        known[_name(directory)] = digest_of(token)
    _write(listed, known)


def _trusted_list(environ: Mapping[str, str]) -> Path | None:
    directory = user_directory(environ)
    return None if directory is None else directory / LIST


def _name(directory: Path) -> str:
    """The name in the list: another place of a link is another name, else a clone could bring a link."""
    return f"{os.path.realpath(directory.parent)}/{directory.name}/"


def _is_listed(directory: Path, listed: Path) -> bool:
    token = _token(directory)
    return token is not None and read_list(listed).get(_name(directory)) == digest_of(token)


def _token(directory: Path) -> bytes | None:
    return _content(directory / TOKEN) or None


def _content(path: Path) -> bytes | None:
    """The content of a small file; None without one, and for a link."""
    try:
        with os.fdopen(
            os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb"
        ) as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return None


def _new_token(directory: Path) -> bytes:
    token = clock.new_secret().encode()
    part = directory / f".{TOKEN}.{os.getpid()}"
    try:
        directory.chmod(0o700)
        _put(part, token)
        part.replace(directory / TOKEN)
        if not os.path.lexists(directory / IGNORE):
            _put(directory / IGNORE, _IGNORED)
    except OSError as error:
        raise UntrustedState(
            f"{directory} cannot be written ({error.strerror}), so that no trust can be recorded in it",
            directory,
            remedy=_NAME_IT,
        ) from None
    return token


def _put(path: Path, content: bytes) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)


def _is_empty(directory: Path) -> bool:
    try:
        # Where a link leads, and whose it is, a clone may have chosen.
        found = set() if directory.is_symlink() else {path.name for path in directory.iterdir()}
        # Another text, as `!*`, would let the next commit take along what comes into the directory.
        ignores = IGNORE not in found or _content(directory / IGNORE) == _IGNORED
        return not directory.is_symlink() and found <= {IGNORE, TOKEN} and ignores
    except OSError:
        return False


_NAME_IT = "Name the directory with --state, or in PENSTOCK_STATE."


def _untrusted(directory: Path, cause: str) -> UntrustedState:
    return UntrustedState(
        f"{directory} is used only if it is known as yours: {cause}", directory, remedy=_NAME_IT
    )


def _not_known(directory: Path, own: str) -> UntrustedState:
    # A shell expands ~ only without quotes.
    named = own if own.startswith("~") else shlex.quote(own)
    return UntrustedState(
        f"{directory} is not known as yours: it came with a clone, an archive or a copy, was moved, or an "
        "earlier version made it",
        directory,
        remedy=f"If it is yours, run: penstock config trust {shlex.quote(str(directory))}. "
        f"Else use your own: give --state {named} with the command, or set PENSTOCK_STATE={named}.",
    )


PROJECT_STATE = ".penstock"


def default_state(environ: Mapping[str, str]) -> str:
    """The project's own directory, else ``$XDG_STATE_HOME/penstock``, else one in the home directory.

    That of a project has to be known as the user's; see ``penstock.state_directory``.
    """
    own = _project_state()
    if own is not None:
        _require_state(own, environ)
        return str(own)
    return _user_state(environ)


def default_models(environ: Mapping[str, str]) -> str:
    """The directory of models, shared by all projects of a user: they are large and never change."""
    xdg = environ.get("XDG_DATA_HOME", "")
    return f"{xdg}/penstock/models" if xdg.startswith("/") else "~/.local/share/penstock/models"


def _project_state() -> Path | None:
    """The nearest ``.penstock`` upwards owned by this user; another user's, as in /tmp, is not trusted."""
    try:
        here = Path.cwd()
        for directory in (here, *here.parents):
            found = directory / PROJECT_STATE
            if found.is_dir() and found.stat().st_uid == os.geteuid():
                return found
    except OSError:
        # The working directory was removed, or may not be read.
        return None
    return None


def absolute(path: str, environ: Mapping[str, str]) -> Path:
    """The absolute directory with ``~`` expanded, fixed before the working directory can change."""
    if re.match(r"~(/|$)", path) and environ.get("HOME"):
        path = environ["HOME"] + path[1:]
    try:
        found = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - resolve() would follow links
        str(found).encode()
    except RuntimeError:
        raise InvalidSetting(f"PENSTOCK_STATE = {path!r}: there is no such home directory") from None
    except UnicodeEncodeError:
        # Stores are named by URLs, and rows name files: both are text.
        raise InvalidSetting(f"{path!r} in the settings: the name of a directory must be UTF-8") from None
    return found


def make_private(directory: Path) -> None:
    """Make a directory and the missing ones above it, for this account only.

    ``mkdir(mode=0o700, parents=True)`` makes those above with the mode of the process.
    """
    try:
        directory.mkdir(mode=0o700)
    except FileNotFoundError:
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        if not directory.is_dir():
            raise


def private_opener(path: str, flags: int) -> int:
    """The ``opener`` of a file that only this account may read."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write_refusal(path: Path, error: OSError) -> StoreError:
    """The error for a file or directory that the system refuses to write."""
    message = f"{path} cannot be written ({error.strerror or error})"
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return StoreDenied(message)
        case errno.EROFS:
            return StoreReadOnly(message)
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(message)
        case _:
            return StoreUnavailable(message, remedy="Choose a directory that can be used.")


def workers_directory(state_dir: Path, store: StoreUrl) -> Path:
    """The directory of a store's workers, where they find jobs of dead workers of the same store."""
    return state_dir / "workers" / hashlib.sha256(store.resolved.encode()).hexdigest()[:12]

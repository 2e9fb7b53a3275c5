"""Keys of the server, sessions of browsers, and the audit of what administrators do. Secrets are hashed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import logging
import os
import re
import shlex
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock, state_directory
from penstock.errors import (
    InvalidName,
    InvalidRequest,
    KeyExists,
    KeyRequired,
    PathNotFound,
    StateDamaged,
    StoreDenied,
    UnknownKey,
)
from penstock.pipeline.web import urls
from penstock.queue.payloads import validate_name
from penstock.service import paths
from penstock.service.access import SCOPES, KeyScope, Principal
from penstock.service.paths import real_path
from penstock.service.shares import RateLimit
from penstock.state_directory import make_private, write_refusal

_PREFIX = "penstock_"
KEYS_FILE = "keys.json"
MARK = "keys.made"
"""File beside it that stays when the last key, or the file of keys, is gone: requests still need one."""
_MARKED = b"A key was made here: a server of this directory answers only requests with a key.\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ABSENT = (0, 0, 0)


class _StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A stored key: ``hash`` is the SHA-256 of the text, which has 256 random bits.

    ``seal``: in a directory with a secret, proves that the key was made by who can read that; see ``seal``.
    """

    name: str
    scope: KeyScope
    tenants: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    created_at: datetime
    hash: str
    seal: str = ""


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is shown."""

    name: str
    scope: KeyScope
    tenants: tuple[str, ...]
    roots: tuple[str, ...]
    created_at: datetime


class NewKey(KeyView, frozen=True, kw_only=True):
    """A new key with the text, which is shown only once."""

    key: str


class Keys:
    """The keys of one state directory, of which only hashes are stored.

    Changes by other processes are seen at the next request.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / KEYS_FILE
        self._name = str(self._path)
        self._mark = state_dir / MARK
        self._mark_name = str(self._mark)
        self._made = False
        self._lock = threading.Lock()
        self._read_at: tuple[int, int, int] | None = None
        self._by_hash: dict[str, _StoredKey] = {}

    def create(
        self, name: str, scope: KeyScope, tenants: Sequence[str] = (), roots: Sequence[str] = ()
    ) -> NewKey:
        """Make a key and store its hash. ``roots``: see ``_root_of_key``."""
        if not _NAME.fullmatch(name):
            raise InvalidName(
                f"{name[:80]!a} cannot be the name of a key",
                remedy="Use a letter or digit and up to 63 more of these or . _ -.",
            )
        if scope not in SCOPES:
            raise InvalidRequest(f"scope: expected one of {', '.join(SCOPES)}, got {str(scope)[:80]!r}")
        own = tuple(dict.fromkeys(validate_name("tenant_id", tenant) for tenant in tenants))
        places = tuple(dict.fromkeys(map(_root_of_key, roots)))
        text = _PREFIX + clock.new_secret()
        made = _StoredKey(
            name=name,
            scope=scope,
            tenants=own,
            roots=places,
            created_at=clock.now(),
            hash=_hash_secret(text),
        )
        with self._changing() as keys:
            if any(key.name == name for key in keys):
                raise KeyExists(f"there is a key {name!r} already")
            keys.append(made)
        return NewKey(**_shown(made), key=text)

    def revoke(self, name: str) -> int:
        """Remove a key; servers refuse it from their next request on. Returns the number of keys left.

        Without any key left, servers refuse every request.
        """
        with self._changing() as keys:
            left = [key for key in keys if key.name != name]
            if len(left) == len(keys):
                raise UnknownKey(f"there is no key {name[:80]!r}")
            keys[:] = left
        return len(left)

    def all(self) -> list[KeyView]:
        """All keys, by name."""
        return [KeyView(**_shown(key)) for key in sorted(self._read(), key=lambda key: key.name)]

    def exist(self) -> bool:
        """Tell whether there is a key."""
        return bool(self._current())

    def ever_made(self) -> bool:
        """Tell whether a key was ever made: then every request needs one, also if none is left.

        Raises ``StateDamaged`` and ``StoreDenied`` for a file of keys that cannot be read.
        """
        self._current()
        if not self._made:
            self._made = os.path.lexists(self._mark_name)
        return self._made

    def find(self, text: str) -> Principal | None:
        """The owner of a key; None for an unknown one."""
        return self.owner(_hash_secret(text))

    def owner(self, key_hash: str) -> Principal | None:
        """The owner of the key with this hash; None for an unknown or revoked one."""
        found = self._current().get(key_hash)
        if found is None:
            return None
        return Principal(
            name=found.name, scope=found.scope, tenants=found.tenants, roots=found.roots, auth="key"
        )

    def _current(self) -> dict[str, _StoredKey]:
        """The keys by hash, read again when the file has changed."""
        try:
            info = os.stat(self._name)  # noqa: PTH116 - for every request, and a third of the price
            version = (info.st_ino, info.st_mtime_ns, info.st_size)
        except FileNotFoundError:
            version = _ABSENT
        except OSError as error:
            raise StoreDenied(f"{self._path} cannot be read ({error.strerror})") from None
        with self._lock:
            if version != self._read_at:
                self._by_hash = {key.hash: key for key in self._read()}
                self._read_at = version
                self._made = self._made or version != _ABSENT
            return self._by_hash

    def remember(self) -> None:
        """Leave the mark beside a file of keys from an earlier version, or from a backup."""
        if self.ever_made():
            self._leave_mark()

    def seal(self) -> None:
        """Take over the keys of a directory that became trusted.

        git replaces ignored files without a word, so a pull can bring a file of keys into a directory that is
        the user's own. There, only keys count that have a seal made with the directory's secret.
        """
        # A damaged file is refused wherever it is used.
        with contextlib.suppress(StateDamaged):
            if self._decoded():
                with self._changing(sealed=False):
                    pass

    def _leave_mark(self) -> None:
        if not os.path.lexists(self._mark):
            write_private(self._mark, _MARKED)

    def _read(self) -> list[_StoredKey]:
        """The keys. Raises ``StateDamaged`` for a key that came from elsewhere."""
        keys = self._decoded()
        secret = state_directory.secret_of(self._path.parent) if keys else None
        for key in keys:
            if secret is not None and not hmac.compare_digest(key.seal, _seal(key, secret)):
                raise StateDamaged(
                    f"{self._path} has the key {key.name[:80]!r}, which was not made in this directory",
                    remedy="Remove the file, and make new keys with `penstock keys create NAME`. Or, if you "
                    f"know all its keys: penstock config trust {shlex.quote(str(self._path.parent))}.",
                )
        return keys

    def _decoded(self) -> list[_StoredKey]:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreDenied(f"{self._path} cannot be read ({error.strerror})") from None
        try:
            return msgspec.json.decode(text, type=list[_StoredKey])
        except msgspec.DecodeError as error:
            raise StateDamaged(
                f"{self._path} is not a list of keys: {error}",
                remedy="Restore the file; or remove it, and make new keys with `penstock keys create NAME`.",
            ) from None

    @contextlib.contextmanager
    def _changing(self, *, sealed: bool = True) -> Iterator[list[_StoredKey]]:
        """Give the list for changes, and replace the file by the changed list.

        ``sealed``: refuse keys that came from elsewhere.
        """
        directory = self._path.parent
        try:
            make_private(directory)
            lock = os.open(directory / f"{KEYS_FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise write_refusal(directory, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = self._read() if sealed else self._decoded()
            yield keys
            secret = state_directory.secret_of(directory)
            if secret is not None:
                keys[:] = [msgspec.structs.replace(key, seal=_seal(key, secret)) for key in keys]
            # First: with a key but without the mark, a lost file would open the server.
            self._leave_mark()
            write_private(self._path, msgspec.json.format(msgspec.json.encode(keys)))
        finally:
            os.close(lock)


def write_private(path: Path, text: bytes) -> None:
    """Replace a file atomically by one with mode 0600."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise write_refusal(path, error) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise write_refusal(path, error) from None


def _hash_secret(text: str) -> str:
    """The stored form of a key or a session token: both have 256 random bits, so one round is enough."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _seal(key: _StoredKey, secret: bytes) -> str:
    """The proof that a key was made with the secret of its directory."""
    what = msgspec.json.encode([key.name, key.scope, key.tenants, key.roots, key.hash])
    return hmac.new(secret, what, "sha256").hexdigest()


def _shown(key: _StoredKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in KeyView.__struct_fields__}


def _root_of_key(given: str) -> str:
    """A root of a key as it is stored: the real path of a folder, or the address of a site."""
    if urls.is_web_url(given):
        site = urls.canonical(given)
        if site.rstrip("/") != urls.site_of(site):
            raise InvalidRequest(
                f"root: {given[:200]!r} is a part of a site, and links lead to all of it",
                remedy=f"Name the site: {urls.site_of(site)[:200]}.",
            )
        return urls.site_of(site)
    paths.refuse_unusable(given)
    real = real_path(str(Path(given).expanduser()))
    try:
        real.encode()
    except UnicodeEncodeError:
        raise PathNotFound(f"root: the name of {given[:200]!a} must be UTF-8") from None
    if not os.path.isdir(real):  # noqa: PTH112 - it never raises
        raise PathNotFound(f"root: {given[:200]!a} is not a directory")
    return real


_SESSIONS_FILE = "sessions.json"
LIFETIME = timedelta(days=7)
_MOST, MOST_PER_KEY = 1_000, 100
"""Sessions at the same time. For one more, the oldest one of its key ends; of the key with the most sessions,
if the key has fewer than its part."""
SIGN_INS = 60
"""Sessions of one key that begin in a minute: each waits for the disk."""
_MOST_LINES = 2_000
"""Lines after which the file is written anew."""


class _BrowserSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored."""

    token_hash: str
    key_hash: str
    ends_at: datetime


class Sessions:
    """The sessions of browsers: a cookie instead of a key, because ``EventSource`` cannot send a header.

    The file has the hashes of the tokens and of their keys, so that a session survives a restart of the
    server, and ends when its key is revoked. One server uses a state directory at a time, so the file has
    one writer.

    Its first line is the list of the sessions when the file was written, and each further line one that
    began or ended since. So a sign-in writes one line, however many sessions there are.
    """

    def __init__(self, state_dir: Path, keys: Keys) -> None:
        self._path = state_dir / _SESSIONS_FILE
        self._keys = keys
        self._lock = threading.Lock()
        self._rate = RateLimit(
            SIGN_INS, counted="sign-in", remedy="Use the cookie of an earlier session: it counts for 7 days."
        )
        self._by_token = {session.token_hash: session for session in self._read()}
        """The oldest first."""
        self._lines = _MOST_LINES
        """Lines of the file. The first change after a start writes it anew."""

    def begin(self, key: str) -> str:
        """Begin a session for a key; return its token. Raises ``KeyRequired`` for an unknown key."""
        owner = self._keys.find(key)
        if owner is None:
            raise KeyRequired("the key is not valid")
        self._rate.count(owner.name)
        token = clock.new_secret()
        session = _BrowserSession(
            token_hash=_hash_secret(token), key_hash=_hash_secret(key), ends_at=clock.now() + LIFETIME
        )
        with self._lock:
            self._change([*self._by_token.values(), session], session)
        return token

    def end(self, token: str) -> None:
        """End a session; an unknown one has ended already."""
        gone = _hash_secret(token)
        with self._lock:
            session = self._by_token.get(gone)
            if session is not None:
                left = [one for one in self._by_token.values() if one is not session]
                self._change(left, msgspec.structs.replace(session, ends_at=clock.now()))

    def find(self, token: str) -> Principal | None:
        """The owner of a session; None after its end, and after the end of its key."""
        session = self._by_token.get(_hash_secret(token))
        if session is None or session.ends_at <= clock.now():
            return None
        owner = self._keys.owner(session.key_hash)
        return None if owner is None else msgspec.structs.replace(owner, auth="session")

    def _change(self, sessions: list[_BrowserSession], changed: _BrowserSession) -> None:
        """Write the changed session to the file, then keep these sessions; without those that have ended."""
        now = clock.now()
        live = [one for one in sessions if one.ends_at > now and self._keys.owner(one.key_hash)]
        kept = _within_limits(live)
        if self._lines >= _MOST_LINES:
            write_private(self._path, msgspec.json.encode(kept) + b"\n")
            self._lines = 1
        else:
            too_many = {*live} - {*kept, changed}
            lines = [changed, *(msgspec.structs.replace(one, ends_at=now) for one in too_many)]
            self._append(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            self._lines += len(lines)
        self._by_token = {session.token_hash: session for session in kept}

    def _append(self, line: bytes) -> None:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            # A part of a line may be there, which nothing may follow.
            self._lines = _MOST_LINES
            raise write_refusal(self._path, error) from None

    def _read(self) -> list[_BrowserSession]:
        try:
            first, *others = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreDenied(f"{self._path} cannot be read ({error.strerror})") from None
        try:
            sessions = msgspec.json.decode(first, type=list[_BrowserSession])
            # What follows the last line break was cut by a crash, and its sign-in never answered.
            sessions += [msgspec.json.decode(line, type=_BrowserSession) for line in others[:-1]]
        except msgspec.DecodeError as error:
            raise StateDamaged(
                f"{self._path} is not a list of sessions: {error}",
                remedy="Remove the file; browsers then ask for the key again.",
            ) from None
        # The last line of a session counts.
        found = {session.token_hash: session for session in sessions}
        now = clock.now()
        return _within_limits([one for one in found.values() if one.ends_at > now])


def _within_limits(sessions: list[_BrowserSession]) -> list[_BrowserSession]:
    """The sessions without the oldest ones of keys with too many. ``sessions``: the oldest first."""
    counts = Counter(session.key_hash for session in sessions)
    too_many = {key: number - MOST_PER_KEY for key, number in counts.items() if number > MOST_PER_KEY}
    for _ in range(sum(min(number, MOST_PER_KEY) for number in counts.values()) - _MOST):
        largest = max(counts, key=lambda key: counts[key] - too_many.get(key, 0))
        too_many[largest] = too_many.get(largest, 0) + 1
    kept = []
    for session in sessions:
        if too_many.get(session.key_hash, 0) > 0:
            too_many[session.key_hash] -= 1
        else:
            kept.append(session)
    return kept


_AUDIT_FILE = "audit.jsonl"
log = logging.getLogger("penstock.audit")


class ActionLog:
    """The audit file: a line for each action of an administrator, with time, key, action and object."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / _AUDIT_FILE

    def record(self, by: str, action: str, **about: str | None) -> None:
        """Append one line. An action that was carried out is not undone when its line cannot be written."""
        named = {name: value for name, value in about.items() if value is not None}
        line = msgspec.json.encode({"at": clock.now(), "by": by, "action": action} | named)
        try:
            make_private(self._path.parent)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line + b"\n")
            finally:
                os.close(file)
        except OSError as error:
            log.error("%s cannot be written (%s): %s", self._path, error.strerror, line.decode())  # noqa: TRY400
            return
        log.info("%s by key %s: %s", action, by, named)

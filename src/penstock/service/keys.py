"""API keys of the server: made, listed, revoked and recognized. Only their hashes are stored."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import shlex
import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock, trust
from penstock.errors import InvalidName, InvalidRequest, KeyExists, StateDamaged, StoreDenied, UnknownKey
from penstock.items import validate_name
from penstock.service.access import SCOPES, KeyScope, Principal
from penstock.service.path_policy import root_of_key
from penstock.state_directory import make_private, write_refusal

PREFIX = "penstock_"
FILE = "keys.json"
MARK = "keys.made"
"""File beside it that stays when the last key, or the file of keys, is gone: requests still need one."""
_MARKED = b"A key was made here: a server of this directory answers only requests with a key.\n"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


_ABSENT = (0, 0, 0)


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
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
    """The keys of one state directory. Changes by other processes are seen at the next request."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE
        self._name = str(self._path)
        self._mark = state_dir / MARK
        self._mark_name = str(self._mark)
        self._made = False
        self._lock = threading.Lock()
        self._read_at: tuple[int, int, int] | None = None
        self._by_hash: dict[str, StoredKey] = {}

    def create(
        self, name: str, scope: KeyScope, tenants: Sequence[str] = (), roots: Sequence[str] = ()
    ) -> NewKey:
        """Make a key and store its hash. ``roots``: see ``path_policy.root_of_key``."""
        if not _NAME.fullmatch(name):
            raise InvalidName(
                f"{name[:80]!a} cannot be the name of a key",
                remedy="Use a letter or digit and up to 63 more of these or . _ -.",
            )
        if scope not in SCOPES:
            raise InvalidRequest(f"scope: expected one of {', '.join(SCOPES)}, got {str(scope)[:80]!r}")
        own = tuple(dict.fromkeys(validate_name("tenant_id", tenant) for tenant in tenants))
        places = tuple(dict.fromkeys(map(root_of_key, roots)))
        text = PREFIX + clock.new_secret()
        made = StoredKey(
            name=name,
            scope=scope,
            tenants=own,
            roots=places,
            created_at=clock.now(),
            hash=hash_secret(text),
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
        return self.owner(hash_secret(text))

    def owner(self, key_hash: str) -> Principal | None:
        """The owner of the key with this hash; None for an unknown or revoked one."""
        found = self._current().get(key_hash)
        if found is None:
            return None
        return Principal(
            name=found.name, scope=found.scope, tenants=found.tenants, roots=found.roots, auth="key"
        )

    def _current(self) -> dict[str, StoredKey]:
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

    def _read(self) -> list[StoredKey]:
        """The keys. Raises ``StateDamaged`` for a key that came from elsewhere."""
        keys = self._decoded()
        secret = trust.secret_of(self._path.parent) if keys else None
        for key in keys:
            if secret is not None and not hmac.compare_digest(key.seal, _seal(key, secret)):
                raise StateDamaged(
                    f"{self._path} has the key {key.name[:80]!r}, which was not made in this directory",
                    remedy="Remove the file, and make new keys with `penstock keys create NAME`. Or, if you "
                    f"know all its keys: penstock config trust {shlex.quote(str(self._path.parent))}.",
                )
        return keys

    def _decoded(self) -> list[StoredKey]:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreDenied(f"{self._path} cannot be read ({error.strerror})") from None
        try:
            return msgspec.json.decode(text, type=list[StoredKey])
        except msgspec.DecodeError as error:
            raise StateDamaged(
                f"{self._path} is not a list of keys: {error}",
                remedy="Restore the file; or remove it, and make new keys with `penstock keys create NAME`.",
            ) from None

    @contextlib.contextmanager
    def _changing(self, *, sealed: bool = True) -> Iterator[list[StoredKey]]:
        """Give the list for changes, and replace the file by the changed list.

        ``sealed``: refuse keys that came from elsewhere.
        """
        directory = self._path.parent
        try:
            make_private(directory)
            lock = os.open(directory / f"{FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise write_refusal(directory, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = self._read() if sealed else self._decoded()
            yield keys
            secret = trust.secret_of(directory)
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


def hash_secret(text: str) -> str:
    """The stored form of a key or a session token: both have 256 random bits, so one round is enough."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _seal(key: StoredKey, secret: bytes) -> str:
    """The proof that a key was made with the secret of its directory."""
    what = msgspec.json.encode([key.name, key.scope, key.tenants, key.roots, key.hash])
    return hmac.new(secret, what, "sha256").hexdigest()


def _shown(key: StoredKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in KeyView.__struct_fields__}

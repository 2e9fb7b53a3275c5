"""Sessions of browsers: a cookie instead of a key, because ``EventSource`` cannot send a header.

The file has the hashes of the tokens and of their keys, so that a session survives a restart of the server,
and ends when its key is revoked. One server uses a state directory at a time, so the file has one writer.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from penstock import clock
from penstock.errors import KeyRequired, StateDamaged, StoreDenied
from penstock.service.access import Principal
from penstock.service.keys import Keys, hash_secret, write_private

FILE = "sessions.json"
LIFETIME = timedelta(days=7)
MOST = 1_000
"""Sessions at the same time; the oldest one ends for a new one."""


class BrowserSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored."""

    token_hash: str
    key_hash: str
    ends_at: datetime


class Sessions:
    """The sessions of one server."""

    def __init__(self, state_dir: Path, keys: Keys) -> None:
        self._path = state_dir / FILE
        self._keys = keys
        self._lock = threading.Lock()
        self._by_token = {session.token_hash: session for session in self._read()}

    def begin(self, key: str) -> str:
        """Begin a session for a key; return its token. Raises ``KeyRequired`` for an unknown key."""
        if self._keys.find(key) is None:
            raise KeyRequired("the key is not valid")
        token = clock.new_secret()
        session = BrowserSession(
            token_hash=hash_secret(token), key_hash=hash_secret(key), ends_at=clock.now() + LIFETIME
        )
        with self._lock:
            self._write([*self._by_token.values(), session])
        return token

    def end(self, token: str) -> None:
        """End a session; an unknown one has ended already."""
        gone = hash_secret(token)
        with self._lock:
            if gone in self._by_token:
                self._write([one for one in self._by_token.values() if one.token_hash != gone])

    def find(self, token: str) -> Principal | None:
        """The owner of a session; None after its end, and after the end of its key."""
        session = self._by_token.get(hash_secret(token))
        if session is None or session.ends_at <= clock.now():
            return None
        owner = self._keys.owner(session.key_hash)
        return None if owner is None else msgspec.structs.replace(owner, auth="session")

    def _write(self, sessions: list[BrowserSession]) -> None:
        """Replace the file, then the sessions in memory; without those that have ended."""
        now = clock.now()
        kept = [one for one in sessions if one.ends_at > now and self._keys.owner(one.key_hash)][-MOST:]
        write_private(self._path, msgspec.json.encode(kept))
        self._by_token = {session.token_hash: session for session in kept}

    def _read(self) -> list[BrowserSession]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[BrowserSession])
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreDenied(f"{self._path} cannot be read ({error.strerror})") from None
        except msgspec.DecodeError as error:
            raise StateDamaged(
                f"{self._path} is not a list of sessions: {error}",
                remedy="Remove the file; browsers then ask for the key again.",
            ) from None

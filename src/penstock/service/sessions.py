"""Sessions of browsers: a cookie instead of a key, because ``EventSource`` cannot send a header.

The file has the hashes of the tokens and of their keys, so that a session survives a restart of the server,
and ends when its key is revoked. One server uses a state directory at a time, so the file has one writer.

Its first line is the list of the sessions when the file was written, and each further line one that began or
ended since. So a sign-in writes one line, however many sessions there are.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from penstock import clock
from penstock.errors import KeyRequired, StateDamaged, StoreDenied
from penstock.service.access import Principal
from penstock.service.keys import Keys, hash_secret, write_private
from penstock.service.rate_limit import RateLimit
from penstock.state_directory import write_refusal

FILE = "sessions.json"
LIFETIME = timedelta(days=7)
MOST, MOST_PER_KEY = 1_000, 100
"""Sessions at the same time. For one more, the oldest one of its key ends; of the key with the most sessions,
if the key has fewer than its part."""
SIGN_INS = 60
"""Sessions of one key that begin in a minute: each waits for the disk."""
MOST_LINES = 2_000
"""Lines after which the file is written anew."""


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
        self._rate = RateLimit(
            SIGN_INS, counted="sign-in", remedy="Use the cookie of an earlier session: it counts for 7 days."
        )
        self._by_token = {session.token_hash: session for session in self._read()}
        """The oldest first."""
        self._lines = MOST_LINES
        """Lines of the file. The first change after a start writes it anew."""

    def begin(self, key: str) -> str:
        """Begin a session for a key; return its token. Raises ``KeyRequired`` for an unknown key."""
        owner = self._keys.find(key)
        if owner is None:
            raise KeyRequired("the key is not valid")
        self._rate.count(owner.name)
        token = clock.new_secret()
        session = BrowserSession(
            token_hash=hash_secret(token), key_hash=hash_secret(key), ends_at=clock.now() + LIFETIME
        )
        with self._lock:
            self._change([*self._by_token.values(), session], session)
        return token

    def end(self, token: str) -> None:
        """End a session; an unknown one has ended already."""
        gone = hash_secret(token)
        with self._lock:
            session = self._by_token.get(gone)
            if session is not None:
                left = [one for one in self._by_token.values() if one is not session]
                self._change(left, msgspec.structs.replace(session, ends_at=clock.now()))

    def find(self, token: str) -> Principal | None:
        """The owner of a session; None after its end, and after the end of its key."""
        session = self._by_token.get(hash_secret(token))
        if session is None or session.ends_at <= clock.now():
            return None
        owner = self._keys.owner(session.key_hash)
        return None if owner is None else msgspec.structs.replace(owner, auth="session")

    def _change(self, sessions: list[BrowserSession], changed: BrowserSession) -> None:
        """Write the changed session to the file, then keep these sessions; without those that have ended."""
        now = clock.now()
        live = [one for one in sessions if one.ends_at > now and self._keys.owner(one.key_hash)]
        kept = _within_limits(live)
        if self._lines >= MOST_LINES:
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
            self._lines = MOST_LINES
            raise write_refusal(self._path, error) from None

    def _read(self) -> list[BrowserSession]:
        try:
            first, *others = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreDenied(f"{self._path} cannot be read ({error.strerror})") from None
        try:
            sessions = msgspec.json.decode(first, type=list[BrowserSession])
            # What follows the last line break was cut by a crash, and its sign-in never answered.
            sessions += [msgspec.json.decode(line, type=BrowserSession) for line in others[:-1]]
        except msgspec.DecodeError as error:
            raise StateDamaged(
                f"{self._path} is not a list of sessions: {error}",
                remedy="Remove the file; browsers then ask for the key again.",
            ) from None
        # The last line of a session counts.
        found = {session.token_hash: session for session in sessions}
        now = clock.now()
        return _within_limits([one for one in found.values() if one.ends_at > now])


def _within_limits(sessions: list[BrowserSession]) -> list[BrowserSession]:
    """The sessions without the oldest ones of keys with too many. ``sessions``: the oldest first."""
    counts = Counter(session.key_hash for session in sessions)
    too_many = {key: number - MOST_PER_KEY for key, number in counts.items() if number > MOST_PER_KEY}
    for _ in range(sum(min(number, MOST_PER_KEY) for number in counts.values()) - MOST):
        largest = max(counts, key=lambda key: counts[key] - too_many.get(key, 0))
        too_many[largest] = too_many.get(largest, 0) + 1
    kept = []
    for session in sessions:
        if too_many.get(session.key_hash, 0) > 0:
            too_many[session.key_hash] -= 1
        else:
            kept.append(session)
    return kept

"""Connection to one Redis server, its checks, and its change notifications.

Driver errors are translated to Penstock errors.
"""

from __future__ import annotations

import codecs
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import TIMEOUT_MAX
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from weakref import WeakSet

import redis
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.retry import Retry

from penstock.errors import (
    DiskFull,
    InvalidSetting,
    RestoreUnfinished,
    SchemaMismatch,
    StateDamaged,
    StatementRefused,
    StoreDenied,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from penstock.queue.redis import codec
from penstock.queue.redis.scripts import script
from penstock.store_url import ENCODE_PASSWORD

_DEFAULT_NAME = "penstock"
_CONNECT_TIMEOUT_S = 5.0
_FEW_CONNECTIONS = 10
"""Up to so many max_connections in the URL, every connection goes back to the driver's pool."""

_NO_TEXT = ("decode_responses", "credential_provider", "retry_on_error", "event_dispatcher", "command_packer")
"""Options of the driver whose value in a URL is of the wrong type, or that this module cannot work with."""
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Server:
    """A Redis server, and the name of a queue."""

    def __init__(self, url: str, *, timeout_s: float = 60, whole: bool = False) -> None:
        """``whole``: the label names only the server, no queue."""
        address, self.name = _split(url)
        self.prefix = f"penstock:{{{self.name}}}:"
        self._marker = self.prefix + "format"
        self._address = address
        self._timeout_s = timeout_s
        self._client: Any = self._connect()
        self._kept: list[Any] = []
        self.departures = 0
        """Number of times that the connections were left for new ones."""
        options = self._client.connection_pool.connection_kwargs
        place = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        self.label = f"redis://{place}/{options.get('db', 0)}" + ("" if whole else f" (queue {self.name})")

    def _connect(self) -> redis.Redis:
        try:
            client = redis.Redis.from_url(
                self._address,
                protocol=2,
                socket_timeout=self._timeout_s,
                socket_connect_timeout=min(self._timeout_s, _CONNECT_TIMEOUT_S),
                # No retries here: a call whose answer was lost may have taken effect.
                retry=Retry(NoBackoff(), 0),
                client_name="penstock",
            )
            # The driver checks options only when it connects first, which is too late.
            pool = client.connection_pool
            pool.connection_class(**pool.connection_kwargs)
            _refuse_options(pool.connection_kwargs)
        except (ValueError, TypeError, AttributeError, LookupError, redis.exceptions.RedisError):
            raise _invalid_url() from None
        return client

    def key(self, name: str) -> str:
        return self.prefix + name

    def call(self, *command: Any) -> Any:
        with self._translating_errors():
            return self._client.execute_command(*command)

    def calls(self, commands: Sequence[Sequence[Any]], *, together: bool = False) -> list[Any]:
        """Run several commands in one round trip; ``together``: as one MULTI, all or none."""
        if not commands:
            return []
        with self._translating_errors(), self._client.pipeline(transaction=together) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = pipeline.execute()
            return answers

    def run(self, name: str, request: bytes | str, now: int = 0) -> Any:
        """Run a script; the source is sent only if the server does not know the script."""
        source, sha = script(name)
        arguments = (1, self._marker, now or "", request)
        with self._translating_errors():
            try:
                return self._execute("EVALSHA", sha, *arguments)
            except redis.exceptions.NoScriptError:
                return self._execute("EVAL", source, *arguments)

    def _execute(self, *command: Any) -> Any:
        """Send a command without the driver's retries, metrics and pool, which cost more than the rest."""
        pool = self._client.connection_pool
        connection = self._take_kept() or pool.get_connection()
        try:
            connection.send_command(*command)
            answer = connection.read_response()
        except BaseException as error:
            if not isinstance(error, redis.exceptions.ResponseError):
                connection.disconnect()  # the answer is still to come
            pool.release(connection)
            raise
        if self._kept or pool.max_connections <= _FEW_CONNECTIONS:
            pool.release(connection)
        else:
            self._kept.append(connection)
        return answer

    def _take_kept(self) -> Any:
        """Return the connection that the last command left, or None if there is none that still works."""
        try:
            connection = self._kept.pop()
        except IndexError:
            return None  # another thread has it
        with suppress(redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError):
            # As the pool does: something to read is the end of the connection, or an answer left unread.
            if not connection.can_read():
                return connection
        connection.disconnect()
        self._client.connection_pool.release(connection)
        return None

    def subscribe(self, channel: str) -> PubSub:
        """Open a connection subscribed to a channel."""
        with self._translating_errors():
            listener: PubSub = self._client.pubsub()
            listener.subscribe(self.key(channel))
            if listener.get_message(timeout=self._timeout_s) is None:
                raise redis.exceptions.TimeoutError("no answer to SUBSCRIBE")
            return listener

    def next_message(self, listener: PubSub, timeout: float) -> bytes | None:
        """Return the next message, or None after the timeout."""
        with self._translating_errors():
            message = listener.get_message(ignore_subscribe_messages=True, timeout=timeout)
        data: bytes | None = message["data"] if message else None
        return data

    def close(self) -> None:
        for connection in self._kept:
            self._client.connection_pool.release(connection)
        self._kept = []
        self._client.close()

    def after_fork(self) -> None:
        # The parent keeps its connections; this process opens new ones on demand.
        self._client, self._kept = self._connect(), []

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except _DRIVER_ERRORS as error:
            translated = translate_error(error, self.label)
            if isinstance(translated, StoreReadOnly | StoreDenied):
                self._leave_connections()
            raise translated from error

    def _leave_connections(self) -> None:
        """Connect anew: after a failover the address leads elsewhere, and the new primary is there."""
        self.departures += 1
        while self._kept:
            with suppress(IndexError):
                connection = self._kept.pop()
                connection.disconnect()
                self._client.connection_pool.release(connection)
        self._client.connection_pool.disconnect(inuse_connections=False)

    def prepare(self, *, restoring: bool = False) -> None:
        """Write the format of the queue, if missing, and refuse an unknown one.

        ``restoring``: a queue whose restore was not finished is not refused.
        """
        self.refuse_old()
        self._refuse_foreign()
        written = self.call("GET", self.key("format"))
        if written is None:
            first = [*self._first_keys(), ("SET", self.key("format"), _FORMAT, "NX")]
            self.run("commands", codec.encode(first))
            written = self.call("GET", self.key("format"))
        if not (restoring and written == _RESTORING):
            self._refuse_unknown(written)

    def _first_keys(self) -> list[tuple[object, ...]]:
        return [
            ("HSET", self.key("locks"), _LARGE, ""),
            ("HSET", self.key("keys"), _LARGE, ""),
            ("ZADD", self.key("lease"), "+inf", _LARGE),
        ]

    def begin_restore(self) -> None:
        """Mark the queue as unfinished, then delete all keys but the mark."""
        marker = self.key("format").encode()
        self.call("SET", marker, _RESTORING)
        cursor = b"0"
        pattern = _GLOB.sub(r"\\\g<0>", self.prefix) + "*"
        while True:
            cursor, found = self.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1_000)
            found = [key for key in found if key != marker]
            if found:
                self.call("UNLINK", *found)
            if int(cursor) == 0:
                break
        self.run("commands", codec.encode(self._first_keys()))

    def end_restore(self) -> None:
        """Replace the mark by the format: the queue can be opened."""
        self.call("SET", self.key("format"), _FORMAT)

    def is_marked(self) -> bool:
        """Check whether a restore of the queue was not finished."""
        return bool(self.call("GET", self.key("format")) == _RESTORING)

    def warnings(self) -> list[str]:
        """Check the format of the queue, then list settings of the server which could lose jobs.

        The format is missing after FLUSHALL under an open queue, which goes on with new jobs.
        """
        written = self.call("GET", self.key("format"))
        if written is None:
            return [f"{self.label} was emptied while it was open: its jobs are gone", *self.find_risks()]
        self._refuse_unknown(written)
        return self.find_risks()

    def find_risks(self) -> list[str]:
        """List settings of the server which could lose jobs. The server need not hold a queue."""
        info = self._info("persistence") | self._info("memory") | self._info("replication")
        if info.get("role") == "slave":
            raise StoreReadOnly(
                f"{self.label} is a replica that cannot be written",
                remedy="Point the URL at the primary self.",
            )
        found = []
        if info.get("aof_enabled") == "0":
            found.append(f"{self.label} would lose its newest jobs in a crash: set appendonly yes")
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            found.append(f"{self.label} may throw jobs away ({policy}): set maxmemory-policy noeviction")
        return found

    def _info(self, section: str) -> dict[str, str]:
        answer = self.call("INFO", section)
        if isinstance(answer, dict):
            return {str(name): str(value) for name, value in answer.items()}
        lines = answer.decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def refuse_old(self) -> None:
        version = self._info("server").get("redis_version", "")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if numbers < _OLDEST:
            raise StoreUnavailable(
                f"{self.label} is Redis {version or 'of an unknown version'}; Penstock needs 6.2 or newer",
                remedy="Upgrade the server, or use another store.",
            )

    def _refuse_foreign(self) -> None:
        expected = [(name, kind) for kind, names in _TYPES.items() for name in names.split()]
        answers = self.calls([("TYPE", self.key(name)) for name, _ in expected])
        for (name, kind), answer in zip(expected, answers, strict=True):
            found = answer.decode() if isinstance(answer, bytes) else str(answer)
            if found not in ("none", kind):
                raise StateDamaged(
                    f"{self.label}: {self.key(name)} is a {found}, not a {kind}",
                    remedy="Choose another name= in the URL, or remove the foreign key.",
                )

    def _refuse_unknown(self, written: bytes | None) -> None:
        if written == _RESTORING:
            raise RestoreUnfinished(f"{self.label} was being restored, and the restore did not finish")
        text = "" if written is None else written.decode(errors="replace")
        if not text.isdigit():
            raise SchemaMismatch(f"{self.label} is not a Penstock queue (format {text[:20]!r})")
        if int(text) != _FORMAT:
            raise SchemaMismatch(f"{self.label} has format {text}, this version knows only {_FORMAT}")


def _split(url: str) -> tuple[str, str]:
    """Split a URL into the URL for the driver and the name of the queue."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _invalid_url() from None
    if "@" not in parts.netloc and any(
        "@" in option and "=" not in option for option in parts.query.split("&")
    ):
        raise _invalid_url()  # a password with a question mark in it
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise _invalid_url()  # the driver would take database 0
    options = parse_qsl(parts.query, keep_blank_values=True)
    names = [value for key, value in options if key == "name"] or [_DEFAULT_NAME]
    if len(names) > 1 or not _NAME.fullmatch(names[0]):
        raise InvalidSetting(
            f"name={names[-1][:100]!r} in the redis:// URL: expected 1 to 64 letters, digits, . _ : or -"
        )
    rest = urlencode([(key, value) for key, value in options if key != "name"])
    # Not with urlunsplit, which turns unix:///path into unix:/path.
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{rest}" if rest else ""), names[0]


def _refuse_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError for options of the URL that the driver takes, and fails on later."""
    if any(name in options for name in _NO_TEXT):
        raise ValueError
    if codecs.lookup(options.get("encoding", "utf-8")).name != "utf-8":
        raise ValueError
    codecs.lookup_error(options.get("encoding_errors", "strict"))
    if not isinstance(options["retry"], Retry):
        raise ValueError
    if not all(0 <= options[name] <= TIMEOUT_MAX for name in ("socket_timeout", "socket_connect_timeout")):
        raise ValueError


def _invalid_url() -> InvalidSetting:
    return InvalidSetting(
        "the redis:// URL cannot be understood",
        remedy=f"Write redis://[USER:PASSWORD@]HOST[:PORT]/DB?name=QUEUE. {ENCODE_PASSWORD}",
    )


_DENIED = (
    "Check user and password in the URL, and what the server's ACL allows that user (docs/guides/redis.md)."
)
_KNOWN: tuple[tuple[str, type[StoreError], str, str | None], ...] = (
    ("WRONGPASS|NOAUTH|invalid password|invalid username", StoreDenied, "refuses the login", _DENIED),
    ("NOPERM|no permissions|can't run this command", StoreDenied, "refuses this user a command", _DENIED),
    ("OOM ", DiskFull, "has no memory left", "Raise maxmemory of the server, or purge ended jobs."),
    (
        "READONLY",
        StoreReadOnly,
        "is a replica that cannot be written",
        "Point the URL at the primary server.",
    ),
    (
        "MISCONF.*No space|No space left",
        DiskFull,
        "cannot save to its disk",
        "Free space on the server's disk, then try again.",
    ),
    ("MISCONF", StoreUnavailable, "cannot save to its disk", "Look into the server's log for the reason."),
    ("LOADING", StoreUnavailable, "is still loading its data", "Try again when it has started."),
    (
        "MOVED|ASK |CROSSSLOT|CLUSTERDOWN",
        StoreUnavailable,
        "is a cluster node that does not hold this queue",
        "Point the URL at the node that holds it: CLUSTER KEYSLOT and CLUSTER NODES tell which.",
    ),
    ("MASTERDOWN|NOREPLICAS", StoreUnavailable, "lost its primary or its replicas", None),
    (
        "BUSY|UNKILLABLE",
        StoreUnavailable,
        "is busy with another script",
        "Try again; SCRIPT KILL ends a script that hangs.",
    ),
    ("max number of clients", StoreUnavailable, "has no connection left", "Raise maxclients of the server."),
    ("EXECABORT", StoreUnavailable, "discarded a transaction", "Look into the server's log for the reason."),
    (
        "WRONGTYPE",
        SchemaMismatch,
        "has a foreign key in the queue's place",
        "Choose another name= in the URL, or remove the foreign key.",
    ),
)


# Not all of them are a RedisError.
_DRIVER_ERRORS: tuple[type[Exception], ...] = (
    *(
        found
        for found in vars(redis.exceptions).values()
        if isinstance(found, type) and issubclass(found, Exception)
    ),
    OSError,
)

_CODES: dict[type[Exception], str] = {
    redis.exceptions.OutOfMemoryError: "OOM ",
    redis.exceptions.ReadOnlyError: "READONLY",
    redis.exceptions.NoPermissionError: "NOPERM",
    redis.exceptions.BusyLoadingError: "LOADING",
    redis.exceptions.AskError: "ASK ",
    redis.exceptions.MovedError: "MOVED",
    redis.exceptions.TryAgainError: "CROSSSLOT",
    redis.exceptions.ClusterCrossSlotError: "CROSSSLOT",
    redis.exceptions.ClusterDownError: "CLUSTERDOWN",
    redis.exceptions.MasterDownError: "MASTERDOWN",
    redis.exceptions.ExecAbortError: "EXECABORT",
}
"""Error codes of the server. The driver removes the code from the text if it has a class for it."""


_BY_TYPE: tuple[tuple[tuple[type[Exception], ...], type[StoreError]], ...] = (
    ((redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError), StoreDenied),
    # Nothing of the server's own: the connection broke, or there was nonsense on it.
    ((redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError), StoreUnavailable),
    ((redis.exceptions.InvalidResponse, redis.exceptions.ChildDeadlockedError), StoreUnavailable),
    ((redis.exceptions.ClusterError, redis.exceptions.RedisClusterException), StoreUnavailable),
)


def translate_error(error: Exception, label: str) -> StoreError:
    """Translate an error of the driver, of whatever class, to a Penstock error."""
    full = " ".join(str(error).split())
    # The driver puts the command it sent before the answer.
    text = _CODES.get(type(error), "") + (full.partition(" of pipeline caused error: ")[2] or full)
    for pattern, error_class, what, remedy in _KNOWN:
        if re.search(pattern, text):
            return error_class(f"{label} {what}", remedy=remedy)
    kind = next((kind for types, kind in _BY_TYPE if isinstance(error, types)), StatementRefused)
    if kind is StoreDenied:
        return StoreDenied(f"{label} refuses the login", remedy=_DENIED)
    if kind is StatementRefused:
        return StatementRefused(f"{label} refused a command: {text[:300]}")
    return kind(f"{label}: {text[:300]}")


_FORMAT = 2
_RESTORING = b"restoring"
"""Stands for the format while the queue is restored."""
_GLOB = re.compile(r"[][*?\\^-]")
_OLDEST = (6, 2)

_TYPES = {
    "zset": "all live failed cancelled ready paused lockers limiters later backoff lease waiting awaited "
    "next results ended:done ended:failed ended:cancelled",
    "hash": "locks keys counts backlog pauses workers schedules limits",
    "string": "format version",
}
"""Keys of every queue by type. Checked before the first write, as a script cannot be rolled back."""


_LARGE = "-" * 65
"""A member too long for the compact form of small hashes and zsets, in which each access is a linear search.
No id, key or lock has this value."""


_CHECK_EVERY_S = 15.0
"""Seconds between reads of the version counter: a dead connection may go unnoticed on both ends."""


class Subscriptions:
    """Change notifications: one subscription for each waiting thread of this process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.after_fork()

    def wait(self, timeout: float) -> bool:
        subscription: _Subscription | None = getattr(self._local, "subscription", None)
        if subscription is None:
            subscription = self._local.subscription = _Subscription(self._server)
            with self._lock:
                self._all.add(subscription)
        return subscription.wait(timeout)

    def close(self) -> None:
        with self._lock:
            subscriptions = list(self._all)
        for subscription in subscriptions:
            subscription.close()

    def after_fork(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: WeakSet[_Subscription] = WeakSet()


class _Subscription:
    """Reports each new version once. Subscribes before the first read, so no change is missed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener: PubSub | None = None
        self._seen = -1
        self._checked_at = 0.0
        self._departures = 0

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self._wait(deadline)
            except StoreError:
                # Notifications may be lost: subscribe again and read the version, unless the server is away.
                if self._listener is None:
                    raise
                self.close()

    def _wait(self, deadline: float) -> bool:
        if self._departures != self._server.departures:
            self.close()
        listener = self._listener
        if listener is None:
            self._departures = self._server.departures
            listener = self._server.subscribe("news")
            self._listener, self._checked_at = listener, 0.0
        while True:
            now = time.monotonic()
            if now - self._checked_at >= _CHECK_EVERY_S:
                self._checked_at = now
                version = int(self._server.call("GET", self._server.key("version")) or 0)
                # Also if the version is lower than before: the server may have lost its data.
                changed = version != self._seen
            else:
                left = max(0.0, min(deadline, self._checked_at + _CHECK_EVERY_S) - now)
                message = self._server.next_message(listener, left)
                version = self._seen if message is None else int(message)
                changed = version > self._seen
            if changed:
                self._seen = version
                self._skip_old(listener)
                return True
            if time.monotonic() >= deadline:
                return False

    def _skip_old(self, listener: PubSub) -> None:
        """Skip older notifications: all changes up to now count as one."""
        while (version := self._server.next_message(listener, 0)) is not None:
            self._seen = max(self._seen, int(version))

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

"""Store URLs: engine, path of the file, and the URL without its password."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

from penstock.errors import InvalidSetting

Engine: TypeAlias = Literal["memory", "sqlite", "jsonl", "postgres", "redis"]

_ENGINES: Final[dict[str, Engine]] = {
    "memory": "memory",
    "sqlite": "sqlite",
    "jsonl": "jsonl",
    "postgresql": "postgres",
    "postgres": "postgres",
    "redis": "redis",
    "rediss": "redis",
}
MASK = "***"
ENCODE_PASSWORD = (
    "Percent-encode special characters of the password: @ is %40, / is %2F, ? is %3F, # is %23, : is %3A."
)


class StoreUrl(msgspec.Struct, frozen=True):
    """The URL of a queue, a catalog or a Redis server. ``text`` may hold a password, ``masked`` does not."""

    text: str

    def __repr__(self) -> str:
        return "StoreUrl()"

    @property
    def scheme(self) -> str:
        """The part before ``://``, or nothing."""
        scheme, separator, _ = self.text.partition("://")
        return scheme if separator else ""

    @property
    def rest(self) -> str:
        """The part after ``://``."""
        return self.text.partition("://")[2]

    @property
    def engine(self) -> Engine | None:
        """The engine of the store; None where the scheme belongs to none."""
        return _ENGINES.get(self.scheme)

    @property
    def is_file(self) -> bool:
        """True where the store is a file or directory of this host."""
        return self.engine in ("sqlite", "jsonl")

    @property
    def many_hosts(self) -> bool:
        """True where the store is a server for processes on many hosts."""
        return self.engine in ("postgres", "redis")

    @property
    def is_redis_server(self) -> bool:
        """True for a Redis server, by network or by a Unix socket, which a queue cannot use."""
        return self.engine == "redis" or self.scheme == "unix"

    @property
    def path(self) -> Path:
        """The absolute path of the SQLite file or JSONL directory; a URL without a path is refused."""
        return _sqlite_path(self) if self.engine == "sqlite" else _jsonl_path(self)

    @property
    def resolved(self) -> str:
        """The URL with an absolute path and links followed, so that all spellings of a store are equal."""
        if self.engine == "sqlite":
            return f"sqlite:///{self.path.resolve()}"
        return f"jsonl://{self.path.resolve()}" if self.engine == "jsonl" else self.text

    # Passwords.

    @property
    def masked(self) -> str:
        """The URL with ``***`` in place of the password and of passwords in the query.

        Where the end of the password is not clear, everything that may belong to it is replaced.
        """
        start, end = _password_span(self.text)
        shown = self.text[:start] + (MASK if end > start else "") + self.text[end:]
        return re.sub(_SECRET_OPTION, rf"\1{MASK}", shown)

    def mask_in(self, text: str) -> str:
        """Remove the URL's password and its parts from a text such as a driver's error message."""
        start, end = _password_span(self.text)
        secrets = [self.text[start:end], *re.split(r"[@/?#:]", self.text[start:end])]
        secrets += [found[2] for found in re.finditer(_SECRET_OPTION, self.text)]
        text = text.replace(self.text, self.masked)
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, MASK)
        return text

    # PostgreSQL.

    def split_schema(self) -> tuple[str, str | None]:
        """Split off ``?schema=NAME``, which libpq does not know: the URL for libpq, and the schema."""
        address, question, query = self.text.rpartition("?")
        if not question:
            return self.text, None
        parts = [part for part in query.split("&") if part]
        names = [unquote(part.partition("=")[2]) for part in parts if part.partition("=")[0] == "schema"]
        if not names:
            return self.text, None
        if len(names) > 1 or not re.fullmatch(_SCHEMA_NAME, names[0]):
            raise InvalidSetting(
                f"schema={names[-1][:100]!r} in the postgresql:// URL is not a name that can be used",
                remedy="Write ?schema=NAME once: up to 63 lower-case letters, digits, _; no digit or pg_ "
                "first.",
            )
        rest = "&".join(part for part in parts if part.partition("=")[0] != "schema")
        return address + (f"?{rest}" if rest else ""), names[0]


def _sqlite_path(url: StoreUrl) -> Path:
    name = url.rest.removeprefix("/")
    if not url.rest.startswith("/") or not name or name.endswith("/"):
        raise InvalidSetting(
            f"{url.masked[:100]}: expected a file after three slashes",
            remedy="Write sqlite:///queue.db, or sqlite:////srv/queue.db for an absolute path.",
        )
    if name.startswith(":memory:"):
        raise InvalidSetting("sqlite:///:memory: is not a file", remedy="Use memory:// instead.")
    return _absolute(name)


def _jsonl_path(url: StoreUrl) -> Path:
    if not url.rest:
        raise InvalidSetting(
            "jsonl:// names no directory",
            remedy="Write jsonl://queue, or jsonl:///srv/queue for an absolute path.",
        )
    return _absolute(url.rest)


def _absolute(name: str) -> Path:
    try:
        # Absolute at once: a later change of the working directory must not change the store.
        return Path(name).expanduser().absolute()
    except RuntimeError:
        raise InvalidSetting(f"{name[:200]!r}: there is no such home directory") from None


# Texts, which ``re`` compiles at the first use: a short command has few of these URLs.
_SCHEMA_NAME = r"(?!pg_)[a-z_][a-z0-9_]{0,62}"
_SECRET_OPTION = (
    r"(?i)"
    r"((?:^|[?&;\s])[^=&;#\s]*(?:passw|pwd|secret|token|key|auth|credential)[^=&;#\s]*\s*=\s*)"
    r"('[^']*'|[^&;#\s]*)"
)
_SCHEME = r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*://|(?:postgres(?:ql)?|rediss?|unix|sqlite|jsonl):?/*)"
_HOSTS = r"(?:(?:\[[^\]]*\]|[^:,\[\]]*)(?::[0-9]*)?(?:,|$))*"
"""Hosts with ports, in a URL without a user."""
_QUERY = r"[^?@]*\?(?:[\w.-]+=[^&]*(?:&|$))*"
_FILES = r"\s*(?:sqlite|jsonl|file)://"
_SHORTEST_SECRET = 3


def _password_span(url: str) -> tuple[int, int]:
    """Find the start and end of the password in a URL. They are equal if it has no password.

    Malformed URLs hide more rather than less.
    """
    found = re.match(_SCHEME, url)
    start = found.end() if found else 0
    rest = url[start:]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    at = rest.rfind("@")
    if re.match(_FILES, url) and not (":" in authority and "@" in authority):
        return 0, 0
    if "@" not in authority and re.fullmatch(_HOSTS, authority):
        if at < 0 or re.fullmatch(_QUERY, rest[len(authority) :]):
            return 0, 0
    elif at < 0:
        at = len(rest)
    colon = rest.find(":", 0, at)
    if colon < 0:
        # A user without a password, unless there is no scheme that tells them apart.
        return (0, 0) if found else (start, start + at)
    return start + colon + 1, start + at

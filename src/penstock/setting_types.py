"""Types of settings: description of the allowed values, and parser."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from penstock.extensions import ExtensionKind, find, names
from penstock.named_tuple import NamedTuple
from penstock.queue import schedules
from penstock.queue.payloads import ITEM_TYPES, NameKind, validate_name


class SettingType(NamedTuple):
    """A type of setting: allowed values in words, and the parser ``read``, which raises ValueError."""

    allowed: str
    read: Callable[[Any], Any]


ProjectRule: TypeAlias = Literal["any", "lower", "trusted"]


class Setting(NamedTuple):
    """One row of the settings reference."""

    name: str
    env: str
    aliases: tuple[str, ...]
    allowed: str
    default: str
    doc: str
    read: Callable[[Any], Any]
    project: ProjectRule = "trusted"
    """Rights of a project's settings file: set any value, lower it, or nothing unless it is trusted."""

    @property
    def is_url(self) -> bool:
        """True for a URL, which may hold a password."""
        return self.name.endswith(("url", "_store"))

    @property
    def reads_paths(self) -> bool:
        """True for a file, a directory or several."""
        return self.read in (_directory, _directories)

    def read_default(self) -> Any:
        """The parsed default, for settings that a project's file may only lower; else None."""
        return self.read(self.default) if self.project == "lower" else None


def whole(low: int, high: int) -> SettingType:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not re.fullmatch(r"[+-]?[0-9]{1,18}", str(value).strip()):
            raise ValueError
        return int(_within(int(value), low, high))

    return SettingType(f"a whole number from {low} to {high}", read)


def whole_or_none(low: int, high: int) -> SettingType:
    number = whole(low, high)
    return SettingType(
        f"{number.allowed}, or none for no limit",
        lambda value: None if str(value).strip().lower() == "none" else number.read(value),
    )


def seconds(low: float, high: float) -> SettingType:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        return _within(float(value), low, high)

    return SettingType(f"seconds from {low:g} to {high:g}", read)


def percent() -> SettingType:
    number = seconds(0, 100)
    return SettingType("a number from 0 to 100", number.read)


def _within(number: float, low: float, high: float) -> float:
    # Not `number < low or number > high`: NaN would pass.
    if not low <= number <= high:
        raise ValueError
    return number


def _yes_or_no(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True}
    words |= {"false": False, "no": False, "off": False, "0": False}
    answer = words.get(str(value).strip().lower())
    if answer is None:
        raise ValueError
    return answer


def word(*words: str) -> SettingType:
    def read(value: Any) -> str:
        given = str(value).strip().upper()
        if given not in words:
            raise ValueError
        return given

    return SettingType(" or ".join(words), read)


def lower_word(*words: str) -> SettingType:
    upper = word(*(each.upper() for each in words))
    return SettingType(" or ".join(words), lambda value: upper.read(value).lower())


def _word_or_extension(kind: ExtensionKind, *words: str) -> SettingType:
    own = lower_word(*words)

    def read(value: Any) -> str:
        given = str(value).strip()
        return given if given.lower() not in words and given in names(kind) else str(own.read(value))

    return SettingType(f"{own.allowed}, or the name of an extension", read)


def name(field: NameKind) -> SettingType:
    return SettingType("1 to 255 printable characters", lambda value: validate_name(field, value))


def _directory(value: Any) -> str:
    text = os.fspath(value)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError
    return text


def _url(value: Any) -> str:
    if not isinstance(value, str) or not re.match(r"[a-z][a-z0-9+.-]*://", value) or not value.isprintable():
        raise ValueError
    return value


def _server_url(value: Any) -> str:
    if not _url(value).startswith(("http://", "https://")):
        raise ValueError
    return str(value)


def _vector_store(value: Any) -> str:
    if value in ("default", "pgvector"):
        return str(value)
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    scheme, _, rest = value.partition(":")
    # A relative folder would be another one for each process.
    start = ("/", "~") if scheme.endswith("+local") else "//"
    known = scheme in VECTOR_STORE_SCHEMES or find(ExtensionKind.VECTOR_STORE, scheme) is not None
    if not known or not rest.startswith(start):
        raise ValueError
    return value


def _graph_store(value: Any) -> str:
    if value == "default":
        return "default"
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    scheme, _, rest = value.partition("://")
    known = scheme in GRAPH_STORE_SCHEMES or find(ExtensionKind.GRAPH_STORE, scheme) is not None
    if not known or not rest:
        raise ValueError
    return value


def _languages(value: Any) -> str:
    text = str(value).strip()
    if not re.fullmatch(r"[A-Za-z][A-Za-z_]*(\+[A-Za-z][A-Za-z_]*)*", text):
        raise ValueError
    return text


def _zone(value: Any) -> str:
    name = str(value).strip()
    schedules.zone_of(name)
    return name


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    return value.strip()


def _list(value: Any, separator: str) -> tuple[str, ...]:
    parts = value.split(separator) if isinstance(value, str) else list(value)
    if not all(isinstance(part, str) for part in parts):
        raise ValueError
    found = tuple(part.strip() for part in parts if part.strip())
    if parts and not found:
        raise ValueError
    return found


def _directories(value: Any) -> tuple[str, ...]:
    return tuple(_directory(part) for part in _list(value, os.pathsep))


def _hosts(value: Any) -> tuple[str, ...]:
    found = tuple(name.lower() for name in _list(value, ","))
    if not all(re.fullmatch(r"[a-z0-9_.-]+", name) for name in found):
        raise ValueError
    return found


def _networks(value: Any) -> tuple[str, ...]:
    from ipaddress import ip_network  # for this setting only

    # An address is the network of itself.
    return tuple(str(ip_network(part, strict=False)) for part in _list(value, ","))


LEASE = seconds(1, 7 * 86_400)


def _leases(value: Any) -> Mapping[str, float]:
    if isinstance(value, str):
        value = dict(_lease_pair(pair) for pair in value.split(",") if pair.strip())
    if not isinstance(value, Mapping) or not set(value) <= set(ITEM_TYPES):
        raise ValueError
    return MappingProxyType({item_type: LEASE.read(lease) for item_type, lease in value.items()})


def _lease_pair(pair: str) -> tuple[str, str]:
    item_type, equals, lease = pair.partition("=")
    if not equals:
        raise ValueError
    return item_type.strip(), lease.strip()


EMBEDDER = _word_or_extension(ExtensionKind.EMBEDDER, "static", "minilm", "fastembed", "endpoint", "hashing")
URL = SettingType(
    "a URL such as sqlite:///PATH, postgresql://…, redis://HOST, jsonl://DIRECTORY or memory://", _url
)
CATALOG_URL = SettingType("a URL such as sqlite:///PATH or postgresql://HOST/DATABASE", _url)
VECTOR_STORE_SCHEMES = frozenset(
    ["qdrant", "qdrant+https", "qdrant+local", "chroma", "chroma+https", "chroma+local", "pgvector"]
)
VECTOR_STORE = SettingType(
    "default, qdrant://HOST:PORT, qdrant+local:/FOLDER, chroma://HOST:PORT, chroma+local:/FOLDER, pgvector "
    "or pgvector://HOST/DATABASE",
    _vector_store,
)
GRAPH_STORE_SCHEMES = frozenset(["neo4j", "neo4j+s", "neo4j+ssc", "bolt", "bolt+s", "bolt+ssc"])
GRAPH_STORE = SettingType(
    "default, or neo4j://USER:PASSWORD@HOST:PORT/DATABASE; also neo4j+s, neo4j+ssc, bolt, bolt+s, bolt+ssc",
    _graph_store,
)
LANGUAGES = SettingType("names of languages joined by +, such as eng+deu", _languages)
ZONE = SettingType("a time zone such as UTC or Europe/Berlin", _zone)
TEXT = SettingType("printable text", _text)
SERVER = SettingType("a URL such as http://127.0.0.1:8765", _server_url)
SECRET = SettingType("printable text; never shown", _text)
DIRECTORY = SettingType("a directory", _directory)
DIRECTORIES = SettingType("directories, joined by a colon", _directories)
HOSTS = SettingType("names of hosts without ports, joined by commas", _hosts)
NETWORKS = SettingType("IP addresses, or networks such as 10.0.0.0/8, joined by commas", _networks)
FILE = SettingType("a file", _directory)
SWITCH = SettingType("true or false", _yes_or_no)
LEASES = SettingType(f"item types and {LEASE.allowed}, such as file=600,folder=900", _leases)

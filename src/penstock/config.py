"""Settings, from arguments, the environment and settings files.

Each field has its allowed values, aliases and description; docs/reference/settings.md is generated from
``SETTINGS``. Precedence: argument, ``PENSTOCK_*``, aliases of older tools, ``penstock.toml`` of the project,
``penstock.toml`` of the user, default. An empty variable counts as not set.

A project's file may come with a clone from a stranger. Without the user's trust it sets only what its folder
may decide: see ``Setting.project``. docs/decisions has the reasons.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec

from penstock import state_directory
from penstock.errors import InvalidName, InvalidSetting, InvalidSettingsFile, UntrustedSetting
from penstock.extensions import ExtensionKind, find, names
from penstock.queue import schedules
from penstock.queue.payloads import ITEM_TYPES, NameKind, validate_name
from penstock.state_directory import (
    LIST,
    absolute,
    default_models,
    default_state,
    digest_of,
    read_list,
    record,
    user_directory,
)
from penstock.store_url import StoreUrl


class SettingType(msgspec.Struct, frozen=True):
    """A type of setting: allowed values in words, and the parser ``read``, which raises ValueError."""

    allowed: str
    read: Callable[[Any], Any]


_ProjectRule: TypeAlias = Literal["any", "lower", "trusted"]


class Setting(msgspec.Struct, frozen=True):
    """One row of the settings reference."""

    name: str
    env: str
    aliases: tuple[str, ...]
    allowed: str
    default: str
    doc: str
    read: Callable[[Any], Any]
    project: _ProjectRule = "trusted"
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


def _whole_or_none(low: int, high: int) -> SettingType:
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


def _lower_word(*words: str) -> SettingType:
    upper = word(*(each.upper() for each in words))
    return SettingType(" or ".join(words), lambda value: upper.read(value).lower())


def _word_or_extension(kind: ExtensionKind, *words: str) -> SettingType:
    own = _lower_word(*words)

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
    if value in (NO_STORE, "pgvector"):
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
    if value == NO_STORE:
        return NO_STORE
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
_CATALOG_URL = SettingType("a URL such as sqlite:///PATH or postgresql://HOST/DATABASE", _url)
VECTOR_STORE_SCHEMES = frozenset(
    ["qdrant", "qdrant+https", "qdrant+local", "chroma", "chroma+https", "chroma+local", "pgvector"]
)
VECTOR_STORE = SettingType(
    "default, qdrant://HOST:PORT, qdrant+local:/FOLDER, chroma://HOST:PORT, chroma+local:/FOLDER, pgvector "
    "or pgvector://HOST/DATABASE",
    _vector_store,
)
NO_STORE = "default"
"""Value of ``vector_store`` and ``graph_store`` without a store outside the catalog."""
GRAPH_STORE_SCHEMES = frozenset(["neo4j", "neo4j+s", "neo4j+ssc", "bolt", "bolt+s", "bolt+ssc"])
GRAPH_STORE = SettingType(
    "default, or neo4j://USER:PASSWORD@HOST:PORT/DATABASE; also neo4j+s, neo4j+ssc, bolt, bolt+s, bolt+ssc",
    _graph_store,
)
_LANGUAGES = SettingType("names of languages joined by +, such as eng+deu", _languages)
ZONE = SettingType("a time zone such as UTC or Europe/Berlin", _zone)
TEXT = SettingType("printable text", _text)
SERVER = SettingType("a URL such as http://127.0.0.1:8765", _server_url)
SECRET = SettingType("printable text; never shown", _text)
DIRECTORY = SettingType("a directory", _directory)
_DIRECTORIES = SettingType("directories, joined by a colon", _directories)
_HOSTS = SettingType("names of hosts without ports, joined by commas", _hosts)
_NETWORKS = SettingType("IP addresses, or networks such as 10.0.0.0/8, joined by commas", _networks)
FILE = SettingType("a file", _directory)
_SWITCH = SettingType("true or false", _yes_or_no)
_LEASES = SettingType(f"item types and {LEASE.allowed}, such as file=600,folder=900", _leases)


_DERIVED = "(derived)"
"""Default of a setting that ``config.combine`` computes."""
_SECRET = frozenset([URL, _CATALOG_URL, VECTOR_STORE, GRAPH_STORE, SECRET])
"""Types with values that may hold a password."""


def setting(
    setting_type: SettingType,
    default: object,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    env: str = "",
    shown: str = "",
    project: _ProjectRule = "trusted",
) -> Any:
    """Declare a setting. ``shown``: the default in words; ``project``: see ``Setting.project``."""
    metadata = {
        "type": setting_type,
        "doc": doc,
        "aliases": aliases,
        "env": env,
        "shown": shown or _shown(default),
        "project": project,
    }
    shown_in_repr = setting_type not in _SECRET
    if default is _DERIVED:
        return dataclasses.field(metadata=metadata, repr=shown_in_repr)
    return dataclasses.field(default_factory=lambda: default, metadata=metadata, repr=shown_in_repr)


def _shown(default: object) -> str:
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, Mapping) or default is None:
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


_PREFIX = "PENSTOCK_"
_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S
DEFAULT_TENANT = "default"
_QUEUE = (1, 10_000_000)
_DAYS = whole(0, 36_500)


class SettingReport(msgspec.Struct, frozen=True):
    """A setting in use: JSON value with secrets masked, and the source of the value."""

    name: str
    value: object
    source: str


class UnknownVariable(msgspec.Struct, frozen=True):
    """An environment variable that looks like a setting and is none; ``nearest``: the setting it may mean."""

    name: str
    nearest: str | None

    @property
    def remedy(self) -> str:
        return f"Set {self.nearest} instead." if self.nearest else "Unset it."


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class Settings:
    """All settings. Made by ``load``; names of durations end in ``_s`` (seconds) or ``_days``.

    The methods of a dataclass are written out: to generate them for a hundred fields takes a command 7 ms.
    """

    url: str = setting(
        URL,
        _DERIVED,
        "URL of the queue. For PostgreSQL, `?schema=NAME` selects a schema for all tables.",
        shown="sqlite:///STATE_DIR/penstock.db",
    )
    state_dir: Path = setting(  # noqa: RUF009 - what it makes is a field
        DIRECTORY,
        _DERIVED,
        "Directory for the files of Penstock on this machine.",
        env="PENSTOCK_STATE",
        shown="the nearest .penstock upwards, else $XDG_STATE_HOME/penstock, else ~/.local/state/penstock",
    )
    catalog_url: str = setting(
        _CATALOG_URL,
        _DERIVED,
        "URL of the catalog: documents and their tasks.",
        shown="the queue's own when it is SQLite or PostgreSQL, else sqlite:///STATE_DIR/catalog.db",
    )
    tenant_id: str = setting(name("tenant_id"), DEFAULT_TENANT, "Default tenant of jobs.")
    collection: str = setting(name("collection"), "default", "Default collection of jobs.", project="any")
    max_queue: int = setting(
        whole(*_QUEUE),
        100,
        "Maximum number of pending top-level indexing jobs; more are refused.",
        aliases=("AGENT_BRAIN_MAX_QUEUE",),
    )
    max_queue_per_tenant: int | None = setting(
        _whole_or_none(*_QUEUE), None, "Maximum number of pending top-level indexing jobs of one tenant."
    )
    max_function_queue: int | None = setting(
        _whole_or_none(*_QUEUE), None, "Maximum number of pending function jobs; more are refused."
    )
    max_payload_bytes: int = setting(
        whole(1, 1_000_000_000), 4 * 1024 * 1024, "Maximum size of a payload, as JSON text."
    )
    max_retries: int = setting(
        whole(0, 1000),
        3,
        "Default number of retries after the first attempt of a job.",
        aliases=("AGENT_BRAIN_MAX_RETRIES", "MAX_TASK_RETRIES"),
    )
    job_timeout_s: int = setting(
        whole(1, _YEAR_S),
        7200,
        "Timeout. A value other than 7200 bounds a whole job with its files, and one attempt of a function; "
        "7200 bounds one attempt, and a wait in which no part ends.",
        aliases=("AGENT_BRAIN_JOB_TIMEOUT",),
    )
    queue_enabled: bool = setting(
        _SWITCH,
        True,
        "When false, workers claim no jobs; new jobs are accepted and wait.",
        aliases=("TASK_QUEUE_ENABLED",),
    )
    lease_s: float = setting(
        LEASE,
        300.0,
        "Lease of a claimed job: time without a heartbeat after which the job is taken back.",
    )
    lease_by_type: Mapping[str, float] = setting(
        _LEASES, MappingProxyType({}), "Leases for single item types."
    )
    task_lease_s: float = setting(
        LEASE,
        120.0,
        "Lease of a claimed page or chunk task.",
        aliases=("STALE_TASK_TIMEOUT",),
    )
    heartbeat_s: float = setting(
        seconds(0.1, _DAY_S),
        30.0,
        "Interval of heartbeats, which renew leases; shorter than every lease.",
        aliases=("HEARTBEAT_INTERVAL",),
    )
    poll_s: float = setting(
        seconds(0.01, 3600),
        1.0,
        "Interval at which an idle worker checks for jobs, if no notification wakes it.",
        aliases=("WORKER_POLL_INTERVAL",),
    )
    upkeep_s: float = setting(
        seconds(0.1, _DAY_S),
        60.0,
        "Interval of upkeep: jobs of lost workers are taken back, old jobs removed.",
        aliases=("TASK_QUEUE_CHECK_INTERVAL",),
    )
    cancel_grace_s: float = setting(
        seconds(0, 3600),
        10.0,
        "Time for a cancelled job to reach a checkpoint; then its process is stopped.",
    )
    recycle_after_jobs: int = setting(
        whole(0, 1_000_000_000), 0, "Jobs after which a worker process is replaced; 0 is no limit."
    )
    recycle_growth_mb: int = setting(
        whole(0, 1_000_000),
        512,
        "Growth in MB after which a worker process is replaced; 0 is no limit.",
    )
    checkpoint_interval: int = setting(
        whole(1, 1_000_000),
        50,
        "Files compared by a folder walk between two checkpoints, with progress report and cancel check.",
        aliases=("AGENT_BRAIN_CHECKPOINT_INTERVAL",),
    )
    retention_days: int = setting(
        _DAYS, 7, "Days until done and cancelled jobs are removed; 0 keeps them forever."
    )
    failed_retention_days: int = setting(
        _DAYS, 30, "Days until failed jobs are removed; 0 keeps them forever."
    )
    embedder: str = setting(EMBEDDER, "static", "Embedding model.")
    models_dir: Path = setting(  # noqa: RUF009
        DIRECTORY,
        _DERIVED,
        "Directory of installed models.",
        shown="$XDG_DATA_HOME/penstock/models, else ~/.local/share/penstock/models",
    )
    fastembed_model: str = setting(
        TEXT,
        "BAAI/bge-small-en-v1.5",
        "Model of the embedder `fastembed`: a name of its list, or the absolute path of a model's directory.",
    )
    fastembed_pooling: str = setting(
        _lower_word("auto", "mean", "cls", "last", "none"),
        "auto",
        "Pooling of a fastembed model in a directory; `auto` takes it from the files of the model.",
    )
    embed_endpoint_url: str | None = setting(
        URL, None, "Embedding endpoint, compatible with OpenAI's, for the embedder `endpoint`."
    )
    embed_endpoint_model: str = setting(TEXT, "text-embedding-3-small", "Model of the embedding endpoint.")
    embed_endpoint_key: str | None = setting(SECRET, None, "Key of the embedding endpoint.")
    embed_endpoint_dimension: int = setting(whole(1, 16_384), 1536, "Length of the vectors of that model.")
    embed_endpoint_batch: int = setting(whole(1, 2048), 64, "Texts in one call to the embedding endpoint.")
    embed_endpoint_timeout_s: float = setting(
        seconds(0.1, 3600), 30.0, "Maximum wait for the answer of the embedding endpoint."
    )
    embed_endpoint_calls: int = setting(
        whole(1, 256),
        4,
        "Calls to the embedding endpoint at the same time, by all processes on this machine.",
    )
    embed_endpoint_per_minute: int | None = setting(
        _whole_or_none(1, 1_000_000),
        None,
        "Calls to the embedding endpoint in a minute, by all processes on this machine.",
    )
    embed_endpoint_tokens: int | None = setting(
        _whole_or_none(1, 10**15),
        None,
        "Tokens of one tenant that are sent to the embedding endpoint in a calendar month; then "
        "its chunks fail.",
    )
    rerank_endpoint_url: str | None = setting(
        URL, None, "Re-ranking endpoint, compatible with Cohere's, that orders the best hits of a search."
    )
    rerank_endpoint_model: str = setting(TEXT, "BAAI/bge-reranker-v2-m3", "Model of the re-ranking endpoint.")
    rerank_endpoint_key: str | None = setting(SECRET, None, "Key of the re-ranking endpoint.")
    rerank_endpoint_timeout_s: float = setting(
        seconds(0.1, 3600), 5.0, "Maximum wait of a search for the re-ranking endpoint."
    )
    graph: bool = setting(
        _SWITCH,
        False,
        "Extract entities and relations of documents, as `penstock index --graph` does.",
    )
    graph_endpoint_url: str | None = setting(
        URL,
        None,
        "Chat endpoint, compatible with OpenAI's, whose model extracts the entities of prose "
        "instead of rules.",
    )
    graph_endpoint_model: str = setting(TEXT, "gpt-4o-mini", "Model of the graph endpoint.")
    graph_endpoint_key: str | None = setting(SECRET, None, "Key of the graph endpoint.")
    graph_endpoint_timeout_s: float = setting(
        seconds(0.1, 3600), 120.0, "Maximum wait for the answer of the graph endpoint."
    )
    graph_endpoint_calls: int = setting(
        whole(1, 64), 4, "Calls to the graph endpoint at the same time, by all processes on this machine."
    )
    graph_endpoint_per_minute: int | None = setting(
        _whole_or_none(1, 1_000_000),
        None,
        "Calls to the graph endpoint in a minute, by all processes on this machine.",
    )
    graph_endpoint_tokens: int | None = setting(
        _whole_or_none(1, 10**15),
        None,
        "Tokens of one tenant that the graph endpoint may charge in a calendar month; then its chunks fail.",
    )
    graph_store: str = setting(
        GRAPH_STORE,
        "default",
        "Store that `penstock graph` reads. With `default` it is the catalog; Neo4j holds a copy "
        "of its graph.",
    )
    graph_store_timeout_s: float = setting(
        seconds(0.1, 600), 30.0, "Maximum wait for the answer of a graph store that is not the catalog."
    )
    vector_store: str = setting(
        VECTOR_STORE,
        "default",
        "Store in which vectors are searched: the catalog by default; others hold a copy of its vectors.",
    )
    vector_store_timeout_s: float = setting(
        seconds(0.1, 600), 10.0, "Maximum wait for the answer of a vector store that is not the catalog."
    )
    usearch_from: int = setting(
        whole(1, 1_000_000_000),
        200_000,
        "Chunks of a tenant from which workers build a usearch index, if the extra is installed.",
    )
    max_file_mb: int = setting(
        whole(1, 100_000),
        64,
        "Maximum size in MB of a file that has to be read whole; larger ones are not indexed.",
        project="lower",
    )
    text_limit_mb: int = setting(
        whole(1, 100_000),
        64,
        "Megabytes of a text file, log, table or source file that are indexed, from its start.",
        project="lower",
    )
    archives: bool = setting(
        _SWITCH,
        False,
        "Open zip and tar archives as folders; by default they are skipped, unless a request names them.",
    )
    file_time_s: float = setting(
        seconds(0.01, 3600),
        20.0,
        "CPU time for parsing and chunking one file, plus a tenth of this time per MiB; then the file fails.",
        project="lower",
    )
    file_memory_mb: int = setting(
        whole(16, 1_000_000),
        640,
        "Memory in MiB for parsing, for all processes of a worker together; a file which needs more fails.",
        project="lower",
    )
    ocr: bool = setting(
        _SWITCH,
        True,
        "When false, no text is recognized: pages that are pictures fail with `ERR_NO_TEXT`.",
    )
    ocr_workers: int | None = setting(
        _whole_or_none(1, 256),
        None,
        "Processes of a worker that recognize text at the same time; the others read text meanwhile.",
        shown="half of the processes, at least one",
    )
    ocr_languages: str = setting(
        _LANGUAGES, "eng", "Languages of pictures, as Tesseract calls them; the first one weighs most."
    )
    ocr_tessdata_dir: str | None = setting(
        DIRECTORY, None, "Directory with models of further languages (`.traineddata` files)."
    )
    ocr_dpi: int = setting(
        whole(72, 600), 300, "Resolution at which pages are drawn to recognize their text."
    )
    ocr_min_confidence: float = setting(
        percent(),
        72.0,
        "Mean confidence below which rapidocr reads the page too, if it is installed.",
    )
    ocr_endpoint_url: str | None = setting(
        URL,
        None,
        "Vision endpoint, compatible with OpenAI's, that reads pictures instead of Tesseract.",
    )
    ocr_endpoint_model: str = setting(TEXT, "dots.ocr", "Model of the vision endpoint.")
    ocr_endpoint_key: str | None = setting(SECRET, None, "Key of the vision endpoint.")
    ocr_endpoint_timeout_s: float = setting(
        seconds(1, 3600), 120.0, "Maximum wait for the vision endpoint to read one page."
    )
    pages_dir: str | None = setting(
        DIRECTORY,
        None,
        "Directory to which the Markdown of each page with recognized text is written, besides the catalog.",
    )
    sqlite_synchronous: Literal["FULL", "NORMAL"] = setting(
        word("FULL", "NORMAL"),
        "FULL",
        "FULL survives a power cut; NORMAL is faster and may lose the last commits.",
    )
    busy_timeout_s: float = setting(
        seconds(0, 3600),
        60.0,
        "Maximum wait for a lock of another process, or for the response of a server.",
    )
    postgres_pool_size: int = setting(
        whole(1, 1000),
        4,
        "Maximum number of connections in each PostgreSQL pool of a process: queue, catalog reads "
        "and writes.",
    )
    postgres_pooler: bool = setting(
        _SWITCH,
        False,
        "True behind a pooler in transaction mode: no prepared statements, no LISTEN.",
    )
    postgres_timeout_s: float = setting(
        seconds(0, 3600),
        60.0,
        "Timeout of one PostgreSQL statement, and of the wait for a connection; 0 is no limit.",
    )
    contract_url: str | None = setting(
        URL, None, "Redis server of the Redis contract; by default the one in its configuration file."
    )
    rag_config: str | None = setting(FILE, None, "YAML file with the RAGs of the Redis contract.")
    rag_away_s: float = setting(
        seconds(0, 365 * 86_400),
        86_400.0,
        "Time that messages wait for a RAG no gateway serves; then they are refused.",
    )
    roots: tuple[str, ...] = setting(
        _DIRECTORIES,
        (),
        "Folders whose files the server may index.",
        shown="the folder in which the server was started",
    )
    allow_external: bool = setting(
        _SWITCH, False, "When true, a request to the server with `allow_external` may name any path."
    )
    allow_web: bool = setting(
        _SWITCH, False, "When true, requests to the server may name web pages, which its workers then fetch."
    )
    web_private: bool = setting(
        _SWITCH,
        False,
        "When true, web pages of private, loopback and other reserved network addresses are fetched as well.",
    )
    web_delay_s: float = setting(
        seconds(0, 3600), 0.5, "Least time between two requests of this machine to one web server."
    )
    web_timeout_s: float = setting(
        seconds(0.1, 3600), 60.0, "Maximum time to fetch one web page, redirects included."
    )
    webhook_key: str | None = setting(
        SECRET, None, "Secret that signs webhooks: text of 16 bytes or more, or `whsec_` and base64."
    )
    webhook_key_file: str | None = setting(
        FILE,
        None,
        "File with that secret; instead of PENSTOCK_WEBHOOK_KEY. It is read for each webhook.",
    )
    webhook_private: bool = setting(
        _SWITCH,
        False,
        "When true, webhooks are sent to private, loopback and other reserved network addresses as well.",
    )
    hosts: tuple[str, ...] = setting(
        _HOSTS,
        (),
        "Names of the server, which requests may have in their Host header.",
        shown="localhost, and IP addresses",
    )
    proxies: tuple[str, ...] = setting(
        _NETWORKS,
        (),
        "Addresses of reverse proxies, whose X-Forwarded-For names the sender of a request; this "
        "machine always.",
        shown="this machine",
    )
    rate_limit: int | None = setting(
        _whole_or_none(1, 1_000_000_000), 6_000, "Requests in a minute that the server accepts from one key."
    )
    metrics_public: bool = setting(_SWITCH, False, "When true, `GET /metrics` of the server needs no key.")
    log_format: str = setting(
        _lower_word("text", "json"), "text", "Form of the log of workers and servers: lines of text or JSON."
    )
    serial: bool = setting(
        _SWITCH,
        False,
        "When true, jobs for paths run one at a time in each collection, in order. For submissions "
        "and workers.",
    )
    time_zone: str = setting(ZONE, "UTC", "Time zone of new schedules that name none.")
    body_limit_mb: int = setting(
        whole(1, 1_000), 8, "Maximum size in MB of the body of a request to the server."
    )
    server: str | None = setting(
        SERVER, None, "URL of a server through which commands work, instead of the stores."
    )
    api_key: str | None = setting(SECRET, None, "Key for the server that commands use.")
    api_key_file: str | None = setting(
        FILE, None, "File with that key, which only its owner may read; instead of PENSTOCK_API_KEY."
    )
    uploads_dir: str | None = setting(
        DIRECTORY,
        None,
        "Directory for files uploaded to the server; by default in the state directory. Workers "
        "have to see it.",
    )
    upload_quota_mb: int | None = setting(
        _whole_or_none(1, 1_000_000_000),
        10_240,
        "Maximum size in MB of all files that one tenant has uploaded; more are refused until some "
        "are removed.",
    )
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def __init__(self, **values: Any) -> None:
        fields = dataclasses.fields(self)
        if unknown := values.keys() - {field.name for field in fields}:
            raise TypeError(f"no such setting: {', '.join(sorted(unknown))}")
        for field in fields:
            if field.name not in values:
                if field.default_factory is dataclasses.MISSING:
                    raise TypeError(f"setting {field.name} has no value")
                values[field.name] = field.default_factory()
        self.__dict__.update(values)

    def __repr__(self) -> str:
        shown = (field.name for field in dataclasses.fields(self) if field.repr)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        compared = (field.name for field in dataclasses.fields(self) if field.compare)
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__ = None  # type: ignore[assignment]

    @property
    def store(self) -> StoreUrl:
        """The URL of the queue."""
        return StoreUrl(self.url)

    @property
    def catalog_store(self) -> StoreUrl:
        """The URL of the catalog."""
        return StoreUrl(self.catalog_url)


def _rows() -> tuple[Setting, ...]:
    fields = ((field.name, field.metadata) for field in dataclasses.fields(Settings) if field.metadata)
    return tuple(
        Setting(
            name=name,
            env=about["env"] or f"PENSTOCK_{name.upper()}",
            aliases=about["aliases"],
            allowed=about["type"].allowed,
            default=about["shown"],
            doc=about["doc"],
            read=about["type"].read,
            project=about["project"],
        )
        for name, about in fields
    )


SETTINGS: tuple[Setting, ...] = _rows()
"""Every setting, in the order of the reference."""


def load(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Load settings from arguments (None: not given), environment, files and defaults, and check them.

    Settings files are read only with the environment of the process. A given ``environ`` is complete:
    no files are read.
    """
    if environ is not None:
        return combine(overrides, environ)
    return combine(overrides, os.environ, read_all(os.environ, SETTINGS))


def combine(
    overrides: Mapping[str, Any], environ: Mapping[str, str], files: Sequence[SettingsFile] = ()
) -> Settings:
    """Combine all sources of settings, and check the result."""
    refuse_unknown(overrides, SETTINGS)
    found = _SettingSources(overrides, environ, files)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS:
        sources[setting.name], value = found.find(setting)
        if sources[setting.name] != DEFAULT:
            values[setting.name] = value
    for name in ("ocr_tessdata_dir", "pages_dir", "uploads_dir", "api_key_file", "webhook_key_file"):
        if values.get(name) is not None:
            values[name] = str(absolute(values[name], environ))
    if "roots" in values:
        values["roots"] = tuple(str(absolute(root, environ)) for root in values["roots"])
    values["models_dir"] = absolute(values.get("models_dir") or default_models(environ), environ)
    values["state_dir"] = absolute(values.get("state_dir") or default_state(environ), environ)
    values.setdefault("url", f"sqlite:///{values['state_dir'] / 'penstock.db'}")
    values.setdefault("catalog_url", _default_catalog(values["url"], values["state_dir"]))
    settings = Settings(**values, sources=MappingProxyType(sources))
    _check_together(settings)
    return settings


def _default_catalog(url: str, state_dir: Path) -> str:
    return url if StoreUrl(url).engine in ("sqlite", "postgres") else f"sqlite:///{state_dir / 'catalog.db'}"


def _check_together(settings: Settings) -> None:
    leases = {"lease_s": settings.lease_s, "task_lease_s": settings.task_lease_s}
    leases |= {f"lease_by_type {item_type}": lease for item_type, lease in settings.lease_by_type.items()}
    for name, lease in leases.items():
        if settings.heartbeat_s >= lease:
            raise InvalidSetting(
                f"heartbeat_s = {settings.heartbeat_s:g}: expected less than {name} = {lease:g}",
                remedy="Shorten PENSTOCK_HEARTBEAT_S, best to a third of the lease, or lengthen the lease.",
            )


def portable_values(settings: Settings) -> dict[str, Any]:
    """The settings as keyword arguments of ``load``, for another process in any working directory.

    Paths of stores are resolved, so that all workers of a store agree on its URL however it was spelled.
    """
    values = {setting.name: getattr(settings, setting.name) for setting in SETTINGS}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return plain | {"url": settings.store.resolved, "catalog_url": settings.catalog_store.resolved}


def describe(settings: Settings) -> list[SettingReport]:
    """All settings with value and source, safe to print."""
    return [
        SettingReport(
            setting.name,
            _plain(setting.name, getattr(settings, setting.name)),
            settings.sources.get(setting.name, DEFAULT),
        )
        for setting in SETTINGS
    ]


def unknown_variables() -> list[UnknownVariable]:
    """The variables ``PENSTOCK_*`` of this process that set nothing, by name: mostly misspelled settings."""
    # The common start is left out of the comparison: with it, any two names are alike.
    known = [setting.env.removeprefix(_PREFIX) for setting in SETTINGS]
    words = sorted(name.removeprefix(_PREFIX) for name in os.environ if name.startswith(_PREFIX))
    unknown = ((word, _nearest_name(word, known)) for word in words if word not in known)
    return [UnknownVariable(_PREFIX + word, near and _PREFIX + near) for word, near in unknown]


def file_places() -> FilePlaces:
    """Where the settings files of this process are, or would be."""
    return places(os.environ)


def read_project_file(path: Path) -> SettingsFile:
    """Read a project's settings file without applying the values."""
    return read(path, "project", SETTINGS, os.environ)


def trust_state(directory: Path, *, trust: bool = True) -> None:
    """Record, or forget, that a state directory is the user's own; see ``penstock.state_directory``."""
    state_directory.trust_state(directory, os.environ, trust=trust)


def _plain(name: str, value: object) -> object:
    if name.endswith(("url", "_store")) and value is not None:
        return StoreUrl(str(value)).masked
    if name.endswith("_key") and value is not None:
        return "***"
    if isinstance(value, Path):
        return str(value)
    return dict(value) if isinstance(value, Mapping) else value


NAME = "penstock.toml"
_MAX_BYTES = 256 * 1024


class SettingsFile(msgspec.Struct, frozen=True):
    """A file that was read, with its parsed values by the name of the setting."""

    path: Path
    kind: Literal["project", "user"]
    values: Mapping[str, Any]
    content: bytes


class FilePlaces(msgspec.Struct, frozen=True):
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

    content = _file_content(path)
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


def _file_content(path: Path) -> bytes:
    try:
        # Without waiting: a pipe put there since it was looked at has no writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidSettingsFile(f"{path}: not a regular file")
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidSettingsFile(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > _MAX_BYTES:
        raise InvalidSettingsFile(f"{path}: larger than {_MAX_BYTES:,} bytes")
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


def _refuse_untrusted(file: SettingsFile, setting: Setting, weaker: Any, environ: Mapping[str, str]) -> None:
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


ARGUMENT = "argument"
DEFAULT = "default"


class _SettingSources:
    """Everything that may set a setting but the default: argument, environment, project's file, user's."""

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
            _refuse_untrusted(file, setting, weaker, self._environ)
        return str(file.path), value


def refuse_unknown(overrides: Iterable[str], settings: Iterable[Setting]) -> None:
    known = [setting.name for setting in settings]
    for name in overrides:
        if name not in known:
            close = _nearest_name(name, known)
            hint = f"; did you mean {close!r}?" if close else ""
            raise InvalidSetting(f"unknown setting {name!r}{hint}")


def _nearest_name(name: str, known: Sequence[str]) -> str | None:
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

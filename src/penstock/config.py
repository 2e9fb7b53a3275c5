"""Settings, from arguments, the environment and settings files.

Each field has its allowed values, aliases and description; docs/reference/settings.md is generated from
``SETTINGS``. Precedence: argument, ``PENSTOCK_*``, aliases of older tools, ``penstock.toml`` of the project,
``penstock.toml`` of the user, default. An empty variable counts as not set.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from penstock import setting_fields, settings_file
from penstock import setting_types as types
from penstock import trust as trust_of_user
from penstock.errors import InvalidSetting
from penstock.named_tuple import NamedTuple
from penstock.setting_fields import DERIVED, SettingValues
from penstock.setting_fields import setting as _setting
from penstock.setting_sources import ARGUMENT as ARGUMENT
from penstock.setting_sources import DEFAULT, SettingSources, nearest_name, refuse_unknown
from penstock.setting_types import Setting
from penstock.state_directory import absolute, default_models, default_state
from penstock.store_url import StoreUrl

_PREFIX = "PENSTOCK_"
_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S
DEFAULT_TENANT = "default"
_QUEUE = (1, 10_000_000)
_DAYS = types.whole(0, 36_500)


class SettingReport(NamedTuple):
    """A setting in use: JSON value with secrets masked, and the source of the value."""

    name: str
    value: object
    source: str


class UnknownVariable(NamedTuple):
    """An environment variable that looks like a setting and is none; ``nearest``: the setting it may mean."""

    name: str
    nearest: str | None

    @property
    def remedy(self) -> str:
        return f"Set {self.nearest} instead." if self.nearest else "Unset it."


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class Settings(SettingValues):
    """All settings. Made by ``load``; names of durations end in ``_s`` (seconds) or ``_days``."""

    url: str = _setting(
        types.URL,
        DERIVED,
        "URL of the queue. For PostgreSQL, `?schema=NAME` selects a schema for all tables.",
        shown="sqlite:///STATE_DIR/penstock.db",
    )
    state_dir: Path = _setting(  # noqa: RUF009 - what it makes is a field
        types.DIRECTORY,
        DERIVED,
        "Directory for the files of Penstock on this machine.",
        env="PENSTOCK_STATE",
        shown="the nearest .penstock upwards, else $XDG_STATE_HOME/penstock, else ~/.local/state/penstock",
    )
    catalog_url: str = _setting(
        types.CATALOG_URL,
        DERIVED,
        "URL of the catalog: documents and their tasks.",
        shown="the queue's own when it is SQLite or PostgreSQL, else sqlite:///STATE_DIR/catalog.db",
    )
    tenant_id: str = _setting(types.name("tenant_id"), DEFAULT_TENANT, "Default tenant of jobs.")
    collection: str = _setting(
        types.name("collection"), "default", "Default collection of jobs.", project="any"
    )
    max_queue: int = _setting(
        types.whole(*_QUEUE),
        100,
        "Maximum number of pending top-level indexing jobs; more are refused.",
        aliases=("AGENT_BRAIN_MAX_QUEUE",),
    )
    max_queue_per_tenant: int | None = _setting(
        types.whole_or_none(*_QUEUE), None, "Maximum number of pending top-level indexing jobs of one tenant."
    )
    max_function_queue: int | None = _setting(
        types.whole_or_none(*_QUEUE), None, "Maximum number of pending function jobs; more are refused."
    )
    max_payload_bytes: int = setting_fields.MAX_PAYLOAD_BYTES
    max_retries: int = _setting(
        types.whole(0, 1000),
        3,
        "Default number of retries after the first attempt of a job.",
        aliases=("AGENT_BRAIN_MAX_RETRIES", "MAX_TASK_RETRIES"),
    )
    job_timeout_s: int = _setting(
        types.whole(1, _YEAR_S),
        7200,
        "Timeout. A value other than 7200 bounds a whole job with its files, and one attempt of a function; "
        "7200 bounds one attempt, and a wait in which no part ends.",
        aliases=("AGENT_BRAIN_JOB_TIMEOUT",),
    )
    queue_enabled: bool = _setting(
        types.SWITCH,
        True,
        "When false, workers claim no jobs; new jobs are accepted and wait.",
        aliases=("TASK_QUEUE_ENABLED",),
    )
    lease_s: float = _setting(
        types.LEASE,
        300.0,
        "Lease of a claimed job: time without a heartbeat after which the job is taken back.",
    )
    lease_by_type: Mapping[str, float] = _setting(
        types.LEASES, MappingProxyType({}), "Leases for single item types."
    )
    task_lease_s: float = _setting(
        types.LEASE,
        120.0,
        "Lease of a claimed page or chunk task.",
        aliases=("STALE_TASK_TIMEOUT",),
    )
    heartbeat_s: float = _setting(
        types.seconds(0.1, _DAY_S),
        30.0,
        "Interval of heartbeats, which renew leases; shorter than every lease.",
        aliases=("HEARTBEAT_INTERVAL",),
    )
    poll_s: float = _setting(
        types.seconds(0.01, 3600),
        1.0,
        "Interval at which an idle worker checks for jobs, if no notification wakes it.",
        aliases=("WORKER_POLL_INTERVAL",),
    )
    upkeep_s: float = _setting(
        types.seconds(0.1, _DAY_S),
        60.0,
        "Interval of upkeep: jobs of lost workers are taken back, old jobs removed.",
        aliases=("TASK_QUEUE_CHECK_INTERVAL",),
    )
    cancel_grace_s: float = _setting(
        types.seconds(0, 3600),
        10.0,
        "Time for a cancelled job to reach a checkpoint; then its process is stopped.",
    )
    recycle_after_jobs: int = _setting(
        types.whole(0, 1_000_000_000), 0, "Jobs after which a worker process is replaced; 0 is no limit."
    )
    recycle_growth_mb: int = _setting(
        types.whole(0, 1_000_000),
        512,
        "Growth in MB after which a worker process is replaced; 0 is no limit.",
    )
    checkpoint_interval: int = _setting(
        types.whole(1, 1_000_000),
        50,
        "Files compared by a folder walk between two checkpoints, with progress report and cancel check.",
        aliases=("AGENT_BRAIN_CHECKPOINT_INTERVAL",),
    )
    retention_days: int = _setting(
        _DAYS, 7, "Days until done and cancelled jobs are removed; 0 keeps them forever."
    )
    failed_retention_days: int = _setting(
        _DAYS, 30, "Days until failed jobs are removed; 0 keeps them forever."
    )
    embedder: str = setting_fields.EMBEDDER
    models_dir: Path = setting_fields.MODELS_DIR
    fastembed_model: str = setting_fields.FASTEMBED_MODEL
    fastembed_pooling: str = setting_fields.FASTEMBED_POOLING
    embed_endpoint_url: str | None = setting_fields.EMBED_ENDPOINT_URL
    embed_endpoint_model: str = setting_fields.EMBED_ENDPOINT_MODEL
    embed_endpoint_key: str | None = setting_fields.EMBED_ENDPOINT_KEY
    embed_endpoint_dimension: int = setting_fields.EMBED_ENDPOINT_DIMENSION
    embed_endpoint_batch: int = setting_fields.EMBED_ENDPOINT_BATCH
    embed_endpoint_timeout_s: float = setting_fields.EMBED_ENDPOINT_TIMEOUT_S
    embed_endpoint_calls: int = setting_fields.EMBED_ENDPOINT_CALLS
    embed_endpoint_per_minute: int | None = setting_fields.EMBED_ENDPOINT_PER_MINUTE
    embed_endpoint_tokens: int | None = setting_fields.EMBED_ENDPOINT_TOKENS
    rerank_endpoint_url: str | None = setting_fields.RERANK_ENDPOINT_URL
    rerank_endpoint_model: str = setting_fields.RERANK_ENDPOINT_MODEL
    rerank_endpoint_key: str | None = setting_fields.RERANK_ENDPOINT_KEY
    rerank_endpoint_timeout_s: float = setting_fields.RERANK_ENDPOINT_TIMEOUT_S
    graph: bool = setting_fields.GRAPH
    graph_endpoint_url: str | None = setting_fields.GRAPH_ENDPOINT_URL
    graph_endpoint_model: str = setting_fields.GRAPH_ENDPOINT_MODEL
    graph_endpoint_key: str | None = setting_fields.GRAPH_ENDPOINT_KEY
    graph_endpoint_timeout_s: float = setting_fields.GRAPH_ENDPOINT_TIMEOUT_S
    graph_endpoint_calls: int = setting_fields.GRAPH_ENDPOINT_CALLS
    graph_endpoint_per_minute: int | None = setting_fields.GRAPH_ENDPOINT_PER_MINUTE
    graph_endpoint_tokens: int | None = setting_fields.GRAPH_ENDPOINT_TOKENS
    graph_store: str = setting_fields.GRAPH_STORE
    graph_store_timeout_s: float = setting_fields.GRAPH_STORE_TIMEOUT_S
    vector_store: str = setting_fields.VECTOR_STORE
    vector_store_timeout_s: float = setting_fields.VECTOR_STORE_TIMEOUT_S
    usearch_from: int = setting_fields.USEARCH_FROM
    max_file_mb: int = _setting(
        types.whole(1, 100_000),
        64,
        "Maximum size in MB of a file that has to be read whole; larger ones are not indexed.",
        project="lower",
    )
    text_limit_mb: int = _setting(
        types.whole(1, 100_000),
        64,
        "Megabytes of a text file, log, table or source file that are indexed, from its start.",
        project="lower",
    )
    archives: bool = _setting(
        types.SWITCH,
        False,
        "Open zip and tar archives as folders; by default they are skipped, unless a request names them.",
    )
    file_time_s: float = _setting(
        types.seconds(0.01, 3600),
        20.0,
        "CPU time for parsing and chunking one file, plus a tenth of this time per MiB; then the file fails.",
        project="lower",
    )
    file_memory_mb: int = _setting(
        types.whole(16, 1_000_000),
        640,
        "Memory in MiB for parsing, for all processes of a worker together; a file which needs more fails.",
        project="lower",
    )
    ocr: bool = setting_fields.OCR
    ocr_workers: int | None = setting_fields.OCR_WORKERS
    ocr_languages: str = setting_fields.OCR_LANGUAGES
    ocr_tessdata_dir: str | None = setting_fields.OCR_TESSDATA_DIR
    ocr_dpi: int = setting_fields.OCR_DPI
    ocr_min_confidence: float = setting_fields.OCR_MIN_CONFIDENCE
    ocr_endpoint_url: str | None = setting_fields.OCR_ENDPOINT_URL
    ocr_endpoint_model: str = setting_fields.OCR_ENDPOINT_MODEL
    ocr_endpoint_key: str | None = setting_fields.OCR_ENDPOINT_KEY
    ocr_endpoint_timeout_s: float = setting_fields.OCR_ENDPOINT_TIMEOUT_S
    pages_dir: str | None = setting_fields.PAGES_DIR
    sqlite_synchronous: Literal["FULL", "NORMAL"] = _setting(
        types.word("FULL", "NORMAL"),
        "FULL",
        "FULL survives a power cut; NORMAL is faster and may lose the last commits.",
    )
    busy_timeout_s: float = _setting(
        types.seconds(0, 3600),
        60.0,
        "Maximum wait for a lock of another process, or for the response of a server.",
    )
    postgres_pool_size: int = setting_fields.POSTGRES_POOL_SIZE
    postgres_pooler: bool = setting_fields.POSTGRES_POOLER
    postgres_timeout_s: float = setting_fields.POSTGRES_TIMEOUT_S
    contract_url: str | None = _setting(
        types.URL, None, "Redis server of the Redis contract; by default the one in its configuration file."
    )
    rag_config: str | None = _setting(types.FILE, None, "YAML file with the RAGs of the Redis contract.")
    rag_away_s: float = setting_fields.RAG_AWAY_S
    roots: tuple[str, ...] = setting_fields.ROOTS
    allow_external: bool = setting_fields.ALLOW_EXTERNAL
    allow_web: bool = setting_fields.ALLOW_WEB
    web_private: bool = setting_fields.WEB_PRIVATE
    web_delay_s: float = setting_fields.WEB_DELAY_S
    web_timeout_s: float = setting_fields.WEB_TIMEOUT_S
    webhook_key: str | None = setting_fields.WEBHOOK_KEY
    webhook_key_file: str | None = setting_fields.WEBHOOK_KEY_FILE
    webhook_private: bool = setting_fields.WEBHOOK_PRIVATE
    hosts: tuple[str, ...] = setting_fields.HOSTS
    proxies: tuple[str, ...] = setting_fields.PROXIES
    rate_limit: int | None = setting_fields.RATE_LIMIT
    metrics_public: bool = setting_fields.METRICS_PUBLIC
    log_format: str = setting_fields.LOG_FORMAT
    serial: bool = setting_fields.SERIAL
    time_zone: str = setting_fields.TIME_ZONE
    body_limit_mb: int = setting_fields.BODY_LIMIT_MB
    server: str | None = setting_fields.SERVER
    api_key: str | None = setting_fields.API_KEY
    api_key_file: str | None = setting_fields.API_KEY_FILE
    uploads_dir: str | None = setting_fields.UPLOADS_DIR
    upload_quota_mb: int | None = setting_fields.UPLOAD_QUOTA_MB
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)

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
    return combine(overrides, os.environ, settings_file.read_all(os.environ, SETTINGS))


def combine(
    overrides: Mapping[str, Any], environ: Mapping[str, str], files: Sequence[settings_file.SettingsFile] = ()
) -> Settings:
    """Combine all sources of settings, and check the result."""
    refuse_unknown(overrides, SETTINGS)
    found = SettingSources(overrides, environ, files)
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
    unknown = ((word, nearest_name(word, known)) for word in words if word not in known)
    return [UnknownVariable(_PREFIX + word, near and _PREFIX + near) for word, near in unknown]


def file_places() -> settings_file.FilePlaces:
    """Where the settings files of this process are, or would be."""
    return settings_file.places(os.environ)


def read_project_file(path: Path) -> settings_file.SettingsFile:
    """Read a project's settings file without applying the values."""
    return settings_file.read(path, "project", SETTINGS, os.environ)


def trust_state(directory: Path, *, trust: bool = True) -> None:
    """Record, or forget, that a state directory is the user's own; see ``penstock.trust``."""
    trust_of_user.trust_state(directory, os.environ, trust=trust)


def _plain(name: str, value: object) -> object:
    if name.endswith(("url", "_store")) and value is not None:
        return StoreUrl(str(value)).masked
    if name.endswith("_key") and value is not None:
        return "***"
    if isinstance(value, Path):
        return str(value)
    return dict(value) if isinstance(value, Mapping) else value

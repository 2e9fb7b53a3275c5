"""One Settings, and the only reader of the environment.

Each field carries what it allows, its other names and its description; docs/reference/settings.md is made
from ``SETTINGS``. Precedence: argument, ``PENSTOCK_*``, the names older tools used, default. An empty
variable counts as not set.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from penstock import setting_types as kinds
from penstock.errors import InvalidName, InvalidSetting
from penstock.state_directory import absolute, default_state
from penstock.store_url import StoreUrl

ARGUMENT = "argument"
DEFAULT = "default"

_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S
_QUEUE = (1, 10_000_000)
_DAYS = kinds.whole(0, 36_500)


class Setting(NamedTuple):
    """One row of the settings reference."""

    name: str
    env: str
    aliases: tuple[str, ...]
    allowed: str
    default: str
    doc: str
    read: Callable[[Any], Any]


class SettingReport(NamedTuple):
    """A setting in use: its value as JSON can hold it, secrets masked, and where the value came from."""

    name: str
    value: object
    source: str


_DERIVED = "(derived)"


def _setting(
    kind: kinds.SettingType,
    default: object,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    env: str = "",
    shown: str = "",
) -> Any:
    metadata = {"kind": kind, "doc": doc, "aliases": aliases, "env": env, "shown": shown or _shown(default)}
    told = kind not in (kinds.URL, kinds.CATALOG_URL)  # it may hold a password
    if default is _DERIVED:
        return dataclasses.field(metadata=metadata, repr=told)
    return dataclasses.field(default_factory=lambda: default, metadata=metadata, repr=told)


def _shown(default: object) -> str:
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, Mapping) or default is None:
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set. Made by ``load``; durations end in ``_s`` (seconds) or ``_days``."""

    url: str = _setting(
        kinds.URL,
        _DERIVED,
        "The store that holds the queue. `?schema=NAME` gives it a schema of its own in PostgreSQL.",
        shown="sqlite:///STATE_DIR/penstock.db",
    )
    state_dir: Path = _setting(  # noqa: RUF009 - what it makes is a field
        kinds.DIRECTORY,
        _DERIVED,
        "Where this machine keeps what it must remember.",
        env="PENSTOCK_STATE",
        shown="the nearest .penstock upwards, else $XDG_STATE_HOME/penstock, else ~/.local/state/penstock",
    )
    catalog_url: str = _setting(
        kinds.CATALOG_URL,
        _DERIVED,
        "The store that holds documents and their tasks.",
        shown="the queue's own when it is SQLite or PostgreSQL, else sqlite:///STATE_DIR/catalog.db",
    )
    tenant_id: str = _setting(kinds.name("tenant_id"), "default", "The tenant of a job that names none.")
    collection: str = _setting(
        kinds.name("collection"), "default", "The collection of a job that names none."
    )
    max_queue: int = _setting(
        kinds.whole(*_QUEUE),
        100,
        "Top-level indexing jobs that may be pending before more are refused.",
        aliases=("AGENT_BRAIN_MAX_QUEUE",),
    )
    max_queue_per_tenant: int | None = _setting(
        kinds.whole_or_none(*_QUEUE), None, "The same limit for each tenant alone."
    )
    max_function_queue: int | None = _setting(
        kinds.whole_or_none(*_QUEUE), None, "Function jobs that may be pending before more are refused."
    )
    max_payload_bytes: int = _setting(
        kinds.whole(1, 1_000_000_000), 4 * 1024 * 1024, "The largest payload accepted, as JSON text."
    )
    max_retries: int = _setting(
        kinds.whole(0, 1000),
        3,
        "Retries after the first attempt of a job that names none.",
        aliases=("AGENT_BRAIN_MAX_RETRIES", "MAX_TASK_RETRIES"),
    )
    job_timeout_s: int = _setting(
        kinds.whole(1, _YEAR_S),
        7200,
        "How long one attempt may run before the job fails.",
        aliases=("AGENT_BRAIN_JOB_TIMEOUT",),
    )
    queue_enabled: bool = _setting(
        kinds.SWITCH,
        True,
        "When false, workers claim nothing; jobs are still accepted and wait.",
        aliases=("TASK_QUEUE_ENABLED",),
    )
    lease_s: float = _setting(
        kinds.LEASE, 300.0, "How long a claimed job stays its worker's without a sign of life."
    )
    lease_by_type: Mapping[str, float] = _setting(
        kinds.LEASES, MappingProxyType({}), "Other leases for some item types."
    )
    task_lease_s: float = _setting(
        kinds.LEASE,
        120.0,
        "How long a claimed page or chunk task stays its worker's without a sign of life.",
        aliases=("STALE_TASK_TIMEOUT",),
    )
    heartbeat_s: float = _setting(
        kinds.seconds(0.1, _DAY_S),
        30.0,
        "How often leases are renewed; shorter than every lease.",
        aliases=("HEARTBEAT_INTERVAL",),
    )
    poll_s: float = _setting(
        kinds.seconds(0.01, 3600),
        1.0,
        "How often an idle worker looks for work when nothing wakes it.",
        aliases=("WORKER_POLL_INTERVAL",),
    )
    upkeep_s: float = _setting(
        kinds.seconds(0.1, _DAY_S),
        60.0,
        "How often lost jobs are taken back and old ones removed.",
        aliases=("TASK_QUEUE_CHECK_INTERVAL",),
    )
    cancel_grace_s: float = _setting(
        kinds.seconds(0, 3600),
        10.0,
        "How long a cancelled job may take to come to a checkpoint before its process is stopped.",
    )
    recycle_after_jobs: int = _setting(
        kinds.whole(0, 1_000_000_000), 0, "Jobs after which a worker process is replaced; 0: never for that."
    )
    recycle_growth_mb: int = _setting(
        kinds.whole(0, 1_000_000),
        512,
        "A worker process whose memory grew by so many MB is replaced after its job; 0: never for that.",
    )
    checkpoint_interval: int = _setting(
        kinds.whole(1, 1_000_000),
        50,
        "Files that a folder walk compares between two progress reports; a cancel counts there.",
        aliases=("AGENT_BRAIN_CHECKPOINT_INTERVAL",),
    )
    retention_days: int = _setting(
        _DAYS, 7, "Days until done and cancelled jobs are removed; 0 keeps them for ever."
    )
    failed_retention_days: int = _setting(
        _DAYS, 30, "Days until failed jobs are removed; 0 keeps them for ever."
    )
    embedder: str = _setting(
        kinds.lower_word("static", "hashing"), "static", "What turns chunks into vectors."
    )
    usearch_from: int = _setting(
        kinds.whole(1, 1_000_000_000),
        200_000,
        "Chunks of a tenant from which on workers keep a usearch index, where the extra is installed.",
    )
    max_file_mb: int = _setting(kinds.whole(1, 100_000), 64, "Larger files are not indexed.")
    file_time_s: float = _setting(
        kinds.seconds(0.01, 3600),
        20.0,
        "CPU time for parsing and chunking one file, plus a tenth of it for each MiB; a slower one fails.",
    )
    file_memory_mb: int = _setting(
        kinds.whole(16, 1_000_000),
        640,
        "MiB that files being parsed may use, all processes of a worker together; one that needs more fails.",
    )
    sqlite_synchronous: Literal["FULL", "NORMAL"] = _setting(
        kinds.word("FULL", "NORMAL"),
        "FULL",
        "FULL survives a power cut; NORMAL is faster and may lose the last commits to one.",
    )
    busy_timeout_s: float = _setting(
        kinds.seconds(0, 3600),
        60.0,
        "How long a call waits for other processes, or for the server's answer, before it gives up.",
    )
    postgres_pool_size: int = _setting(
        kinds.whole(1, 1000),
        4,
        "Connections a process keeps to PostgreSQL at most, beside the one that listens.",
    )
    postgres_pooler: bool = _setting(
        kinds.SWITCH,
        False,
        "True behind a pooler in transaction mode: nothing is prepared, and nobody listens.",
    )
    postgres_timeout_s: float = _setting(
        kinds.seconds(0, 3600),
        60.0,
        "How long PostgreSQL may take for one statement, or a thread wait for a connection; 0 is no limit.",
    )
    contract_url: str | None = _setting(
        kinds.URL, None, "The Redis server of the Redis contract; else the one its configuration names."
    )
    rag_config: str | None = _setting(
        kinds.FILE, None, "The YAML file that says which RAGs the Redis contract serves."
    )
    rag_away_s: float = _setting(
        kinds.seconds(0, _YEAR_S),
        86_400.0,
        "How long messages wait for a RAG that no gateway of the Redis contract serves any more.",
    )
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
            allowed=about["kind"].allowed,
            default=about["shown"],
            doc=about["doc"],
            read=about["kind"].read,
        )
        for name, about in fields
    )


SETTINGS: tuple[Setting, ...] = _rows()
"""Every setting, in the order of the reference."""


def load(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """The settings from arguments (None: not given), the environment and the defaults, checked."""
    environ = os.environ if environ is None else environ
    _refuse_unknown(overrides)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS:
        source, given = _given(setting, environ, overrides)
        sources[setting.name] = source
        if source != DEFAULT:
            values[setting.name] = _read(setting, source, given)
    values["state_dir"] = absolute(values.get("state_dir") or default_state(environ), environ)
    values.setdefault("url", f"sqlite:///{values['state_dir'] / 'penstock.db'}")
    values.setdefault("catalog_url", _default_catalog(values["url"], values["state_dir"]))
    settings = Settings(**values, sources=MappingProxyType(sources))
    _check_together(settings)
    return settings


def _refuse_unknown(overrides: Mapping[str, object]) -> None:
    known = [setting.name for setting in SETTINGS]
    for name in overrides:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InvalidSetting(f"unknown setting {name!r}{hint}")


def _given(
    setting: Setting, environ: Mapping[str, str], overrides: Mapping[str, object]
) -> tuple[str, object]:
    if overrides.get(setting.name) is not None:
        return ARGUMENT, overrides[setting.name]
    for variable in (setting.env, *setting.aliases):
        if environ.get(variable):
            return variable, environ[variable]
    return DEFAULT, None


def _read(setting: Setting, source: str, given: object) -> object:
    try:
        return setting.read(given)
    except (ValueError, TypeError) as error:
        shown = StoreUrl(given).masked if setting.name.endswith("url") and isinstance(given, str) else given
        where = f"{setting.name} (argument)" if source == ARGUMENT else source
        detail = f" ({error})" if isinstance(error, InvalidName) else ""
        raise InvalidSetting(f"{where} = {str(shown)[:200]!r}: expected {setting.allowed}{detail}") from None


def _default_catalog(url: str, state_dir: Path) -> str:
    return url if StoreUrl(url).engine in ("sqlite", "postgres") else f"sqlite:///{state_dir / 'catalog.db'}"


def _check_together(settings: Settings) -> None:
    leases = {"lease_s": settings.lease_s, "task_lease_s": settings.task_lease_s}
    leases |= {f"lease_by_type {item_type}": lease for item_type, lease in settings.lease_by_type.items()}
    for name, lease in leases.items():
        if settings.heartbeat_s >= lease:
            raise InvalidSetting(
                f"heartbeat_s = {settings.heartbeat_s:g}: expected less than {name} = {lease:g}",
                remedy="Shorten PENSTOCK_HEARTBEAT_S or lengthen the lease; a third of it is a good value.",
            )


def portable_values(settings: Settings) -> dict[str, Any]:
    """The settings as keyword arguments of ``load``, for another process in any working directory.

    Paths of stores are resolved, so that all workers of a store agree on its URL however it was spelled.
    """
    values = {setting.name: getattr(settings, setting.name) for setting in SETTINGS}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return plain | {"url": settings.store.resolved, "catalog_url": settings.catalog_store.resolved}


def describe(settings: Settings) -> list[SettingReport]:
    """Every setting with its value and where it came from, safe to show."""
    return [
        SettingReport(
            setting.name,
            _plain(setting.name, getattr(settings, setting.name)),
            settings.sources.get(setting.name, DEFAULT),
        )
        for setting in SETTINGS
    ]


def _plain(name: str, value: object) -> object:
    if name.endswith("url") and value is not None:
        return StoreUrl(str(value)).masked
    if isinstance(value, Path):
        return str(value)
    return dict(value) if isinstance(value, Mapping) else value

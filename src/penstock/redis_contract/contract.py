"""The producers' side: submit a file, read the status of a job, check the health. Makes gateways as well."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import clock
from penstock.config import Settings
from penstock.errors import (
    DriverMissing,
    InvalidMessage,
    InvalidRags,
    InvalidSetting,
    JobNotFound,
    PathNotFound,
    UnsupportedSource,
)
from penstock.extensions import install_remedy
from penstock.pipeline.extract import file_types
from penstock.redis_contract import lists, messages
from penstock.redis_contract.lists import Broker, with_update_time
from penstock.redis_contract.messages import (
    SOURCE_TYPES,
    GatewayHealth,
    Health,
    PreparedMessage,
    SubmitRequest,
    read,
)
from penstock.redis_contract.rags import Rags, load
from penstock.store_url import StoreUrl

if TYPE_CHECKING:
    from penstock.queue.redis.server import Server
    from penstock.redis_contract.gateway import Gateway
    from penstock.service.documents import Documents
    from penstock.service.jobs import Jobs

_HEAD = 4_096
"""Bytes read to tell the type of a file."""
_SUFFIX_TYPES = {"markdown": "md", "text": "txt", "docm": "docx"}
log = logging.getLogger("penstock.gateway")
_ANSWER_S = 30.0
_HOW = "Give --redis URL or --rags FILE, or set PENSTOCK_CONTRACT_URL or PENSTOCK_RAG_CONFIG."


class Contract:
    """Producers' side of the contract. ``rags`` None: status and health only, nothing can be submitted."""

    def __init__(self, broker: Broker, rags: Rags | None) -> None:
        self._broker = broker
        self._rags = rags

    def close(self) -> None:
        self._broker.close()

    # Submission.

    def prepare(self, rag_id: str, path: str, request: SubmitRequest) -> PreparedMessage:
        """Build the message for a file, checked as the gateway does. Nothing is sent.

        Raises ``UnknownRag``, ``PathNotFound``, ``OutsideRag``, ``UnsupportedSource``, ``UnsupportedType`` or
        ``InvalidMessage``.
        """
        if self._rags is None:
            raise InvalidRags(
                "nothing says which RAGs there are",
                remedy="Give --rags FILE or set PENSTOCK_RAG_CONFIG.",
            )
        rag = self._rags.get(rag_id)
        source = os.path.abspath(path)  # noqa: PTH100 - keeps links; place() follows them
        _refuse_unreadable(source)
        place = rag.place(source, Path(source).name)
        source_type = request.source_type or _source_type(source)
        if not request.skip_validation:
            _refuse_other_content(place.read_from, source_type)
        message: dict[str, Any] = {
            "job_id": clock.new_rag_job_id(rag_id),
            "rag_id": rag_id,
            "source_path": source,
            "source_type": source_type,
            "filename": Path(source).name,
            "submitted_at": clock.format_time(clock.now()),
            "submitted_by": request.submitted_by,
            "options": {
                "reindex": request.reindex,
                "skip_validation": request.skip_validation,
                "preserve_metadata": request.preserve_metadata,
            },
            "retry_count": 0,
            "max_retries": 3 if request.max_retries is None else request.max_retries,
        }
        if request.tags:
            message["tags"] = list(request.tags)
        read(message)
        try:
            msgspec.json.encode(message)
        except UnicodeEncodeError:
            raise InvalidMessage("a tag is not valid UTF-8", remedy="Give tags as UTF-8 text.") from None
        key = lists.QUEUE if request.priority is None else f"{lists.QUEUE}:{request.priority}"
        return PreparedMessage(message=message, key=key, collection=rag.collection, moves=place.managed)

    def submit(self, prepared: PreparedMessage) -> None:
        """Write the hash and push the message in one MULTI: no reader sees only one of them."""
        shown = with_update_time(messages.initial_fields(read(prepared.message)))
        flat = [text for pair in shown.items() for text in pair]
        raw = msgspec.json.encode(prepared.message)
        push = ("LPUSH", prepared.key, raw)
        self._broker.calls([("HSET", lists.job_key(shown["job_id"]), *flat), push], together=True)

    # Status and health.

    def status(self, job_id: str) -> dict[str, Any]:
        """Read the hash of a job, with numbers as numbers."""
        key = lists.job_key(job_id).encode("utf-8", "surrogateescape")
        found = _decoded(self._broker.call("HGETALL", key))
        if not found:
            raise JobNotFound(
                f"Redis has no job {job_id[:200]!a}",
                remedy="Check the id; jobs are forgotten seven days after their end.",
            )
        return messages.to_json_values(found)

    def health(self) -> Health:
        found, waiting = self._list_lengths()
        sizes = {key: size for key, size in found.items() if isinstance(size, int)}
        dead = sizes.pop(lists.DEAD_LETTER, 0)
        beat, time = self._broker.calls([("HGETALL", lists.GATEWAYS), ("TIME",)])
        now = int(time[0]) * 1000 + int(time[1]) // 1000
        gateways = [_gateway_health(name, text, now) for name, text in _decoded(beat).items()]
        alive = [one for one in gateways if one.connected]
        ages = [one.beat_age_s for one in gateways if one.beat_age_s is not None]
        total = sum(sizes.values())
        return Health(
            queue_name=lists.QUEUE,
            connection=self._broker.label,
            queue_length=total,
            processing=sum(one.processing for one in alive),
            queued=total + self._count_taken(gateways),
            accepted=sum(one.queued for one in alive),
            dead_letters=dead,
            gateway_connected=bool(alive),
            worker_connected=any(one.workers for one in alive),
            heartbeat_age_s=min(ages, default=None),
            lists=sizes,
            waiting={rag_id: sizes[key] for rag_id, key in waiting.items() if sizes.get(key)},
            misplaced={key: kind for key, kind in found.items() if isinstance(kind, str)},
            gateways=sorted(gateways, key=lambda one: one.name),
        )

    def _list_lengths(self) -> tuple[dict[str, int | str], dict[str, str]]:
        """Return list lengths (or the Redis type of another key), and waiting lists by RAG."""
        own = self._rags.by_id if self._rags is not None else ()
        known = sorted({*own, *_decoded(self._broker.call("HGETALL", lists.RAGS))})
        waiting = {rag_id: lists.waiting_key(rag_id) for rag_id in known}
        named = [*(one.key for one in lists.served_lists(own)), *waiting.values(), lists.DEAD_LETTER]
        named = list(dict.fromkeys(named))
        return dict(zip(named, lists.lengths(self._broker, named), strict=True)), waiting

    def _count_taken(self, gateways: list[GatewayHealth]) -> int:
        """Count messages taken by gateways and not yet handed over."""
        taken = [lists.processing_key(one.name, p) for one in gateways for p in lists.PRIORITIES.values()]
        return sum(self._broker.calls([("LLEN", key) for key in taken]))


def open_contract(settings: Settings) -> Contract:
    """Open the producers' side. Without a configuration only jobs and lists can be shown."""
    rags = load(Path(settings.rag_config)) if settings.rag_config is not None else None
    return Contract(_server(settings, rags), rags)


def make_gateway(settings: Settings, jobs: Jobs, documents: Documents) -> Gateway:
    """Make a gateway into the queue of ``jobs``, with the defaults of the Redis door."""
    from penstock.redis_contract.gateway import Gateway
    from penstock.service.jobs import Jobs

    if settings.rag_config is None:
        raise InvalidSetting(
            "a gateway needs a configuration file with its RAGs",
            remedy="Give --rags FILE or set PENSTOCK_RAG_CONFIG; docs/guides/redis-contract.md shows one.",
        )
    rags = load(Path(settings.rag_config))
    group = hashlib.sha256(settings.store.resolved.encode()).hexdigest()[:8]
    own = Jobs(jobs.queue, settings, door="redis")
    server = _server(settings, rags)
    return Gateway(server, own, documents, rags, group=group, check=lambda: _check(server))


def _check(server: Server) -> None:
    """Refuse an unsuitable server; warn of server settings which could lose messages."""
    server.refuse_old()
    for danger in server.find_risks():
        log.warning("%s", danger)


def _server(settings: Settings, rags: Rags | None) -> Server:
    url = settings.contract_url or (rags.redis_url if rags is not None else None)
    if url is None:
        raise InvalidSetting("no Redis server is configured for the contract", remedy=_HOW)
    if not StoreUrl(url).is_redis_server:
        raise InvalidSetting("the Redis contract needs a redis://, rediss:// or unix:// URL", remedy=_HOW)
    try:
        from penstock.queue.redis.server import Server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "redis":
            raise
        raise DriverMissing(
            "the Redis contract needs the redis package", remedy=install_remedy("redis")
        ) from error
    return Server(url, timeout_s=min(settings.busy_timeout_s, _ANSWER_S), whole=True)


def _refuse_unreadable(path: str) -> None:
    try:
        path.encode()
        found = Path(path).stat()
    except (OSError, ValueError) as error:
        raise PathNotFound(f"{path!a}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(found.st_mode):
        raise PathNotFound(f"{path} is no file", remedy="Name one file; folders are submitted file by file.")
    if not os.access(path, os.R_OK):
        raise PathNotFound(f"{path} may not be read", remedy="Check this user's permissions.")


def _refuse_other_content(path: str, source_type: str) -> None:
    """Raise ``UnsupportedType`` when the start of the file does not match the declared type."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise PathNotFound(f"{path}: {error.strerror}") from None
    file_types.refuse_other_than(source_type, path, head)


def _source_type(path: str) -> str:
    suffix = Path(path).suffix[1:].lower()
    found = _SUFFIX_TYPES.get(suffix, suffix)
    if found not in SOURCE_TYPES:
        shown = f".{suffix} files" if suffix else "files without a suffix"
        raise UnsupportedSource(
            f"{Path(path).name}: the contract has no type for {shown}; it has {', '.join(SOURCE_TYPES)}",
            remedy="Name the type with --type, or convert the file.",
        )
    return found


def _decoded(found: Any) -> dict[str, str]:
    rows = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
    return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in rows}


class _GatewayBeat(msgspec.Struct, frozen=True):
    """A heartbeat as stored in Redis."""

    host: str = "?"
    pid: int = 0
    at: float = 0.0
    queued: int = 0
    processing: int = 0
    workers: int = 0


def _gateway_health(name: str, text: str, now: int) -> GatewayHealth:
    try:
        beat = msgspec.json.decode(text, type=_GatewayBeat)
    except msgspec.DecodeError:
        beat = _GatewayBeat()  # written by another program
    return GatewayHealth(
        name=name,
        host=beat.host,
        pid=beat.pid,
        beat_age_s=max(now - beat.at, 0) / 1000 if beat.at > 0 else None,
        queued=beat.queued,
        processing=beat.processing,
        workers=beat.workers,
    )

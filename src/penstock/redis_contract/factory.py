"""Factories of the Redis contract: the producers' side, and a gateway in front of a queue."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import Settings
from penstock.errors import DriverMissing, InvalidSetting
from penstock.extras import install_remedy
from penstock.redis_contract import rags as configuration
from penstock.redis_contract.contract import Contract
from penstock.redis_contract.rags import Rags
from penstock.store_url import StoreUrl

if TYPE_CHECKING:
    from penstock.queue.redis.server import Server
    from penstock.redis_contract.gateway import Gateway
    from penstock.service.documents import Documents
    from penstock.service.jobs import Jobs

log = logging.getLogger("penstock.gateway")

ANSWER_S = 30.0
_HOW = "Give --redis URL or --rags FILE, or set PENSTOCK_CONTRACT_URL or PENSTOCK_RAG_CONFIG."


def open_contract(settings: Settings) -> Contract:
    """Open the producers' side. Without a configuration only jobs and lists can be shown."""
    rags = configuration.load(Path(settings.rag_config)) if settings.rag_config is not None else None
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
    rags = configuration.load(Path(settings.rag_config))
    group = hashlib.sha256(settings.store.resolved.encode()).hexdigest()[:8]
    own = Jobs(jobs.queue, settings, door="redis")
    server = _server(settings, rags)
    return Gateway(server, own, documents, rags, group=group, check=lambda: _check(server))


def _check(server: Server) -> None:
    """Refuse an unsuitable server; warn of server settings which could lose messages."""
    from penstock.queue.redis.server import find_risks, refuse_old

    refuse_old(server)
    for danger in find_risks(server):
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
    return Server(url, timeout_s=min(settings.busy_timeout_s, ANSWER_S), whole=True)

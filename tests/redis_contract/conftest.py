"""Fixtures: a Redis server, RAGs with folders, and gateways advanced by the test."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.redis_contract import contract
from penstock.redis_contract.gateway import Gateway
from tests.servers.redis import connect, server_url

WAIT_S = 60.0
RAGS = ("policies_rag", "faq_rag", "procedures_rag")
QUEUE = "rag:ingest:queue"


class Town:
    """One installation: Redis, gateway, queue, worker and folders."""

    def __init__(self, place: Path, url: str, queue_url: str | None = None, **settings: Any) -> None:
        self.place = place
        self.url = url
        self.redis: Any = connect(url, decode_responses=True)
        self.shared = place / "shared"
        self.shared.mkdir()
        for rag_id in RAGS:
            (self.inbox(rag_id) / "incoming").mkdir(parents=True)
        self.config = place / "rags.yaml"
        named = "".join(f"  {rag_id}: {{folders: [shared]}}\n" for rag_id in RAGS)
        self.config.write_text(f"redis: {{url: '{url}'}}\nsources: sources\nrags:\n{named}")
        self.settings = config.load(
            {},
            url=queue_url or f"sqlite:///{place}/queue.db",
            state_dir=place / "state",
            contract_url=url,
            rag_config=str(self.config),
            sqlite_synchronous="NORMAL",
            embedder="hashing",
            **settings,
        )
        self.app = Penstock(settings=self.settings)
        self._numbers = iter(range(1_000_000))
        self._gateways: list[Gateway] = []

    def inbox(self, rag_id: str = "policies_rag") -> Path:
        return self.place / "sources" / rag_id

    def put(self, name: str, content: str | bytes, rag_id: str = "policies_rag") -> Path:
        path = self.inbox(rag_id) / "incoming" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def message(self, path: Path | str, rag_id: str = "policies_rag", **more: Any) -> dict[str, Any]:
        number = next(self._numbers)
        return {
            "job_id": f"rag-{rag_id}-1704882600-{number:08x}",
            "rag_id": rag_id,
            "source_path": str(path),
            "source_type": Path(path).suffix[1:] or "txt",
            "filename": Path(path).name,
            "submitted_at": "2025-01-10T20:15:30.123456Z",
        } | more

    def push(self, message: dict[str, Any] | str, key: str = QUEUE) -> str:
        """Push a message with LPUSH, as any producer would."""
        self.redis.lpush(key, message if isinstance(message, str) else json.dumps(message))
        return message["job_id"] if isinstance(message, dict) else ""

    def gateway(self) -> Gateway:
        """Make a gateway in this process; the test calls ``run_round``."""
        made = contract.make_gateway(self.settings, self.app, self.app.documents)
        made.beat()
        self._gateways.append(made)
        return made

    def hash(self, job_id: str) -> dict[str, str]:
        found: dict[str, str] = self.redis.hgetall(f"rag:ingest:job:{job_id}")
        return found

    def settle(self, gateway: Gateway, *job_ids: str, timeout: float = WAIT_S) -> list[dict[str, str]]:
        """Work until the hashes report the end of these jobs."""
        deadline = time.monotonic() + timeout
        with self.app.worker_thread():
            while True:
                gateway.run_round()
                found = [self.hash(job_id) for job_id in job_ids]
                if all(one.get("status") in ("done", "failed") for one in found):
                    return found
                assert time.monotonic() < deadline, found
                time.sleep(0.01)

    def done(self, message: dict[str, Any], key: str = QUEUE) -> dict[str, str]:
        """Push one message and work until the job has ended."""
        self.push(message, key)
        (found,) = self.settle(self.gateway(), message["job_id"])
        return found

    def letters(self) -> list[dict[str, Any]]:
        return [json.loads(one) for one in self.redis.lrange(f"{QUEUE}:dead-letter", 0, -1)]

    def left_over(self) -> dict[str, Any]:
        """Lists, queue length and open jobs: empty unless a message was lost or is in work."""
        lists = [*self.redis.scan_iter("rag:ingest:processing:*"), *self.redis.scan_iter("rag:ingest:file:*")]
        return {
            "lists": lists,
            "queue": self.redis.llen(QUEUE),
            "open": self.redis.hgetall("rag:ingest:open"),
        }

    def found(self, query: str, collection: str = "policies_rag") -> list[str]:
        hits = self.app.search(query, collection=collection, mode="keyword")
        return list(dict.fromkeys(hit.path for hit in hits))

    def empty(self) -> None:
        for key in list(self.redis.scan_iter("rag:ingest:*")):
            self.redis.delete(key)

    def close(self) -> None:
        for gateway in self._gateways:
            gateway.close()
        self.app.close()
        self.redis.close()


NOTHING_LEFT = {"lists": [], "queue": 0, "open": {}}


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path, server_url())
    try:
        yield made
        assert [] == made.app.documents.catalog.audit()
    finally:
        made.empty()
        made.close()

"""Documents through the whole of Penstock: a folder, a worker in a thread, and what a search finds then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.job import Job
from tests.conformance.durable import given_back

WAIT_S = 60.0


class Desk:
    """A folder of files beside an application that indexes it."""

    def __init__(self, app: Penstock, folder: Path) -> None:
        self.app = app
        self.folder = folder

    def put(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def index(self, path: Path | None = None, **options: Any) -> Job:
        """Index the folder, or one path, and answer the job when all of it has ended."""
        with self.app.worker_thread():
            receipt = self.app.index(path or self.folder, **options)
            return self.app.wait(receipt.job_id, timeout=WAIT_S)

    def run(self, item_type: str, op: str, payload: dict[str, Any], **fields: Any) -> Job:
        with self.app.worker_thread():
            receipt = self.app.submit(item_type=item_type, op=op, payload=payload, **fields)
            return self.app.wait(receipt.job_id, timeout=WAIT_S)

    def found(self, query: str, **options: Any) -> list[str]:
        """Names of the files whose chunks answer, each once, best first."""
        hits = self.app.search(query, **options)
        return list(dict.fromkeys(Path(hit.path).name for hit in hits))

    def audit(self) -> list[str]:
        return self.app.documents.catalog.audit()


def _postgres(place: Path) -> str:
    from tests.servers import postgres

    return postgres.store_at(place)


def _redis(place: Path) -> str:
    from tests.servers.redis import queue_url

    return queue_url(place)


QUEUES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda place: f"sqlite:///{place}/queue.db",
    "jsonl": lambda place: f"jsonl://{place}/queue",
    "postgres": _postgres,
    "redis": _redis,
}


@pytest.fixture(params=QUEUES)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """With a queue in SQLite or PostgreSQL and the catalog in the same file or database; and with one in
    JSONL or Redis and the catalog in a SQLite file beside it."""
    settings = config.load(
        {},
        url=QUEUES[request.param](tmp_path),
        state_dir=tmp_path / "state",
        embedder="hashing",
        sqlite_synchronous="NORMAL",
    )
    folder = tmp_path / "files"
    folder.mkdir()
    with Penstock(settings=settings) as app:
        yield Desk(app, folder)
        assert [] == app.documents.catalog.audit()
    given_back(tmp_path)

"""Documents through the whole of Penstock: a folder, a worker in a thread, and what a search finds then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.job import Job

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


@pytest.fixture(params=["sqlite", "jsonl"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """With the queue in SQLite, catalog in the same file; and with a JSONL queue, catalog beside it."""
    url = {"sqlite": f"sqlite:///{tmp_path}/queue.db", "jsonl": f"jsonl://{tmp_path}/queue"}[request.param]
    settings = config.load(
        {}, url=url, state_dir=tmp_path / "state", embedder="hashing", sqlite_synchronous="NORMAL"
    )
    folder = tmp_path / "files"
    folder.mkdir()
    with Penstock(settings=settings) as app:
        yield Desk(app, folder)
        assert [] == app.documents.catalog.audit()

"""The suite of every catalog: each promise of the protocol, tested once.

Every call passes ``now=``, so no test sleeps. A catalog joins with one line in ``CATALOGS``. Whatever a test
does, at its end nothing may be out of joint: the fixture audits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.catalog.graph import Entity, Extraction, Relation
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.rules.identity import text_hash
from penstock.catalog.values import (
    Document,
    Filters,
    Fingerprints,
    NewChunk,
    NewGeneration,
    NewPage,
    Phase,
    Place,
    Source,
    StoreResult,
    Task,
    TaskOutcome,
    TaskRequest,
    TaskStatus,
)
from penstock.queue.retry import Classification
from tests.conformance.durable_engines import given_back

T0 = datetime(2026, 1, 1, tzinfo=UTC)
DOCS = Place("acme", "docs")
GRAPH = Fingerprints(graphrag="graph-1")
VECTOR = b"\x00\x00\x80?" * 4
TRANSIENT = Classification("transient", "ERR_NETWORK")
PERMANENT = Classification("permanent", "ERR_PARSE")
TASK_LEASE = timedelta(seconds=120)


def completed_graph(task: Task, entities: int, relationships: int) -> TaskOutcome:
    """The end of a graph task with so many entities, and relations of the first to others."""
    found = [Entity(f"Entity {number}", "name") for number in range(entities)]
    pairs = [(kind, other) for kind in ("a", "b", "c", "d", "e") for other in found[1:] or found]
    relations = [Relation(found[0], kind, other) for kind, other in pairs[:relationships]]
    return publication.completed_graph(task, Extraction(dict.fromkeys(found, 1), relations))


def _sqlite(place: Path) -> Catalog:
    from penstock.catalog.sql.sqlite import SqliteCatalog

    # A killed process loses nothing without the sync; only a power cut would, which no test can make.
    return SqliteCatalog(place / "catalog.db", synchronous="NORMAL")


def _postgres(place: Path) -> Catalog:
    from penstock.catalog.sql.postgres import PostgresCatalog
    from tests.servers import postgres

    return PostgresCatalog(postgres.store_at(place))


CATALOGS: dict[str, Callable[[Path], Catalog]] = {"sqlite": _sqlite, "postgres": _postgres}


@pytest.fixture(params=CATALOGS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Catalog]]:
    """Open the test's catalog; each call opens the same store again."""
    catalogs: list[Catalog] = []

    def open_one() -> Catalog:
        catalogs.append(CATALOGS[request.param](tmp_path))
        return catalogs[-1]

    yield open_one
    for catalog in catalogs:
        catalog.close()
    given_back(tmp_path)


@pytest.fixture
def catalog(opened: Callable[[], Catalog]) -> Iterator[Catalog]:
    catalog = opened()
    yield catalog
    assert [] == catalog.audit()


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def chunk(text: str, vector: bytes | None = VECTOR, **fields: Any) -> NewChunk:
    return NewChunk(text=text, text_hash=text_hash(text), start=0, end=len(text), vector=vector, **fields)


def page(*texts: str, number: int = 1, vector: bytes | None = VECTOR) -> NewPage:
    return NewPage(number=number, chunks=tuple(chunk(text, vector) for text in texts))


def pages(count: int) -> tuple[NewPage, ...]:
    """Pages still to be read."""
    return tuple(NewPage(number=number) for number in range(1, count + 1))


def late(count: int, number: int = 1) -> NewPage:
    """A read page with chunks to be embedded."""
    return NewPage(number=number, chunks=tuple(chunk(f"{number} {n}", None) for n in range(count)))


def generation(path: str = "/a.md", *parts: NewPage, **fields: Any) -> NewGeneration:
    """Read when it was asked for, at T0 unless told; its hash follows from its parts. ``graph``: with tasks
    of that phase."""
    asked_at = fields.pop("asked_at", T0)
    defaults: dict[str, Any] = {
        "place": DOCS,
        "path": path,
        "pages": parts or (page("some text"),),
        "content_hash": text_hash(repr(parts)),
        "asked_at": asked_at,
        "read_at": asked_at,
        "space": "static",
        "fingerprints": GRAPH if fields.pop("graph", False) else Fingerprints(),
    }
    return NewGeneration(**(defaults | fields))


def put(
    catalog: Catalog, path: str = "/a.md", *parts: NewPage, now: datetime = T0, **fields: Any
) -> StoreResult:
    (stored,) = catalog.store([generation(path, *parts, **fields)], now=now)
    return stored


def begin(catalog: Catalog, path: str = "/a.pdf", count: int = 2, **fields: Any) -> int:
    """Store a document with unread pages; return the id."""
    stored = put(catalog, path, *pages(count), **fields)
    assert stored.document_id is not None
    return stored.document_id


def take(
    catalog: Catalog, lane: Phase, limit: int = 1000, now: datetime = T0, worker: str = "w1"
) -> list[Task]:
    return catalog.claim(TaskRequest(lane, worker, limit), now=now)


def settle(catalog: Catalog, ended: Sequence[TaskOutcome], now: datetime = T0) -> list[TaskStatus | None]:
    return catalog.settle(ended, now=now)


def read(catalog: Catalog, *texts: str, now: datetime = T0, vector: bytes | None = None) -> None:
    """Claim all pages that wait, and end each with these chunks, its number in front."""
    tasks = take(catalog, Phase.OCR, now=now)
    made = [
        NewPage(
            number=task.page_number,
            chunks=tuple(chunk(f"{task.page_number} {text}", vector) for text in texts),
        )
        for task in tasks
    ]
    catalog.settle(
        [publication.completed_page(task, page) for task, page in zip(tasks, made, strict=True)], now=now
    )


def embed(catalog: Catalog, now: datetime = T0, stored: str | None = None) -> int:
    """Claim and embed all pending chunks; return the count. ``stored``: the store that has them."""
    tasks = take(catalog, Phase.VECTOR, now=now)
    catalog.settle([publication.completed_vector(task, VECTOR, stored) for task in tasks], now=now)
    return len(tasks)


def sweep(catalog: Catalog, now: datetime = T0) -> None:
    """Clear the outbox as upkeep does, except for job entries."""
    while entries := [entry for entry in catalog.outbox() if entry.kind == "leftover"]:
        catalog.clear([entry.entry_id for entry in entries], now=now)


def found(catalog: Catalog, words: str, **filters: Any) -> set[str]:
    """Texts of published chunks with any of the words."""
    with catalog.snapshot() as snapshot:
        hits = snapshot.keyword(words, Filters(tenant_id="acme", **filters), limit=1000)
        return {view.text for view in snapshot.hydrate([hit.content_id for hit in hits]) if view}


def document(catalog: Catalog, document_id: int) -> Document:
    with catalog.snapshot() as snapshot:
        seen = snapshot.document(document_id)
    assert seen is not None
    return seen


def source(catalog: Catalog, path: str = "/a.md", place: Place = DOCS) -> Source | None:
    with catalog.snapshot() as snapshot:
        return snapshot.find(place, path)


def vectors(catalog: Catalog, space: str = "static", tenant: str = "acme") -> int:
    """How many vectors of published chunks there are."""
    with catalog.snapshot() as snapshot:
        return sum(len(batch.content_ids) // 8 for batch in snapshot.load(tenant, space))


def give_up_silent(catalog: Catalog, now: datetime) -> None:
    """End the tasks of workers without a sign of life as lost."""
    late = catalog.expired(lease=TASK_LEASE, now=now)
    settle(catalog, [publication.lost(claim) for claim in late], now=now)

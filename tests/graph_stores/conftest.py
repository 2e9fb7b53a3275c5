"""A graph to be read, in every store: the catalog's own tables, and a copy on a real Bolt server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.catalog.graph import Extraction, GraphReader
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import Phase, Place, Removal, Task
from penstock.graph_stores.neo4j import Neo4jCopy
from penstock.graph_stores.protocol import GraphStoreUrl
from penstock.graph_stores.reader import CopyReader
from penstock.handlers.outside_stores import GraphCopies
from tests.catalog.conftest import CATALOGS, at, page, put, settle, sweep, take
from tests.catalog.test_graph import GRAPHS
from tests.conformance.durable_engines import given_back
from tests.servers import bolt

needs_bolt = pytest.mark.skipif(not bolt.available(), reason="no Bolt server: see TEST_PENSTOCK_NEO4J_URL")


class GraphUnderTest:
    """A catalog, and a copy of its graph, if any. ``graphs``: entities by the first word of a text."""

    def __init__(self, catalog: Catalog, copy: Neo4jCopy | None) -> None:
        self.catalog = catalog
        self.copy = copy
        self.copies = GraphCopies(catalog, copy) if copy is not None else None
        self.graphs: dict[str, Extraction] = dict(GRAPHS)

    @property
    def reader(self) -> GraphReader:
        if self.copy is None or self.copies is None:
            return self.catalog.graph
        return CopyReader(self.copy, self.copies.attach(), self.catalog.graph_texts, self.catalog.graph)

    def index(self, path: str, *texts: str, seconds: int = 0, tenant: str = "acme") -> None:
        place = Place(tenant, "docs")
        put(self.catalog, path, page(*texts), graph=True, place=place, asked_at=at(seconds), now=at(seconds))
        self.extract()

    def extract(self) -> int:
        tasks = take(self.catalog, Phase.GRAPHRAG)
        ended = [publication.completed_graph(task, self.found(task)) for task in tasks]
        settle(self.catalog, self.copies.written(tasks, ended) if self.copies is not None else ended)
        return len(tasks)

    def found(self, task: Task) -> Extraction:
        return self.graphs[task.text.split()[0]]

    def remove(self, path: str | None = None, seconds: int = 1) -> None:
        removal = Removal(tenant_id="acme", path=path, asked_at=at(seconds))
        self.catalog.remove(removal, now=at(seconds))
        self.clear(seconds)

    def clear(self, seconds: int = 1) -> None:
        """Remove what no published document has any more."""
        sweep(self.catalog, now=at(seconds) + timedelta(seconds=1))
        while self.copies is not None and self.copies.clear_removals():
            continue

    def ids(self, name: str) -> list[int]:
        return [node.id for node in self.reader.find("acme", name)]

    def differences(self) -> list[str]:
        return self.copies.differences() if self.copies is not None else []


@pytest.fixture
def open_copy() -> Iterator[Callable[[], Neo4jCopy]]:
    opened: list[Neo4jCopy] = []

    def open_one() -> Neo4jCopy:
        opened.append(Neo4jCopy(GraphStoreUrl(bolt.server_url()), 60.0))
        return opened[-1]

    yield open_one
    for copy in opened:
        copy.close()


@pytest.fixture(
    params=[
        "sqlite",
        "postgres",
        pytest.param("sqlite+neo4j", marks=needs_bolt),
        pytest.param("postgres+neo4j", marks=needs_bolt),
    ]
)
def graph(
    request: pytest.FixtureRequest, tmp_path: Path, open_copy: Callable[[], Neo4jCopy]
) -> Iterator[GraphUnderTest]:
    engine, _, copied = request.param.partition("+")
    catalog = CATALOGS[engine](tmp_path)
    made = GraphUnderTest(catalog, open_copy() if copied else None)
    yield made
    assert [] == catalog.audit()
    assert [] == made.differences()
    if made.copy is not None and made.copies is not None:
        made.copy.clear(made.copies.attach())
    catalog.close()
    given_back(tmp_path)

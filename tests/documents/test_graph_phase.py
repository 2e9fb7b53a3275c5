"""The phase that extracts entities: wanted by request or setting, run after the vectors, kept and removed."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.catalog.values import Phase
from penstock.handlers.graphs import ChunkGraphs
from tests.documents.conftest import IndexedFolder

PROSE = "# Guide\n\nAnn Marlow of Acme Inc. went to Porto.\n"
CODE = "from .tools import grind\n\n\nclass Mill:\n    def run(self):\n        return grind()\n"


# Two engines of the catalog; the queue makes no difference here.
pytestmark = pytest.mark.parametrize("docs", ["sqlite", "postgres"], indirect=True)


def run(docs: IndexedFolder, **options: Any) -> None:
    with docs.manual_worker() as worker:
        docs.app.index(docs.folder, include_code=True, **options)
        worker.drain()


def names(docs: IndexedFolder) -> set[str]:
    graph = docs.app.documents.catalog.graph
    found = {node.name for node, _ in graph.nodes(docs.app.settings.tenant_id)}
    return {name.removeprefix(f"{docs.folder}/") for name in found}


def edges(docs: IndexedFolder) -> set[tuple[str, str, str]]:
    graph, tenant = docs.app.documents.catalog.graph, docs.app.settings.tenant_id
    named = {node.id: node.name.removeprefix(f"{docs.folder}/") for node, _ in graph.nodes(tenant)}
    return {(named[edge.source], edge.kind, named[edge.target]) for edge, _ in graph.edges(tenant)}


def test_prose_and_code_become_one_graph(docs: IndexedFolder):
    docs.put("guide.md", PROSE + "\nSee [the mill](pkg/mill.py).\n")
    docs.put("pkg/__init__.py", "")
    docs.put("pkg/mill.py", CODE)
    docs.put("pkg/tools.py", "def grind():\n    return 1\n")
    docs.put("data.csv", "name,town\nAnn,Porto\n")
    run(docs, graph=True)

    assert edges(docs) == {
        ("guide.md", "contains", "guide.md#Guide"),
        ("guide.md#Guide", "links", "pkg/mill.py"),
        ("Ann Marlow", "related", "Acme Inc."),
        ("Acme Inc.", "related", "Porto"),
        ("pkg.mill", "imports", "pkg.tools"),
        ("pkg.mill", "defines", "pkg.mill.Mill"),
        ("pkg.mill.Mill", "defines", "pkg.mill.Mill.run"),
        ("pkg.mill.Mill.run", "calls", "pkg.tools.grind"),
        ("pkg.tools", "defines", "pkg.tools.grind"),
    }
    assert [] == docs.open_tasks()


def test_without_a_request_nothing_is_extracted_and_what_was_stays(docs: IndexedFolder):
    docs.put("guide.md", PROSE)
    run(docs)
    assert names(docs) == set()

    run(docs, graph=True)
    found = names(docs)
    assert {"Ann Marlow", "Acme Inc.", "Porto", "guide.md", "guide.md#Guide"} == found
    run(docs)
    assert names(docs) == found
    docs.put("guide.md", PROSE.replace("Porto", "Lisbon"))
    run(docs)
    assert names(docs) == found - {"Porto"} | {"Lisbon"}

    run(docs, graph=False)
    assert names(docs) == set()


def test_the_graph_goes_with_its_file(docs: IndexedFolder):
    path = docs.put("guide.md", PROSE)
    docs.put("other.md", "Ann Marlow again.")
    run(docs, graph=True)
    path.unlink()
    run(docs)
    assert names(docs) == {"Ann Marlow", "other.md"}


def test_a_text_that_cannot_be_extracted_fails_alone(docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch):
    docs.put("bad.txt", "Bad Apple stood there.")
    docs.put("good.txt", "Ann Marlow stood there.")
    extract = ChunkGraphs.extract

    def fail(self: ChunkGraphs, tasks: Any) -> Any:
        if any("Bad" in task.text for task in tasks):
            raise ValueError("no entities here")
        return extract(self, tasks)

    monkeypatch.setattr(ChunkGraphs, "extract", fail)
    with docs.manual_worker() as worker:
        docs.app.index(docs.folder, graph=True)
        worker.drain()
        assert names(docs) == {"Ann Marlow"}
        assert ["graphrag_chunks failed"] == docs.unsettled(worker)
    assert {"bad.txt", "good.txt"} == set(docs.found("stood"))


def test_code_is_read_once_for_many_tasks(docs: IndexedFolder, monkeypatch: pytest.MonkeyPatch):
    docs.put("long.py", "".join(f"def f{n}():\n    return {'x' * 900!r}\n\n\n" for n in range(30)))
    read: list[int] = []
    whole = ChunkGraphs._whole

    def count(*given: Any) -> Any:
        read.append(1)
        return whole(*given)

    monkeypatch.setattr(ChunkGraphs, "_whole", count)
    with docs.manual_worker() as worker:
        docs.app.index(docs.folder, include_code=True, graph=True)
        while worker.run_jobs() is not None:
            continue
        tasks = worker.claim(Phase.GRAPHRAG)
        assert len(tasks) > 10
        for start in range(0, len(tasks), 8):
            worker.catalog.settle(worker.phases.run(Phase.GRAPHRAG, tasks[start : start + 8]))
        worker.drain()
    assert [1] == read
    assert {f"long.f{n}" for n in range(30)} < names(docs)

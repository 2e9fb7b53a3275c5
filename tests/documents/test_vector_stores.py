"""Documents with their vectors in a store outside the catalog, from the file to the hit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, clock, config
from penstock.catalog.parts import OutsideStore
from penstock.catalog.values import Phase, TaskRequest
from penstock.handlers.context import Registry
from penstock.vector_stores.protocol import Point, VectorStore, collection_name
from penstock.worker.upkeep import Sweeper
from tests.documents.conftest import WAIT_S, IndexedFolder, book

PAIRS = [
    ("sqlite", "qdrant+local"),
    ("sqlite", "chroma"),
    ("sqlite", "pgvector"),
    ("postgres", "chroma+local"),
    ("postgres", "pgvector"),
]
"""Catalogs and stores."""
on_sqlite = pytest.mark.parametrize("docs", ["sqlite"], indirect=True)


def store_url(engine: str, docs: IndexedFolder) -> str:
    if engine.startswith("qdrant"):
        pytest.importorskip("qdrant_client")
    if engine.startswith("chroma"):
        pytest.importorskip("chromadb")
    if engine == "chroma":
        from tests.servers import chroma

        return chroma.shared_url()
    if engine == "pgvector":
        from tests.servers import postgres

        return postgres.store_at(docs.folder.parent).replace("postgresql", "pgvector", 1)
    return f"{engine}:{docs.folder.parent}/{engine}"


@contextmanager
def using(docs: IndexedFolder, url: str, **values: Any) -> Iterator[IndexedFolder]:
    given = config.portable_values(docs.app.settings) | {"vector_store": url} | values
    with Penstock(settings=config.load({}, **given)) as app:
        yield IndexedFolder(app, docs.folder)


def contents(docs: IndexedFolder) -> tuple[set[int], set[int]]:
    """Numbers of the vectors in the catalog and of the points in the store."""
    outside = docs.app.documents.catalog.outside
    (space,) = outside.spaces()
    return outside.vector_ids(space), store_of(docs).ids(collection_of(docs))


def collection_of(docs: IndexedFolder) -> str:
    outside = docs.app.documents.catalog.outside
    attached = outside.attached(OutsideStore.VECTOR)
    assert attached is not None
    (space,) = outside.spaces()
    return collection_name(attached.catalog_id, space)


def store_of(docs: IndexedFolder) -> VectorStore:
    store = docs.app._assembly.vector_store
    assert store is not None
    return store


@pytest.mark.parametrize(("docs", "engine"), PAIRS, indirect=["docs"])
def test_a_document_is_published_found_changed_and_removed(docs: IndexedFolder, engine: str):
    with using(docs, store_url(engine, docs)) as outside:
        outside.put("mill.md", "# The mill\n\nWater turns the wheel.")
        outside.put("book.md", book(12))
        done = outside.index()
        assert "done" == done.status, done.error_message
        known, there = contents(outside)
        assert known == there
        assert len(there) > 10
        assert ["mill.md"] == outside.found("water turns the wheel", mode="vector", limit=1)

        outside.put("mill.md", "# The mill\n\nWind drives the sails.")
        (outside.folder / "book.md").unlink()
        outside.index()
        settle_removals(outside)
        known, there = contents(outside)
        assert known == there
        assert 1 == len(there)
        assert ["mill.md"] == outside.found("wind drives sails", mode="vector")
        assert [] == list(outside.app._assembly.verifier.differences())


def settle_removals(docs: IndexedFolder) -> None:
    """Run a worker until nothing is left to be removed from the store."""
    catalog = docs.app.documents.catalog
    with docs.app.worker_thread():
        docs.app.wait(docs.app.index(docs.folder).job_id, timeout=WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while catalog.outbox() or catalog.outside.pending_removals(OutsideStore.VECTOR, 1):
            assert time.monotonic() < deadline
            catalog.wait(0.05)


@on_sqlite
def test_a_store_of_a_filled_catalog_is_filled_by_verify_without_embedding(docs: IndexedFolder):
    docs.put("mill.md", "# The mill\n\nWater turns the wheel.")
    docs.put("book.md", book(6))
    docs.index()
    with using(docs, store_url("qdrant+local", docs)) as outside:
        verifier = outside.app._assembly.verifier
        assert ["mill.md"] == outside.found("water turns the wheel", mode="vector", limit=1)
        assert "penstock verify --fix" in notes(outside)
        (difference,) = verifier.differences()
        assert "is new and lacks 7 vectors" in difference.what

        assert 7 == verifier.repair()

        assert [] == list(verifier.differences())
        known, there = contents(outside)
        assert known == there
        assert ["mill.md"] == outside.found("water turns the wheel", mode="vector", limit=1)
        assert "" == notes(outside)


@pytest.mark.parametrize(
    ("docs", "engine"), [("sqlite", "pgvector"), ("postgres", "chroma+local")], indirect=["docs"]
)
def test_a_worker_fills_a_new_store_batch_by_batch_and_searches_read_the_catalog_meanwhile(
    docs: IndexedFolder, engine: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("penstock.handlers.outside_stores.AT_ONCE", 4)
    mill = docs.put("mill.md", "# The mill\n\nWater turns the wheel.")
    docs.put("book.md", book(6))
    docs.index()
    with using(docs, store_url(engine, docs)) as outside:
        documents = outside.app.documents
        assert [(False, 0)] == [(one.filled, one.copied) for one in documents.overview().stores]
        for copied in (4, 7):
            # Each time another worker, as if the former one was killed.
            tools = outside.app._assembly.open_document_tools(Registry())
            with closing(tools):
                tools.phases.keep_stores()
            assert len(contents(outside)[1]) == copied
            assert [(False, copied)] == [(one.filled, one.copied) for one in documents.overview().stores]
            assert ["mill.md"] == outside.found("water turns the wheel", mode="vector", limit=1)
            assert "does not hold all vectors (about " in notes(outside)
            assert any(f"{copied} vectors copied" in one for one in documents.why(mill).warnings)
        checked = {one.subject: one for one in outside.app._assembly.diagnosis().checks if one.remedy}
        assert "is not filled" in checked["catalog"].detail
        outside.put("new.md", "# New\n\nWind drives the sails.")
        outside.index()
        until_filled(outside)
        known, there = contents(outside)
        assert known == there
        assert 8 == len(known)
        assert "" == notes(outside)
        assert () == documents.why(mill).warnings


def until_filled(docs: IndexedFolder) -> None:
    with docs.app.worker_thread():
        docs.app.wait(docs.app.index(docs.folder).job_id, timeout=WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while not all(store.filled for store in docs.app.documents.overview().stores):
            assert time.monotonic() < deadline
            time.sleep(0.02)


@on_sqlite
@pytest.mark.parametrize("lost", ["all", "newest"])
def test_a_worker_fills_a_store_again_that_was_emptied_or_restored(docs: IndexedFolder, lost: str):
    with using(docs, store_url("pgvector", docs)) as outside:
        outside.put("mill.md", "# The mill\n\nWater turns the wheel.")
        outside.put("book.md", book(6))
        outside.index()
        known, there = contents(outside)
        assert known == there
        if lost == "all":
            store_of(outside).drop(collection_of(outside))
        else:
            store_of(outside).delete(collection_of(outside), sorted(known)[-2:])
        until_filled(outside)
        deadline = time.monotonic() + WAIT_S
        with outside.app.worker_thread():
            outside.app.wait(outside.app.index(outside.folder).job_id, timeout=WAIT_S)
            while contents(outside) != (known, known):
                assert time.monotonic() < deadline
                time.sleep(0.02)


@on_sqlite
def test_the_worker_command_fills_a_new_store_before_it_is_idle(docs: IndexedFolder):
    docs.put("book.md", book(6))
    docs.index()
    with using(docs, store_url("pgvector", docs)) as outside:
        worker = outside.app._assembly.worker(processes=1, until_idle=True)
        worker.run(announce=lambda: None)
        known, there = contents(outside)
        assert known == there
        assert 6 == len(known)
        assert "" == notes(outside)


@on_sqlite
@pytest.mark.parametrize("engine", ["qdrant+local", "pgvector"])
def test_a_damaged_or_lost_store_is_repaired(docs: IndexedFolder, engine: str):
    with using(docs, store_url(engine, docs)) as outside:
        outside.put("mill.md", "# The mill\n\nWater turns the wheel.")
        outside.put("book.md", book(6))
        outside.index()
        verifier, store = outside.app._assembly.verifier, store_of(outside)
        collection = collection_of(outside)
        known, there = contents(outside)
        store.delete(collection, sorted(there)[:2])
        store.upsert(collection, [stray(10**9)])
        lacking, too_many = (one.what for one in verifier.differences())
        assert "lacks 2 vectors" in lacking
        assert "has 1 vector" in too_many
        assert 3 == verifier.repair()
        assert (known, known) == contents(outside)

        store.drop(collection)
        assert ["mill.md"] == outside.found("water turns the wheel", mode="vector", limit=1)
        assert "has lost its collection" in notes(outside)
        assert 7 == verifier.repair()
        assert (known, known) == contents(outside)
        assert "" == notes(outside)


def stray(number: int) -> Point:
    """A point that belongs to no text."""
    return Point(number, "default", 1, b"\0\0\x80?" * 256)


def notes(docs: IndexedFolder) -> str:
    return " ".join(docs.app._assembly.search.ask("water", mode="vector").notes)


@on_sqlite
def test_a_point_that_is_not_published_is_never_shown(docs: IndexedFolder):
    with using(docs, store_url("qdrant+local", docs)) as outside:
        outside.put("mill.md", "# The mill\n\nWater turns the wheel.")
        outside.index()
        store = store_of(outside)
        collection = collection_of(outside)
        strays = [stray(10**9 + number) for number in range(40)]
        store.upsert(collection, strays)
        assert ["mill.md"] == outside.found("water", mode="vector", limit=1)
        assert [] == outside.found("water", mode="vector", tenant_id="other")


@on_sqlite
def test_tasks_wait_for_a_store_that_is_down_and_go_on_by_themselves(docs: IndexedFolder, tmp_path: Path):
    pytest.importorskip("chromadb")
    from tests.servers.chroma import ChromaServer

    server = ChromaServer(tmp_path / "chroma")
    with using(docs, server.url) as outside:
        outside.put("mill.md", "# The mill\n\nWater turns the wheel.")
        tools = outside.app._assembly.open_document_tools(Registry())
        with outside.manual_worker() as worker, closing(tools):
            job = outside.app.index(outside.folder / "mill.md")
            worker.run_jobs()
            for hour in range(5):
                now = clock.now() + timedelta(hours=hour)
                (task,) = tools.catalog.claim(TaskRequest(Phase.VECTOR, "w", 256), now=now)
                (ended,) = tools.phases.run(Phase.VECTOR, [task])
                assert 0 == ended.retry_count
                assert ended.retry_after
                assert ended.message
                assert "vector store" in ended.message
                tools.catalog.settle([ended], now=now)
            with tools.catalog.snapshot() as snapshot:
                # Not embedded again by the next attempt.
                assert task.source.space
                assert snapshot.vectors("default", task.source.space, [task.text_hash])
        assert not outside.app.job(job.job_id).ended
        tools = outside.app._assembly.open_document_tools(Registry())
        server.start()
        try:
            now = clock.now() + timedelta(hours=9)
            with closing(tools):
                (task,) = tools.catalog.claim(TaskRequest(Phase.VECTOR, "w", 256), now=now)
                tools.catalog.settle(tools.phases.run(Phase.VECTOR, [task]), now=now)
            assert "done" == outside.finish(job.job_id).status
            known, there = contents(outside)
            assert known == there
            assert 1 == len(there)
        finally:
            server.stop()
        assert ["mill.md"] == outside.found("water turns the wheel", mode="vector")
        assert "the catalog's own vectors were searched: " in notes(outside)


@on_sqlite
def test_a_task_that_lost_its_claim_takes_its_points_back(docs: IndexedFolder):
    with using(docs, store_url("pgvector", docs)) as outside:
        outside.put("mill.md", "# The mill\n\nWater turns the wheel.")
        tools = outside.app._assembly.open_document_tools(Registry())
        with outside.manual_worker() as worker, closing(tools):
            outside.app.index(outside.folder / "mill.md")
            worker.run_jobs()
            tasks = tools.catalog.claim(TaskRequest(Phase.VECTOR, "w", 256))
            ended = tools.phases.run(Phase.VECTOR, tasks)
            tools.catalog.drop(tasks[0].source.document_id, "test")
            sweeper = Sweeper(tools.catalog)
            while sweeper.clear_leftovers():
                pass
            assert 1 == len(contents(outside)[1])
            assert [None] == tools.catalog.settle(ended)
            tools.phases.settled([task.task_id for task in tasks], {task.task_id for task in tasks})
            tools.phases.clear_removals()
            assert (set(), set()) == contents(outside)


@on_sqlite
def test_another_setting_detaches_the_store(docs: IndexedFolder):
    with using(docs, store_url("pgvector", docs)) as outside:
        outside.put("mill.md", "# The mill\n\nWater turns the wheel.")
        outside.index()
    docs.put("book.md", book(3))
    (docs.folder / "mill.md").unlink()
    docs.index()
    assert docs.app.documents.catalog.outside.attached(OutsideStore.VECTOR) is None
    assert ["book.md"] == docs.found("subject1", mode="vector", limit=1)
    with using(docs, store_url("pgvector", docs)) as outside:
        assert ["book.md"] == outside.found("subject1", mode="vector", limit=1)
        assert "does not hold all vectors" in notes(outside)
        until_filled(outside)
        # What was removed meanwhile is removed there, too.
        known, there = contents(outside)
        assert known == there
        assert 3 == len(known)
        assert "" == notes(outside)


@on_sqlite
def test_verify_leaves_recorded_removals_to_workers(docs: IndexedFolder):
    with using(docs, store_url("pgvector", docs)) as outside:
        path = outside.put("mill.md", "# The mill\n\nWater turns the wheel.")
        outside.put("book.md", book(3))
        outside.index()
        path.unlink()
        with outside.manual_worker() as worker:
            outside.app.index(outside.folder)
            worker.drain()
        known, there = contents(outside)
        assert 1 == len(there - known)
        assert [] == list(outside.app._assembly.verifier.differences())
        assert 0 == outside.app._assembly.verifier.repair()
        settle_removals(outside)
        known, there = contents(outside)
        assert known == there


@pytest.mark.parametrize("command", [["status"], ["search", "mill", "--mode", "keyword"]])
def test_no_client_is_loaded_by_commands_that_need_none(tmp_path: Path, command: list[str]):
    code = (
        "import sys; sys.argv = ['penstock', *sys.argv[1:]]\n"
        "from penstock.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', sorted({'qdrant_client', 'chromadb'} & set(sys.modules)))\n"
    )
    environment = {"PENSTOCK_STATE": str(tmp_path), "PENSTOCK_EMBEDDER": "hashing"}
    for url in (f"qdrant+local:{tmp_path}/q", "chroma://127.0.0.1:9"):
        ran = subprocess.run(
            [sys.executable, "-c", code, *command],
            env=os.environ | environment | {"PENSTOCK_VECTOR_STORE": url},
            capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert "LOADED []" in ran.stdout, ran.stdout + ran.stderr

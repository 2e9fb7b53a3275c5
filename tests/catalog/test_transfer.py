"""All rows of a catalog in another one: the same documents, texts, vectors and graph, in both dialects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.catalog.parts import ImportedRow, PortableTable
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.values import LedgerEntry, LedgerKind, NewPage, Phase, Removal, TokenUse, Walk
from penstock.errors import RestoreUnfinished, SchemaMismatch
from tests.catalog.conftest import (
    CATALOGS,
    DOCS,
    PERMANENT,
    T0,
    TRANSIENT,
    VECTOR,
    at,
    begin,
    completed_graph,
    found,
    late,
    page,
    put,
    settle,
    source,
    sweep,
    take,
    vectors,
)
from tests.conformance.durable_engines import given_back

PAIRS = [(source, target) for source in CATALOGS for target in CATALOGS]
Opened = Callable[[str, str], Catalog]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    catalogs: list[Catalog] = []

    def open_one(engine: str, name: str) -> Catalog:
        (tmp_path / name).mkdir(exist_ok=True)
        catalogs.append(CATALOGS[engine](tmp_path / name))
        return catalogs[-1]

    yield open_one
    for catalog in catalogs:
        catalog.close()
    for place in tmp_path.iterdir():
        given_back(place)


def fill(catalog: Catalog) -> None:
    """Put documents in every state into a catalog, and a row into every table."""
    put(catalog, "/done.md", page("mill and river", "second text"), page("page two", number=2), graph=True)
    for task in take(catalog, Phase.GRAPHRAG, limit=1):
        settle(catalog, [completed_graph(task, 3, 2)])
    take(catalog, Phase.GRAPHRAG, limit=1, worker="w9")
    put(catalog, "/twice.md", page("old text"))
    put(catalog, "/twice.md", page("new text"), asked_at=at(1), now=at(1))
    put(catalog, "/gone.md", page("gone"))
    catalog.remove(Removal(tenant_id="acme", path="/gone.md", asked_at=at(2)), now=at(2))
    sweep(catalog)
    put(catalog, "/left.md", page("left over"))
    put(catalog, "/left.md", page("another"), asked_at=at(3), now=at(3))
    begin(catalog, "/reading.pdf", 3, job_id="job_reading")
    take(catalog, Phase.OCR, limit=1)
    (failing,) = take(catalog, Phase.OCR, limit=1)
    settle(catalog, [publication.failed_attempt(failing, TRANSIENT, "torn")])
    put(catalog, "/late.md", late(4))
    first, second, *_ = take(catalog, Phase.VECTOR, limit=3)
    settle(
        catalog,
        [publication.completed_vector(first, VECTOR), publication.failed_attempt(second, PERMANENT, "bad")],
    )
    entry = LedgerEntry(place=DOCS, path="/x.bin", kind=LedgerKind.SKIPPED, rule="binary", cause="a cause")
    catalog.note([entry], now=T0)
    seen = NewPage(number=1, chunks=(), text="# seen", engine="eye", confidence=81.5, warnings=("faint",))
    put(catalog, "/seen.png", seen)
    catalog.remember("acme", "static", {"hash": VECTOR}, now=T0)
    catalog.add_tokens([TokenUse("acme", "embed", "2026-01", "job", 12)])
    catalog.expect([(DOCS, "/arrival.md", "/tmp/arrival.md")], now=T0)
    catalog.announce(Walk(place=DOCS, root="/walked", rules="rules", asked_at=T0))
    catalog.set_fingerprints({Phase.VECTOR: "static-1"})
    catalog.imports.record_imports("kind", "source", [ImportedRow("t", "1", "imported", "job")])


def rows_of(catalog: Catalog) -> dict[str, list[dict[str, Any]]]:
    with catalog.transfer.reading() as rows:
        return {
            table.name: [
                dict(zip(table.columns, row, strict=True)) for batch in rows.rows(table) for row in batch
            ]
            for table in rows.tables()
        }


def transfer(catalog: Catalog, target: Catalog) -> None:
    with catalog.transfer.reading() as rows:
        put_in = target.transfer
        put_in.begin_restore()
        for table in rows.tables():
            for batch in rows.rows(table):
                put_in.restore(table, batch)
        put_in.end_restore(rows.numbers)


@pytest.mark.parametrize(("engine", "other"), PAIRS)
def test_every_row_of_every_table_arrives(opened: Opened, engine: str, other: str):
    catalog, target = opened(engine, "a"), opened(other, "b")
    fill(catalog)
    assert target.transfer.is_empty()
    transfer(catalog, target)

    before, after = rows_of(catalog), rows_of(target)
    assert set() == FILLED - {name for name, rows in before.items() if rows}
    for name in before.keys() - {"documents", "task_queue_page", "task_queue_chunk"}:
        assert before[name] == after[name], name
    for name in ("documents", "task_queue_page", "task_queue_chunk"):
        assert "processing" in repr(before[name])
        assert "'processing'" not in repr(after[name])
        assert [row["id"] for row in before[name]] == [row["id"] for row in after[name]]
    assert [] == target.audit()
    assert not target.transfer.is_empty()
    assert {"mill and river"} == found(target, "mill") == found(catalog, "mill")
    assert vectors(catalog) == vectors(target) > 3
    twice = source(target, "/twice.md")
    assert twice is not None
    assert source(catalog, "/twice.md") == twice


FILLED = set(
    "sources documents task_queue_page task_queue_chunk catalog_space catalog_content catalog_vector "
    "catalog_page_text catalog_vector_cache catalog_outbox catalog_tombstone catalog_ledger "
    "catalog_fingerprint catalog_entity catalog_mention catalog_relation catalog_history catalog_walk "
    "catalog_arrival catalog_token_use catalog_import".split()
)


def test_both_dialects_have_the_same_tables_and_columns(opened: Opened):
    """A table that one of them lacks, or has with another column, could not be restored."""
    shapes = []
    for engine in CATALOGS:
        with opened(engine, engine).transfer.reading() as rows:
            shapes.append(sorted(rows.tables(), key=lambda table: (table.name, table.columns)))
    assert shapes[0] == shapes[1]
    assert {table.name for table in shapes[0]} > FILLED


@pytest.mark.parametrize(("engine", "other"), [("sqlite", "postgres"), ("postgres", "sqlite")])
def test_work_goes_on_where_it_was(opened: Opened, engine: str, other: str):
    catalog, target = opened(engine, "a"), opened(other, "b")
    fill(catalog)
    (held,) = take(catalog, Phase.OCR, limit=1)
    transfer(catalog, target)

    tasks = take(target, Phase.OCR, now=at(500))
    assert [1, 2, 3] == sorted(task.page_number for task in tasks)
    mine = [task for task in tasks if task.task_id == held.task_id]
    assert mine[0].claim_number > held.claim_number
    assert [None] == target.settle([publication.failed_attempt(held, TRANSIENT, "late")], now=at(501))
    put(target, "/new.md", page("fresh"), asked_at=at(600), now=at(600))
    put(target, "/done.md", page("mill only"), asked_at=at(600), now=at(600))
    sweep(target, at(700))
    assert {"mill only"} == found(target, "mill")
    assert {"fresh"} == found(target, "fresh")
    assert [] == target.audit()


@pytest.mark.parametrize("engine", CATALOGS)
def test_a_replaced_catalog_keeps_no_row_and_no_word_of_the_old_one(opened: Opened, engine: str):
    catalog, target = opened(engine, "a"), opened(engine, "b")
    fill(catalog)
    put(target, "/old.md", page("obsolete"))
    with target.snapshot() as snapshot:
        seen = snapshot.changes("acme").sequence
    transfer(catalog, target)
    assert set() == found(target, "obsolete")
    assert [] == target.audit()
    with target.snapshot() as snapshot:
        assert snapshot.changes("acme", seen).reload


@pytest.mark.parametrize("engine", CATALOGS)
def test_an_unfinished_restore_cannot_be_opened(opened: Opened, engine: str, tmp_path: Path):
    catalog = opened(engine, "a")
    catalog.transfer.begin_restore()
    assert catalog.transfer.restore_unfinished()
    with pytest.raises(RestoreUnfinished):
        opened(engine, "a")
    catalog.transfer.end_restore({"row": 5, "change": 5})
    assert opened(engine, "a").transfer.is_empty()


@pytest.mark.parametrize("engine", CATALOGS)
def test_tables_and_columns_of_a_later_version_are_refused(opened: Opened, engine: str):
    transfer = opened(engine, "a").transfer
    for table in (PortableTable("catalog_later", ("id",)), PortableTable("sources", ("key", "shade"))):
        with pytest.raises(SchemaMismatch):
            transfer.refuse_unknown(table)

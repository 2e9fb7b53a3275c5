"""The transactions of a large generation: each is short, whatever the text."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import Portions
from penstock.catalog.rules.words import keyword_text
from penstock.catalog.sql import chunks, store
from penstock.catalog.sql.catalog import SqlCatalog
from penstock.catalog.sql.postgres import PostgresStatements
from penstock.catalog.sql.statements import SqliteStatements
from penstock.catalog.values import NewPage
from tests.catalog.conftest import page, put, read, source

FEW = Portions(rows=4, chars=1 << 20, uncut=1)
CHUNKS = 30


def around_each_write(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, note: Callable[[bool], None]
) -> None:
    """Write large generations in small parts, and tell the begin (True) and end of each transaction."""
    assert isinstance(catalog, SqlCatalog)
    write = catalog._write

    def watched(*arguments: Any, **options: Any) -> Any:
        note(True)
        answer = write(*arguments, **options)
        note(False)
        return answer

    catalog.portions = FEW
    monkeypatch.setattr(catalog, "_write", watched)


def test_equal_texts_cost_the_same_in_every_part(catalog: Catalog, monkeypatch: pytest.MonkeyPatch):
    """A log may have the same text thousands of times, each with an id of its own."""
    reads: list[int] = []
    for kind in (SqliteStatements, PostgresStatements):
        monkeypatch.setattr(kind, "all", _counting(kind.all, reads))
    before: list[int] = []
    around_each_write(catalog, monkeypatch, lambda begins: before.append(sum(reads)) if begins else None)

    put(catalog, "/a.log", page(*["again"] * CHUNKS))

    rows = [after - at_first for at_first, after in pairwise(before[1:])]
    assert len(rows) > 3
    assert {rows[0]} == set(rows)
    assert CHUNKS == len(_chunk_ids(catalog))


def _counting(read_all: Any, reads: list[int]) -> Any:
    def counting(*arguments: Any) -> Any:
        answer = read_all(*arguments)
        reads.append(len(answer))
        return answer

    return counting


def _chunk_ids(catalog: Catalog) -> set[str]:
    seen = source(catalog, "/a.log")
    assert seen is not None
    number = seen.published_id or seen.building_id
    assert number is not None
    with catalog.snapshot() as snapshot:
        pages = snapshot.pages(number, limit=100)
        return {one.chunk_id for each in pages for one in snapshot.chunks(each.page_id)}


def test_a_page_read_meanwhile_may_have_the_texts_of_later_parts(
    opened: Callable[[], Catalog], monkeypatch: pytest.MonkeyPatch
):
    catalog, other = opened(), opened()
    around_each_write(catalog, monkeypatch, lambda begins: None if begins else read(other, "again", "again"))

    put(catalog, "/a.log", NewPage(number=1), page(*["1 again"] * CHUNKS, number=2))

    assert CHUNKS + 2 == len(_chunk_ids(catalog))
    assert [] == catalog.audit()


def test_no_text_is_split_into_words_within_a_transaction(catalog: Catalog, monkeypatch: pytest.MonkeyPatch):
    """While one is open, no other process can write."""
    states = [False]
    calls: list[bool] = []

    def counted(text: str) -> str:
        calls.append(states[-1])
        return keyword_text(text)

    for module in (chunks, store):
        monkeypatch.setattr(module, "keyword_text", counted)
    around_each_write(catalog, monkeypatch, states.append)

    put(catalog, "/a.md", page(*[f"word {number}" for number in range(CHUNKS)]))

    assert [False] * CHUNKS == calls

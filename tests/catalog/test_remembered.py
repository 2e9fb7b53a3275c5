"""Permanently failed files in the catalog."""

from __future__ import annotations

from typing import Any

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import FailedFile, LedgerEntry, LedgerKind
from tests.catalog.conftest import DOCS, T0, put


def test_files_that_failed_for_good_are_remembered_with_what_they_were(catalog: Catalog):
    def failed(path: str, **about: Any) -> LedgerEntry:
        return LedgerEntry(
            place=DOCS, path=path, kind=LedgerKind.FAILED, rule="ERR_FILE_TIME", cause="slow", **about
        )

    about = {"size": 10, "mtime_ns": 20, "made_with": "parser 1"}
    entries = [
        failed("/a/1.md", **about),
        failed("/a/2.md"),
        failed("/a/3.md", **about),
        failed("/b.md", **about),
    ]
    catalog.note(entries, now=T0)
    catalog.note([failed("/a/1.md", **about | {"size": 11})], now=T0)
    put(catalog, "/a/3.md")

    with catalog.snapshot() as snapshot:
        assert [FailedFile("/a/1.md", 11, 20, "parser 1")] == snapshot.remembered(DOCS, "/a")
        assert ["/a/1.md", "/b.md"] == [one.path for one in snapshot.remembered(DOCS)]
        assert ["/b.md"] == [one.path for one in snapshot.remembered(DOCS, after="/a/1.md")]

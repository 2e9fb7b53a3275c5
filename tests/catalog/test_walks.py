"""Announced walks: earlier deletes hear of them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Removal, RemovalResult, Touch, Walk
from tests.catalog.conftest import DOCS, at, generation, page, source


def folder(path: str, asked_at: float) -> Removal:
    return Removal(tenant_id="acme", collection="docs", branch="main", path=path, asked_at=at(asked_at))


def some(catalog: Catalog, *paths: str) -> None:
    catalog.store([generation(path, page(f"text {path}")) for path in paths])


def known(catalog: Catalog) -> list[str]:
    with catalog.snapshot() as snapshot:
        return [known.path for known in snapshot.known(DOCS) if known.published_id]


def test_walks_are_known_until_nothing_lies_below_their_root(catalog: Catalog):
    some(catalog, "/a/1.md")
    for root, asked_at in (("/a", 2), ("/b", 2), ("/", 2), ("/b", 9)):
        catalog.announce(Walk(place=DOCS, root=root, rules="{}", asked_at=at(asked_at)))

    def roots(path: str) -> list[tuple[str, datetime]]:
        with catalog.snapshot() as snapshot:
            return sorted((walk.root, walk.asked_at) for walk in snapshot.walks(DOCS, path))

    assert [("/", at(2)), ("/a", at(2))] == roots("/a/1.md")
    assert [("/", at(2)), ("/b", at(9))] == roots("/b")

    catalog.sweep(at(5))
    assert [("/", at(2)), ("/a", at(2))] == roots("/a/1.md")
    assert [("/", at(2)), ("/b", at(9))] == roots("/b")

    catalog.sweep(at(10))
    assert [("/", at(2))] == roots("/b")


def test_a_delete_waits_until_later_walks_were_heard(catalog: Catalog):
    some(catalog, "/a/1.md", "/a/2.md")
    walk = Walk(place=DOCS, root="/a", rules="{}", asked_at=at(6))
    catalog.announce(walk)

    assert RemovalResult(0, True, (walk,)) == catalog.remove(folder("/a", asked_at=5))
    assert ["/a/1.md", "/a/2.md"] == known(catalog)
    # Of another place, or of another folder, or asked for earlier: no walk's business.
    assert () == catalog.remove(folder("/ab", asked_at=5)).newer
    assert () == catalog.remove(msgspec.structs.replace(folder("/a", asked_at=5), branch="dev")).newer

    wanted = source(catalog, "/a/1.md")
    assert wanted is not None
    assert [True] == catalog.touch([Touch(wanted.source_id, 1, 2, at(6))])
    heard = msgspec.structs.replace(folder("/a", asked_at=5), heard=frozenset([walk]))
    assert RemovalResult(1, False) == catalog.remove(heard)
    assert ["/a/1.md"] == known(catalog)


def test_known_sources_are_counted_below_a_folder(catalog: Catalog):
    some(catalog, "/a/1.md", "/a/b/2.md", "/ab.md")

    with catalog.snapshot() as snapshot:
        assert [2, 1, 0] == [
            snapshot.known_count(DOCS, "/a", most=10),
            snapshot.known_count(DOCS, "/a", most=1),
            snapshot.known_count(DOCS, "/c", most=10),
        ]

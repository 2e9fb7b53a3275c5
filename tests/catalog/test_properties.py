"""Properties of documents: stored with the generation, kept by renames, filtered alike in every store."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Filters, Rename, StoredProperties
from tests.catalog.conftest import DOCS, VECTOR, at, begin, page, put, read, source

MILL = StoredProperties(
    author="Zoë Müller; J. Doe",
    created="2024-05-01T23:30:00-02:00",
    modified="2025-01-01",
    language="en_US",
    encoding="windows-1252",
    replaced=3,
    media_type="application/pdf",
    warnings=("3 characters replaced", "named .txt, but is a PDF"),
)


def properties_at(catalog: Catalog, path: str) -> StoredProperties:
    found = source(catalog, path)
    assert found is not None
    return found.properties


def test_properties_are_stored_as_given(catalog: Catalog):
    put(catalog, "/a.txt", properties=MILL, title="The Mill")
    put(catalog, "/b.txt")

    assert MILL == properties_at(catalog, "/a.txt")
    assert StoredProperties() == properties_at(catalog, "/b.txt")
    with catalog.snapshot() as snapshot:
        (hit,) = snapshot.keyword("some text", Filters(tenant_id="acme", path="/a.txt"))
        (view,) = snapshot.hydrate([hit.content_id])
    assert view is not None
    assert MILL == view.properties


def test_properties_wait_for_the_publication_and_survive_a_rename(catalog: Catalog):
    begin(catalog, "/a.pdf", 1, properties=MILL)
    assert StoredProperties() == properties_at(catalog, "/a.pdf")

    read(catalog, "water", now=at(1), vector=VECTOR)
    assert MILL == properties_at(catalog, "/a.pdf")

    catalog.rename(Rename(place=DOCS, old="/a.pdf", new="/b.pdf", asked_at=at(2)))
    assert MILL == properties_at(catalog, "/b.pdf")


def test_a_new_version_replaces_the_properties(catalog: Catalog):
    put(catalog, "/a.txt", page("one"), properties=MILL)
    put(catalog, "/a.txt", page("two"), asked_at=at(1), properties=StoredProperties(author="Ada"))

    assert StoredProperties(author="Ada") == properties_at(catalog, "/a.txt")


def test_text_that_a_store_refuses_is_left_out(catalog: Catalog):
    broken = StoredProperties(author="A\0da\ud800\nLovelace " + "x" * 5000, warnings=("w\0",) * 50)
    put(catalog, "/a.txt", properties=broken)

    found = properties_at(catalog, "/a.txt")
    assert found.author.startswith("A da Lovelace xxx")
    assert (500, ("w",)) == (len(found.author), found.warnings)
    with catalog.snapshot() as snapshot:
        assert snapshot.sources(Filters(tenant_id="acme", author="da lovelace"))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"author": "zoe MULLER"}, ["/mill"]),
        ({"author": "Müll"}, ["/mill"]),
        ({"author": "straße"}, ["/road"]),
        ({"author": "STRASSE"}, ["/road"]),
        ({"author": "%"}, []),
        ({"author": ""}, ["/mill", "/road"]),
        ({"title": "éTOILE"}, ["/road"]),
        ({"title": "etoile"}, ["/road"]),
        ({"language": "EN"}, ["/mill"]),
        ({"language": "en-us"}, ["/mill"]),
        ({"language": "e"}, []),
        ({"language": "fr"}, ["/road"]),
        ({"created_from": "2024-05-02T00:00:00"}, ["/mill"]),
        ({"created_before": "2024-05-02T01:30:00"}, ["/road"]),
        ({"created_from": "1999-01-01T00:00:00", "created_before": "2030"}, ["/mill", "/road"]),
        ({"author": "zoe", "language": "fr"}, []),
    ],
)
def test_a_filter_means_the_same_in_every_store(
    catalog: Catalog, filters: dict[str, Any], expected: list[str]
):
    put(catalog, "/mill", page("water"), properties=MILL, title="The Mill")
    road = StoredProperties(author="Straße", language="fr", created="1999")
    put(catalog, "/road", page("water road"), properties=road, title="L'\u0045\u0301toile")
    put(catalog, "/plain", page("water plain"))

    asked = Filters(tenant_id="acme", **filters)
    with catalog.snapshot() as snapshot:
        listed = [source.path for source in snapshot.sources(asked)]
        keys = snapshot.matching(asked)
        hits = snapshot.hydrate([hit.content_id for hit in snapshot.keyword("water", asked)])

    assert expected == sorted(listed)
    assert len(expected) == len(keys or ())
    assert expected == sorted(view.path for view in hits if view)

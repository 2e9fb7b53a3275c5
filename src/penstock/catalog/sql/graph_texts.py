"""Graphs of texts read out of the catalog, for a copy in another store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.catalog.entities import Extraction
from penstock.catalog.graph import Mention, StoredEntity, StoredRelation, TextGraph
from penstock.catalog.rules.phases import EXTRACTING
from penstock.catalog.sql import graph_rows
from penstock.catalog.sql.row_types import column
from penstock.catalog.sql.statements import Statements, listed

if TYPE_CHECKING:
    from penstock.catalog.sql.catalog import SqlCatalog


class CatalogGraphTexts:
    """The graphs of one catalog's texts."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog

    def store(self, tenant_id: str, extractions: Mapping[int, Extraction]) -> list[TextGraph]:
        def work(rows: Statements) -> list[TextGraph]:
            graph_rows.put(rows, tenant_id, extractions)
            return _copies(rows, tenant_id, list(extractions))

        return self._catalog.write(work)

    def copies(self, tenant_id: str, content_ids: Sequence[int]) -> list[TextGraph]:
        return self._catalog.write(lambda rows: _copies(rows, tenant_id, content_ids))

    def after(self, content_id: int, limit: int) -> list[TextGraph]:
        with self._catalog.snapshot() as snapshot:
            found: dict[int, str] = dict(snapshot.rows.all("texts_with_entities", content_id, limit))
            return _graphs(snapshot.rows, found, version=0)

    def there(self, content_ids: Sequence[int]) -> set[int]:
        with self._catalog.snapshot() as snapshot:
            return set(column(snapshot.rows.all("texts_there", listed(content_ids))))

    def shown(self, tenant_id: str, content_ids: Sequence[int] | None = None) -> dict[int, int]:
        with self._catalog.snapshot() as snapshot:
            if content_ids is None:
                return dict(snapshot.rows.all(f"all_shown_{EXTRACTING}", tenant_id))
            return dict(snapshot.rows.all(f"shown_{EXTRACTING}", tenant_id, listed(content_ids)))

    def mentions(self, tenant_id: str, content_ids: Sequence[int], limit: int) -> list[Mention]:
        with self._catalog.snapshot() as snapshot:
            texts = listed(content_ids)
            found = snapshot.rows.all(f"shown_mentions_{EXTRACTING}", tenant_id, texts, limit)
        return [Mention(*row) for row in found]

    def chunks(self, tenant_id: str) -> int:
        with self._catalog.snapshot() as snapshot:
            return int(snapshot.rows.value(f"extracted_chunks_{EXTRACTING}", tenant_id))


def _copies(rows: Statements, tenant_id: str, content_ids: Sequence[int]) -> list[TextGraph]:
    # Under the lock, so that of two copies of a text the newer one has the greater version.
    rows.hold("graph", tenant_id)
    (version,) = rows.numbers("row", 1)
    there = column(rows.all("texts_there", listed(content_ids)))
    return _graphs(rows, dict.fromkeys(there, tenant_id), version)


def _graphs(rows: Statements, tenants: Mapping[int, str], version: int) -> list[TextGraph]:
    found = {number: TextGraph(number, tenant, version, [], []) for number, tenant in tenants.items()}
    mentions = rows.all("text_mentions", listed(found))
    wanted = listed({entity_id for _, entity_id, _ in mentions})
    known = (StoredEntity(*row) for row in rows.all("stored_entities", wanted))
    entities = {entity.id: entity for entity in known}
    for content_id, entity_id, occurrences in mentions:
        found[content_id].entities.append(entities[entity_id]._replace(occurrences=occurrences))
    for content_id, *relation in rows.all("text_relations", listed(found)):
        found[content_id].relations.append(StoredRelation(*relation))
    return list(found.values())

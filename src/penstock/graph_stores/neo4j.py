"""Neo4j, or another server that speaks Bolt, by the official driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.catalog.graph import StoredEntity, StoredRelation, TextGraph
from penstock.errors import ServiceUnavailable
from penstock.graph_stores import cypher
from penstock.graph_stores.address import GraphStoreUrl
from penstock.graph_stores.failures import store_failure
from penstock.graph_stores.protocol import CopiedText, FoundMention, FoundRelation

if TYPE_CHECKING:
    from neo4j import Driver, ManagedTransaction

T = TypeVar("T")
ROWS_AT_ONCE = 1_000
TEXTS_AT_ONCE = 200
ATTEMPTS = 5
"""Attempts at a transaction in conflict with another writer. The driver itself retries transient errors."""


class Neo4jCopy:
    """The copies of catalogs in one database. It may be used by several threads."""

    def __init__(self, url: GraphStoreUrl, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._opened: Driver | None = None
        self._opening = threading.Lock()
        _ = url.server, url.account

    @property
    def address(self) -> str:
        return self._url.masked

    def prepare(self) -> None:
        for statement in cypher.SCHEMA:
            with self._session() as session:
                session.run(statement).consume()

    def ping(self) -> None:
        self._read("RETURN 1")

    def write(self, catalog_id: str, texts: Sequence[TextGraph]) -> None:
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            rows = _Rows(catalog_id, texts[start : start + TEXTS_AT_ONCE])
            self._write(lambda work, rows=rows: _replace(work, rows))  # type: ignore[misc]

    def remove(self, catalog_id: str, content_ids: Collection[int]) -> None:
        numbers = sorted(content_ids)
        for start in range(0, len(numbers), TEXTS_AT_ONCE):
            keys = [_key(catalog_id, number) for number in numbers[start : start + TEXTS_AT_ONCE]]

            def work(transaction: ManagedTransaction, keys: list[str] = keys) -> None:
                entities = _take_out(transaction, keys)
                transaction.run(cypher.DELETE_TEXTS, keys=keys).consume()
                transaction.run(cypher.DELETE_IDLE, keys=entities).consume()

            self._write(work)

    def clear(self, catalog_id: str) -> None:
        for statement in (cypher.CLEAR_TEXTS, cypher.CLEAR_ENTITIES):
            while self._read(statement, catalog=catalog_id)[0][0]:
                continue

    def texts(self, catalog_id: str) -> Iterator[CopiedText]:
        after = -1
        while numbers := self.text_ids(catalog_id, after, TEXTS_AT_ONCE):
            yield from self._copied(catalog_id, numbers)
            after = numbers[-1]

    def text_ids(self, catalog_id: str, after: int, limit: int) -> list[int]:
        found = self._read(cypher.TEXTS_AFTER, catalog=catalog_id, after=after, limit=limit)
        return [number for (number,) in found]

    def present(self, catalog_id: str, content_ids: Collection[int]) -> set[int]:
        keys = [_key(catalog_id, number) for number in content_ids]
        return {number for (number,) in self._read(cypher.TEXTS_PRESENT, keys=keys)}

    def _copied(self, catalog_id: str, numbers: Sequence[int]) -> Iterator[CopiedText]:
        keys = {_key(catalog_id, number): number for number in numbers}
        entities: dict[int, list[StoredEntity]] = {}
        relations: dict[int, list[StoredRelation]] = {}
        for number, *entity in self._read(cypher.ENTITIES_IN, keys=list(keys)):
            entities.setdefault(number, []).append(StoredEntity(*entity))
        for key, *relation in self._read(cypher.RELATIONS_IN, keys=list(keys)):
            relations.setdefault(keys[key], []).append(StoredRelation(*relation))
        for number in numbers:
            yield CopiedText(
                number, frozenset(entities.get(number, ())), frozenset(relations.get(number, ()))
            )

    def idle_entities(self, catalog_id: str) -> int:
        return int(self._read(cypher.COUNT_IDLE, catalog=catalog_id)[0][0])

    def drop_idle(self, catalog_id: str) -> None:
        self._write(lambda work: work.run(cypher.DROP_IDLE, catalog=catalog_id).consume())

    def named(self, catalog_id: str, tenant_id: str, name_key: str, short_key: str) -> list[FoundMention]:
        found = self._read(
            cypher.NAMED, catalog=catalog_id, tenant=tenant_id, name_key=name_key, short_key=short_key
        )
        return [FoundMention(*row) for row in found]

    def mentions(self, catalog_id: str, tenant_id: str, entity_ids: Collection[int]) -> list[FoundMention]:
        keys = [_key(catalog_id, number) for number in entity_ids]
        return [FoundMention(*row) for row in self._read(cypher.MENTIONS_OF, keys=keys, tenant=tenant_id)]

    def relations(self, catalog_id: str, tenant_id: str, entity_ids: Collection[int]) -> list[FoundRelation]:
        keys = [_key(catalog_id, number) for number in entity_ids]
        found = {
            _relation(row)
            for statement in (cypher.RELATIONS_FROM, cypher.RELATIONS_TO)
            for row in self._read(statement, keys=keys, tenant=tenant_id)
        }
        return list(found)

    def all_mentions(self, catalog_id: str, tenant_id: str) -> Iterator[FoundMention]:
        for row in self._read(cypher.ALL_MENTIONS, catalog=catalog_id, tenant=tenant_id):
            yield FoundMention(*row)

    def all_relations(self, catalog_id: str, tenant_id: str) -> Iterator[FoundRelation]:
        for row in self._read(cypher.ALL_RELATIONS, catalog=catalog_id, tenant=tenant_id):
            yield _relation(row)

    def close(self) -> None:
        driver, self._opened = self._opened, None
        if driver is not None:
            driver.close()

    # The driver.

    def _driver(self) -> Driver:
        with self._opening:
            if self._opened is None:
                import neo4j

                # Its warnings are about indexes that are not used yet, and would fill the log.
                logging.getLogger("neo4j").setLevel(logging.ERROR)
                self._opened = neo4j.GraphDatabase.driver(
                    self._url.server,
                    auth=self._url.account,
                    connection_timeout=self._timeout_s,
                    connection_acquisition_timeout=self._timeout_s,
                    max_transaction_retry_time=self._timeout_s,
                    user_agent="penstock",
                )
            return self._opened

    @contextmanager
    def _session(self) -> Iterator[Any]:
        from neo4j.exceptions import DriverError, Neo4jError

        try:
            with self._driver().session(database=self._url.database, fetch_size=ROWS_AT_ONCE) as session:
                yield session
        except (DriverError, Neo4jError, OSError) as error:
            raise store_failure(self._url, error) from None

    def _read(self, statement: str, **values: object) -> list[list[Any]]:
        def work(transaction: ManagedTransaction) -> list[list[Any]]:
            return transaction.run(statement, values).values()

        # Statements that clear are among these: a reading session would be sent to a copy that refuses them.
        return self._write(work)

    def _write(self, work: Callable[[ManagedTransaction], T]) -> T:
        from neo4j.exceptions import ConstraintError, TransientError

        last: ServiceUnavailable | None = None
        for _ in range(ATTEMPTS):
            with self._session() as session:
                try:
                    result: T = session.execute_write(_within(work, self._timeout_s))
                except (ConstraintError, TransientError) as error:
                    # Another writer was at the same nodes.
                    last = store_failure(self._url, error)
                else:
                    return result
        assert last is not None
        raise last


class _Rows:
    """The parameters of a write. Only those of texts that are taken are sent."""

    def __init__(self, catalog_id: str, texts: Sequence[TextGraph]) -> None:
        self.catalog_id = catalog_id
        self._texts = {_key(catalog_id, text.content_id): text for text in texts}

    def texts(self) -> list[dict[str, object]]:
        return [
            {"key": key, "id": text.content_id, "tenant": text.tenant_id, "version": text.version}
            for key, text in self._texts.items()
        ]

    def entities(self, taken: Collection[str]) -> list[dict[str, object]]:
        rows: dict[str, dict[str, object]] = {}
        for text in (self._texts[key] for key in taken):
            for entity in text.entities:
                row = entity._asdict()
                del row["occurrences"]
                key = _key(self.catalog_id, entity.id)
                rows[key] = row | {"key": key, "tenant": text.tenant_id, "version": text.version}
        # In one order, so that two writers do not wait for each other.
        return [rows[key] for key in sorted(rows)]

    def mentions(self, taken: Collection[str]) -> list[dict[str, object]]:
        return [
            {"text": key, "entity": _key(self.catalog_id, entity.id), "occurrences": entity.occurrences}
            for key in taken
            for entity in self._texts[key].entities
        ]

    def relations(self, taken: Collection[str]) -> list[dict[str, object]]:
        return [
            {
                "text": key,
                "source": _key(self.catalog_id, relation.source),
                "target": _key(self.catalog_id, relation.target),
                "kind": relation.kind,
                "weight": relation.weight,
            }
            for key in taken
            for relation in self._texts[key].relations
        ]


def _replace(transaction: ManagedTransaction, rows: _Rows) -> None:
    """Write the texts that are newer than those in the store."""
    found = transaction.run(cypher.TAKE_TEXTS, rows=rows.texts(), catalog=rows.catalog_id)
    taken = sorted(key for (key,) in found.values())
    if not taken:
        return
    before = _take_out(transaction, taken)
    for statement, values in (
        (cypher.PUT_ENTITIES, rows.entities(taken)),
        (cypher.PUT_MENTIONS, rows.mentions(taken)),
        (cypher.PUT_RELATIONS, rows.relations(taken)),
    ):
        for start in range(0, len(values), ROWS_AT_ONCE):
            some = values[start : start + ROWS_AT_ONCE]
            transaction.run(statement, rows=some, catalog=rows.catalog_id).consume()
    transaction.run(cypher.DELETE_IDLE, keys=before).consume()


def _take_out(transaction: ManagedTransaction, keys: Sequence[str]) -> list[str]:
    """Delete mentions and relations of texts; return the entities that may be left without any."""
    entities = [key for (key,) in transaction.run(cypher.ENTITIES_OF, keys=keys).values()]
    if entities:
        transaction.run(cypher.CLEAR_RELATIONS, keys=keys).consume()
        transaction.run(cypher.CLEAR_MENTIONS, keys=keys).consume()
    return sorted(entities)


def _within(work: Callable[[ManagedTransaction], T], timeout_s: float) -> Callable[[ManagedTransaction], T]:
    """The work with a limit that the server keeps."""
    from neo4j import unit_of_work

    return unit_of_work(timeout=timeout_s)(work)


def _key(catalog_id: str, number: int) -> str:
    return f"{catalog_id}/{number}"


def _relation(row: Sequence[Any]) -> FoundRelation:
    source, target, kind, key, weight = row
    return FoundRelation(source, target, kind, int(key.rpartition("/")[2]), weight)

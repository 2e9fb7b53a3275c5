"""Neo4j, or another server that speaks Bolt, by the official driver."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.catalog.graph import StoredEntity, StoredRelation, TextGraph
from penstock.errors import ServiceUnavailable
from penstock.graph_stores.protocol import (
    SERVICE,
    SETTING,
    CopiedText,
    FoundMention,
    FoundRelation,
    GraphStoreUrl,
)

if TYPE_CHECKING:
    from neo4j import Driver, ManagedTransaction


# Statements of the copy in Neo4j. Values are always parameters, never part of a statement.
#
# (:PenstockText)-[:MENTIONS {occurrences}]->(:PenstockEntity)
# (:PenstockEntity)-[:RELATES {kind, weight, text}]->(:PenstockEntity)
#
# A key is the id of the catalog and the number of the text or entity.


_SCHEMA = (
    "CREATE CONSTRAINT penstock_text_key IF NOT EXISTS FOR (t:PenstockText) REQUIRE t.key IS UNIQUE",
    "CREATE CONSTRAINT penstock_entity_key IF NOT EXISTS FOR (e:PenstockEntity) REQUIRE e.key IS UNIQUE",
    "CREATE INDEX penstock_text_catalog IF NOT EXISTS FOR (t:PenstockText) ON (t.catalog, t.id)",
    "CREATE INDEX penstock_entity_catalog IF NOT EXISTS FOR (e:PenstockEntity) ON (e.catalog, e.id)",
    "CREATE INDEX penstock_entity_name IF NOT EXISTS FOR (e:PenstockEntity) ON (e.catalog, e.name_key)",
    "CREATE INDEX penstock_entity_short IF NOT EXISTS FOR (e:PenstockEntity) ON (e.catalog, e.short_key)",
    "CREATE INDEX penstock_relation_text IF NOT EXISTS FOR ()-[r:RELATES]-() ON (r.text)",
)

# The first SET locks the node before its version is read: of two writers the newer one wins.
_TAKE_TEXTS = """
UNWIND $rows AS row
MERGE (t:PenstockText {key: row.key})
SET t.catalog = $catalog, t.id = row.id, t.tenant = row.tenant
WITH t, row WHERE coalesce(t.version, 0) < row.version
SET t.version = row.version
RETURN row.key
"""
_ENTITIES_OF = """
MATCH (t:PenstockText)-[:MENTIONS]->(e:PenstockEntity) WHERE t.key IN $keys RETURN DISTINCT e.key
"""
_CLEAR_RELATIONS = "MATCH ()-[r:RELATES]->() WHERE r.text IN $keys DELETE r"
_CLEAR_MENTIONS = "MATCH (t:PenstockText)-[m:MENTIONS]->() WHERE t.key IN $keys DELETE m"
_PUT_ENTITIES = """
UNWIND $rows AS row
MERGE (e:PenstockEntity {key: row.key})
SET e.catalog = $catalog, e.id = row.id, e.tenant = row.tenant
WITH e, row WHERE coalesce(e.version, 0) < row.version
SET e.version = row.version, e.kind = row.kind, e.name = row.name, e.name_key = row.name_key,
    e.short_key = row.short_key
"""
_PUT_MENTIONS = """
UNWIND $rows AS row
MATCH (t:PenstockText {key: row.text}) MATCH (e:PenstockEntity {key: row.entity})
MERGE (t)-[m:MENTIONS]->(e) SET m.occurrences = row.occurrences
"""
_PUT_RELATIONS = """
UNWIND $rows AS row
MATCH (a:PenstockEntity {key: row.source}) MATCH (b:PenstockEntity {key: row.target})
MERGE (a)-[r:RELATES {text: row.text, kind: row.kind}]->(b) SET r.weight = row.weight
"""
# Without DETACH: a node that another writer mentions meanwhile is not deleted, the statement fails.
_DELETE_IDLE = """
MATCH (e:PenstockEntity) WHERE e.key IN $keys AND NOT (e)<-[:MENTIONS]-() DELETE e
"""
_DELETE_TEXTS = "MATCH (t:PenstockText) WHERE t.key IN $keys DELETE t"

_CLEAR_TEXTS = """
MATCH (t:PenstockText) WHERE t.catalog = $catalog WITH t LIMIT 1000 DETACH DELETE t RETURN count(*) AS gone
"""
_CLEAR_ENTITIES = """
MATCH (e:PenstockEntity) WHERE e.catalog = $catalog WITH e LIMIT 1000 DETACH DELETE e RETURN count(*) AS gone
"""

_TEXTS_AFTER = """
MATCH (t:PenstockText) WHERE t.catalog = $catalog AND t.id > $after
RETURN t.id ORDER BY t.id LIMIT $limit
"""
_TEXTS_PRESENT = "MATCH (t:PenstockText) WHERE t.key IN $keys RETURN t.id"
_ENTITIES_IN = """
MATCH (t:PenstockText)-[m:MENTIONS]->(e:PenstockEntity) WHERE t.key IN $keys
RETURN t.id, e.id, e.kind, e.name_key, e.short_key, e.name, m.occurrences
"""
_RELATIONS_IN = """
MATCH (a:PenstockEntity)-[r:RELATES]->(b:PenstockEntity) WHERE r.text IN $keys
RETURN r.text, a.id, b.id, r.kind, r.weight
"""
_COUNT_IDLE = """
MATCH (e:PenstockEntity) WHERE e.catalog = $catalog AND NOT (e)<-[:MENTIONS]-() RETURN count(e)
"""
_DROP_IDLE = """
MATCH (e:PenstockEntity) WHERE e.catalog = $catalog AND NOT (e)<-[:MENTIONS]-() DELETE e
"""

_MENTION = "RETURN e.id, e.name, e.kind, t.id, m.occurrences"
_RELATION = "RETURN a.id, b.id, r.kind, r.text, r.weight"
_NAMED = f"""
MATCH (e:PenstockEntity) WHERE e.catalog = $catalog AND e.tenant = $tenant
  AND (e.name_key = $name_key OR e.short_key = $short_key)
MATCH (t:PenstockText)-[m:MENTIONS]->(e) {_MENTION}
"""
_MENTIONS_OF = f"""
MATCH (t:PenstockText)-[m:MENTIONS]->(e:PenstockEntity) WHERE e.key IN $keys AND e.tenant = $tenant {_MENTION}
"""
_RELATIONS_FROM = f"""
MATCH (a:PenstockEntity)-[r:RELATES]->(b:PenstockEntity)
WHERE a.key IN $keys AND a.tenant = $tenant {_RELATION}
"""
_RELATIONS_TO = f"""
MATCH (a:PenstockEntity)-[r:RELATES]->(b:PenstockEntity)
WHERE b.key IN $keys AND b.tenant = $tenant {_RELATION}
"""
_ALL_MENTIONS = f"""
MATCH (t:PenstockText)-[m:MENTIONS]->(e:PenstockEntity)
WHERE t.catalog = $catalog AND t.tenant = $tenant {_MENTION}
"""
_ALL_RELATIONS = f"""
MATCH (a:PenstockEntity)-[r:RELATES]->(b:PenstockEntity)
WHERE a.catalog = $catalog AND a.tenant = $tenant {_RELATION}
"""


_MAX_CAUSE = 300


def _store_failure(url: GraphStoreUrl, error: BaseException) -> ServiceUnavailable:
    """Translate an error of the driver."""
    from neo4j import exceptions

    shown, causes = url.masked, list(_causes(error))
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None:
        reason = getattr(tls, "verify_message", "") or str(tls.reason or tls).replace("_", " ").lower()
        return _unavailable(
            f"cannot connect to the graph store {shown}: TLS error: {reason}",
            f"Check the certificate and {SETTING}: neo4j+ssc:// trusts any, neo4j:// is without TLS.",
        )
    if isinstance(error, exceptions.AuthError):
        return _unavailable(
            f"the graph store {shown} refuses user and password", f"Correct them in {SETTING}."
        )
    text = url.mask_in(" ".join(str(causes[-1]).split()))[:_MAX_CAUSE] or type(error).__name__
    if isinstance(error, exceptions.Neo4jError):
        return _unavailable(f"the graph store {shown} refused: {text}", _remedy(error.code or ""))
    return _unavailable(f"cannot use the graph store {shown}: {text}")


def _remedy(code: str) -> str | None:
    if "DatabaseNotFound" in code:
        return f"Create the database, or name another one at the end of {SETTING}."
    return f"Give the user of {SETTING} the right to write." if "Security" in code else None


def _unavailable(message: str, remedy: str | None = None) -> ServiceUnavailable:
    return ServiceUnavailable(SERVICE, message, remedy=remedy)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        inner = following.exceptions[0] if isinstance(following, BaseExceptionGroup) else None
        following = inner or following.__cause__ or following.__context__


T = TypeVar("T")
_ROWS_AT_ONCE = 1_000
TEXTS_AT_ONCE = 200
_ATTEMPTS = 5
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
        for statement in _SCHEMA:
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
                transaction.run(_DELETE_TEXTS, keys=keys).consume()
                transaction.run(_DELETE_IDLE, keys=entities).consume()

            self._write(work)

    def clear(self, catalog_id: str) -> None:
        for statement in (_CLEAR_TEXTS, _CLEAR_ENTITIES):
            while self._read(statement, catalog=catalog_id)[0][0]:
                continue

    def texts(self, catalog_id: str) -> Iterator[CopiedText]:
        after = -1
        while numbers := self.text_ids(catalog_id, after, TEXTS_AT_ONCE):
            yield from self._copied(catalog_id, numbers)
            after = numbers[-1]

    def text_ids(self, catalog_id: str, after: int, limit: int) -> list[int]:
        found = self._read(_TEXTS_AFTER, catalog=catalog_id, after=after, limit=limit)
        return [number for (number,) in found]

    def present(self, catalog_id: str, content_ids: Collection[int]) -> set[int]:
        keys = [_key(catalog_id, number) for number in content_ids]
        return {number for (number,) in self._read(_TEXTS_PRESENT, keys=keys)}

    def _copied(self, catalog_id: str, numbers: Sequence[int]) -> Iterator[CopiedText]:
        keys = {_key(catalog_id, number): number for number in numbers}
        entities: dict[int, list[StoredEntity]] = {}
        relations: dict[int, list[StoredRelation]] = {}
        for number, *entity in self._read(_ENTITIES_IN, keys=list(keys)):
            entities.setdefault(number, []).append(StoredEntity(*entity))
        for key, *relation in self._read(_RELATIONS_IN, keys=list(keys)):
            relations.setdefault(keys[key], []).append(StoredRelation(*relation))
        for number in numbers:
            yield CopiedText(
                number, frozenset(entities.get(number, ())), frozenset(relations.get(number, ()))
            )

    def idle_entities(self, catalog_id: str) -> int:
        return int(self._read(_COUNT_IDLE, catalog=catalog_id)[0][0])

    def drop_idle(self, catalog_id: str) -> None:
        self._write(lambda work: work.run(_DROP_IDLE, catalog=catalog_id).consume())

    def named(self, catalog_id: str, tenant_id: str, name_key: str, short_key: str) -> list[FoundMention]:
        found = self._read(
            _NAMED, catalog=catalog_id, tenant=tenant_id, name_key=name_key, short_key=short_key
        )
        return [FoundMention(*row) for row in found]

    def mentions(self, catalog_id: str, tenant_id: str, entity_ids: Collection[int]) -> list[FoundMention]:
        keys = [_key(catalog_id, number) for number in entity_ids]
        return [FoundMention(*row) for row in self._read(_MENTIONS_OF, keys=keys, tenant=tenant_id)]

    def relations(self, catalog_id: str, tenant_id: str, entity_ids: Collection[int]) -> list[FoundRelation]:
        keys = [_key(catalog_id, number) for number in entity_ids]
        found = {
            _relation(row)
            for statement in (_RELATIONS_FROM, _RELATIONS_TO)
            for row in self._read(statement, keys=keys, tenant=tenant_id)
        }
        return list(found)

    def all_mentions(self, catalog_id: str, tenant_id: str) -> Iterator[FoundMention]:
        for row in self._read(_ALL_MENTIONS, catalog=catalog_id, tenant=tenant_id):
            yield FoundMention(*row)

    def all_relations(self, catalog_id: str, tenant_id: str) -> Iterator[FoundRelation]:
        for row in self._read(_ALL_RELATIONS, catalog=catalog_id, tenant=tenant_id):
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
            with self._driver().session(database=self._url.database, fetch_size=_ROWS_AT_ONCE) as session:
                yield session
        except (DriverError, Neo4jError, OSError) as error:
            raise _store_failure(self._url, error) from None

    def _read(self, statement: str, **values: object) -> list[list[Any]]:
        def work(transaction: ManagedTransaction) -> list[list[Any]]:
            return transaction.run(statement, values).values()

        # Statements that clear are among these: a reading session would be sent to a copy that refuses them.
        return self._write(work)

    def _write(self, work: Callable[[ManagedTransaction], T]) -> T:
        from neo4j.exceptions import ConstraintError, TransientError

        last: ServiceUnavailable | None = None
        for _ in range(_ATTEMPTS):
            with self._session() as session:
                try:
                    result: T = session.execute_write(_within(work, self._timeout_s))
                except (ConstraintError, TransientError) as error:
                    # Another writer was at the same nodes.
                    last = _store_failure(self._url, error)
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
                row = msgspec.structs.asdict(entity)
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
    found = transaction.run(_TAKE_TEXTS, rows=rows.texts(), catalog=rows.catalog_id)
    taken = sorted(key for (key,) in found.values())
    if not taken:
        return
    before = _take_out(transaction, taken)
    for statement, values in (
        (_PUT_ENTITIES, rows.entities(taken)),
        (_PUT_MENTIONS, rows.mentions(taken)),
        (_PUT_RELATIONS, rows.relations(taken)),
    ):
        for start in range(0, len(values), _ROWS_AT_ONCE):
            some = values[start : start + _ROWS_AT_ONCE]
            transaction.run(statement, rows=some, catalog=rows.catalog_id).consume()
    transaction.run(_DELETE_IDLE, keys=before).consume()


def _take_out(transaction: ManagedTransaction, keys: Sequence[str]) -> list[str]:
    """Delete mentions and relations of texts; return the entities that may be left without any."""
    entities = [key for (key,) in transaction.run(_ENTITIES_OF, keys=keys).values()]
    if entities:
        transaction.run(_CLEAR_RELATIONS, keys=keys).consume()
        transaction.run(_CLEAR_MENTIONS, keys=keys).consume()
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

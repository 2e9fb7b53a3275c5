"""Statements of the copy in Neo4j. Values are always parameters, never part of a statement.

(:PenstockText)-[:MENTIONS {occurrences}]->(:PenstockEntity)
(:PenstockEntity)-[:RELATES {kind, weight, text}]->(:PenstockEntity)

A key is the id of the catalog and the number of the text or entity.
"""

from __future__ import annotations

SCHEMA = (
    "CREATE CONSTRAINT penstock_text_key IF NOT EXISTS FOR (t:PenstockText) REQUIRE t.key IS UNIQUE",
    "CREATE CONSTRAINT penstock_entity_key IF NOT EXISTS FOR (e:PenstockEntity) REQUIRE e.key IS UNIQUE",
    "CREATE INDEX penstock_text_catalog IF NOT EXISTS FOR (t:PenstockText) ON (t.catalog, t.id)",
    "CREATE INDEX penstock_entity_catalog IF NOT EXISTS FOR (e:PenstockEntity) ON (e.catalog, e.id)",
    "CREATE INDEX penstock_entity_name IF NOT EXISTS FOR (e:PenstockEntity) ON (e.catalog, e.name_key)",
    "CREATE INDEX penstock_entity_short IF NOT EXISTS FOR (e:PenstockEntity) ON (e.catalog, e.short_key)",
    "CREATE INDEX penstock_relation_text IF NOT EXISTS FOR ()-[r:RELATES]-() ON (r.text)",
)

# The first SET locks the node before its version is read: of two writers the newer one wins.
TAKE_TEXTS = """
UNWIND $rows AS row
MERGE (t:PenstockText {key: row.key})
SET t.catalog = $catalog, t.id = row.id, t.tenant = row.tenant
WITH t, row WHERE coalesce(t.version, 0) < row.version
SET t.version = row.version
RETURN row.key
"""
ENTITIES_OF = """
MATCH (t:PenstockText)-[:MENTIONS]->(e:PenstockEntity) WHERE t.key IN $keys RETURN DISTINCT e.key
"""
CLEAR_RELATIONS = "MATCH ()-[r:RELATES]->() WHERE r.text IN $keys DELETE r"
CLEAR_MENTIONS = "MATCH (t:PenstockText)-[m:MENTIONS]->() WHERE t.key IN $keys DELETE m"
PUT_ENTITIES = """
UNWIND $rows AS row
MERGE (e:PenstockEntity {key: row.key})
SET e.catalog = $catalog, e.id = row.id, e.tenant = row.tenant
WITH e, row WHERE coalesce(e.version, 0) < row.version
SET e.version = row.version, e.kind = row.kind, e.name = row.name, e.name_key = row.name_key,
    e.short_key = row.short_key
"""
PUT_MENTIONS = """
UNWIND $rows AS row
MATCH (t:PenstockText {key: row.text}) MATCH (e:PenstockEntity {key: row.entity})
MERGE (t)-[m:MENTIONS]->(e) SET m.occurrences = row.occurrences
"""
PUT_RELATIONS = """
UNWIND $rows AS row
MATCH (a:PenstockEntity {key: row.source}) MATCH (b:PenstockEntity {key: row.target})
MERGE (a)-[r:RELATES {text: row.text, kind: row.kind}]->(b) SET r.weight = row.weight
"""
# Without DETACH: a node that another writer mentions meanwhile is not deleted, the statement fails.
DELETE_IDLE = """
MATCH (e:PenstockEntity) WHERE e.key IN $keys AND NOT (e)<-[:MENTIONS]-() DELETE e
"""
DELETE_TEXTS = "MATCH (t:PenstockText) WHERE t.key IN $keys DELETE t"

CLEAR_TEXTS = """
MATCH (t:PenstockText) WHERE t.catalog = $catalog WITH t LIMIT 1000 DETACH DELETE t RETURN count(*) AS gone
"""
CLEAR_ENTITIES = """
MATCH (e:PenstockEntity) WHERE e.catalog = $catalog WITH e LIMIT 1000 DETACH DELETE e RETURN count(*) AS gone
"""

TEXTS_AFTER = """
MATCH (t:PenstockText) WHERE t.catalog = $catalog AND t.id > $after
RETURN t.id ORDER BY t.id LIMIT $limit
"""
TEXTS_PRESENT = "MATCH (t:PenstockText) WHERE t.key IN $keys RETURN t.id"
ENTITIES_IN = """
MATCH (t:PenstockText)-[m:MENTIONS]->(e:PenstockEntity) WHERE t.key IN $keys
RETURN t.id, e.id, e.kind, e.name_key, e.short_key, e.name, m.occurrences
"""
RELATIONS_IN = """
MATCH (a:PenstockEntity)-[r:RELATES]->(b:PenstockEntity) WHERE r.text IN $keys
RETURN r.text, a.id, b.id, r.kind, r.weight
"""
COUNT_IDLE = """
MATCH (e:PenstockEntity) WHERE e.catalog = $catalog AND NOT (e)<-[:MENTIONS]-() RETURN count(e)
"""
DROP_IDLE = """
MATCH (e:PenstockEntity) WHERE e.catalog = $catalog AND NOT (e)<-[:MENTIONS]-() DELETE e
"""

_MENTION = "RETURN e.id, e.name, e.kind, t.id, m.occurrences"
_RELATION = "RETURN a.id, b.id, r.kind, r.text, r.weight"
NAMED = f"""
MATCH (e:PenstockEntity) WHERE e.catalog = $catalog AND e.tenant = $tenant
  AND (e.name_key = $name_key OR e.short_key = $short_key)
MATCH (t:PenstockText)-[m:MENTIONS]->(e) {_MENTION}
"""
MENTIONS_OF = f"""
MATCH (t:PenstockText)-[m:MENTIONS]->(e:PenstockEntity) WHERE e.key IN $keys AND e.tenant = $tenant {_MENTION}
"""
RELATIONS_FROM = f"""
MATCH (a:PenstockEntity)-[r:RELATES]->(b:PenstockEntity)
WHERE a.key IN $keys AND a.tenant = $tenant {_RELATION}
"""
RELATIONS_TO = f"""
MATCH (a:PenstockEntity)-[r:RELATES]->(b:PenstockEntity)
WHERE b.key IN $keys AND b.tenant = $tenant {_RELATION}
"""
ALL_MENTIONS = f"""
MATCH (t:PenstockText)-[m:MENTIONS]->(e:PenstockEntity)
WHERE t.catalog = $catalog AND t.tenant = $tenant {_MENTION}
"""
ALL_RELATIONS = f"""
MATCH (a:PenstockEntity)-[r:RELATES]->(b:PenstockEntity)
WHERE a.catalog = $catalog AND a.tenant = $tenant {_RELATION}
"""

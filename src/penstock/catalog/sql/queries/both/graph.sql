-- Entities are written and removed under a lock of their tenant, which is the last lock a transaction takes.
-- name: known_entities
SELECT id, kind, name_key FROM catalog_entity WHERE tenant_id = $1 AND name_key IN texts($2)

-- name: add_entity (id bigint, tenant_id text, kind text, name_key text, short_key text, name text)
INSERT INTO catalog_entity (id, tenant_id, kind, name_key, short_key, name)
SELECT $id, $tenant_id, $kind, $name_key, $short_key, $name FROM rows() WHERE true

-- name: set_entity_kind (kind text, id bigint)
UPDATE catalog_entity AS t SET kind = $kind FROM rows() WHERE t.id = $id

-- name: only_used
SELECT entity_id FROM catalog_mention WHERE entity_id IN numbers($1) GROUP BY entity_id HAVING sum(occurrences) = 0

-- name: texts_there
SELECT id FROM catalog_content WHERE id IN numbers($1)

-- name: add_mention (content_id bigint, entity_id bigint, occurrences int)
INSERT INTO catalog_mention (content_id, entity_id, occurrences)
SELECT $content_id, $entity_id, $occurrences FROM rows() WHERE true

-- name: add_relation (content_id bigint, source_id bigint, target_id bigint, kind text, weight float8)
INSERT INTO catalog_relation (content_id, source_id, target_id, kind, weight)
SELECT $content_id, $source_id, $target_id, $kind, $weight FROM rows() WHERE true

-- name: mentioned_in
SELECT DISTINCT entity_id FROM catalog_mention WHERE content_id IN numbers($1)

-- name: delete_mentions
DELETE FROM catalog_mention WHERE content_id IN numbers($1)

-- name: delete_relations
DELETE FROM catalog_relation WHERE content_id IN numbers($1)

-- name: delete_idle_entities
DELETE FROM catalog_entity WHERE id IN numbers($1)
  AND NOT EXISTS (SELECT 1 FROM catalog_mention m WHERE m.entity_id = catalog_entity.id)

-- What is published: the text stands in the published generation of its source, and the phase is done for it there.
-- name: entities_named
SELECT id FROM catalog_entity WHERE tenant_id = $1 AND name_key = $2
UNION SELECT id FROM catalog_entity WHERE tenant_id = $1 AND short_key = $3

-- name: entities_of per later phase
SELECT e.id, e.name, e.kind, sum(m.occurrences) AS occurrences
FROM catalog_entity e JOIN catalog_mention m ON m.entity_id = e.id JOIN catalog_content t ON t.id = m.content_id
JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
WHERE e.tenant_id = $1 AND e.id IN numbers($2) AND c.{phase}_status = 'completed'
GROUP BY e.id, e.name, e.kind

-- name: entities_between
SELECT id, short_key FROM catalog_entity
WHERE tenant_id = $1 AND short_key >= $2 AND short_key < $3 ORDER BY short_key LIMIT $4

-- name: mentions_of per later phase
SELECT s.id, s.path, p.page_number, c.first_line, c.chunk_id
FROM catalog_entity e JOIN catalog_mention m ON m.entity_id = e.id JOIN catalog_content t ON t.id = m.content_id
JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
JOIN task_queue_page p ON p.id = c.page_id
WHERE e.tenant_id = $1 AND e.id = $2 AND c.{phase}_status = 'completed'
ORDER BY s.path, p.page_number, c.chunk_index LIMIT $3

-- name: edges_of per later phase
SELECT r.source_id, r.target_id, r.kind, sum(r.weight) AS weight
FROM (SELECT * FROM catalog_relation WHERE source_id IN numbers($1)
      UNION SELECT * FROM catalog_relation WHERE target_id IN numbers($1)) r
JOIN catalog_content t ON t.id = r.content_id
JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
WHERE s.tenant_id = $2 AND c.{phase}_status = 'completed'
GROUP BY r.source_id, r.target_id, r.kind ORDER BY weight DESC, r.source_id, r.target_id, r.kind LIMIT $3

-- name: graph_nodes per later phase
SELECT e.id, e.name, e.kind, m.occurrences, s.id, s.path, p.page_number, c.first_line, c.chunk_id
FROM catalog_entity e JOIN catalog_mention m ON m.entity_id = e.id JOIN catalog_content t ON t.id = m.content_id
JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
JOIN task_queue_page p ON p.id = c.page_id
WHERE e.tenant_id = $1 AND c.{phase}_status = 'completed'
ORDER BY e.kind, e.name, e.id, s.path, p.page_number, c.chunk_index

-- name: graph_edges per later phase
SELECT r.source_id, r.target_id, r.kind, r.weight, s.id, s.path, p.page_number, c.first_line, c.chunk_id
FROM catalog_relation r JOIN catalog_content t ON t.id = r.content_id
JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
JOIN task_queue_page p ON p.id = c.page_id
WHERE s.tenant_id = $1 AND c.{phase}_status = 'completed'
ORDER BY r.source_id, r.target_id, r.kind, s.path, p.page_number, c.chunk_index

-- name: text_mentions
SELECT content_id, entity_id, occurrences FROM catalog_mention WHERE content_id IN numbers($1)
ORDER BY content_id, entity_id

-- name: stored_entities
SELECT id, kind, name_key, short_key, name FROM catalog_entity WHERE id IN numbers($1)

-- name: text_relations
SELECT content_id, source_id, target_id, kind, weight FROM catalog_relation
WHERE content_id IN numbers($1) ORDER BY content_id, source_id, target_id, kind

-- name: texts_with_entities
SELECT t.id, s.tenant_id
FROM (SELECT DISTINCT content_id FROM catalog_mention WHERE content_id > $1 ORDER BY content_id LIMIT $2) m
JOIN catalog_content t ON t.id = m.content_id
JOIN sources s ON s.key = (SELECT min(o.key) FROM sources o WHERE o.family_key = t.family_key) ORDER BY t.id

-- name: shown per later phase
SELECT t.id, count(*)
FROM catalog_content t JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
WHERE s.tenant_id = $1 AND t.id IN numbers($2) AND c.{phase}_status = 'completed' GROUP BY t.id

-- name: all_shown per later phase
SELECT t.id, count(*)
FROM catalog_content t JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
WHERE s.tenant_id = $1 AND c.{phase}_status = 'completed' GROUP BY t.id

-- name: shown_mentions per later phase
SELECT s.id, s.path, p.page_number, c.first_line, c.chunk_id
FROM catalog_content t JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
JOIN task_queue_page p ON p.id = c.page_id
WHERE s.tenant_id = $1 AND t.id IN numbers($2) AND c.{phase}_status = 'completed'
ORDER BY s.path, p.page_number, c.chunk_index LIMIT $3

-- name: audit_mentions
SELECT 'mention of entity ' || m.entity_id || ' in text ' || m.content_id || ' belongs to no text'
FROM catalog_mention m LEFT JOIN catalog_content t ON t.id = m.content_id WHERE t.id IS NULL
UNION ALL
SELECT 'mention in text ' || m.content_id || ' is of no entity'
FROM catalog_mention m LEFT JOIN catalog_entity e ON e.id = m.entity_id WHERE e.id IS NULL

-- name: audit_relations
SELECT 'relation ' || r.kind || ' in text ' || r.content_id || ' has an end that the text does not mention'
FROM catalog_relation r LEFT JOIN catalog_mention a ON a.content_id = r.content_id AND a.entity_id = r.source_id
LEFT JOIN catalog_mention b ON b.content_id = r.content_id AND b.entity_id = r.target_id
WHERE a.entity_id IS NULL OR b.entity_id IS NULL

-- name: audit_entities
SELECT 'entity ' || e.name || ' is mentioned nowhere'
FROM catalog_entity e LEFT JOIN catalog_mention m ON m.entity_id = e.id WHERE m.entity_id IS NULL

-- name: audit_extracted per later phase
SELECT 'chunk ' || c.{id} || ' has lost its entities'
FROM task_queue_chunk c LEFT JOIN catalog_mention m ON m.content_id = c.content_id
WHERE c.{phase}_status = 'completed' AND c.entities_extracted > 0 AND m.content_id IS NULL

-- name: stray_mentions
SELECT m.content_id FROM catalog_mention m LEFT JOIN catalog_content t ON t.id = m.content_id
WHERE t.id IS NULL LIMIT $1

-- name: stray_relations
SELECT r.content_id FROM catalog_relation r LEFT JOIN catalog_content t ON t.id = r.content_id
WHERE t.id IS NULL LIMIT $1

-- name: stray_entities
SELECT e.id, e.tenant_id FROM catalog_entity e LEFT JOIN catalog_mention m ON m.entity_id = e.id WHERE m.entity_id IS NULL LIMIT $1

-- name: entities_by_kind per later phase
SELECT e.kind, count(DISTINCT e.id)
FROM catalog_entity e JOIN catalog_mention m ON m.entity_id = e.id JOIN catalog_content t ON t.id = m.content_id
JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
WHERE e.tenant_id = $1 AND c.{phase}_status = 'completed' GROUP BY e.kind ORDER BY 2 DESC, e.kind

-- name: relations_by_kind per later phase
SELECT kind, count(*) FROM (
    SELECT DISTINCT r.source_id, r.target_id, r.kind
    FROM catalog_relation r JOIN catalog_content t ON t.id = r.content_id
    JOIN sources s ON s.family_key = t.family_key JOIN documents d ON d.{id} = s.published_id
    JOIN task_queue_chunk c ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
    WHERE s.tenant_id = $1 AND c.{phase}_status = 'completed') x
GROUP BY kind ORDER BY 2 DESC, kind

-- name: extracted_chunks per later phase
SELECT coalesce(sum(d.{phase}_chunks), 0) FROM documents d JOIN sources s ON s.published_id = d.{id} WHERE s.tenant_id = $1

-- name: any_extracted per later phase
SELECT 1 FROM sources s JOIN documents d ON d.{id} = s.published_id WHERE {filtered} AND d.{phase}_chunks > 0 LIMIT 1

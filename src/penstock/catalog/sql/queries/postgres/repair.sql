-- Findings of an audit that can be repaired without reading a source again, up to a limit.
-- name: wordless
SELECT t.id, t.text FROM catalog_content t LEFT JOIN catalog_keyword k ON k.content_id = t.id
WHERE k.content_id IS NULL LIMIT $1

-- name: forget_stray_words
DELETE FROM catalog_keyword k WHERE NOT EXISTS (SELECT 1 FROM catalog_content t WHERE t.id = k.content_id)

-- name: stray_vectors
SELECT v.content_id FROM catalog_vector v LEFT JOIN catalog_content t ON t.id = v.content_id WHERE t.id IS NULL LIMIT $1

-- name: stray_texts
SELECT t.id FROM catalog_content t WHERE NOT EXISTS (
    SELECT 1 FROM sources s, documents d, task_queue_chunk c
    WHERE s.family_key = t.family_key AND d.source_key = s.key AND c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id)
LIMIT $1

-- name: vectorless
SELECT c.key, p.key, d.key
FROM sources s JOIN documents d ON d.source_key = s.key AND d.key IN (s.published_id, s.building_id)
JOIN catalog_space x ON x.id = d.space_id AND x.dimension IS NOT NULL
JOIN task_queue_chunk c ON c.document_id = d.id AND c.vector_status = 'completed'
JOIN task_queue_page p ON p.id = c.page_id
LEFT JOIN catalog_vector v ON v.content_id = c.content_id AND v.space_id = d.space_id
WHERE v.content_id IS NULL LIMIT $1

-- name: stray_documents
SELECT d.key, d.source_key FROM documents d JOIN sources s ON s.key = d.source_key
WHERE s.published_id IS DISTINCT FROM d.key AND s.building_id IS DISTINCT FROM d.key
  AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.document_key = d.key) LIMIT $1

-- name: forget_cached
DELETE FROM catalog_vector_cache WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM catalog_vector_cache WHERE tenant_id = $1 LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: forget_events
DELETE FROM catalog_history WHERE id = ANY(ARRAY(
    SELECT h.id FROM catalog_history h
    WHERE h.tenant_id = $1 AND NOT EXISTS (SELECT 1 FROM sources s WHERE s.id = h.source_id) LIMIT $2))

-- name: forget_notes
DELETE FROM catalog_ledger WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM catalog_ledger WHERE tenant_id = $1 AND at <= $2 LIMIT $3 FOR UPDATE SKIP LOCKED))

-- name: forget_walks
DELETE FROM catalog_walk WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM catalog_walk WHERE tenant_id = $1 AND asked_at <= $2 LIMIT $3 FOR UPDATE SKIP LOCKED))

-- name: forget_arrivals
DELETE FROM catalog_arrival WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM catalog_arrival WHERE tenant_id = $1 AND created_at <= $2 LIMIT $3 FOR UPDATE SKIP LOCKED))

-- The tombstone of the whole tenant stays: it holds nothing but the tenant's name.
-- name: forget_tombstones
DELETE FROM catalog_tombstone WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM catalog_tombstone
    WHERE tenant_id = $1 AND asked_at <= $2
      AND NOT (collection = '' AND branch = '' AND path = '' AND source_id = '')
    LIMIT $3 FOR UPDATE SKIP LOCKED))

-- Tables of the catalog with pages that were last counted without a row: while a transaction added the first ones, or
-- after all were deleted. Of two such tables the planner expects that reading one is as good as looking a row up. A table
-- without a change since its count is not counted again: it is empty, and only a vacuum gives its pages back.
-- name: counted_as_empty
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.reltuples = 0 AND c.relpages > 0
  AND (c.relname IN ('sources', 'documents', 'task_queue_page', 'task_queue_chunk') OR starts_with(c.relname, 'catalog_'))
  AND pg_stat_get_mod_since_analyze(c.oid) > 0

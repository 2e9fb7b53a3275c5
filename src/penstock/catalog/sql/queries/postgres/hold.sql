-- Rows are locked before a decision that depends on them, always in the order of their numbers.
-- name: hold_tenant
SELECT pg_advisory_xact_lock('catalog_row'::regclass::oid::int, hashtext($1::text))

-- name: hold_tenant_shared
SELECT pg_advisory_xact_lock_shared('catalog_row'::regclass::oid::int, hashtext($1::text))

-- name: hold_paths
SELECT 1 FROM sources
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = ANY(texts($4)) ORDER BY key FOR NO KEY UPDATE

-- name: hold_documents_at
SELECT 1 FROM documents WHERE source_key = ANY(ARRAY(
    SELECT key FROM sources
    WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = ANY(texts($4))))
ORDER BY key FOR NO KEY UPDATE

-- name: hold_sources_of
SELECT 1 FROM sources
WHERE key = ANY(ARRAY(SELECT source_key FROM documents WHERE key = ANY(numbers($1)))) ORDER BY key FOR NO KEY UPDATE

-- name: hold_documents
SELECT 1 FROM documents WHERE key = ANY(numbers($1)) ORDER BY key FOR NO KEY UPDATE

-- name: hold_pages
SELECT 1 FROM task_queue_page WHERE key = ANY(numbers($1)) ORDER BY key FOR NO KEY UPDATE

-- The cast to text keeps the planner from the index of all processing tasks: rows are found by number.
-- name: hold per phase
SELECT 1 FROM {table} WHERE key = ANY(numbers($1)) AND {phase}_status::text = 'processing' ORDER BY key FOR NO KEY UPDATE

-- name: hold_entries
SELECT 1 FROM catalog_outbox WHERE id = ANY(numbers($1)) ORDER BY id FOR UPDATE

-- name: hold_sources_of_entries
SELECT 1 FROM sources
WHERE key = ANY(ARRAY(SELECT source_key FROM catalog_outbox WHERE id = ANY(numbers($1)))) ORDER BY key
FOR NO KEY UPDATE

-- Families share texts: one is locked by those that take texts of another source, and those that remove texts. The
-- locks are few, whatever the number of families, and come after those of sources and documents.
-- name: hold_families
SELECT pg_advisory_xact_lock('catalog_content'::regclass::oid::int, f.part)
FROM (SELECT DISTINCT (n % 64)::int AS part FROM unnest(numbers($1)) AS n ORDER BY part OFFSET 0) AS f

-- name: hold_families_of_entries
SELECT pg_advisory_xact_lock('catalog_content'::regclass::oid::int, f.part)
FROM (SELECT DISTINCT (s.family_key % 64)::int AS part FROM sources s
      WHERE s.key = ANY(ARRAY(SELECT source_key FROM catalog_outbox WHERE id = ANY(numbers($1)) AND kind = 'leftover'))
      ORDER BY part OFFSET 0) AS f

-- name: hold_space
SELECT 1 FROM catalog_space WHERE name = $1 FOR NO KEY UPDATE

-- name: hold_fingerprints
LOCK TABLE catalog_fingerprint IN SHARE ROW EXCLUSIVE MODE

-- name: hold_graph
SELECT pg_advisory_xact_lock('catalog_entity'::regclass::oid::int, hashtext($1::text))

-- name: hold_outside_stores
LOCK TABLE catalog_outside_store IN SHARE ROW EXCLUSIVE MODE

-- A later request for the same scope replaces the earlier one.
-- name: add_tombstone
INSERT INTO catalog_tombstone (tenant_id, collection, branch, path, source_id, asked_at, reason, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant_id, collection, branch, path, source_id) DO UPDATE
SET asked_at = excluded.asked_at, reason = excluded.reason, created_at = excluded.created_at
WHERE excluded.asked_at > asked_at

-- Visible generations and those being built, of requests not later than the delete. An empty text means any.
-- name: doomed_by_path
SELECT s.key, s.published_id, s.building_id, s.asked_at FROM sources s INDEXED BY idx_sources_path
WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3 AND (s.path = $4 OR (s.path >= $5 AND s.path < $6))
  AND ((s.published_id IS NOT NULL AND s.asked_at <= $7)
       OR EXISTS (SELECT 1 FROM documents d WHERE d.id = s.building_id AND d.asked_at <= $7))
  AND $9 = ''
LIMIT $8

-- name: doomed
SELECT s.key, s.published_id, s.building_id, s.asked_at FROM sources s INDEXED BY idx_sources_path
WHERE s.tenant_id = $1 AND ($2 = '' OR s.collection = $2) AND ($3 = '' OR s.branch = $3)
  AND ($4 = '' OR s.path = $4 OR (s.path >= $5 AND s.path < $6)) AND ($9 = '' OR s.id = $9)
  AND ((s.published_id IS NOT NULL AND s.asked_at <= $7)
       OR EXISTS (SELECT 1 FROM documents d WHERE d.id = s.building_id AND d.asked_at <= $7))
LIMIT $8

-- name: doomed_source
SELECT s.key, s.published_id, s.building_id, s.asked_at FROM sources s
WHERE s.id = $9 AND s.tenant_id = $1 AND ($2 = '' OR s.collection = $2) AND ($3 = '' OR s.branch = $3)
  AND ($4 = '' OR s.path = $4 OR (s.path >= $5 AND s.path < $6))
  AND ((s.published_id IS NOT NULL AND s.asked_at <= $7)
       OR EXISTS (SELECT 1 FROM documents d WHERE d.id = s.building_id AND d.asked_at <= $7))
LIMIT $8

-- name: hide
UPDATE sources
SET published_id = NULL, space_id = NULL, partial = 0, page_count = 0, chunk_count = 0, content_hash = '',
    change_seq = $1, updated_at = $2
WHERE key = $3

-- A source moved by this rename gets the time of the rename as its request, and is not found again.
-- name: sources_below
SELECT key, path, published_id, building_id FROM sources INDEXED BY idx_sources_path
WHERE tenant_id = $1 AND collection = $2 AND branch = $3
  AND ((path = $4) OR ($7 AND path >= $5 AND path < $6)) AND (asked_at IS NULL OR asked_at < $9)
ORDER BY path LIMIT $8

-- The same, shortest path first: when a folder replaces its parent, the sources in the way move first.
-- name: sources_below_shortest
SELECT key, path, published_id, building_id FROM sources INDEXED BY idx_sources_path
WHERE tenant_id = $1 AND collection = $2 AND branch = $3
  AND ((path = $4) OR ($7 AND path >= $5 AND path < $6)) AND (asked_at IS NULL OR asked_at < $9)
ORDER BY length(path), path LIMIT $8

-- name: move_source
UPDATE sources SET path = $1, asked_at = max(coalesce(asked_at, $2), $2), updated_at = $3 WHERE key = $4

-- name: move_document
UPDATE documents SET asked_at = max(asked_at, $1), filename = $2 WHERE id = $3

-- name: touch
UPDATE sources SET size = $1, mtime_ns = $2, asked_at = max(asked_at, coalesce($4, asked_at)) WHERE id = $3

-- name: outbox
SELECT {OutboxEntry o.; entry_id = o.id; source_id = coalesce(s.id, ''); tenant_id = coalesce(s.tenant_id, '');
                    collection = coalesce(s.collection, ''); branch = coalesce(s.branch, ''); space = x.name}
FROM catalog_outbox o LEFT JOIN sources s ON s.key = o.source_key
LEFT JOIN documents d ON d.id = o.document_id LEFT JOIN catalog_space x ON x.id = d.space_id
WHERE o.id > $1 AND ($2 = '' OR o.kind = $2) ORDER BY o.id LIMIT $3

-- name: parts
SELECT {LeftoverChunk c.; chunk_key = c.id; text_hash = c.chunk_content_hash;
    claimed = [[chunk phase OR| c.{phase}_status = 'processing']];
    shared = EXISTS (SELECT 1 FROM json_each($2) j CROSS JOIN task_queue_chunk o INDEXED BY idx_tqc_document
                     WHERE o.document_id = j.value AND o.text_key = c.text_key AND o.content_id = c.content_id)}
FROM task_queue_chunk c INDEXED BY idx_tqc_document WHERE c.document_id = $1 LIMIT $3

-- name: delete_chunk
DELETE FROM task_queue_chunk WHERE id = $1

-- name: text_of
SELECT id, text FROM catalog_content WHERE id IN (SELECT value FROM json_each($1))

-- name: delete_keyword
INSERT INTO catalog_keyword (catalog_keyword, rowid, text) VALUES ('delete', $1, $2)

-- name: delete_content
DELETE FROM catalog_content WHERE id = $1

-- name: vectors_of
SELECT id / 256, vector FROM catalog_vector WHERE id IN (SELECT value * 256 + $1 FROM json_each($2))

-- name: delete_vectors
DELETE FROM catalog_vector WHERE id BETWEEN $1 * 256 AND $1 * 256 + 255

-- name: delete_vector
DELETE FROM catalog_vector WHERE id = $1 * 256 + $2

-- name: delete_pages
DELETE FROM task_queue_page WHERE id IN (
    SELECT id FROM task_queue_page INDEXED BY idx_tqp_document WHERE document_id = $1 LIMIT $2)

-- name: note (LedgerRow)
INSERT OR REPLACE INTO catalog_ledger ({LedgerRow}) VALUES ({LedgerRow values})

-- name: old_cached
DELETE FROM catalog_vector_cache WHERE id IN (
    SELECT id FROM catalog_vector_cache INDEXED BY idx_catalog_vector_cache_used
    WHERE used_at < $1 ORDER BY used_at LIMIT $2)

-- name: idle_spaces
DELETE FROM catalog_space
WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.space_id = catalog_space.id)
  AND NOT EXISTS (SELECT 1 FROM catalog_vector_cache v WHERE v.space_id = catalog_space.id)

-- name: forget_up_to
UPDATE catalog_sequence SET value = max(value, $1) WHERE name = 'forgotten'

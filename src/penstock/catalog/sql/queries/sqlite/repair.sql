-- Findings of an audit that can be repaired without reading a source again, up to a limit.
-- name: wordless
SELECT t.id, t.text FROM catalog_content t LEFT JOIN catalog_keyword_docsize k ON k.id = t.id WHERE k.id IS NULL LIMIT $1

-- FTS5 deletes an entry only with its text. Entries of lost texts go with a rebuild of the whole index.
-- name: forget_stray_words
INSERT INTO catalog_keyword (catalog_keyword) SELECT 'rebuild'
WHERE EXISTS (SELECT 1 FROM catalog_keyword_docsize k LEFT JOIN catalog_content t ON t.id = k.id WHERE t.id IS NULL)

-- name: stray_vectors
SELECT v.id / 256 FROM catalog_vector v LEFT JOIN catalog_content t ON t.id = v.id / 256 WHERE t.id IS NULL LIMIT $1

-- name: stray_texts
SELECT t.id FROM catalog_content t WHERE NOT EXISTS (
    SELECT 1 FROM sources s INDEXED BY idx_sources_family CROSS JOIN documents d ON d.source_key = s.key
    CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
    ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
    WHERE s.family_key = t.family_key) LIMIT $1

-- name: vectorless
SELECT c.id, c.page_id, d.id
FROM sources s JOIN documents d ON d.id = s.published_id OR d.id = s.building_id
JOIN catalog_space x ON x.id = d.space_id AND x.dimension IS NOT NULL
JOIN task_queue_chunk c INDEXED BY idx_tqc_document ON c.document_id = d.id AND c.vector_status = 'completed'
LEFT JOIN catalog_vector v ON v.id = c.content_id * 256 + d.space_id WHERE v.id IS NULL LIMIT $1

-- name: stray_documents
SELECT d.id, d.source_key FROM documents d JOIN sources s ON s.key = d.source_key
WHERE s.published_id IS NOT d.id AND s.building_id IS NOT d.id
  AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.document_id = d.id) LIMIT $1

-- name: forget_cached
DELETE FROM catalog_vector_cache WHERE id IN (
    SELECT id FROM catalog_vector_cache INDEXED BY idx_catalog_vector_cache_text WHERE tenant_id = $1 LIMIT $2)

-- name: forget_events
DELETE FROM catalog_history WHERE id IN (
    SELECT h.id FROM catalog_history h INDEXED BY idx_catalog_history_path
    WHERE h.tenant_id = $1 AND NOT EXISTS (SELECT 1 FROM sources s WHERE s.id = h.source_id) LIMIT $2)

-- name: forget_notes
DELETE FROM catalog_ledger WHERE (tenant_id, collection, branch, path) IN (
    SELECT tenant_id, collection, branch, path FROM catalog_ledger WHERE tenant_id = $1 AND at <= $2 LIMIT $3)

-- name: forget_walks
DELETE FROM catalog_walk WHERE (tenant_id, collection, branch, root, rules) IN (
    SELECT tenant_id, collection, branch, root, rules FROM catalog_walk
    WHERE tenant_id = $1 AND asked_at <= $2 LIMIT $3)

-- name: forget_arrivals
DELETE FROM catalog_arrival WHERE (tenant_id, collection, branch, path) IN (
    SELECT tenant_id, collection, branch, path FROM catalog_arrival
    WHERE tenant_id = $1 AND created_at <= $2 LIMIT $3)

-- The tombstone of the whole tenant stays: it holds nothing but the tenant's name.
-- name: forget_tombstones
DELETE FROM catalog_tombstone WHERE (tenant_id, collection, branch, path, source_id) IN (
    SELECT tenant_id, collection, branch, path, source_id FROM catalog_tombstone
    WHERE tenant_id = $1 AND asked_at <= $2 AND NOT (collection = '' AND branch = '' AND path = '' AND source_id = '')
    LIMIT $3)

-- Words of deleted texts stay in the segments of the index until these are merged. A negative number begins a merge
-- of all segments, a positive one goes on with it.
-- Pages, about, of each segment of the keyword index. FTS5 has a row for each page of a segment.
-- name: word_segments
SELECT count(*) FROM catalog_keyword_idx GROUP BY segid

-- name: merge_words
INSERT INTO catalog_keyword (catalog_keyword, rank) VALUES ('merge', $1)

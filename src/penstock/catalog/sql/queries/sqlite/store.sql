-- name: next_numbers
UPDATE catalog_sequence SET value = value + ? WHERE name = ? RETURNING value

-- name: space
SELECT id, dimension FROM catalog_space WHERE name = ?

-- name: free_space
SELECT coalesce(min(a.id) + 1, 1) FROM (SELECT 0 AS id UNION ALL SELECT id FROM catalog_space) a
WHERE NOT EXISTS (SELECT 1 FROM catalog_space b WHERE b.id = a.id + 1)

-- name: add_space
INSERT INTO catalog_space (id, name, dimension) VALUES (?, ?, ?)

-- name: set_dimension
UPDATE catalog_space SET dimension = ? WHERE id = ?

-- name: any_tombstone
SELECT 1 FROM catalog_tombstone INDEXED BY idx_catalog_tombstone_asked WHERE tenant_id = ? AND asked_at >= ? LIMIT 1

-- The plus keeps SQLite from reading all that was deleted since, once for each path.
-- name: tombstones
SELECT t.tenant_id, t.collection, t.branch, t.path, t.source_id, t.asked_at
FROM json_each(json_array('', ?2)) c, json_each(json_array('', ?3)) b, json_each(?4) p
CROSS JOIN catalog_tombstone t
WHERE t.tenant_id = ?1 AND t.collection = c.value AND t.branch = b.value AND t.path = p.value
  AND (t.source_id = '' OR t.source_id IN (SELECT value FROM json_each(?5)))
  AND +t.asked_at >= ?6

-- name: source_at
SELECT {SourceRow; source_id = id} FROM sources
WHERE tenant_id = ? AND collection = ? AND branch = ? AND path = ?

-- name: sources_at
SELECT {SourceRow s.; source_id = s.id}
FROM json_each(?4) j CROSS JOIN sources s INDEXED BY idx_sources_path
WHERE s.tenant_id = ?1 AND s.collection = ?2 AND s.branch = ?3 AND s.path = j.value

-- name: add_source (NewSource, PublishedSource)
INSERT INTO sources ({NewSource}, {PublishedSource}) VALUES ({NewSource values}, {PublishedSource values})

-- name: add_bare_source (NewSource)
INSERT INTO sources ({NewSource}, updated_at) VALUES ({NewSource values}, $created_at)

-- name: publish (PublishedSource, key bigint)
UPDATE sources SET {PublishedSource set}, building_id = NULL WHERE key = $key

-- name: set_building
UPDATE sources SET building_id = ?, updated_at = ? WHERE key = ?

-- What is whole from birth brings a third of the columns: the others say that it is.
-- name: add_whole_document (OwnDocument, WholeDocument)
INSERT INTO documents (
    {OwnDocument; document_id = id}, {WholeDocument; at = updated_at}, ocr_completed, vector_chunks,
    ocr_completed_at, vector_completed_at, published_at, created_at,
    state, ocr_status, vector_index_status, graphrag_index_status)
VALUES ({OwnDocument values}, {WholeDocument values}, $page_count, $chunk_count, $at, $at, $at, $at,
        'published', 'completed', 'completed', 'skipped')

-- name: add_document (OwnDocument, source_json text, SharedDocument)
INSERT INTO documents ({OwnDocument; document_id = id}, source_json, {SharedDocument})
VALUES ({OwnDocument values}, $source_json, {SharedDocument values})

-- name: add_whole_page (OwnPage, WholePage)
INSERT INTO task_queue_page (
    {OwnPage; page_id = id}, {WholePage; at = updated_at}, vector_completed,
    ocr_completed_at, vector_completed_at, created_at, ocr_status, vector_status, graphrag_status)
VALUES ({OwnPage values}, {WholePage values}, $chunk_count, $at, $at, $at, 'completed', 'completed', 'skipped')

-- name: add_page (OwnPage, SharedPage)
INSERT INTO task_queue_page ({OwnPage; page_id = id}, {SharedPage}) VALUES ({OwnPage values}, {SharedPage values})

-- name: add_page_text
INSERT OR REPLACE INTO catalog_page_text (page_id, text) VALUES (?, ?)

-- name: known_chunks
SELECT c.chunk_id, c.content_id, c.document_id, c.vector_status, c.graphrag_status,
       c.entities_extracted, c.relationships_extracted, c.chunk_content_hash
FROM json_each(?1) d, json_each(?2) k
CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
WHERE c.document_id = d.value AND c.text_key = k.value

-- name: known_documents
SELECT id, space_id, graphrag_fingerprint FROM documents WHERE id IN (SELECT value FROM json_each(?))

-- name: add_content
INSERT INTO catalog_content (id, source_key, text_key, text) VALUES (?, ?, ?, ?)

-- name: add_keyword
INSERT INTO catalog_keyword (rowid, text) VALUES (?, ?)

-- name: add_whole_chunk (NewChunkRow, ChunkText, ChunkDocument)
INSERT INTO task_queue_chunk (
    {NewChunkRow; chunk_key = id}, {ChunkText}, {ChunkDocument; at = updated_at}, vector_completed_at, created_at, vector_status, graphrag_status)
VALUES ({NewChunkRow values}, {ChunkText values}, {ChunkDocument values}, $at, $at, 'completed', 'skipped')

-- name: add_chunk (NewChunkRow, ChunkText, ChunkDocument, ChunkTasks, turn int)
INSERT INTO task_queue_chunk ({NewChunkRow; chunk_key = id}, {ChunkText}, {ChunkDocument; at = updated_at}, {ChunkTasks}, turn, created_at)
VALUES ({NewChunkRow values}, {ChunkText values}, {ChunkDocument values}, {ChunkTasks values}, $turn, $at)

-- name: put_vector
INSERT OR REPLACE INTO catalog_vector (id, vector) VALUES (?1 * 256 + ?2, ?3)

-- name: cached_vectors
SELECT text_hash, vector FROM catalog_vector_cache
WHERE tenant_id = ?1 AND space_id = ?2 AND text_hash IN (SELECT value FROM json_each(?3))

-- name: remember
INSERT INTO catalog_vector_cache (tenant_id, space_id, text_hash, used_at, vector) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, space_id, text_hash) DO UPDATE SET used_at = excluded.used_at

-- name: any_leftover
SELECT 1 FROM catalog_outbox INDEXED BY idx_catalog_outbox_leftover
WHERE kind = 'leftover' AND source_key = ? LIMIT 1

-- name: other_leftover
SELECT 1 FROM catalog_outbox INDEXED BY idx_catalog_outbox_leftover
WHERE kind = 'leftover' AND source_key = ? AND id <> ? LIMIT 1

-- name: add_leftover
INSERT OR IGNORE INTO catalog_outbox (id, kind, document_id, source_key, created_at)
VALUES (?, 'leftover', ?, ?, ?)

-- name: add_job_entry
INSERT INTO catalog_outbox (id, kind, document_id, source_key, job_id, created_at) VALUES (?, 'job', ?, ?, ?, ?)

-- name: any_ledger
SELECT 1 FROM catalog_ledger LIMIT 1

-- name: unnote
DELETE FROM catalog_ledger WHERE tenant_id = ? AND collection = ? AND branch = ? AND path = ?

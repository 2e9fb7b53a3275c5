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
SELECT key, id, published_id, building_id, read_at FROM sources
WHERE tenant_id = ? AND collection = ? AND branch = ? AND path = ?

-- name: sources_at
SELECT s.path, s.key, s.id, s.published_id, s.building_id, s.read_at
FROM json_each(?4) j CROSS JOIN sources s INDEXED BY idx_sources_path
WHERE s.tenant_id = ?1 AND s.collection = ?2 AND s.branch = ?3 AND s.path = j.value

-- name: add_source
INSERT INTO sources (
    key, id, tenant_id, collection, branch, path, created_at,
    published_id, space_id, partial, size, mtime_ns, page_count, chunk_count, content_hash,
    ocr_fingerprint, vector_fingerprint, graphrag_fingerprint, asked_at, read_at, published_at,
    change_seq, updated_at, file_type, title, tags, metadata)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_bare_source
INSERT INTO sources (key, id, tenant_id, collection, branch, path, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)

-- name: publish
UPDATE sources
SET published_id = ?, space_id = ?, partial = ?, size = ?, mtime_ns = ?, page_count = ?, chunk_count = ?,
    content_hash = ?, ocr_fingerprint = ?, vector_fingerprint = ?, graphrag_fingerprint = ?,
    asked_at = ?, read_at = ?, published_at = ?, change_seq = ?, updated_at = ?,
    file_type = ?, title = ?, tags = ?, metadata = ?, building_id = NULL
WHERE key = ?

-- name: set_building
UPDATE sources SET building_id = ?, updated_at = ? WHERE key = ?

-- What is whole from birth brings a third of the columns: the others say that it is.
-- name: add_whole_document
INSERT INTO documents (
    id, source_key, filename, content_hash, job_id, asked_at, read_at, page_count, ocr_completed, vector_completed,
    chunk_count, vector_chunks, graphrag_error, space_id, priority, max_retries,
    ocr_fingerprint, vector_fingerprint, graphrag_fingerprint,
    ocr_completed_at, vector_completed_at, published_at, created_at, updated_at,
    state, ocr_status, vector_index_status, graphrag_index_status)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?18, ?18, ?18, ?18,
        'published', 'completed', 'completed', 'skipped')

-- name: add_document
INSERT INTO documents (
    id, source_key, filename, content_hash, job_id, asked_at, read_at, source_json,
    state, ocr_status, vector_index_status, graphrag_index_status,
    ocr_processing, ocr_waiting, ocr_failed, ocr_completed,
    vector_processing, vector_waiting, vector_failed, vector_completed,
    graphrag_processing, graphrag_waiting, graphrag_failed, graphrag_completed,
    ocr_completed_at, vector_completed_at, ocr_error, vector_error, graphrag_error,
    page_count, chunk_count, vector_chunks, graphrag_chunks, failed_count, outage_count,
    space_id, graph, gate, priority, max_retries, turn, given,
    ocr_fingerprint, vector_fingerprint, graphrag_fingerprint,
    published_at, created_at, updated_at, note)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_whole_page
INSERT INTO task_queue_page (
    id, document_id, page_number, page_file_path, chunk_count, vector_completed, graphrag_error, max_retries, priority,
    ocr_completed_at, vector_completed_at, created_at, updated_at, ocr_status, vector_status, graphrag_status)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?9, ?9, ?9, 'completed', 'completed', 'skipped')

-- name: add_page
INSERT INTO task_queue_page (
    id, document_id, page_number, page_file_path, chunk_count, turn,
    ocr_status, ocr_completed_at, ocr_error, ocr_retry_count,
    vector_status, vector_completed_at, vector_error, graphrag_status, graphrag_error,
    vector_processing, vector_waiting, vector_failed, vector_completed,
    graphrag_processing, graphrag_waiting, graphrag_failed, graphrag_completed,
    max_retries, priority, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

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

-- name: add_whole_chunk
INSERT INTO task_queue_chunk (
    id, page_id, document_id, content_id, text_key, chunk_id, chunk_index, chunk_content_hash, max_retries, priority,
    start_char, end_char, first_line, last_line, heading_path, symbols,
    vector_completed_at, created_at, updated_at, vector_status, graphrag_status)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?17, ?17,
        'completed', 'skipped')

-- name: add_chunk
INSERT INTO task_queue_chunk (
    id, page_id, document_id, content_id, text_key, chunk_id, chunk_index, chunk_content_hash, max_retries, priority,
    start_char, end_char, first_line, last_line, heading_path, symbols, created_at, updated_at,
    vector_status, vector_completed_at, vector_held, graphrag_status, graphrag_completed_at, graphrag_held,
    entities_extracted, relationships_extracted, turn)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?17,
        ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)

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

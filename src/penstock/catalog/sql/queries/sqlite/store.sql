-- name: next_numbers
UPDATE catalog_sequence SET value = value + $1 WHERE name = $2 RETURNING value

-- The plus keeps SQLite from using the index of times, which would read all later deletes for each path.
-- name: tombstones
SELECT t.tenant_id, t.collection, t.branch, t.path, t.source_id, t.asked_at
FROM json_each(json_array('', $2)) c, json_each(json_array('', $3)) b, json_each($4) p
CROSS JOIN catalog_tombstone t
WHERE t.tenant_id = $1 AND t.collection = c.value AND t.branch = b.value AND t.path = p.value
  AND (t.source_id = '' OR t.source_id IN (SELECT value FROM json_each($5)))
  AND +t.asked_at >= $6

-- name: sources_at
SELECT {SourceRow s.; source_id = s.id}
FROM json_each($4) j CROSS JOIN sources s INDEXED BY idx_sources_path
WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3 AND s.path = j.value

-- name: add_source (NewSource, PublishedSource)
INSERT INTO sources ({NewSource}, {PublishedSource}) VALUES ({NewSource values}, {PublishedSource values})

-- name: publish (PublishedSource, key bigint)
UPDATE sources SET {PublishedSource set}, building_id = NULL WHERE key = $key

-- A row complete when written has a third of the columns; the others are constants.
-- name: add_whole_document (OwnDocument, WholeDocument)
INSERT INTO documents (
    {OwnDocument; document_id = id}, {WholeDocument; at = updated_at}, ocr_completed, vector_chunks,
    ocr_completed_at, vector_completed_at, published_at, created_at,
    state, ocr_status, vector_index_status, [[later phase,| {document_status}]])
VALUES ({OwnDocument values}, {WholeDocument values}, $page_count, $chunk_count, $at, $at, $at, $at,
        'published', 'completed', 'completed', [[later phase,| 'skipped']])

-- name: add_document (OwnDocument, UnfinishedDocument, SharedDocument)
INSERT INTO documents ({OwnDocument; document_id = id}, {UnfinishedDocument}, {SharedDocument})
VALUES ({OwnDocument values}, {UnfinishedDocument values}, {SharedDocument values})

-- name: add_whole_page (OwnPage, WholePage)
INSERT INTO task_queue_page (
    {OwnPage; page_id = id}, {WholePage; at = updated_at}, vector_completed,
    ocr_completed_at, vector_completed_at, created_at, ocr_status, vector_status,
    [[later phase,| {phase}_status]])
VALUES ({OwnPage values}, {WholePage values}, $chunk_count, $at, $at, $at, 'completed', 'completed',
        [[later phase,| 'skipped']])

-- name: add_page (OwnPage, SharedPage)
INSERT INTO task_queue_page ({OwnPage; page_id = id}, {SharedPage}) VALUES ({OwnPage values}, {SharedPage values})

-- name: add_page_text (PageText)
INSERT OR REPLACE INTO catalog_page_text ({PageText}) VALUES ({PageText values})

-- name: known_chunks
SELECT c.chunk_id, c.content_id, c.document_id, c.entities_extracted, c.relationships_extracted,
       c.chunk_content_hash, c.vector_status, [[later phase,| c.{phase}_status]]
FROM json_each($1) d, json_each($2) k
CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
WHERE c.document_id = d.value AND c.text_key = k.value

-- name: own_texts
SELECT c.text_key, count(*)
FROM json_each($2) k CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
WHERE c.document_id = $1 AND c.text_key = k.value GROUP BY c.text_key

-- name: add_content
INSERT INTO catalog_content (id, family_key, text_key, text) VALUES ($1, $2, $3, $4)

-- name: add_keyword
INSERT INTO catalog_keyword (rowid, text) VALUES ($1, $2)

-- name: add_whole_chunk (NewChunkRow, ChunkText, ChunkDocument)
INSERT INTO task_queue_chunk (
    {NewChunkRow; chunk_key = id}, {ChunkText}, {ChunkDocument; at = updated_at}, vector_completed_at, created_at, vector_status,
    [[later phase,| {phase}_status]])
VALUES ({NewChunkRow values}, {ChunkText values}, {ChunkDocument values}, $at, $at, 'completed',
        [[later phase,| 'skipped']])

-- name: add_chunk (NewChunkRow, ChunkText, ChunkDocument, ChunkTasks, turn int)
INSERT INTO task_queue_chunk ({NewChunkRow; chunk_key = id}, {ChunkText}, {ChunkDocument; at = updated_at}, {ChunkTasks}, turn, created_at)
VALUES ({NewChunkRow values}, {ChunkText values}, {ChunkDocument values}, {ChunkTasks values}, $turn, $at)

-- name: put_vector
INSERT OR REPLACE INTO catalog_vector (id, vector) VALUES ($1 * 256 + $2, $3)

-- name: remember
INSERT INTO catalog_vector_cache (tenant_id, space_id, text_hash, used_at, vector) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, space_id, text_hash) DO UPDATE SET used_at = excluded.used_at

-- name: add_leftover
INSERT OR IGNORE INTO catalog_outbox (id, kind, document_id, source_key, created_at)
VALUES ($1, 'leftover', $2, $3, $4)

-- name: unnote
DELETE FROM catalog_ledger WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = $4

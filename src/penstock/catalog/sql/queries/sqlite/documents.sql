-- name: drop_document
UPDATE documents SET state = 'dropped', note = $1, updated_at = $2 WHERE id = $3 AND state = 'building'

-- name: building_of
SELECT {BuildingRow} FROM documents WHERE id = $1 AND state = 'building'

-- A generation without pages failed as a whole: it has no tasks to wait for.
-- name: adopt
UPDATE documents
SET job_id = $1, priority = $2, asked_at = max(asked_at, $3), read_at = max(read_at, $4), updated_at = $5
WHERE id = $6 AND unwritten = 0 AND page_count > 0 AND (state = 'building' OR (state = 'published' AND failed_count > 0))

-- name: unfinished
SELECT id FROM documents INDEXED BY idx_documents_unwritten
WHERE unwritten > 0 AND updated_at < $1 AND +state = 'building' ORDER BY updated_at LIMIT $2

-- name: raise_page_priority
UPDATE task_queue_page SET priority = $1
WHERE document_id = $2 AND priority < $1 AND (ocr_status = 'pending' OR ocr_status = 'failed')

-- name: raise_chunk_priority
UPDATE task_queue_chunk SET priority = $1
WHERE document_id = $2 AND priority < $1 AND ([[chunk phase OR| {phase}_status = 'pending']])

-- name: failed_pages
SELECT id, ocr_retry_count < max_retries AND ocr_retry_at IS NOT NULL, [[chunk phase,| {phase}_status]]
FROM task_queue_page INDEXED BY idx_tqp_ocr_failed WHERE ocr_status = 'failed' AND document_id = $1

-- name: failed_chunks per chunk phase
SELECT id, page_id, {phase}_retry_at IS NOT NULL,
       [[later phase,| CASE WHEN {phase}_status = 'skipped' THEN {phase}_error END]]
FROM task_queue_chunk INDEXED BY idx_tqc_{phase}_failed WHERE {phase}_status = 'failed' AND document_id = $1

-- name: release_gate per chunk phase
UPDATE task_queue_chunk SET {phase}_held = $1
WHERE document_id = $2 AND {phase}_held = 'gate'

-- name: release_outbox
UPDATE task_queue_chunk SET vector_held = NULL
WHERE id IN (SELECT c.id FROM documents d JOIN task_queue_chunk c INDEXED BY idx_tqc_vector_held
                 ON c.document_id = d.id AND c.vector_held IS NOT NULL
             WHERE d.source_key = $1 AND c.vector_held = 'outbox' LIMIT $2)

-- name: show_partial
UPDATE sources SET partial = $1, chunk_count = $2, change_seq = $3, updated_at = $4 WHERE key = $5 AND published_id = $6

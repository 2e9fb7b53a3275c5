-- left() keeps the planner from the index of all generations being built: rows are found by number.
-- name: drop_document
UPDATE documents SET state = 'dropped', note = $1, updated_at = $2 WHERE key = $3 AND left(state, 8) = 'building'

-- name: building_of
SELECT {BuildingRow} FROM documents WHERE key = $1 AND left(state, 8) = 'building'

-- A generation without pages failed as a whole: it has no tasks to wait for.
-- name: adopt
UPDATE documents
SET job_id = $1, priority = $2, asked_at = greatest(asked_at, $3), read_at = greatest(read_at, $4), updated_at = $5
WHERE key = $6 AND unwritten = 0 AND page_count > 0 AND (state = 'building' OR (state = 'published' AND failed_count > 0))

-- name: unfinished
SELECT key FROM documents
WHERE unwritten > 0 AND updated_at < $1 AND left(state, 8) = 'building' ORDER BY updated_at LIMIT $2

-- Rows locked by a claim are skipped: they are claimed already.
-- name: raise_page_priority
UPDATE task_queue_page SET priority = $1 WHERE key = ANY(ARRAY(
    SELECT key FROM task_queue_page
    WHERE document_id = (SELECT id FROM documents WHERE key = $2) AND priority < $1
      AND ocr_status IN ('pending', 'failed')
    FOR NO KEY UPDATE SKIP LOCKED))

-- name: raise_chunk_priority
UPDATE task_queue_chunk SET priority = $1 WHERE key = ANY(ARRAY(
    SELECT key FROM task_queue_chunk
    WHERE document_id = (SELECT id FROM documents WHERE key = $2) AND priority < $1
      AND ([[chunk phase OR| {phase}_status = 'pending']])
    FOR NO KEY UPDATE SKIP LOCKED))

-- Rows locked by a claim are skipped: they start again anyway.
-- name: failed_pages
SELECT key, ocr_retry_count < max_retries AND ocr_retry_at IS NOT NULL, [[chunk phase,| {phase}_status]]
FROM task_queue_page WHERE ocr_status = 'failed' AND document_id = (SELECT id FROM documents WHERE key = $1)
ORDER BY key FOR NO KEY UPDATE SKIP LOCKED

-- name: failed_chunks per chunk phase
SELECT key, (SELECT p.key FROM task_queue_page p WHERE p.id = page_id), {phase}_retry_at IS NOT NULL,
       [[later phase,| CASE WHEN {phase}_status = 'skipped' THEN {phase}_error END]]
FROM task_queue_chunk t
WHERE {phase}_status = 'failed' AND document_id = (SELECT id FROM documents WHERE key = $1)
ORDER BY t.key FOR NO KEY UPDATE SKIP LOCKED

-- name: release_gate per chunk phase
UPDATE task_queue_chunk SET {phase}_held = $1
WHERE document_id = (SELECT id FROM documents WHERE key = $2) AND {phase}_held = 'gate'

-- name: release_outbox
UPDATE task_queue_chunk SET vector_held = NULL WHERE key = ANY(ARRAY(
    SELECT key FROM task_queue_chunk
    WHERE document_id = ANY(ARRAY(SELECT id FROM documents WHERE source_key = $1))
      AND vector_held IS NOT NULL AND vector_held = 'outbox' LIMIT $2))

-- name: show_partial
WITH drawn AS (
    UPDATE catalog_sequence SET value = value + 1 + $3::bigint WHERE name = 'change' RETURNING value)
UPDATE sources SET partial = $1, chunk_count = $2, change_seq = drawn.value, updated_at = $4
FROM drawn WHERE key = $5 AND published_id = $6

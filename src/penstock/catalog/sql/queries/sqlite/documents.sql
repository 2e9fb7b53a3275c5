-- name: document_rows
SELECT d.id, d.source_key, s.id, s.tenant_id, s.collection, s.branch, s.path, s.published_id, s.read_at,
       d.state, d.ocr_status, d.vector_index_status, d.graphrag_index_status,
       d.ocr_processing, d.ocr_waiting, d.ocr_failed, d.ocr_completed,
       d.vector_processing, d.vector_waiting, d.vector_failed, d.vector_completed,
       d.graphrag_processing, d.graphrag_waiting, d.graphrag_failed, d.graphrag_completed,
       d.page_count, d.chunk_count, d.vector_chunks, d.graphrag_chunks, d.failed_count, d.outage_count,
       d.space_id, d.graph, d.gate, d.priority, d.max_retries, d.turn, d.given, d.content_hash,
       d.ocr_fingerprint, d.vector_fingerprint, d.graphrag_fingerprint, d.job_id, d.asked_at, d.read_at,
       d.note, d.source_json, d.unwritten
FROM documents d JOIN sources s ON s.key = d.source_key
WHERE d.id IN (SELECT value FROM json_each(?))

-- name: save_document
UPDATE documents
SET state = ?1, ocr_status = ?2, vector_index_status = ?3, graphrag_index_status = ?4,
    ocr_processing = ?5, ocr_waiting = ?6, ocr_failed = ?7, ocr_completed = ?8,
    vector_processing = ?9, vector_waiting = ?10, vector_failed = ?11, vector_completed = ?12,
    graphrag_processing = ?13, graphrag_waiting = ?14, graphrag_failed = ?15, graphrag_completed = ?16,
    chunk_count = ?17, vector_chunks = ?18, graphrag_chunks = ?19, failed_count = ?20, outage_count = ?21,
    turn = ?22, given = ?23, note = ?24, source_json = ?25, published_at = coalesce(?26, published_at),
    ocr_started_at = CASE WHEN ?2 = 'processing' THEN coalesce(ocr_started_at, ?27) ELSE ocr_started_at END,
    vector_started_at =
        CASE WHEN ?3 = 'processing' THEN coalesce(vector_started_at, ?27) ELSE vector_started_at END,
    graphrag_started_at =
        CASE WHEN ?4 = 'processing' THEN coalesce(graphrag_started_at, ?27) ELSE graphrag_started_at END,
    ocr_completed_at = CASE WHEN ?2 = 'completed' THEN coalesce(ocr_completed_at, ?27) END,
    vector_completed_at = CASE WHEN ?3 = 'completed' THEN coalesce(vector_completed_at, ?27) END,
    graphrag_completed_at = CASE WHEN ?4 = 'completed' THEN coalesce(graphrag_completed_at, ?27) END,
    ocr_error = CASE WHEN ?2 = 'failed' THEN ?28 END,
    vector_error = CASE WHEN ?3 = 'failed' OR ?3 = 'skipped' THEN coalesce(?29, vector_error) END,
    graphrag_error = CASE WHEN ?4 = 'failed' OR ?4 = 'skipped' THEN coalesce(?30, graphrag_error) END,
    current_worker_id = coalesce(?31, current_worker_id),
    last_heartbeat = CASE WHEN ?31 IS NULL THEN last_heartbeat ELSE ?27 END,
    updated_at = ?27
WHERE id = ?32

-- name: drop_document
UPDATE documents SET state = 'dropped', note = ?, updated_at = ? WHERE id = ? AND state = 'building'

-- name: forget_building
UPDATE sources SET building_id = NULL, updated_at = ?1
WHERE key = (SELECT source_key FROM documents WHERE id = ?2) AND building_id = ?2

-- name: source_of
SELECT source_key, job_id FROM documents WHERE id = ?

-- name: building_of
SELECT id, content_hash, ocr_fingerprint, vector_fingerprint, graphrag_fingerprint, space_id, graph
FROM documents WHERE id = ? AND state = 'building'

-- name: adopt
UPDATE documents
SET job_id = ?1, priority = ?2, asked_at = max(asked_at, ?3), read_at = max(read_at, ?4), updated_at = ?5
WHERE id = ?6 AND unwritten = 0 AND (state = 'building' OR (state = 'published' AND failed_count > 0))

-- name: save_part
UPDATE documents SET page_count = ?, unwritten = ? WHERE id = ?

-- name: grow_page
UPDATE task_queue_page SET chunk_count = chunk_count + ? WHERE id = ?

-- name: unfinished
SELECT id FROM documents INDEXED BY idx_documents_unwritten
WHERE unwritten > 0 AND updated_at < ? AND +state = 'building' ORDER BY updated_at LIMIT ?

-- name: raise_page_priority
UPDATE task_queue_page SET priority = ?1
WHERE document_id = ?2 AND priority < ?1 AND (ocr_status = 'pending' OR ocr_status = 'failed')

-- name: raise_chunk_priority
UPDATE task_queue_chunk SET priority = ?1
WHERE document_id = ?2 AND priority < ?1 AND (vector_status = 'pending' OR graphrag_status = 'pending')

-- name: space_name
SELECT name FROM catalog_space WHERE id = ?

-- name: failed_pages
SELECT id, ocr_retry_count < max_retries AND ocr_retry_at IS NOT NULL, vector_status, graphrag_status
FROM task_queue_page INDEXED BY idx_tqp_ocr_failed WHERE ocr_status = 'failed' AND document_id = ?

-- name: restart_page
UPDATE task_queue_page
SET ocr_status = 'pending', ocr_retry_count = 0, ocr_retry_at = NULL, ocr_suspect = 0, ocr_error = NULL,
    ocr_completed_at = NULL, vector_status = ?, vector_error = ?, graphrag_status = ?, graphrag_error = ?,
    updated_at = ?
WHERE id = ?

-- name: failed_chunks per chunk phase
SELECT id, page_id, {phase}_retry_at IS NOT NULL, graphrag_status, coalesce(graphrag_error, '')
FROM task_queue_chunk INDEXED BY idx_tqc_{phase}_failed WHERE {phase}_status = 'failed' AND document_id = ?

-- name: restart_chunk per chunk phase
UPDATE task_queue_chunk
SET {phase}_status = 'pending', {phase}_retry_count = 0, {phase}_retry_at = NULL, {phase}_suspect = 0,
    {phase}_error = NULL, updated_at = ?
WHERE id = ?

-- name: unskip_graphrag
UPDATE task_queue_chunk SET graphrag_status = 'pending', graphrag_error = NULL, updated_at = ? WHERE id = ?

-- name: release_gate per chunk phase
UPDATE task_queue_chunk SET {phase}_held = ?
WHERE document_id = ? AND {phase}_held = 'gate'

-- name: release_outbox
UPDATE task_queue_chunk SET vector_held = NULL
WHERE id IN (SELECT c.id FROM documents d JOIN task_queue_chunk c INDEXED BY idx_tqc_vector_held
                 ON c.document_id = d.id AND c.vector_held IS NOT NULL
             WHERE d.source_key = ? AND c.vector_held = 'outbox' LIMIT ?)

-- name: show_partial
UPDATE sources SET partial = ?, chunk_count = ?, change_seq = ?, updated_at = ? WHERE key = ? AND published_id = ?

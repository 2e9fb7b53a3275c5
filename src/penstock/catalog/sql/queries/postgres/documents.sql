-- name: document_rows
SELECT d.key, d.source_key, s.id, s.tenant_id, s.collection, s.branch, s.path, s.published_id, s.read_at,
       d.state, d.ocr_status, d.vector_index_status, d.graphrag_index_status,
       d.ocr_processing, d.ocr_waiting, d.ocr_failed, d.ocr_completed,
       d.vector_processing, d.vector_waiting, d.vector_failed, d.vector_completed,
       d.graphrag_processing, d.graphrag_waiting, d.graphrag_failed, d.graphrag_completed,
       d.page_count, d.chunk_count, d.vector_chunks, d.graphrag_chunks, d.failed_count, d.outage_count,
       d.space_id, d.graph, d.gate, d.priority, d.max_retries, d.turn, d.given, d.content_hash,
       d.ocr_fingerprint, d.vector_fingerprint, d.graphrag_fingerprint, d.job_id, d.asked_at, d.read_at,
       d.note, d.source_json, d.unwritten
FROM documents d JOIN sources s ON s.key = d.source_key
WHERE d.key = ANY(numbers($1))

-- name: save_document
UPDATE documents AS t
SET state = v.state, ocr_status = v.ocr, vector_index_status = v.vector, graphrag_index_status = v.graphrag,
    ocr_processing = v.op, ocr_waiting = v.ow, ocr_failed = v.fo, ocr_completed = v.oc,
    vector_processing = v.vp, vector_waiting = v.vw, vector_failed = v.vf, vector_completed = v.vc,
    graphrag_processing = v.gp, graphrag_waiting = v.gw, graphrag_failed = v.gf, graphrag_completed = v.gc,
    chunk_count = v.chunks, vector_chunks = v.vector_chunks, graphrag_chunks = v.graphrag_chunks,
    failed_count = v.failed, outage_count = v.outages,
    turn = v.turn, given = v.given, note = v.note, source_json = v.source_json,
    published_at = coalesce(v.published_at, t.published_at),
    ocr_started_at = CASE WHEN v.ocr = 'processing' THEN coalesce(ocr_started_at, v.at) ELSE ocr_started_at END,
    vector_started_at =
        CASE WHEN v.vector = 'processing' THEN coalesce(vector_started_at, v.at) ELSE vector_started_at END,
    graphrag_started_at =
        CASE WHEN v.graphrag = 'processing' THEN coalesce(graphrag_started_at, v.at) ELSE graphrag_started_at END,
    ocr_completed_at = CASE WHEN v.ocr = 'completed' THEN coalesce(ocr_completed_at, v.at) END,
    vector_completed_at = CASE WHEN v.vector = 'completed' THEN coalesce(vector_completed_at, v.at) END,
    graphrag_completed_at = CASE WHEN v.graphrag = 'completed' THEN coalesce(graphrag_completed_at, v.at) END,
    ocr_error = CASE WHEN v.ocr = 'failed' THEN v.ocr_error END,
    vector_error = CASE WHEN v.vector IN ('failed', 'skipped') THEN coalesce(v.vector_error, t.vector_error) END,
    graphrag_error =
        CASE WHEN v.graphrag IN ('failed', 'skipped') THEN coalesce(v.graphrag_error, t.graphrag_error) END,
    current_worker_id = coalesce(left(v.worker_id, 100), current_worker_id),
    last_heartbeat = CASE WHEN v.worker_id IS NULL THEN last_heartbeat ELSE v.at END,
    updated_at = v.at
FROM rows(state text, ocr task_status, vector task_status, graphrag task_status,
          op int, ow int, fo int, oc int, vp int, vw int, vf int, vc int, gp int, gw int, gf int, gc int,
          chunks int, vector_chunks int, graphrag_chunks int, failed int, outages int, turn int, given int,
          note text, source_json text, published_at timestamptz, at timestamptz, ocr_error text,
          vector_error text, graphrag_error text, worker_id text, key bigint)
WHERE t.key = v.key

-- By number: the state, asked for as it stands, would lead through the index of all that is being built.
-- name: drop_document
UPDATE documents SET state = 'dropped', note = $1, updated_at = $2 WHERE key = $3 AND left(state, 8) = 'building'

-- name: forget_building
UPDATE sources SET building_id = NULL, updated_at = $1
WHERE key = (SELECT source_key FROM documents WHERE key = $2) AND building_id = $2

-- name: source_of
SELECT source_key, job_id FROM documents WHERE key = $1

-- name: building_of
SELECT key, content_hash, ocr_fingerprint, vector_fingerprint, graphrag_fingerprint, space_id, graph
FROM documents WHERE key = $1 AND left(state, 8) = 'building'

-- name: adopt
UPDATE documents
SET job_id = $1, priority = $2, asked_at = greatest(asked_at, $3), read_at = greatest(read_at, $4), updated_at = $5
WHERE key = $6 AND unwritten = 0 AND (state = 'building' OR (state = 'published' AND failed_count > 0))

-- name: save_part
UPDATE documents SET page_count = $1, unwritten = $2 WHERE key = $3

-- name: grow_page
UPDATE task_queue_page SET chunk_count = chunk_count + $1 WHERE key = $2

-- name: unfinished
SELECT key FROM documents
WHERE unwritten > 0 AND updated_at < $1 AND left(state, 8) = 'building' ORDER BY updated_at LIMIT $2

-- What is being claimed just now need not be claimed sooner.
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
      AND (vector_status = 'pending' OR graphrag_status = 'pending')
    FOR NO KEY UPDATE SKIP LOCKED))

-- name: space_name
SELECT name FROM catalog_space WHERE id = $1

-- What is being claimed just now starts again anyway.
-- name: failed_pages
SELECT key, ocr_retry_count < max_retries AND ocr_retry_at IS NOT NULL, vector_status, graphrag_status
FROM task_queue_page WHERE ocr_status = 'failed' AND document_id = (SELECT id FROM documents WHERE key = $1)
ORDER BY key FOR NO KEY UPDATE SKIP LOCKED

-- name: restart_page
UPDATE task_queue_page AS t
SET ocr_status = 'pending', ocr_retry_count = 0, ocr_retry_at = NULL, ocr_suspect = false, ocr_error = NULL,
    ocr_completed_at = NULL, vector_status = v.vector, vector_error = v.vector_error,
    graphrag_status = v.graphrag, graphrag_error = v.graphrag_error, updated_at = v.at
FROM rows(vector task_status, vector_error text, graphrag task_status, graphrag_error text, at timestamptz,
          key bigint)
WHERE t.key = v.key

-- name: failed_chunks per chunk phase
SELECT key, (SELECT p.key FROM task_queue_page p WHERE p.id = page_id), {phase}_retry_at IS NOT NULL,
       graphrag_status, coalesce(graphrag_error, '')
FROM task_queue_chunk t
WHERE {phase}_status = 'failed' AND document_id = (SELECT id FROM documents WHERE key = $1)
ORDER BY t.key FOR NO KEY UPDATE SKIP LOCKED

-- name: restart_chunk per chunk phase
UPDATE task_queue_chunk AS t
SET {phase}_status = 'pending', {phase}_retry_count = 0, {phase}_retry_at = NULL, {phase}_suspect = false,
    {phase}_error = NULL, updated_at = v.at
FROM rows(at timestamptz, key bigint) WHERE t.key = v.key

-- name: unskip_graphrag
UPDATE task_queue_chunk AS t SET graphrag_status = 'pending', graphrag_error = NULL, updated_at = v.at
FROM rows(at timestamptz, key bigint) WHERE t.key = v.key

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

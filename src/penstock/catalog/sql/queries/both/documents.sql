-- name: document_rows
SELECT {DocumentRow d.; id = d.{id}; source_id = s.id; place, path, family_key, published_id: s.; published_read_at = s.read_at}
FROM documents d JOIN sources s ON s.key = d.source_key WHERE d.{id} IN numbers($1)

-- name: touch_failed
UPDATE documents SET size = $1, mtime_ns = $2 WHERE {id} = (SELECT building_id FROM sources WHERE id = $3)

-- name: forget_building
UPDATE sources SET building_id = NULL, updated_at = $1
WHERE key = (SELECT source_key FROM documents WHERE {id} = $2) AND building_id = $2

-- name: source_of
SELECT source_key, job_id FROM documents WHERE {id} = $1

-- name: save_part
UPDATE documents SET page_count = $1, unwritten = $2 WHERE {id} = $3

-- name: grow_page
UPDATE task_queue_page SET chunk_count = chunk_count + $1 WHERE {id} = $2

-- name: space_name
SELECT name FROM catalog_space WHERE id = $1

-- name: save_document (SavedDocument)
UPDATE documents AS t
SET {SavedDocument set; [[phase;| {phase}_error]]; published_at; at; worker_id; document_id},
    published_at = coalesce($published_at, t.published_at), [[phase,|
    {phase}_started_at = CASE WHEN ${document_status} = 'processing' THEN coalesce({phase}_started_at, $at)
                              ELSE {phase}_started_at END,
    {phase}_completed_at = CASE WHEN ${document_status} = 'completed' THEN coalesce({phase}_completed_at, $at) END]],
    ocr_error = CASE WHEN $ocr_status = 'failed' THEN coalesce($ocr_error, t.ocr_error) END, [[chunk phase,|
    {phase}_error = CASE WHEN ${document_status} IN ('failed', 'skipped')
                         THEN coalesce(${phase}_error, t.{phase}_error) END]],
    current_worker_id = coalesce(substr($worker_id, 1, 100), current_worker_id),
    last_heartbeat = CASE WHEN $worker_id IS NULL THEN last_heartbeat ELSE $at END,
    updated_at = $at
FROM rows() WHERE t.{id} = $document_id

-- name: restart_chunk per chunk phase (at timestamptz, chunk_key bigint)
UPDATE task_queue_chunk AS t
SET {phase}_status = 'pending', {phase}_retry_count = 0, {phase}_retry_at = NULL, {phase}_suspect = {false},
    {phase}_error = NULL, updated_at = $at
FROM rows() WHERE t.{id} = $chunk_key

-- name: unskip per later phase (at timestamptz, chunk_key bigint)
UPDATE task_queue_chunk AS t SET {phase}_status = 'pending', {phase}_error = NULL, updated_at = $at
FROM rows() WHERE t.{id} = $chunk_key

-- name: restart_page (RestartedPage)
UPDATE task_queue_page AS t
SET ocr_status = 'pending', ocr_retry_count = 0, ocr_retry_at = NULL, ocr_suspect = {false}, ocr_error = NULL,
    ocr_completed_at = NULL, {RestartedPage set; at; page_id}, updated_at = $at
FROM rows() WHERE t.{id} = $page_id

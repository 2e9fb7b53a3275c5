-- name: head_ocr
SELECT turn FROM task_queue_page INDEXED BY idx_tqp_ocr_status
WHERE ocr_status = 'pending' AND priority = $1 AND needs_ocr = $2 ORDER BY turn LIMIT 1

-- name: head_vector
SELECT turn FROM task_queue_chunk INDEXED BY idx_tqc_vector_status
WHERE vector_status = 'pending' AND vector_held IS NULL AND priority = $1 ORDER BY turn LIMIT 1

-- name: content_of
SELECT {id}, content_id, [[later phase,| {phase}_status]] FROM task_queue_chunk WHERE {id} IN numbers($1)

-- name: fingerprints
SELECT phase, fingerprint FROM catalog_fingerprint

-- name: set_fingerprint
INSERT INTO catalog_fingerprint (phase, fingerprint) VALUES ($1, $2)
ON CONFLICT (phase) DO UPDATE SET fingerprint = excluded.fingerprint

-- name: end per phase (EndedTask)
UPDATE {table} AS t
SET {phase}_status = $status, {phase}_retry_count = $retry_count, {phase}_retry_at = $retry_at,
    {phase}_suspect = $suspect,
    {phase}_error = CASE WHEN $error IS NULL AND $status <> 'completed' THEN {phase}_error ELSE $error END,
    {phase}_completed_at = CASE WHEN $status = 'completed' THEN $at END,
    {phase}_started_at = CASE WHEN $status = 'pending' THEN NULL ELSE {phase}_started_at END,
    {phase}_worker_id = CASE WHEN $status = 'pending' THEN NULL ELSE {phase}_worker_id END,
    {phase}_last_heartbeat = NULL, updated_at = $at
FROM rows() WHERE t.{id} = $task_id

-- name: needs_ocr
UPDATE task_queue_page SET needs_ocr = {true} WHERE {id} IN numbers($1)

-- name: end_extraction (entities int, relationships int, chunk_key bigint)
UPDATE task_queue_chunk AS t SET entities_extracted = $entities, relationships_extracted = $relationships
FROM rows() WHERE t.{id} = $chunk_key

-- name: skip per later phase (reason text, at timestamptz, chunk_key bigint)
UPDATE task_queue_chunk AS t SET {phase}_status = 'skipped', {phase}_error = $reason, updated_at = $at
FROM rows() WHERE t.{id} = $chunk_key AND t.{phase}_status = 'pending'

-- name: save_page per chunk phase (SavedPage)
UPDATE task_queue_page AS t
SET {phase}_status = $status, {phase}_processing = $processing, {phase}_waiting = $waiting,
    {phase}_failed = $failed, {phase}_completed = $completed, {phase}_error = $error, updated_at = $at,
    {phase}_started_at =
        CASE WHEN $status = 'processing' THEN coalesce({phase}_started_at, $at) ELSE {phase}_started_at END,
    {phase}_completed_at = CASE WHEN $status = 'completed' THEN coalesce({phase}_completed_at, $at) END
FROM rows() WHERE t.{id} = $page_id

-- name: read_page (ReadPage)
UPDATE task_queue_page AS t
SET {ReadPage set; page_file_path; at; page_id}, 
    page_file_path = CASE WHEN t.ocr_status = 'completed' THEN $page_file_path ELSE t.page_file_path END,
    [[chunk phase,| {phase}_completed_at = CASE WHEN ${phase}_status = 'completed' THEN $at END]]
FROM rows() WHERE t.{id} = $page_id

-- name: expired per phase
SELECT {id}, {phase}_claim_number, {phase}_retry_count, max_retries FROM {table} INDEXED BY {index}_{phase}_heartbeat
WHERE {phase}_status = 'processing' AND {phase}_last_heartbeat < $1 ORDER BY {phase}_last_heartbeat LIMIT $2

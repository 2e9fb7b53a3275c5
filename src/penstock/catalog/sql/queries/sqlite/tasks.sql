-- name: due per chunk phase
SELECT id, {phase}_suspect FROM {table} INDEXED BY {index}_{phase}_retry
WHERE {phase}_retry_at IS NOT NULL AND {phase}_retry_at <= $1
ORDER BY {phase}_retry_at LIMIT $2

-- name: waiting per chunk phase
SELECT id, 0 FROM {table} INDEXED BY {index}_{phase}_status
WHERE {free}
ORDER BY priority DESC, turn, id LIMIT $1

-- name: due_ocr
SELECT id, ocr_suspect FROM task_queue_page INDEXED BY idx_tqp_ocr_retry
WHERE ocr_retry_at IS NOT NULL AND ocr_retry_at <= $1 AND needs_ocr = $3
ORDER BY ocr_retry_at LIMIT $2

-- name: waiting_ocr
SELECT id, 0 FROM task_queue_page INDEXED BY idx_tqp_ocr_status WHERE ocr_status = 'pending' AND needs_ocr = $2
ORDER BY priority DESC, turn, id LIMIT $1

-- name: candidates_ocr
SELECT {TaskRow p.; task_id = p.id; page_id = p.id; claim_number = p.ocr_claim_number + 1;
                failed = p.ocr_status = 'failed'; retry_count, suspect: p.ocr_; file_path = p.page_file_path;
                needs_ocr = p.needs_ocr;
                chunk_id = ''; content_id = 0; text_hash = ''; text = ''; heading_path = ''; symbols = ''}
FROM task_queue_page p WHERE p.id IN (SELECT value FROM json_each($1))

-- name: task_sources
SELECT {TaskSourceRow s.; document_id = d.id; source_id = s.id; family_key = s.family_key; content_hash, job_id, state, gate: d.; space = x.name;
                      source_json = coalesce(d.source_json, '')}
FROM documents d JOIN sources s ON s.key = d.source_key LEFT JOIN catalog_space x ON x.id = d.space_id
WHERE d.id IN (SELECT value FROM json_each($1))

-- name: take per phase
UPDATE {table}
SET {phase}_status = 'processing', {phase}_worker_id = $1, {phase}_started_at = $2, {phase}_last_heartbeat = $2,
    {phase}_claim_number = {phase}_claim_number + 1, {phase}_retry_count = {phase}_retry_count + $3,
    {phase}_retry_at = NULL, {phase}_completed_at = NULL, updated_at = $2
WHERE id = $4

-- Tasks of a dropped generation leave the lane; the sweep deletes the rows.
-- name: evict per phase
UPDATE {table} SET {phase}_status = 'skipped', {phase}_retry_at = NULL, updated_at = $1
WHERE id IN (SELECT id FROM {table} INDEXED BY {index}_document
             WHERE document_id = $2 AND ({phase}_status = 'pending' OR {phase}_retry_at IS NOT NULL) LIMIT $3)

-- name: fenced per phase
SELECT {FencedClaim; task_id = id; page_id = {page_id}; claim_number = {phase}_claim_number} FROM {table}
WHERE id IN (SELECT value FROM json_each($1)) AND {phase}_status = 'processing'

-- name: page_rows per chunk phase
SELECT {PageCounts {phase}_; page_id = id; document_id = document_id}
FROM task_queue_page WHERE id IN (SELECT value FROM json_each($1))

-- name: renew per phase
UPDATE {table} SET {phase}_last_heartbeat = $1
WHERE id = $2 AND {phase}_claim_number = $3 AND {phase}_status = 'processing'

-- name: held per phase
SELECT id, {phase}_claim_number, {phase}_retry_count, max_retries
FROM {table} INDEXED BY {index}_{phase}_heartbeat
WHERE {phase}_status = 'processing' AND {phase}_worker_id = $1

-- The gate once more, as a check: a chunk is written by the transaction that ends the ocr of its page.
-- name: candidates per chunk phase
SELECT {TaskRow c.; task_id = c.id; claim_number = c.{phase}_claim_number + 1; failed = c.{phase}_status = 'failed';
                retry_count, suspect: c.{phase}_; page_number = p.page_number; file_path = NULL; needs_ocr = {false};
                text_hash = c.chunk_content_hash; text = t.text}
FROM task_queue_chunk c JOIN task_queue_page p ON p.id = c.page_id JOIN catalog_content t ON t.id = c.content_id
WHERE c.id IN (SELECT value FROM json_each($1)) AND {gate} = 'completed'

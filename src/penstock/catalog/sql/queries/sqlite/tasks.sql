-- name: due per phase
SELECT id, {phase}_suspect FROM {table} INDEXED BY {index}_{phase}_retry
WHERE {phase}_retry_at IS NOT NULL AND {phase}_retry_at <= ?
ORDER BY {phase}_retry_at LIMIT ?

-- name: waiting per phase
SELECT id, 0 FROM {table} INDEXED BY {index}_{phase}_status
WHERE {free}
ORDER BY priority DESC, turn, id LIMIT ?

-- name: head_ocr
SELECT turn FROM task_queue_page INDEXED BY idx_tqp_ocr_status
WHERE ocr_status = 'pending' AND priority = ? ORDER BY turn LIMIT 1

-- name: head_vector
SELECT turn FROM task_queue_chunk INDEXED BY idx_tqc_vector_status
WHERE vector_status = 'pending' AND vector_held IS NULL AND priority = ? ORDER BY turn LIMIT 1

-- The gate once more, as a check: a chunk is written by the transaction that ends its page's ocr.
-- name: candidates_ocr
SELECT p.id, p.id, p.document_id, p.ocr_claim_number + 1, p.ocr_status = 'failed', p.ocr_retry_count,
       p.max_retries, p.ocr_suspect, p.page_number, p.page_file_path
FROM task_queue_page p WHERE p.id IN (SELECT value FROM json_each(?))

-- name: candidates_vector
SELECT c.id, c.page_id, c.document_id, c.vector_claim_number + 1, c.vector_status = 'failed',
       c.vector_retry_count, c.max_retries, c.vector_suspect, p.page_number, NULL,
       c.chunk_id, c.chunk_content_hash, t.text, c.heading_path, c.symbols
FROM task_queue_chunk c JOIN task_queue_page p ON p.id = c.page_id JOIN catalog_content t ON t.id = c.content_id
WHERE c.id IN (SELECT value FROM json_each(?)) AND p.ocr_status = 'completed'

-- name: candidates_graphrag
SELECT c.id, c.page_id, c.document_id, c.graphrag_claim_number + 1, c.graphrag_status = 'failed',
       c.graphrag_retry_count, c.max_retries, c.graphrag_suspect, p.page_number, NULL,
       c.chunk_id, c.chunk_content_hash, t.text, c.heading_path, c.symbols
FROM task_queue_chunk c JOIN task_queue_page p ON p.id = c.page_id JOIN catalog_content t ON t.id = c.content_id
WHERE c.id IN (SELECT value FROM json_each(?)) AND c.vector_status = 'completed'

-- name: task_sources
SELECT d.id, s.id, s.tenant_id, s.collection, s.branch, s.path, d.content_hash, x.name, d.job_id, d.graph,
       d.state, coalesce(d.source_json, '{}'), s.title, s.file_type, d.gate
FROM documents d JOIN sources s ON s.key = d.source_key LEFT JOIN catalog_space x ON x.id = d.space_id
WHERE d.id IN (SELECT value FROM json_each(?))

-- name: take per phase
UPDATE {table}
SET {phase}_status = 'processing', {phase}_worker_id = ?1, {phase}_started_at = ?2, {phase}_last_heartbeat = ?2,
    {phase}_claim_number = {phase}_claim_number + 1, {phase}_retry_count = {phase}_retry_count + ?3,
    {phase}_retry_at = NULL, {phase}_completed_at = NULL, updated_at = ?2
WHERE id = ?4

-- Tasks of a generation that was dropped leave the lane; the sweep takes the rows.
-- name: evict per phase
UPDATE {table} SET {phase}_status = 'skipped', {phase}_retry_at = NULL, updated_at = ?
WHERE id IN (SELECT id FROM {table} INDEXED BY {index}_document
             WHERE document_id = ? AND ({phase}_status = 'pending' OR {phase}_retry_at IS NOT NULL) LIMIT ?)

-- name: fenced per phase
SELECT id, {page_id}, document_id, {phase}_claim_number FROM {table}
WHERE id IN (SELECT value FROM json_each(?)) AND {phase}_status = 'processing'

-- name: end per phase
UPDATE {table}
SET {phase}_status = ?1, {phase}_retry_count = ?2, {phase}_retry_at = ?3, {phase}_suspect = ?4,
    {phase}_error = CASE WHEN ?5 IS NULL AND ?1 <> 'completed' THEN {phase}_error ELSE ?5 END,
    {phase}_completed_at = CASE WHEN ?1 = 'completed' THEN ?6 END,
    {phase}_started_at = CASE WHEN ?1 = 'pending' THEN NULL ELSE {phase}_started_at END,
    {phase}_worker_id = CASE WHEN ?1 = 'pending' THEN NULL ELSE {phase}_worker_id END,
    {phase}_last_heartbeat = NULL, updated_at = ?6
WHERE id = ?7

-- name: end_extraction
UPDATE task_queue_chunk SET entities_extracted = ?, relationships_extracted = ? WHERE id = ?

-- name: skip_graphrag
UPDATE task_queue_chunk SET graphrag_status = 'skipped', graphrag_error = ?1, updated_at = ?2
WHERE id = ?3 AND graphrag_status = 'pending'

-- name: content_of
SELECT id, content_id, graphrag_status, coalesce(graphrag_error, '')
FROM task_queue_chunk WHERE id IN (SELECT value FROM json_each(?))

-- name: page_rows
SELECT id, document_id, vector_status, graphrag_status,
       vector_processing, vector_waiting, vector_failed, vector_completed,
       graphrag_processing, graphrag_waiting, graphrag_failed, graphrag_completed
FROM task_queue_page WHERE id IN (SELECT value FROM json_each(?))

-- name: save_page per chunk phase
UPDATE task_queue_page
SET {phase}_status = ?1, {phase}_processing = ?2, {phase}_waiting = ?3, {phase}_failed = ?4,
    {phase}_completed = ?5, {phase}_error = ?6, updated_at = ?7,
    {phase}_started_at = CASE WHEN ?1 = 'processing' THEN coalesce({phase}_started_at, ?7) ELSE {phase}_started_at END,
    {phase}_completed_at = CASE WHEN ?1 = 'completed' THEN coalesce({phase}_completed_at, ?7) END
WHERE id = ?8

-- name: read_page
UPDATE task_queue_page
SET page_file_path = coalesce(?1, page_file_path), chunk_count = ?2,
    vector_status = ?3, vector_error = ?4, graphrag_status = ?5, graphrag_error = ?6,
    vector_processing = ?7, vector_waiting = ?8, vector_failed = ?9, vector_completed = ?10,
    graphrag_processing = ?11, graphrag_waiting = ?12, graphrag_failed = ?13, graphrag_completed = ?14,
    vector_completed_at = CASE WHEN ?3 = 'completed' THEN ?15 END
WHERE id = ?16

-- name: renew per phase
UPDATE {table} SET {phase}_last_heartbeat = ?
WHERE id = ? AND {phase}_claim_number = ? AND {phase}_status = 'processing'

-- name: expired per phase
SELECT id, {phase}_claim_number, {phase}_retry_count, max_retries
FROM {table} INDEXED BY {index}_{phase}_heartbeat
WHERE {phase}_status = 'processing' AND {phase}_last_heartbeat < ? ORDER BY {phase}_last_heartbeat LIMIT ?

-- name: held per phase
SELECT id, {phase}_claim_number, {phase}_retry_count, max_retries
FROM {table} INDEXED BY {index}_{phase}_heartbeat
WHERE {phase}_status = 'processing' AND {phase}_worker_id = ?

-- name: fingerprints
SELECT phase, fingerprint FROM catalog_fingerprint

-- name: set_fingerprint
INSERT INTO catalog_fingerprint (phase, fingerprint) VALUES (?, ?)
ON CONFLICT (phase) DO UPDATE SET fingerprint = excluded.fingerprint

-- Predicates stand as in their indexes and as literals: a parameter would lose them. What another claims is passed over.
-- name: due per phase
SELECT key, {phase}_suspect FROM {table}
WHERE {phase}_retry_at IS NOT NULL AND {phase}_retry_at <= $1
ORDER BY {phase}_retry_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED

-- name: waiting per phase
SELECT key, 0 FROM {table} WHERE {free}
ORDER BY priority DESC, turn, key LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED

-- name: head_ocr
SELECT turn FROM task_queue_page
WHERE ocr_status = 'pending' AND priority = $1 ORDER BY turn LIMIT 1

-- name: head_vector
SELECT turn FROM task_queue_chunk
WHERE vector_status = 'pending' AND vector_held IS NULL AND priority = $1 ORDER BY turn LIMIT 1

-- name: candidates_ocr
SELECT p.key, p.key, (SELECT d.key FROM documents d WHERE d.id = p.document_id), p.ocr_claim_number + 1,
       p.ocr_status = 'failed', p.ocr_retry_count, p.max_retries, p.ocr_suspect, p.page_number, p.page_file_path
FROM task_queue_page p WHERE p.key = ANY(numbers($1))

-- The gate once more, as a check: a chunk is written by the transaction that ends its page's ocr. Scalar subqueries:
-- for a join, and without statistics, the planner has ideas that cost a hundred times as much.
-- name: candidates_vector
SELECT c.key, (SELECT p.key FROM task_queue_page p WHERE p.id = c.page_id),
       (SELECT d.key FROM documents d WHERE d.id = c.document_id), c.vector_claim_number + 1,
       c.vector_status = 'failed', c.vector_retry_count, c.max_retries, c.vector_suspect,
       (SELECT p.page_number FROM task_queue_page p WHERE p.id = c.page_id), NULL,
       c.chunk_id, c.chunk_content_hash, (SELECT t.text FROM catalog_content t WHERE t.id = c.content_id),
       c.heading_path, c.symbols
FROM task_queue_chunk c WHERE c.key = ANY(numbers($1))
  AND (SELECT p.ocr_status FROM task_queue_page p WHERE p.id = c.page_id) = 'completed'

-- name: candidates_graphrag
SELECT c.key, (SELECT p.key FROM task_queue_page p WHERE p.id = c.page_id),
       (SELECT d.key FROM documents d WHERE d.id = c.document_id), c.graphrag_claim_number + 1,
       c.graphrag_status = 'failed', c.graphrag_retry_count, c.max_retries, c.graphrag_suspect,
       (SELECT p.page_number FROM task_queue_page p WHERE p.id = c.page_id), NULL,
       c.chunk_id, c.chunk_content_hash, (SELECT t.text FROM catalog_content t WHERE t.id = c.content_id),
       c.heading_path, c.symbols
FROM task_queue_chunk c WHERE c.key = ANY(numbers($1)) AND c.vector_status = 'completed'

-- name: task_sources
SELECT d.key, s.id, s.tenant_id, s.collection, s.branch, s.path, d.content_hash,
       (SELECT x.name FROM catalog_space x WHERE x.id = d.space_id), d.job_id, d.graph,
       d.state, coalesce(d.source_json, '{}'), s.title, s.file_type, d.gate
FROM documents d JOIN sources s ON s.key = d.source_key WHERE d.key = ANY(numbers($1))

-- name: take per phase
UPDATE {table} AS t
SET {phase}_status = 'processing', {phase}_worker_id = left(v.worker_id, 100), {phase}_started_at = v.at,
    {phase}_last_heartbeat = v.at, {phase}_claim_number = {phase}_claim_number + 1,
    {phase}_retry_count = {phase}_retry_count + v.more, {phase}_retry_at = NULL, {phase}_completed_at = NULL,
    updated_at = v.at
FROM rows(worker_id text, at timestamptz, more int, key bigint) WHERE t.key = v.key

-- Tasks of a generation that was dropped leave the lane; the sweep takes the rows.
-- name: evict per phase
UPDATE {table} SET {phase}_status = 'skipped', {phase}_retry_at = NULL, updated_at = e.at
FROM rows(at timestamptz, document_key bigint, most bigint)
CROSS JOIN LATERAL (
    SELECT t.key, v.at FROM {table} t
    WHERE t.document_id = (SELECT d.id FROM documents d WHERE d.key = v.document_key)
      AND (t.{phase}_status = 'pending' OR t.{phase}_retry_at IS NOT NULL)
    LIMIT v.most FOR NO KEY UPDATE SKIP LOCKED) AS e
WHERE {table}.key = e.key

-- name: fenced_ocr
SELECT key, key, (SELECT d.key FROM documents d WHERE d.id = document_id), ocr_claim_number
FROM task_queue_page WHERE key = ANY(numbers($1)) AND ocr_status::text = 'processing'

-- name: fenced per chunk phase
SELECT key, (SELECT p.key FROM task_queue_page p WHERE p.id = page_id),
       (SELECT d.key FROM documents d WHERE d.id = document_id), {phase}_claim_number
FROM task_queue_chunk WHERE key = ANY(numbers($1)) AND {phase}_status::text = 'processing'

-- name: end per phase
UPDATE {table} AS t
SET {phase}_status = v.status, {phase}_retry_count = v.retry_count, {phase}_retry_at = v.retry_at,
    {phase}_suspect = v.suspect,
    {phase}_error = CASE WHEN v.error IS NULL AND v.status <> 'completed' THEN {phase}_error ELSE v.error END,
    {phase}_completed_at = CASE WHEN v.status = 'completed' THEN v.at END,
    {phase}_started_at = CASE WHEN v.status = 'pending' THEN NULL ELSE {phase}_started_at END,
    {phase}_worker_id = CASE WHEN v.status = 'pending' THEN NULL ELSE {phase}_worker_id END,
    {phase}_last_heartbeat = NULL, updated_at = v.at
FROM rows(status task_status, retry_count int, retry_at timestamptz, suspect boolean, error text,
          at timestamptz, key bigint)
WHERE t.key = v.key

-- name: end_extraction
UPDATE task_queue_chunk AS t SET entities_extracted = v.entities, relationships_extracted = v.relationships
FROM rows(entities int, relationships int, key bigint) WHERE t.key = v.key

-- name: skip_graphrag
UPDATE task_queue_chunk AS t SET graphrag_status = 'skipped', graphrag_error = v.reason, updated_at = v.at
FROM rows(reason text, at timestamptz, key bigint) WHERE t.key = v.key AND t.graphrag_status = 'pending'

-- name: content_of
SELECT key, content_id, graphrag_status, coalesce(graphrag_error, '')
FROM task_queue_chunk WHERE key = ANY(numbers($1))

-- name: page_rows
SELECT key, (SELECT d.key FROM documents d WHERE d.id = document_id), vector_status, graphrag_status,
       vector_processing, vector_waiting, vector_failed, vector_completed,
       graphrag_processing, graphrag_waiting, graphrag_failed, graphrag_completed
FROM task_queue_page WHERE key = ANY(numbers($1))

-- name: save_page per chunk phase
UPDATE task_queue_page AS t
SET {phase}_status = v.status, {phase}_processing = v.processing, {phase}_waiting = v.waiting,
    {phase}_failed = v.failed, {phase}_completed = v.completed, {phase}_error = v.error, updated_at = v.at,
    {phase}_started_at =
        CASE WHEN v.status = 'processing' THEN coalesce({phase}_started_at, v.at) ELSE {phase}_started_at END,
    {phase}_completed_at = CASE WHEN v.status = 'completed' THEN coalesce({phase}_completed_at, v.at) END
FROM rows(status task_status, processing int, waiting int, failed int, completed int, error text,
          at timestamptz, key bigint)
WHERE t.key = v.key

-- name: read_page
UPDATE task_queue_page AS t
SET page_file_path = coalesce(v.file_path, page_file_path), chunk_count = v.chunks,
    vector_status = v.vector, vector_error = v.vector_error, graphrag_status = v.graphrag,
    graphrag_error = v.graphrag_error,
    vector_processing = v.vp, vector_waiting = v.vw, vector_failed = v.vf, vector_completed = v.vc,
    graphrag_processing = v.gp, graphrag_waiting = v.gw, graphrag_failed = v.gf, graphrag_completed = v.gc,
    vector_completed_at = CASE WHEN v.vector = 'completed' THEN v.at END
FROM rows(file_path text, chunks int, vector task_status, vector_error text, graphrag task_status,
          graphrag_error text, vp int, vw int, vf int, vc int, gp int, gw int, gf int, gc int,
          at timestamptz, key bigint)
WHERE t.key = v.key

-- name: renew per phase
UPDATE {table} AS t SET {phase}_last_heartbeat = v.at FROM rows(at timestamptz, key bigint, number int)
WHERE t.key = v.key AND t.{phase}_claim_number = v.number AND t.{phase}_status::text = 'processing'
RETURNING t.key, t.{phase}_claim_number

-- name: expired per phase
SELECT key, {phase}_claim_number, {phase}_retry_count, max_retries FROM {table}
WHERE {phase}_status = 'processing' AND {phase}_last_heartbeat < $1 ORDER BY {phase}_last_heartbeat LIMIT $2

-- name: held per phase
SELECT key, {phase}_claim_number, {phase}_retry_count, max_retries FROM {table}
WHERE {phase}_status = 'processing' AND {phase}_worker_id = left($1::text, 100)

-- name: fingerprints
SELECT phase, fingerprint FROM catalog_fingerprint

-- name: set_fingerprint
INSERT INTO catalog_fingerprint (phase, fingerprint) VALUES ($1, $2)
ON CONFLICT (phase) DO UPDATE SET fingerprint = excluded.fingerprint

-- name: any_waiting
SELECT EXISTS (SELECT 1 FROM task_queue_page WHERE ocr_status = 'pending')
    OR EXISTS (SELECT 1 FROM task_queue_chunk WHERE vector_status = 'pending' AND vector_held IS NULL)
    OR EXISTS (SELECT 1 FROM task_queue_chunk
               WHERE graphrag_status = 'pending' AND vector_status = 'completed' AND graphrag_held IS NULL)
    OR EXISTS (SELECT 1 FROM catalog_outbox)

-- Predicates are literals, as in the partial indexes: with a parameter the index is not used. Rows locked by another
-- claim are skipped.
-- name: due per chunk phase
SELECT key, {phase}_suspect FROM {table}
WHERE {phase}_retry_at IS NOT NULL AND {phase}_retry_at <= $1
ORDER BY {phase}_retry_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED

-- name: waiting per chunk phase
SELECT key, 0 FROM {table} WHERE {free}
ORDER BY priority DESC, turn, key LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED

-- name: due_ocr
SELECT key, ocr_suspect FROM task_queue_page
WHERE ocr_retry_at IS NOT NULL AND ocr_retry_at <= $1 AND needs_ocr = $3
ORDER BY ocr_retry_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED

-- name: waiting_ocr
SELECT key, 0 FROM task_queue_page WHERE ocr_status = 'pending' AND needs_ocr = $2
ORDER BY priority DESC, turn, key LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED

-- name: candidates_ocr
SELECT {TaskRow p.; task_id = p.key; page_id = p.key; document_id = (SELECT d.key FROM documents d WHERE d.id = p.document_id);
                claim_number = p.ocr_claim_number + 1; failed = p.ocr_status = 'failed';
                retry_count, suspect: p.ocr_; file_path = p.page_file_path;
                needs_ocr = p.needs_ocr;
                chunk_id = ''; content_id = 0; text_hash = ''; text = ''; heading_path = ''; symbols = ''}
FROM task_queue_page p WHERE p.key = ANY(numbers($1))

-- name: task_sources
SELECT {TaskSourceRow s.; document_id = d.key; source_id = s.id; family_key = s.family_key; content_hash, job_id, state, gate: d.;
                      space = (SELECT x.name FROM catalog_space x WHERE x.id = d.space_id);
                      source_json = coalesce(d.source_json, '')}
FROM documents d JOIN sources s ON s.key = d.source_key WHERE d.key = ANY(numbers($1))

-- name: take per phase
UPDATE {table} AS t
SET {phase}_status = 'processing', {phase}_worker_id = left(v.worker_id, 100), {phase}_started_at = v.at,
    {phase}_last_heartbeat = v.at, {phase}_claim_number = {phase}_claim_number + 1,
    {phase}_retry_count = {phase}_retry_count + v.more, {phase}_retry_at = NULL, {phase}_completed_at = NULL,
    updated_at = v.at
FROM rows(worker_id text, at timestamptz, more int, key bigint) WHERE t.key = v.key

-- Tasks of a dropped generation leave the lane; the sweep deletes the rows.
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
SELECT {FencedClaim; task_id = key; page_id = key; claim_number = ocr_claim_number;
                    document_id = (SELECT d.key FROM documents d WHERE d.id = document_id)}
FROM task_queue_page WHERE key = ANY(numbers($1)) AND ocr_status::text = 'processing'

-- name: fenced per chunk phase
SELECT {FencedClaim; task_id = key; page_id = (SELECT p.key FROM task_queue_page p WHERE p.id = page_id);
                    document_id = (SELECT d.key FROM documents d WHERE d.id = document_id);
                    claim_number = {phase}_claim_number}
FROM task_queue_chunk WHERE key = ANY(numbers($1)) AND {phase}_status::text = 'processing'

-- name: page_rows per chunk phase
SELECT {PageCounts {phase}_; page_id = key; document_id = (SELECT d.key FROM documents d WHERE d.id = document_id)}
FROM task_queue_page WHERE key = ANY(numbers($1))

-- The keys are a range of one value: for an equality, and in a table that was last counted as small, the planner would
-- read the whole table in the order of its keys.
-- name: renew per phase
UPDATE {table} AS t SET {phase}_last_heartbeat = v.at FROM rows(at timestamptz, key bigint, number int)
WHERE t.key >= v.key AND t.key <= v.key AND t.{phase}_claim_number = v.number AND t.{phase}_status::text = 'processing'
RETURNING t.key, t.{phase}_claim_number

-- name: held per phase
SELECT key, {phase}_claim_number, {phase}_retry_count, max_retries FROM {table}
WHERE {phase}_status = 'processing' AND {phase}_worker_id = left($1::text, 100)

-- The gate once more, as a check: a chunk is written by the transaction that ends the ocr of its page. Scalar
-- subqueries: for a join, and without statistics, the planner chooses plans that cost a hundred times as much.
-- name: candidates per chunk phase
SELECT {TaskRow c.; task_id = c.key; page_id = (SELECT p.key FROM task_queue_page p WHERE p.id = c.page_id);
                document_id = (SELECT d.key FROM documents d WHERE d.id = c.document_id);
                claim_number = c.{phase}_claim_number + 1; failed = c.{phase}_status = 'failed';
                retry_count, suspect: c.{phase}_; file_path = NULL; needs_ocr = {false};
                page_number = (SELECT p.page_number FROM task_queue_page p WHERE p.id = c.page_id);
                text_hash = c.chunk_content_hash;
                text = (SELECT t.text FROM catalog_content t WHERE t.id = c.content_id)}
FROM task_queue_chunk c
WHERE c.key = ANY(numbers($1)) AND (SELECT {gate} FROM task_queue_page p WHERE p.id = c.page_id) = 'completed'

-- name: any_waiting
SELECT [[phase OR| EXISTS (SELECT 1 FROM {table} WHERE {free})]] OR EXISTS (SELECT 1 FROM catalog_outbox)

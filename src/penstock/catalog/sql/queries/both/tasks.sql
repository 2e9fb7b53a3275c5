-- name: head_ocr
SELECT turn FROM task_queue_page INDEXED BY idx_tqp_ocr_status
WHERE ocr_status = 'pending' AND priority = $1 ORDER BY turn LIMIT 1

-- name: head_vector
SELECT turn FROM task_queue_chunk INDEXED BY idx_tqc_vector_status
WHERE vector_status = 'pending' AND vector_held IS NULL AND priority = $1 ORDER BY turn LIMIT 1

-- name: content_of
SELECT {id}, content_id, graphrag_status FROM task_queue_chunk WHERE {id} IN numbers($1)

-- name: fingerprints
SELECT phase, fingerprint FROM catalog_fingerprint

-- name: set_fingerprint
INSERT INTO catalog_fingerprint (phase, fingerprint) VALUES ($1, $2)
ON CONFLICT (phase) DO UPDATE SET fingerprint = excluded.fingerprint

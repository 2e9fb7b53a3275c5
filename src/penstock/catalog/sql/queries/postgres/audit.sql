-- name: audit_live_documents
SELECT 'generation ' || d.key || ' is neither seen, being built nor in the outbox'
FROM documents d JOIN sources s ON s.key = d.source_key
WHERE s.published_id IS DISTINCT FROM d.key AND s.building_id IS DISTINCT FROM d.key
  AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.document_key = d.key)

-- name: audit_chunk_texts
SELECT 'chunk ' || c.key || coalesce(' of ' || s.path, '') || ' has no text'
FROM task_queue_chunk c LEFT JOIN catalog_content t ON t.id = c.content_id AND t.text_key = c.text_key
LEFT JOIN documents d ON d.id = c.document_id LEFT JOIN sources s ON s.key = d.source_key
WHERE t.id IS NULL

-- name: audit_orphan_texts
SELECT 'text ' || t.id || ' belongs to no chunk'
FROM catalog_content t WHERE NOT EXISTS (
    SELECT 1 FROM sources s, documents d, task_queue_chunk c
    WHERE s.family_key = t.family_key AND d.source_key = s.key AND c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id)

-- name: audit_orphan_vectors
SELECT 'vector ' || v.content_id || ' belongs to no text'
FROM catalog_vector v LEFT JOIN catalog_content t ON t.id = v.content_id WHERE t.id IS NULL

-- name: audit_vectors
SELECT 'vector ' || v.content_id || ' has ' || length(v.vector) || ' bytes'
FROM catalog_vector v LEFT JOIN catalog_space x ON x.id = v.space_id
WHERE x.id IS NULL OR length(v.vector) <> 4 * x.dimension

-- name: audit_keyword_rows
SELECT 'keyword entry ' || k.content_id || ' belongs to no text'
FROM catalog_keyword k LEFT JOIN catalog_content t ON t.id = k.content_id WHERE t.id IS NULL
UNION ALL
SELECT 'text ' || t.id || coalesce(' of ' || (SELECT min(s.path) FROM sources s WHERE s.family_key = t.family_key), '')
    || ' has no keyword entry'
FROM catalog_content t LEFT JOIN catalog_keyword k ON k.content_id = t.id
WHERE k.content_id IS NULL

-- A space in an outside store has no vectors here, and no known dimension.
-- name: audit_missing_vectors
SELECT 'chunk ' || c.key || ' of ' || s.path || ' has no vector'
FROM sources s JOIN documents d ON d.source_key = s.key AND d.key IN (s.published_id, s.building_id)
JOIN catalog_space x ON x.id = d.space_id AND x.dimension IS NOT NULL
JOIN task_queue_chunk c ON c.document_id = d.id AND c.vector_status = 'completed'
LEFT JOIN catalog_vector v ON v.content_id = c.content_id AND v.space_id = d.space_id WHERE v.content_id IS NULL

-- name: audit_unfinished
SELECT 'generation ' || d.key || ' is published with tasks of ocr or vector that never ran'
FROM documents d JOIN sources s ON s.published_id = d.key
WHERE d.failed_count = 0 AND s.partial AND d.ocr_waiting + d.ocr_processing + d.vector_waiting
      + d.vector_processing = 0

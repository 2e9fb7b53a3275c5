-- name: audit_live_documents
SELECT 'generation ' || d.id || ' is neither seen, being built nor in the outbox'
FROM documents d JOIN sources s ON s.key = d.source_key
WHERE s.published_id IS NOT d.id AND s.building_id IS NOT d.id
  AND NOT EXISTS (SELECT 1 FROM catalog_outbox o WHERE o.kind = 'leftover' AND o.document_id = d.id)

-- name: audit_orphan_pages
SELECT 'page ' || p.id || ' belongs to no generation'
FROM task_queue_page p LEFT JOIN documents d ON d.id = p.document_id WHERE d.id IS NULL

-- name: audit_chunk_texts
SELECT 'chunk ' || c.id || coalesce((
    SELECT ' of ' || s.path FROM documents d JOIN sources s ON s.key = d.source_key WHERE d.id = c.document_id), '')
    || ' has no text'
FROM task_queue_chunk c LEFT JOIN catalog_content t ON t.id = c.content_id AND t.text_key = c.text_key
WHERE t.id IS NULL

-- name: audit_orphan_texts
SELECT 'text ' || t.id || ' belongs to no chunk'
FROM catalog_content t WHERE NOT EXISTS (
    SELECT 1 FROM sources s INDEXED BY idx_sources_family CROSS JOIN documents d ON d.source_key = s.key
    CROSS JOIN task_queue_chunk c INDEXED BY idx_tqc_document
    ON c.document_id = d.id AND c.text_key = t.text_key AND c.content_id = t.id
    WHERE s.family_key = t.family_key)

-- name: audit_orphan_vectors
SELECT 'vector ' || v.id || ' belongs to no text'
FROM catalog_vector v LEFT JOIN catalog_content t ON t.id = v.id / 256 WHERE t.id IS NULL

-- name: audit_vectors
SELECT 'vector ' || v.id || ' has ' || length(v.vector) || ' bytes'
FROM catalog_vector v LEFT JOIN catalog_space x ON x.id = v.id % 256
WHERE x.id IS NULL OR length(v.vector) <> 4 * x.dimension

-- name: audit_keyword_rows
SELECT 'keyword entry ' || k.id || ' belongs to no text'
FROM catalog_keyword_docsize k LEFT JOIN catalog_content t ON t.id = k.id WHERE t.id IS NULL
UNION ALL
SELECT 'text ' || t.id || coalesce(' of ' || (SELECT min(s.path) FROM sources s WHERE s.family_key = t.family_key), '')
    || ' has no keyword entry'
FROM catalog_content t LEFT JOIN catalog_keyword_docsize k ON k.id = t.id
WHERE k.id IS NULL

-- A space in an outside store has no vectors here, and no known dimension.
-- name: audit_missing_vectors
SELECT 'chunk ' || c.id || ' of ' || s.path || ' has no vector'
FROM sources s JOIN documents d ON d.id = s.published_id OR d.id = s.building_id
JOIN catalog_space x ON x.id = d.space_id AND x.dimension IS NOT NULL
JOIN task_queue_chunk c INDEXED BY idx_tqc_document ON c.document_id = d.id AND c.vector_status = 'completed'
LEFT JOIN catalog_vector v ON v.id = c.content_id * 256 + d.space_id WHERE v.id IS NULL

-- name: audit_unfinished
SELECT 'generation ' || d.id || ' is published with tasks of ocr or vector that never ran'
FROM documents d JOIN sources s ON s.published_id = d.id
WHERE d.failed_count = 0 AND s.partial = 1 AND d.ocr_waiting + d.ocr_processing + d.vector_waiting
      + d.vector_processing = 0

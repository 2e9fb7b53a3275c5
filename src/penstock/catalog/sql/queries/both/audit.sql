-- One line of text for each broken invariant. These read whole tables, so every join must allow hashing: an equality in
-- the FROM clause or at the top of a WHERE, never a subquery for each row.
-- name: audit_published
SELECT 'source ' || s.id || ' points to generation ' || s.published_id || ', which is not published'
FROM sources s LEFT JOIN documents d ON d.{id} = s.published_id AND d.source_key = s.key AND d.state = 'published'
WHERE s.published_id IS NOT NULL AND d.{id} IS NULL

-- name: audit_building
SELECT 'source ' || s.id || ' points to generation ' || s.building_id || ', which is not being built'
FROM sources s LEFT JOIN documents d ON d.{id} = s.building_id AND d.source_key = s.key AND d.state = 'building'
WHERE s.building_id IS NOT NULL AND d.{id} IS NULL

-- name: audit_idle_sources
SELECT 'source ' || s.id || ' has no generation'
FROM sources s WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.source_key = s.key)

-- name: audit_orphan_chunks
SELECT 'chunk ' || c.{id} || ' belongs to no page of its generation'
FROM task_queue_chunk c LEFT JOIN task_queue_page p ON p.id = c.page_id AND p.document_id = c.document_id
WHERE p.id IS NULL

-- name: audit_unwritten
SELECT 'generation ' || d.{id} || ' is published before all of it was written'
FROM documents d WHERE d.unwritten > 0 AND d.state = 'published'

-- name: audit_page_texts
SELECT 'page ' || p.{id} || ' has a text, but was not read'
FROM catalog_page_text x JOIN task_queue_page p ON p.{id} = x.{page_key} WHERE p.ocr_status <> 'completed'

-- name: audit_gates
SELECT 'chunk ' || c.{id} || ' is in vector while its page is in ocr'
FROM task_queue_chunk c JOIN task_queue_page p ON p.id = c.page_id WHERE p.ocr_status <> 'completed'
UNION ALL
[[later phase UNION ALL| SELECT 'chunk ' || {id} || ' is in {phase} before {after}'
FROM task_queue_chunk
WHERE {after}_status <> 'completed' AND ({phase}_status = 'processing' OR {phase}_status = 'failed')]]

-- name: audit_twins
SELECT 'chunk id ' || chunk_id || ' stands twice in generation ' || document_id
FROM task_queue_chunk GROUP BY document_id, chunk_id HAVING count(*) > 1

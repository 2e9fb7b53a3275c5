-- name: next_rows
SELECT nextval('catalog_row') FROM generate_series(1, $1)

-- name: tombstones
SELECT tenant_id, collection, branch, path, source_id, asked_at FROM catalog_tombstone
WHERE tenant_id = $1 AND collection IN ('', $2) AND branch IN ('', $3) AND path = ANY(texts($4))
  AND (source_id = '' OR source_id = ANY(texts($5))) AND asked_at >= $6

-- One statement reads and locks: a source added between a lock and a read would be seen but not locked.
-- name: sources_at
SELECT {SourceRow; source_id = id} FROM sources
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = ANY(texts($4))
ORDER BY key FOR NO KEY UPDATE

-- Change numbers are drawn here, as late as possible: until the commit no other transaction gets one. The parameter
-- counts from 0 in the transaction.
-- name: add_source (NewSource, PublishedSource)
WITH new AS MATERIALIZED (SELECT * FROM rows()),
drawn AS (
    UPDATE catalog_sequence SET value = value + 1 + (SELECT max(change_seq) FROM new) WHERE name = 'change'
    RETURNING value - (SELECT max(change_seq) FROM new) AS first)
INSERT INTO sources ({NewSource}, {PublishedSource})
SELECT {NewSource}, {PublishedSource; change_seq = first + change_seq} FROM new, drawn

-- name: publish (PublishedSource, key bigint)
WITH new AS MATERIALIZED (SELECT * FROM rows()),
drawn AS (
    UPDATE catalog_sequence SET value = value + 1 + (SELECT max(change_seq) FROM new) WHERE name = 'change'
    RETURNING value - (SELECT max(change_seq) FROM new) AS first)
UPDATE sources s SET {PublishedSource set; change_seq}, change_seq = first + v.change_seq, building_id = NULL
FROM new AS v, drawn WHERE s.key = v.key

-- A row complete when written has a third of the columns; the others are constants.
-- name: add_whole_document (OwnDocument, WholeDocument)
INSERT INTO documents (
    {OwnDocument; document_id = key}, {WholeDocument; at = updated_at}, ocr_completed, vector_chunks,
    ocr_completed_at, vector_completed_at, published_at, created_at,
    state, ocr_status, vector_index_status, [[later phase,| {document_status}]])
SELECT {OwnDocument}, {WholeDocument}, page_count, chunk_count, at, at, at, at,
       'published', 'completed', 'completed', [[later phase,| 'skipped']]
FROM rows()

-- name: add_document (OwnDocument, UnfinishedDocument, SharedDocument)
INSERT INTO documents ({OwnDocument; document_id = key}, {UnfinishedDocument}, {SharedDocument}) SELECT * FROM rows()

-- name: add_whole_page (OwnPage, WholePage)
INSERT INTO task_queue_page (
    {OwnPage; page_id = key}, {WholePage; at = updated_at}, vector_completed,
    ocr_completed_at, vector_completed_at, created_at, ocr_status, vector_status,
    [[later phase,| {phase}_status]])
SELECT {OwnPage; document_id = (SELECT d.id FROM documents d WHERE d.key = v.document_id)}, {WholePage}, chunk_count,
       at, at, at, 'completed', 'completed', [[later phase,| 'skipped']]
FROM rows()

-- name: add_page (OwnPage, SharedPage)
INSERT INTO task_queue_page ({OwnPage; page_id = key}, {SharedPage})
SELECT {OwnPage; document_id = (SELECT d.id FROM documents d WHERE d.key = v.document_id)}, {SharedPage} FROM rows()

-- name: add_page_text (PageText)
INSERT INTO catalog_page_text ({PageText; page_id = page_key}) SELECT {PageText} FROM rows()
ON CONFLICT (page_key) DO UPDATE
SET text = excluded.text, engine = excluded.engine, confidence = excluded.confidence, warnings = excluded.warnings

-- name: known_chunks
SELECT c.chunk_id, c.content_id, d.key, c.entities_extracted, c.relationships_extracted,
       c.chunk_content_hash, c.vector_status, [[later phase,| c.{phase}_status]]
FROM documents d JOIN task_queue_chunk c ON c.document_id = d.id
WHERE d.key = ANY(numbers($1)) AND c.text_key = ANY(numbers($2))

-- name: own_texts
SELECT c.text_key, count(*)
FROM documents d JOIN task_queue_chunk c ON c.document_id = d.id
WHERE d.key = $1 AND c.text_key = ANY(numbers($2)) GROUP BY c.text_key

-- name: add_content
INSERT INTO catalog_content (id, family_key, text_key, text)
SELECT * FROM rows(id bigint, family_key bigint, text_key bigint, text text)

-- name: add_keyword
INSERT INTO catalog_keyword (content_id, words, size)
SELECT v.id, to_tsvector('catalog_english', v.text), v.size FROM rows(id bigint, text text, size integer)

-- Consecutive rows mostly have the same page and document.
-- name: add_whole_chunk (NewChunkRow, ChunkText, ChunkDocument)
WITH new AS MATERIALIZED (SELECT * FROM rows())
INSERT INTO task_queue_chunk (
    {NewChunkRow; chunk_key = key}, {ChunkText}, {ChunkDocument; at = updated_at}, vector_completed_at, created_at, vector_status,
    [[later phase,| {phase}_status]])
SELECT {NewChunkRow; page_id = (SELECT p.id FROM task_queue_page p WHERE p.key = new.page_id)},
       {ChunkText}, {ChunkDocument; document_id = (SELECT d.id FROM documents d WHERE d.key = new.document_id)},
       at, at, 'completed', [[later phase,| 'skipped']]
FROM new

-- name: add_chunk (NewChunkRow, ChunkText, ChunkDocument, ChunkTasks, turn int)
WITH new AS MATERIALIZED (SELECT * FROM rows())
INSERT INTO task_queue_chunk ({NewChunkRow; chunk_key = key}, {ChunkText}, {ChunkDocument; at = updated_at}, {ChunkTasks}, turn, created_at)
SELECT {NewChunkRow; page_id = (SELECT p.id FROM task_queue_page p WHERE p.key = new.page_id)},
       {ChunkText}, {ChunkDocument; document_id = (SELECT d.id FROM documents d WHERE d.key = new.document_id)},
       {ChunkTasks}, turn, at
FROM new

-- name: put_vector
INSERT INTO catalog_vector (content_id, space_id, vector)
SELECT * FROM rows(content_id bigint, space_id smallint, vector bytea)
ON CONFLICT (content_id, space_id) DO UPDATE SET vector = excluded.vector

-- In one order, so that two transactions with the same texts do not deadlock.
-- name: remember
INSERT INTO catalog_vector_cache (tenant_id, space_id, text_hash, used_at, vector)
SELECT * FROM rows(tenant_id text, space_id smallint, text_hash text, used_at timestamptz, vector bytea)
ORDER BY text_hash
ON CONFLICT (tenant_id, space_id, text_hash) DO UPDATE SET used_at = excluded.used_at

-- name: add_leftover
INSERT INTO catalog_outbox (id, kind, document_key, source_key, created_at) VALUES ($1, 'leftover', $2, $3, $4)
ON CONFLICT (source_key, document_key) WHERE kind = 'leftover' DO NOTHING

-- name: unnote
DELETE FROM catalog_ledger l USING rows(tenant_id text, collection text, branch text, path text)
WHERE l.tenant_id = v.tenant_id AND l.collection = v.collection AND l.branch = v.branch AND l.path = v.path

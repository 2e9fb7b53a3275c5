-- name: next_rows
SELECT nextval('catalog_row') FROM generate_series(1, $1)

-- name: space
SELECT id, dimension FROM catalog_space WHERE name = $1

-- name: free_space
SELECT coalesce(min(a.id) + 1, 1) FROM (SELECT 0 AS id UNION ALL SELECT id FROM catalog_space) a
WHERE NOT EXISTS (SELECT 1 FROM catalog_space b WHERE b.id = a.id + 1)

-- name: add_space
INSERT INTO catalog_space (id, name, dimension) VALUES ($1, $2, $3)

-- name: set_dimension
UPDATE catalog_space SET dimension = $1 WHERE id = $2

-- name: any_tombstone
SELECT 1 FROM catalog_tombstone WHERE tenant_id = $1 AND asked_at >= $2 LIMIT 1

-- name: tombstones
SELECT tenant_id, collection, branch, path, source_id, asked_at FROM catalog_tombstone
WHERE tenant_id = $1 AND collection IN ('', $2) AND branch IN ('', $3) AND path = ANY(texts($4))
  AND (source_id = '' OR source_id = ANY(texts($5))) AND asked_at >= $6

-- name: source_at
SELECT key, id, published_id, building_id, read_at FROM sources
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = $4

-- Locked by the look itself: one that is added between a lock and a look would be seen and not be held.
-- name: sources_at
SELECT path, key, id, published_id, building_id, read_at FROM sources
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = ANY(texts($4))
ORDER BY key FOR NO KEY UPDATE

-- The numbers of changes are drawn here, as late as can be: from then to the commit nobody else gets any. What is
-- given is counted from 0 in the transaction.
-- name: add_source
WITH new AS MATERIALIZED (SELECT * FROM rows(
    key bigint, id text, tenant_id text, collection text, branch text, path text, created_at timestamptz,
    published_id bigint, space_id smallint, partial boolean, size bigint, mtime_ns bigint, page_count int,
    chunk_count int, content_hash text, ocr_fingerprint text, vector_fingerprint text, graphrag_fingerprint text,
    asked_at timestamptz, read_at timestamptz, published_at timestamptz, change bigint, updated_at timestamptz,
    file_type text, title text, tags text, metadata text)),
drawn AS (
    UPDATE catalog_sequence SET value = value + 1 + (SELECT max(change) FROM new) WHERE name = 'change'
    RETURNING value - (SELECT max(change) FROM new) AS first)
INSERT INTO sources (
    key, id, tenant_id, collection, branch, path, created_at,
    published_id, space_id, partial, size, mtime_ns, page_count, chunk_count, content_hash,
    ocr_fingerprint, vector_fingerprint, graphrag_fingerprint, asked_at, read_at, published_at,
    change_seq, updated_at, file_type, title, tags, metadata)
SELECT key, id, tenant_id, collection, branch, path, created_at,
       published_id, space_id, partial, size, mtime_ns, page_count, chunk_count, content_hash,
       ocr_fingerprint, vector_fingerprint, graphrag_fingerprint, asked_at, read_at, published_at,
       first + change, updated_at, file_type, title, tags, metadata
FROM new, drawn

-- name: add_bare_source
INSERT INTO sources (key, id, tenant_id, collection, branch, path, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7)

-- name: publish
WITH new AS MATERIALIZED (SELECT * FROM rows(
    published_id bigint, space_id smallint, partial boolean, size bigint, mtime_ns bigint, page_count int,
    chunk_count int, content_hash text, ocr_fingerprint text, vector_fingerprint text, graphrag_fingerprint text,
    asked_at timestamptz, read_at timestamptz, published_at timestamptz, change bigint, updated_at timestamptz,
    file_type text, title text, tags text, metadata text, key bigint)),
drawn AS (
    UPDATE catalog_sequence SET value = value + 1 + (SELECT max(change) FROM new) WHERE name = 'change'
    RETURNING value - (SELECT max(change) FROM new) AS first)
UPDATE sources s
SET published_id = new.published_id, space_id = new.space_id, partial = new.partial, size = new.size,
    mtime_ns = new.mtime_ns, page_count = new.page_count, chunk_count = new.chunk_count,
    content_hash = new.content_hash, ocr_fingerprint = new.ocr_fingerprint,
    vector_fingerprint = new.vector_fingerprint, graphrag_fingerprint = new.graphrag_fingerprint,
    asked_at = new.asked_at, read_at = new.read_at, published_at = new.published_at,
    change_seq = first + change, updated_at = new.updated_at, file_type = new.file_type, title = new.title,
    tags = new.tags, metadata = new.metadata, building_id = NULL
FROM new, drawn WHERE s.key = new.key

-- name: set_building
UPDATE sources SET building_id = $1, updated_at = $2 WHERE key = $3

-- What is whole from birth brings a third of the columns: the others say that it is.
-- name: add_whole_document
INSERT INTO documents (
    key, source_key, filename, content_hash, job_id, asked_at, read_at, page_count, ocr_completed, vector_completed,
    chunk_count, vector_chunks, graphrag_error, space_id, priority, max_retries,
    ocr_fingerprint, vector_fingerprint, graphrag_fingerprint,
    ocr_completed_at, vector_completed_at, published_at, created_at, updated_at,
    state, ocr_status, vector_index_status, graphrag_index_status)
SELECT key, source_key, filename, content_hash, job_id, asked_at, read_at, page_count, page_count, vector_completed,
       chunk_count, chunk_count, graphrag_error, space_id, priority, max_retries,
       ocr_fingerprint, vector_fingerprint, graphrag_fingerprint, at, at, at, at, at,
       'published', 'completed', 'completed', 'skipped'
FROM rows(
    key bigint, source_key bigint, filename text, content_hash text, job_id text, asked_at timestamptz,
    read_at timestamptz, page_count int, vector_completed int, chunk_count int, graphrag_error text,
    space_id smallint, priority int, max_retries int, ocr_fingerprint text, vector_fingerprint text,
    graphrag_fingerprint text, at timestamptz)

-- name: add_document
INSERT INTO documents (
    key, source_key, filename, content_hash, job_id, asked_at, read_at, source_json,
    state, ocr_status, vector_index_status, graphrag_index_status,
    ocr_processing, ocr_waiting, ocr_failed, ocr_completed,
    vector_processing, vector_waiting, vector_failed, vector_completed,
    graphrag_processing, graphrag_waiting, graphrag_failed, graphrag_completed,
    ocr_completed_at, vector_completed_at, ocr_error, vector_error, graphrag_error,
    page_count, chunk_count, vector_chunks, graphrag_chunks, failed_count, outage_count,
    space_id, graph, gate, priority, max_retries, turn, given,
    ocr_fingerprint, vector_fingerprint, graphrag_fingerprint,
    published_at, created_at, updated_at, note)
SELECT * FROM rows(
    key bigint, source_key bigint, filename text, content_hash text, job_id text, asked_at timestamptz,
    read_at timestamptz, source_json text, state text, ocr_status task_status,
    vector_index_status task_status, graphrag_index_status task_status,
    ocr_processing int, ocr_waiting int, ocr_failed int, ocr_completed int,
    vector_processing int, vector_waiting int, vector_failed int, vector_completed int,
    graphrag_processing int, graphrag_waiting int, graphrag_failed int, graphrag_completed int,
    ocr_completed_at timestamptz, vector_completed_at timestamptz, ocr_error text, vector_error text,
    graphrag_error text, page_count int, chunk_count int, vector_chunks int, graphrag_chunks int,
    failed_count int, outage_count int, space_id smallint, graph boolean, gate text, priority int, max_retries int,
    turn int, given int, ocr_fingerprint text, vector_fingerprint text, graphrag_fingerprint text,
    published_at timestamptz, created_at timestamptz, updated_at timestamptz, note text)

-- name: add_whole_page
INSERT INTO task_queue_page (
    key, document_id, page_number, page_file_path, chunk_count, vector_completed, graphrag_error, max_retries,
    priority, ocr_completed_at, vector_completed_at, created_at, updated_at,
    ocr_status, vector_status, graphrag_status)
SELECT key, (SELECT d.id FROM documents d WHERE d.key = v.document_key), page_number, page_file_path,
       chunk_count, chunk_count, graphrag_error, max_retries, priority, at, at, at, at,
       'completed', 'completed', 'skipped'
FROM rows(
    key bigint, document_key bigint, page_number int, page_file_path text, chunk_count int, graphrag_error text,
    max_retries int, priority int, at timestamptz)

-- name: add_page
INSERT INTO task_queue_page (
    key, document_id, page_number, page_file_path, chunk_count, turn,
    ocr_status, ocr_completed_at, ocr_error, ocr_retry_count,
    vector_status, vector_completed_at, vector_error, graphrag_status, graphrag_error,
    vector_processing, vector_waiting, vector_failed, vector_completed,
    graphrag_processing, graphrag_waiting, graphrag_failed, graphrag_completed,
    max_retries, priority, created_at, updated_at)
SELECT key, (SELECT d.id FROM documents d WHERE d.key = v.document_key), page_number, page_file_path,
       chunk_count, turn, ocr_status, ocr_completed_at, ocr_error, ocr_retry_count,
       vector_status, vector_completed_at, vector_error, graphrag_status, graphrag_error,
       vector_processing, vector_waiting, vector_failed, vector_completed,
       graphrag_processing, graphrag_waiting, graphrag_failed, graphrag_completed,
       max_retries, priority, created_at, updated_at
FROM rows(
    key bigint, document_key bigint, page_number int, page_file_path text, chunk_count int, turn int,
    ocr_status task_status, ocr_completed_at timestamptz, ocr_error text, ocr_retry_count int,
    vector_status task_status, vector_completed_at timestamptz, vector_error text, graphrag_status task_status,
    graphrag_error text, vector_processing int, vector_waiting int, vector_failed int, vector_completed int,
    graphrag_processing int, graphrag_waiting int, graphrag_failed int, graphrag_completed int,
    max_retries int, priority int, created_at timestamptz, updated_at timestamptz)

-- name: add_page_text
INSERT INTO catalog_page_text (page_key, text) SELECT * FROM rows(page_key bigint, text text)
ON CONFLICT (page_key) DO UPDATE SET text = excluded.text

-- name: known_chunks
SELECT c.chunk_id, c.content_id, d.key, c.vector_status, c.graphrag_status,
       c.entities_extracted, c.relationships_extracted, c.chunk_content_hash
FROM documents d JOIN task_queue_chunk c ON c.document_id = d.id
WHERE d.key = ANY(numbers($1)) AND c.text_key = ANY(numbers($2))

-- name: known_documents
SELECT key, space_id, graphrag_fingerprint FROM documents WHERE key = ANY(numbers($1))

-- name: add_content
INSERT INTO catalog_content (id, source_key, text_key, text)
SELECT * FROM rows(id bigint, source_key bigint, text_key bigint, text text)

-- name: add_keyword
INSERT INTO catalog_keyword (content_id, words)
SELECT v.id, to_tsvector('catalog_english', v.text) FROM rows(id bigint, text text)

-- Page and document are mostly the same for many in a row; looked up once each.
-- name: add_whole_chunk
WITH new AS MATERIALIZED (SELECT * FROM rows(
    key bigint, page_key bigint, document_key bigint, content_id bigint, text_key bigint, chunk_id text,
    chunk_index int, chunk_content_hash text, max_retries int, priority int, start_char int, end_char int,
    first_line int, last_line int, heading_path text, symbols text, at timestamptz))
INSERT INTO task_queue_chunk (
    key, page_id, document_id, content_id, text_key, chunk_id, chunk_index, chunk_content_hash, max_retries,
    priority, start_char, end_char, first_line, last_line, heading_path, symbols,
    vector_completed_at, created_at, updated_at, vector_status, graphrag_status)
SELECT key, (SELECT p.id FROM task_queue_page p WHERE p.key = new.page_key),
       (SELECT d.id FROM documents d WHERE d.key = new.document_key), content_id, text_key, chunk_id, chunk_index,
       chunk_content_hash, max_retries, priority, start_char, end_char, first_line, last_line, heading_path, symbols,
       at, at, at, 'completed', 'skipped'
FROM new

-- name: add_chunk
WITH new AS MATERIALIZED (SELECT * FROM rows(
    key bigint, page_key bigint, document_key bigint, content_id bigint, text_key bigint, chunk_id text,
    chunk_index int, chunk_content_hash text, max_retries int, priority int, start_char int, end_char int,
    first_line int, last_line int, heading_path text, symbols text, at timestamptz, vector_status task_status,
    vector_completed_at timestamptz, vector_held text, graphrag_status task_status,
    graphrag_completed_at timestamptz, graphrag_held text, entities_extracted int, relationships_extracted int,
    turn int))
INSERT INTO task_queue_chunk (
    key, page_id, document_id, content_id, text_key, chunk_id, chunk_index, chunk_content_hash, max_retries,
    priority, start_char, end_char, first_line, last_line, heading_path, symbols, created_at, updated_at,
    vector_status, vector_completed_at, vector_held, graphrag_status, graphrag_completed_at, graphrag_held,
    entities_extracted, relationships_extracted, turn)
SELECT key, (SELECT p.id FROM task_queue_page p WHERE p.key = new.page_key),
       (SELECT d.id FROM documents d WHERE d.key = new.document_key), content_id, text_key, chunk_id, chunk_index,
       chunk_content_hash, max_retries, priority, start_char, end_char, first_line, last_line, heading_path, symbols,
       at, at, vector_status, vector_completed_at, vector_held, graphrag_status, graphrag_completed_at, graphrag_held,
       entities_extracted, relationships_extracted, turn
FROM new

-- name: put_vector
INSERT INTO catalog_vector (content_id, space_id, vector)
SELECT * FROM rows(content_id bigint, space_id smallint, vector bytea)
ON CONFLICT (content_id, space_id) DO UPDATE SET vector = excluded.vector

-- name: cached_vectors
SELECT text_hash, vector FROM catalog_vector_cache
WHERE tenant_id = $1 AND space_id = $2 AND text_hash = ANY(texts($3))

-- In one order, so that two who remember the same do not wait for each other.
-- name: remember
INSERT INTO catalog_vector_cache (tenant_id, space_id, text_hash, used_at, vector)
SELECT * FROM rows(tenant_id text, space_id smallint, text_hash text, used_at timestamptz, vector bytea)
ORDER BY text_hash
ON CONFLICT (tenant_id, space_id, text_hash) DO UPDATE SET used_at = excluded.used_at

-- name: any_leftover
SELECT 1 FROM catalog_outbox WHERE kind = 'leftover' AND source_key = $1 LIMIT 1

-- name: other_leftover
SELECT 1 FROM catalog_outbox WHERE kind = 'leftover' AND source_key = $1 AND id <> $2 LIMIT 1

-- name: add_leftover
INSERT INTO catalog_outbox (id, kind, document_key, source_key, created_at) VALUES ($1, 'leftover', $2, $3, $4)
ON CONFLICT (source_key, document_key) WHERE kind = 'leftover' DO NOTHING

-- name: add_job_entry
INSERT INTO catalog_outbox (id, kind, document_key, source_key, job_id, created_at)
VALUES ($1, 'job', $2, $3, $4, $5)

-- name: any_ledger
SELECT 1 FROM catalog_ledger LIMIT 1

-- name: unnote
DELETE FROM catalog_ledger l USING rows(tenant_id text, collection text, branch text, path text)
WHERE l.tenant_id = v.tenant_id AND l.collection = v.collection AND l.branch = v.branch AND l.path = v.path

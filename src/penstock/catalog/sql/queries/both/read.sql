-- Failures are looked up only for the few sources that can have one.
-- name: known
SELECT {KnownSource s.; source_id = s.id;
        failed_size = CASE WHEN s.building_id IS NULL THEN s.size
                      ELSE (SELECT f.size FROM documents f WHERE f.{id} = s.building_id) END;
        failed_mtime_ns = CASE WHEN s.building_id IS NULL THEN s.mtime_ns
                          ELSE (SELECT f.mtime_ns FROM documents f WHERE f.{id} = s.building_id) END;
        failed_with = CASE WHEN s.building_id IS NOT NULL OR s.partial THEN (
            SELECT f.read_with FROM documents f WHERE f.{id} = {failed_id} AND {failed_for_good}) END}
FROM sources s INDEXED BY idx_sources_path
WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3 AND s.path > $4 AND s.path >= $5 AND s.path < $6
ORDER BY s.path LIMIT $7

-- name: published_since
SELECT count(1), coalesce(sum(chunk_count), 0)
FROM sources INDEXED BY idx_sources_path
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path >= $4 AND path < $5
  AND published_id IS NOT NULL AND published_at >= $6

-- name: known_count
SELECT count(*)
FROM (SELECT 1 FROM sources INDEXED BY idx_sources_path
      WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path >= $4 AND path < $5 LIMIT $6) AS s

-- name: published_below_dots
SELECT path, chunk_count
FROM sources INDEXED BY idx_sources_path
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path >= $4 AND path < $5
  AND published_id IS NOT NULL AND published_at >= $6 AND substr(path, $7) LIKE '%.%/%'
ORDER BY path

-- name: recognized
SELECT count(1), avg(x.confidence), coalesce(sum(CASE WHEN x.confidence < $8 THEN 1 ELSE 0 END), 0)
FROM sources s JOIN documents d ON d.{id} = s.published_id
JOIN task_queue_page p ON p.document_id = d.id JOIN catalog_page_text x ON x.{page_key} = p.{id}
WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3
  AND (s.path = $4 OR (s.path >= $5 AND s.path < $6)) AND s.published_at >= $7 AND x.engine <> ''

-- name: page_warnings
SELECT p.page_number, x.warnings FROM task_queue_page p JOIN catalog_page_text x ON x.{page_key} = p.{id}
WHERE p.document_id = (SELECT d.id FROM documents d WHERE d.{id} = $1) AND x.warnings <> '[]' ORDER BY p.page_number LIMIT $2

-- name: find_where
WHERE s.tenant_id = $1 AND s.collection = $2 AND s.branch = $3 AND s.path = $4

-- name: get_where
WHERE s.id = $1

-- Of a document by its number, which is its id in SQLite.
-- name: of_document_where
WHERE s.key = (SELECT source_key FROM documents WHERE {id} = $1)

-- name: filtered
s.published_id IS NOT NULL AND {filters}

-- name: sources_where
WHERE {filtered} AND s.id > $12 ORDER BY s.id LIMIT $13

-- name: newest_sources_where
WHERE {filtered} AND ($12 = '' OR s.id < $12) ORDER BY s.id DESC LIMIT $13

-- name: sources_or_failures_where
WHERE {filters} AND s.id > $12 AND (s.published_id IS NOT NULL OR s.building_id IS NOT NULL AND EXISTS (
    SELECT 1 FROM documents f WHERE f.{id} = s.building_id AND {failed_for_good}))
ORDER BY s.id LIMIT $13

-- name: matching
SELECT s.family_key FROM sources s INDEXED BY idx_sources_change WHERE {filtered}

-- name: source_count
SELECT count(*) FROM sources s INDEXED BY idx_sources_change WHERE s.tenant_id = $1

-- name: document_where
WHERE d.{id} = $1

-- name: generations_where
WHERE s.id = $1 ORDER BY d.{id} DESC

-- name: page_statuses
SELECT p.page_number, [[phase,| p.{phase}_status]]
FROM documents d JOIN task_queue_page p ON p.document_id = d.id WHERE d.{id} = $1 ORDER BY p.page_number

-- name: newest_where
WHERE d.{id} > $1 ORDER BY d.{id} DESC LIMIT $2

-- name: progress_columns
SELECT {Progress d.; document_id = d.{id}; total_pages = d.page_count; ocr_completed_pages = d.ocr_completed;
                 ocr_failed_pages = d.ocr_failed; total_chunks = d.chunk_count;
                 [[chunk phase;| {phase}_completed_chunks = d.{phase}_chunks]]}
FROM documents d

-- name: progress_where
WHERE d.{id} = $1

-- name: count_pending_ocr
SELECT count(*) FROM task_queue_page INDEXED BY idx_tqp_ocr_status WHERE ocr_status = 'pending'

-- name: count_pending_vector
SELECT (SELECT count(*) FROM task_queue_chunk INDEXED BY idx_tqc_vector_status
        WHERE vector_status = 'pending' AND vector_held IS NULL)
     + (SELECT count(*) FROM task_queue_chunk INDEXED BY idx_tqc_vector_held
        WHERE vector_held IS NOT NULL AND vector_status = 'pending')

-- name: ledger
SELECT {LedgerEntry} FROM catalog_ledger
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path > $4 AND path >= $5 AND path < $6
ORDER BY path LIMIT $7

-- name: failures
SELECT {LedgerEntry} FROM catalog_ledger INDEXED BY idx_ledger_failed
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path > $4 AND path >= $5 AND path < $6
  AND kind = 'failed'
ORDER BY path LIMIT $7

-- name: ledger_at
SELECT {LedgerEntry} FROM catalog_ledger
WHERE tenant_id = $1 AND collection = $2 AND branch = $3 AND path = $4

-- name: sequence
SELECT value FROM catalog_sequence WHERE name = $1

-- name: changed_sources
SELECT s.family_key, (SELECT count(o.published_id) FROM sources o WHERE o.family_key = s.family_key)
FROM sources s INDEXED BY idx_sources_change WHERE s.tenant_id = $1 AND s.change_seq > $2

-- name: gone_sources
SELECT g.family_key, (SELECT count(o.published_id) FROM sources o WHERE o.family_key = g.family_key)
FROM catalog_gone g WHERE g.change_seq > $2 AND g.tenant_id = $1

-- Counters of documents; the chunks themselves are not read.
-- name: statistics
SELECT coalesce(sum(page_count), 0), coalesce(sum(ocr_completed), 0), coalesce(sum(chunk_count), 0),
       [[chunk phase,| coalesce(sum({phase}_chunks), 0)]]
FROM documents

-- name: ready per chunk phase
WHERE d.{gate_status} = 'completed' AND d.{document_status} = 'pending' AND d.state <> 'dropped'
ORDER BY d.{id} LIMIT $1

-- name: any_source
SELECT 1 FROM sources LIMIT 1

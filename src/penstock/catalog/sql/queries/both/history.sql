-- name: trim_events
DELETE FROM catalog_history
WHERE source_id = (SELECT id FROM sources WHERE key = $1)
  AND id <= (SELECT h.id FROM catalog_history h INDEXED BY idx_catalog_history_source
             WHERE h.source_id = (SELECT id FROM sources WHERE key = $1) ORDER BY h.id DESC LIMIT 1 OFFSET $2)

-- name: events
SELECT {DocumentEvent} FROM catalog_history INDEXED BY idx_catalog_history_source
WHERE source_id = $1 AND tenant_id = $2 ORDER BY id

-- name: imported
SELECT row_id, outcome, job_id FROM catalog_import
WHERE kind = $1 AND source = $2 AND name = $3 AND row_id IN texts($4)

-- name: record_import (kind text, source text, name text, row_id text, outcome text, job_id text)
INSERT INTO catalog_import (kind, source, name, row_id, outcome, job_id)
SELECT $kind, $source, $name, $row_id, $outcome, $job_id FROM rows() WHERE true
ON CONFLICT (kind, source, name, row_id) DO UPDATE SET outcome = excluded.outcome, job_id = excluded.job_id
